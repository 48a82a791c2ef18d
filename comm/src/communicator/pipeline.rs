//! Messages in blocks: those with an end on a device, which are staged in the host's memory.
//!
//! Algorithm 1 and listing 1 of the 2023 paper on Intel GPUs. A sender enqueues the copies of all blocks to the host as
//! it begins, and announces the message with its blocks; each goes on its way once it is on the host and the receiver
//! has said where to. A receiver enqueues the copy of a block to its device once the block has come. Nobody waits for
//! a copy: whoever makes progress on the engine looks whether it has passed.
//!
//! The blocks are the sender's if it is on a device, and else the receiver's. The announcement says the former, the
//! clear-to-send repeats them or says the latter, so that both know what comes, whatever the receiver has room for.
//! The order of messages is that of their announcements, as for any other.

use super::blocks::Blocks;
use super::engine::Core;
use super::ledger::{StagedAction, StepIndex};
use super::pool::Pool;
use super::record::{Post, Target};
use super::slots::State;
use super::staging::StagingMemory;
use crate::device::{Accelerator, Copies, CopyDirection, CopyMark};
use crate::error::{Error, Result};
use crate::fabric::Place;
use crate::source::{Source, Status};
use std::collections::VecDeque;
use std::sync::Arc;

/// A device of which messages come, or that they go to.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) copies: Copies,
    /// The last copies in its queues, down and up.
    last: [StepIndex; 2],
    /// Pinned memory that no other rank addresses, and such that those do whose memory is mapped.
    pinned: Pool,
    landing: Pool,
}

/// From which pool a message has its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Pageable,
    Pinned,
    Landing,
}

/// A message of a slot that is in blocks, or has its end on a device.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) blocks: Blocks,
    /// Where it is on which device; `None`: on the host.
    device: Option<(usize, Place)>,
    /// The pool of the slot's place, while it has one.
    home: Option<Home>,
    /// Copies that have begun, in order.
    copies: VecDeque<Copying>,
    /// Of a send, how many blocks are on the host, and how many have been handed on.
    ready: u32,
    gone: u32,
    /// Blocks that the fabric has still to move.
    left: u32,
    /// Where a send goes, once its receiver has said so.
    to: Option<To>,
    failed: Option<Error>,
    /// Its number in the ledger, and its copies down and transfers by block.
    message: u64,
    steps: Vec<StepIndex>,
}

#[derive(Debug)]
struct Copying {
    block: u32,
    mark: CopyMark,
    step: StepIndex,
}

/// Where the blocks of a send go.
#[derive(Debug, Clone, Copy)]
pub(super) enum To {
    /// To memory of that receive, which is mapped here.
    Mapped { receive: u32, target: Target },
    /// By bulk transfers with numbers from there on.
    Wire { first: u32 },
    /// To that receive of this rank.
    Own { receive: u32 },
    /// Nowhere: its receiver does not want it.
    Nowhere,
}

impl Pipeline {
    /// A message on a device.
    pub(super) fn on_device(device: usize, place: &Place) -> Self {
        Self { device: Some((device, place.clone())), ..Self::on_host(Blocks::whole(0)) }
    }

    /// A message on the host that the other side wants in blocks: all are there.
    pub(super) fn on_host(blocks: Blocks) -> Self {
        Self {
            blocks,
            device: None,
            home: None,
            copies: VecDeque::new(),
            ready: blocks.count(),
            gone: 0,
            left: blocks.count(),
            to: None,
            failed: None,
            message: 0,
            steps: Vec::new(),
        }
    }

    /// Whether the message is on a device.
    pub(super) fn is_staged(&self) -> bool {
        self.device.is_some()
    }

    /// Whether copies are under way.
    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Whether only copies of this rank are left to be done.
    pub(super) fn only_copies(&self) -> bool {
        self.left == 0 && self.has_copies()
    }

    /// What a sender announces: it has nothing to say of a message of no bytes, which is not staged.
    pub(super) fn announced(&self) -> Option<Blocks> {
        (self.home.is_some()).then_some(self.blocks)
    }

    fn begin(&mut self, blocks: Blocks, ready: u32, message: u64) {
        let steps = std::mem::take(&mut self.steps);
        let device = self.device.take();
        *self = Self { device, ready, message, steps, ..Self::on_host(blocks) };
        self.steps.clear();
        self.steps.resize(blocks.count() as usize, None);
    }
}

impl Core {
    /// The number of a device among those that messages are staged for.
    pub(super) fn staged_for(&mut self, accelerator: &Arc<dyn Accelerator>) -> Result<usize> {
        let is_same = |staged: &Staged| Arc::ptr_eq(staged.copies.accelerator(), accelerator);
        if let Some(known) = self.staged.iter().position(is_same) {
            return Ok(known);
        }
        let landing = match self.fabric.reaches_devices() {
            true => Pool::pinned_and_shared(accelerator, &self.fabric),
            false => Pool::of_fabric(&self.fabric),
        };
        self.staged.push(Staged {
            copies: Copies::open(accelerator)?,
            last: [None; 2],
            pinned: Pool::pinned(accelerator, self.rank),
            landing,
        });
        Ok(self.staged.len() - 1)
    }

    /// A send or a receive of a section on a device begins: what is sent goes to the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is none to stage it in, what the device says; nothing has begun then.
    pub(super) fn begin_staged(&mut self, index: u32) -> Result<()> {
        let slot = self.slots.at(index);
        let bytes = slot.bytes;
        if !slot.is_send {
            return Ok(());
        }
        if bytes == 0 {
            self.pipeline(index).begin(Blocks::whole(0), 1, 0);
            return Ok(());
        }
        let blocks = self.staging.cut(bytes);
        self.give_room(index, blocks, Home::Pinned, 0)?;
        for block in 0..blocks.count() {
            match self.begin_copy(index, CopyDirection::Down, block) {
                Err(error) if block == 0 => return Err(error),
                // Copies of earlier blocks are on their way: the message has begun, and its device has failed.
                Err(error) => {
                    self.failed.get_or_insert(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Memory of the host for the message of a slot, of which `ready` blocks are there.
    fn give_room(&mut self, index: u32, blocks: Blocks, pinned: Home, ready: u32) -> Result<()> {
        let home = match self.staging.memory {
            StagingMemory::Pageable => Home::Pageable,
            StagingMemory::Pinned => pinned,
        };
        let bytes = blocks.bytes();
        let pipeline = self.pipeline(index);
        let (device, _) = *pipeline.device.as_ref().expect("what is staged is on a device");
        let room = self.pool(device, home).take(bytes)?;
        let message = self.ledger.message();
        let pipeline = self.pipeline(index);
        pipeline.begin(blocks, ready, message);
        pipeline.home = Some(home);
        self.slots.at(index).place = room;
        Ok(())
    }

    pub(super) fn pool(&mut self, device: usize, home: Home) -> &mut Pool {
        match home {
            Home::Pageable => &mut self.pageable,
            Home::Pinned => &mut self.staged[device].pinned,
            Home::Landing => &mut self.staged[device].landing,
        }
    }

    fn pipeline(&mut self, index: u32) -> &mut Pipeline {
        self.slots.at(index).pipeline.as_mut().expect("the message is in blocks")
    }

    /// Puts the copy of a block on a queue of its device.
    fn begin_copy(&mut self, index: u32, direction: CopyDirection, block: u32) -> Result<()> {
        let slot = self.slots.at(index);
        let pipeline = slot.pipeline.as_mut().expect("the message is in blocks");
        let (device, memory) = pipeline.device.as_ref().expect("what is copied is on a device");
        let range = pipeline.blocks.range(block);
        let host = slot.place.advance(range.start, range.len(), "a block of a message")?;
        let memory = memory.advance(range.start, range.len(), "a block of a message")?;
        let staged = &mut self.staged[*device];
        let mark = staged.copies.begin(direction, &memory, &host, range.len())?;
        let (action, last) = match direction {
            CopyDirection::Down => (StagedAction::CopyDown, &mut staged.last[0]),
            CopyDirection::Up => (StagedAction::CopyUp, &mut staged.last[1]),
        };
        let which = (pipeline.message, block, pipeline.blocks.count());
        let transferred = pipeline.steps[block as usize];
        let step = self.ledger.begin(which, action, range.len(), [*last, transferred]);
        *last = step;
        pipeline.copies.push_back(Copying { block, mark, step });
        if pipeline.copies.len() == 1 {
            self.copying.push(index);
        }
        Ok(())
    }

    /// Looks which copies have passed, and goes on with their messages.
    ///
    /// # Errors
    /// What a device says.
    pub(super) fn look_at_copies(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.copying.len() {
            let index = self.copying[at];
            self.take_copies(index)?;
            if self.pipeline(index).copies.is_empty() {
                self.copying.swap_remove(at);
            } else {
                at += 1;
            }
            self.go_on(index);
        }
        Ok(())
    }

    fn take_copies(&mut self, index: u32) -> Result<()> {
        let slot = self.slots.at(index);
        let is_send = slot.is_send;
        let pipeline = slot.pipeline.as_mut().expect("what is copied is in blocks");
        let (device, _) = pipeline.device.as_ref().expect("what is copied is on a device");
        while let Some(copying) = pipeline.copies.front()
            && self.staged[*device].copies.has_passed(copying.mark)?
        {
            self.ledger.end(copying.step);
            if is_send {
                pipeline.steps[copying.block as usize] = copying.step;
                pipeline.ready = copying.block + 1;
            }
            pipeline.copies.pop_front();
        }
        Ok(())
    }

    /// The receiver of a send in blocks has said where they go.
    pub(super) fn send_blocks(&mut self, index: u32, to: To) {
        self.pipeline(index).to = Some(to);
        self.go_on(index);
    }

    /// Hands on the blocks that can go, and ends the message if all is done.
    fn go_on(&mut self, index: u32) {
        loop {
            let slot = self.slots.at(index);
            let pipeline = slot.pipeline.as_mut().expect("the message is in blocks");
            let (true, Some(to)) = (slot.is_send && pipeline.gone < pipeline.ready, pipeline.to) else {
                break;
            };
            let block = pipeline.gone;
            pipeline.gone += 1;
            let range = pipeline.blocks.range(block);
            let which = (pipeline.message, block, pipeline.blocks.count());
            let copied = pipeline.steps.get(block as usize).copied().flatten();
            let is_recorded = pipeline.device.is_some() && !matches!(to, To::Nowhere);
            let step = match is_recorded {
                true => self.ledger.begin(which, StagedAction::Transfer, range.len(), [copied, None]),
                false => None,
            };
            if let Some(transfer) = pipeline.steps.get_mut(block as usize) {
                *transfer = step;
            }
            let Source::Rank(peer) = slot.wanted.source else { unreachable!("a send has one destination") };
            let place = slot.place.advance(range.start, range.len(), "a block of a message");
            let moved = place.and_then(|place| match to {
                To::Mapped { receive, target } => {
                    let target = Target { offset: target.offset + range.start as u64, ..target };
                    let put = self.put(peer, target, &place, range.len());
                    self.post(peer, Post::Delivered { send: index, receive, block, failed: put.is_err() });
                    let failed = &mut self.pipeline(index).failed;
                    *failed = failed.take().or(put.err());
                    Ok(false)
                }
                To::Wire { first } => {
                    self.beginning.push((first.wrapping_add(block), index, block));
                    Ok(false)
                }
                To::Own { receive } => {
                    let into = &self.slots.at(receive).place;
                    let into = into.advance(range.start, range.len(), "a block of a message");
                    let copied = into.and_then(|into| into.copy_from(&place, range.len()));
                    self.landed(receive, block, copied.clone());
                    copied.map(|()| true)
                }
                To::Nowhere => Ok(true),
            });
            match moved {
                Ok(false) => {}
                moved => self.moved(index, block, moved.map(|_| ())),
            }
        }
        self.end_if_done(index);
    }

    /// The fabric is done with a block of a send.
    fn moved(&mut self, index: u32, block: u32, outcome: Result<()>) {
        let pipeline = self.pipeline(index);
        pipeline.left -= 1;
        pipeline.failed = pipeline.failed.take().or(outcome.err());
        let step = pipeline.steps.get(block as usize).copied().flatten();
        self.ledger.end(step);
    }

    /// The fabric has moved a block, and whoever is at the other end knows.
    pub(super) fn transferred(&mut self, index: u32, block: u32) {
        match self.slots.at(index).is_send {
            true => {
                self.moved(index, block, Ok(()));
                self.end_if_done(index);
            }
            false => self.landed(index, block, Ok(())),
        }
    }

    /// A receive in blocks has matched an announced message: makes room for it on the host if it goes to a device.
    /// Gives the blocks that are to come.
    pub(super) fn expect_blocks(
        &mut self,
        index: u32,
        status: Status,
        theirs: Option<Blocks>,
    ) -> Result<Blocks> {
        let is_mapped = self.peers[status.source].is_mapped && status.source != self.rank;
        let slot = self.slots.at(index);
        slot.status = status;
        match &slot.pipeline {
            Some(pipeline) if pipeline.is_staged() => {
                let blocks = theirs.unwrap_or_else(|| self.staging.cut(status.bytes));
                let home = if is_mapped { Home::Landing } else { Home::Pinned };
                self.give_room(index, blocks, home, 0)?;
                Ok(blocks)
            }
            _ => {
                let blocks = theirs.unwrap_or_else(|| Blocks::whole(status.bytes));
                slot.pipeline = Some(Box::new(Pipeline::on_host(blocks)));
                Ok(blocks)
            }
        }
    }

    /// A block of a receive has come: it goes on to the device.
    pub(super) fn landed(&mut self, index: u32, block: u32, outcome: Result<()>) {
        let pipeline = self.pipeline(index);
        pipeline.left -= 1;
        let has_come = outcome.is_ok();
        pipeline.failed = pipeline.failed.take().or(outcome.err());
        if pipeline.is_staged() && has_come && pipeline.blocks.bytes() > 0 {
            let range = pipeline.blocks.range(block);
            let which = (pipeline.message, block, pipeline.blocks.count());
            let step = self.ledger.begin(which, StagedAction::Transfer, range.len(), [None; 2]);
            self.ledger.end(step);
            self.pipeline(index).steps[block as usize] = step;
            if let Err(error) = self.begin_copy(index, CopyDirection::Up, block) {
                // Nothing is known of the copies before it either.
                self.failed.get_or_insert(error);
            }
        }
        self.end_if_done(index);
    }

    /// Ends a message of which nothing is on its way any more.
    fn end_if_done(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let Some(pipeline) = &mut slot.pipeline else { return };
        if slot.state != State::InTransfer || pipeline.left > 0 || !pipeline.copies.is_empty() {
            return;
        }
        let outcome = pipeline.failed.take().map_or(Ok(slot.status), Err);
        let device = pipeline.device.as_ref().map(|(device, _)| *device);
        let home = pipeline.home.take();
        match (device, home) {
            (Some(device), Some(home)) => {
                let place = slot.place.clone();
                self.pool(device, home).give_back(&place);
            }
            (Some(_), None) => {}
            (None, _) => slot.pipeline = None,
        }
        self.slots.complete(index, outcome);
    }
}
