//! Far messages in blocks: those that a rank stages in the host's memory and a wire takes one block after the other, so that
//! the next is copied while one is on its way (2023 paper on Intel GPUs, figure 2 and listing 1).
//!
//! To the wire each block is a message. Kernels pack the whole payload on the device; the stream then copies one block
//! after the other to the host and triggers each behind its copy. The receiver waits for the blocks in turn, and has
//! each copied to its device while the next is still to come. The device has one buffer for either side, as one stream
//! uses it.

use super::matching::{Plan, PlannedRecv, PlannedSend, Target};
use super::reach::Site;
use crate::communicator::Blocks;
use crate::device::{Move, MoveTable, Purpose};
use crate::error::Result;
use crate::fabric::{LINE, Place, Region, Role, Word};
use std::sync::Arc;

/// A send in blocks.
#[derive(Debug)]
pub(super) struct SendBlocks {
    /// Of the memory from which the wire takes them.
    pub(super) wire: Vec<Place>,
    /// Where kernels pack the payload, if that is elsewhere, and what copies each block from there.
    pub(super) staged: Option<(Place, Vec<Arc<MoveTable>>)>,
}

/// A receive in blocks.
#[derive(Debug)]
pub(super) struct RecvBlocks {
    /// By block: where the wire brings it, by buffer.
    pub(super) wire: Vec<[Place; 2]>,
    /// By block: what the wire sets once it is there, by buffer.
    pub(super) arrivals: Vec<[Word; 2]>,
    /// Where kernels unpack it, if that is elsewhere, and by block what copies it there, by buffer.
    pub(super) staged: Option<(Place, Vec<[Arc<MoveTable>; 2]>)>,
}

/// Those of an exchange, in the order of its messages.
#[derive(Debug)]
pub(super) struct InBlocks {
    pub(super) sends: Vec<Option<SendBlocks>>,
    pub(super) recvs: Vec<Option<RecvBlocks>>,
}

impl InBlocks {
    /// Memory, words and copies of what the ranks have agreed to cut. Does not communicate.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub(super) fn new(site: &Site<'_>, plan: &Plan, arrival: Role, last_epoch: u32) -> Result<Self> {
        let send = |send: &PlannedSend| match (&send.blocks, &send.target) {
            (Some(blocks), Target::Far(place, _)) => {
                let is_staged = send.way.is_staged();
                SendBlocks::new(site, (blocks, send.peer), place, is_staged).map(Some)
            }
            _ => Ok(None),
        };
        let recv = |recv: &PlannedRecv| match &recv.blocks {
            Some(blocks) => {
                let is_staged = site.reach.why_staged(recv.peer, site.world.rank()).is_some();
                RecvBlocks::new(site, blocks, recv, (arrival, last_epoch), is_staged).map(Some)
            }
            None => Ok(None),
        };
        Ok(Self {
            sends: plan.sends.iter().map(send).collect::<Result<_>>()?,
            recvs: plan.recvs.iter().map(recv).collect::<Result<_>>()?,
        })
    }

    /// How many messages of the wire there are to receive besides one for each.
    pub(super) fn more_arrivals(&self) -> usize {
        self.recvs.iter().flatten().map(|recv| recv.wire.len() - 1).sum()
    }

    /// The blocks of a send, as the wire takes them: one if it is not cut.
    pub(super) fn of_send(&self, message: usize) -> usize {
        self.sends[message].as_ref().map_or(1, |send| send.wire.len())
    }

    /// What the stream waits for and then copies to the device, in a phase in which a buffer is used: the first blocks of
    /// all messages, then the second ones; beside the word of each, that of its message's last block.
    pub(super) fn coming(&self, buffer: usize) -> Vec<([Word; 2], Arc<MoveTable>)> {
        let most = self.recvs.iter().flatten().map(|recv| recv.wire.len()).max().unwrap_or(0);
        let of_block = |block: usize| {
            self.recvs.iter().flatten().filter_map(move |recv| {
                let (_, up) = recv.staged.as_ref()?;
                let words = [recv.arrivals.get(block)?, recv.arrivals.last()?];
                Some((words.map(|word| word[buffer].clone()), up.get(block)?[buffer].clone()))
            })
        };
        (0..most).flat_map(of_block).collect()
    }
}

impl SendBlocks {
    fn new(
        site: &Site<'_>,
        (blocks, peer): (&Blocks, usize),
        place: &Place,
        is_staged: bool,
    ) -> Result<Self> {
        let wire = cut(blocks, place)?;
        let staged = is_staged.then(|| {
            let packed = on_device(site, blocks.bytes())?;
            let copies = cut(blocks, &packed)?.into_iter().zip(blocks.lengths()).zip(&wire);
            let copies = copies.map(|((from, bytes), to)| copy(from, to.clone(), bytes, Purpose::Pack(peer)));
            Ok((packed, copies.collect::<Result<_>>()?))
        });
        Ok(Self { wire, staged: staged.transpose()? })
    }
}

impl RecvBlocks {
    /// What the wire sets of a buffer, but for the last block.
    pub(super) fn but_last(&self, buffer: usize) -> impl Iterator<Item = Word> {
        let last = self.arrivals.len() - 1;
        self.arrivals[..last].iter().map(move |words| words[buffer].clone())
    }

    fn new(
        site: &Site<'_>,
        blocks: &Blocks,
        recv: &PlannedRecv,
        (arrival, last_epoch): (Role, u32),
        is_staged: bool,
    ) -> Result<Self> {
        let own = site.world.rank();
        let [first, second] = [cut(blocks, &recv.slots[0])?, cut(blocks, &recv.slots[1])?];
        let wire: Vec<[Place; 2]> =
            first.into_iter().zip(second).map(|(first, second)| [first, second]).collect();
        let words = site.world.fabric().allocate(2 * wire.len() * LINE)?;
        let word = |line: usize| -> Result<Word> {
            let word = words.word(line * LINE, arrival, recv.peer, own)?;
            word.cell().store(last_epoch);
            Ok(word)
        };
        // The words of the last block are those by which the message is known to have come.
        let last = wire.len() - 1;
        let both = |block: usize| match block == last {
            true => Ok(recv.arrivals.clone()),
            false => Ok([word(2 * block)?, word(2 * block + 1)?]),
        };
        let arrivals = (0..wire.len()).map(both).collect::<Result<_>>()?;
        let staged = is_staged.then(|| {
            let unpacked = on_device(site, blocks.bytes())?;
            let ups = cut(blocks, &unpacked)?.into_iter().zip(blocks.lengths()).zip(&wire);
            let ups = ups.map(|((to, bytes), [first, second])| {
                let up = |from: &Place| copy(from.clone(), to.clone(), bytes, Purpose::Unpack);
                Ok([up(first)?, up(second)?])
            });
            Ok((unpacked, ups.collect::<Result<_>>()?))
        });
        Ok(Self { wire, arrivals, staged: staged.transpose()? })
    }
}

/// Where the blocks of a message begin that lies at a place.
fn cut(blocks: &Blocks, place: &Place) -> Result<Vec<Place>> {
    let place = |block| {
        let range = blocks.range(block);
        place.advance(range.start, range.len(), "a block of a message")
    };
    (0..blocks.count()).map(place).collect()
}

fn on_device(site: &Site<'_>, bytes: usize) -> Result<Place> {
    let region: Region = site.stream.allocate_for_wire(site.world, bytes)?;
    region.place(0, bytes, "a message in blocks")
}

fn copy(source: Place, destination: Place, bytes: usize, purpose: Purpose) -> Result<Arc<MoveTable>> {
    let one = Move::of_bytes(source, destination, bytes);
    Ok(Arc::new(MoveTable::new(&[vec![one]])?.meant_for(purpose)))
}
