//! Matching: every rank says what it sends and receives, all check it all, and each gets the
//! memory of its peers.

use super::announcement::{Announcement, INLINE_BYTES, Layout, Told, check_all, find, tell_recv, tell_send};
use super::reach::{Inbox, Mapped, Site, Way};
use super::{Direct, ExchangeSpec, MessageSpec};
use crate::communicator::Blocks;
use crate::error::Result;
use crate::fabric::{LINE, Listening, Place, Region, Role, Word};
use std::sync::Arc;

/// A matched exchange from this rank's side.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) sends: Vec<PlannedSend>,
    pub(super) recvs: Vec<PlannedRecv>,
    /// Counts the arrivals of a phase, from all sources.
    pub(super) counts: [Word; 2],
    /// Has partings of peers over a wire come to the words.
    pub(super) listening: Option<Arc<Listening>>,
}

#[derive(Debug)]
pub(super) struct PlannedSend {
    pub(super) peer: usize,
    pub(super) tag: u32,
    /// The receiver's, see [`Told`].
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) direct: bool,
    /// Whether it is on the lines of its own completion word.
    pub(super) with_signal: bool,
    pub(super) reason: &'static str,
    /// By way of which memory it goes.
    pub(super) way: Way,
    /// In which blocks a wire takes it, if in several.
    pub(super) blocks: Option<Blocks>,
    /// The peer sends nothing to this rank in the exchange.
    pub(super) one_way: bool,
    /// The peer's waits may sleep until they are woken.
    pub(super) peer_sleeps: bool,
    /// The peer says here that it is ready.
    pub(super) clear: Word,
    pub(super) target: Target,
}

impl PlannedSend {
    /// Whether a wire carries it.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.target, Target::Far(..))
    }
}

impl PlannedRecv {
    /// Whether a wire brings it.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.clear, Clear::Far(_))
    }
}

/// Where a send is packed.
#[derive(Debug)]
pub(super) enum Target {
    /// The peer's memory is mapped.
    Near(Box<Near>),
    /// A wire takes it from here, and says there that the payload has come.
    Far(Place, [FarWord; 2]),
}

/// A word in the memory of a peer that is not mapped.
#[derive(Debug, Clone, Copy)]
pub(super) struct FarWord {
    /// Of the peer's words, for partings.
    pub(super) number: u64,
    pub(super) offset: usize,
}

/// Where a receiver says that it is ready.
#[derive(Debug)]
pub(super) enum Clear {
    Near(Word),
    /// A wire says it to far peers.
    Far(FarWord),
}

impl Clear {
    /// The word, if this rank reaches it.
    pub(super) fn near(&self) -> Option<&Word> {
        match self {
            Clear::Near(word) => Some(word),
            Clear::Far(_) => None,
        }
    }
}

/// Memory of a peer.
#[derive(Debug)]
pub(super) struct Near {
    /// Its receive buffers.
    pub(super) slots: [Place; 2],
    /// Say that the payload is there.
    pub(super) arrivals: [Word; 2],
    /// Its counts of arrivals.
    pub(super) counts: [Word; 2],
    /// Its arrays, by phase, where it lets senders write them.
    pub(super) ghosts: [Vec<Region>; 2],
}

#[derive(Debug)]
pub(super) struct PlannedRecv {
    pub(super) peer: usize,
    pub(super) tag: u32,
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) direct: bool,
    pub(super) one_way: bool,
    pub(super) peer_sleeps: bool,
    /// This rank says here that it is ready.
    pub(super) clear: Clear,
    /// In which blocks a wire brings it, if in several.
    pub(super) blocks: Option<Blocks>,
    pub(super) slots: [Place; 2],
    pub(super) arrivals: [Word; 2],
}

/// What the words of an exchange mean, and when it may write ghosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) clear: Role,
    pub(super) arrival: Role,
    /// What a receiver must allow for its ghosts to be written directly; `None`: never done.
    pub(super) direct: Option<Direct>,
    /// Whether wires take long staged messages in blocks.
    pub(super) in_blocks: bool,
}

/// Above this a single pass into the ghosts beats packing; measured with `streamhalo bench halo`.
const DIRECT_BYTES: usize = 200;
/// Runs shorter than a cache line are packed up to this size.
const SHORT_RUNS_BYTES: usize = 64 * 1024;

impl Rules {
    /// Whether a message goes straight into the ghosts, which may be `mapped`, and why. Both sides decide alike.
    fn path(self, message: &Told, mapped: bool) -> (bool, &'static str) {
        match self.direct {
            _ if !mapped => (false, "the peer's memory is not mapped"),
            None => (false, "two-sided messages are packed"),
            Some(needed) if message.direct < needed => (
                false,
                if message.direct == Direct::Never {
                    "it is reduced on arrival"
                } else {
                    "no generation of the field is there for peers alone, so a ready send needs a buffer"
                },
            ),
            Some(_) if message.bytes <= DIRECT_BYTES => (false, "small payloads are packed"),
            Some(_) if message.run_bytes < LINE && message.bytes <= SHORT_RUNS_BYTES => {
                (false, "runs are shorter than a cache line")
            }
            Some(_) => (true, "one pass over the data"),
        }
    }
}

/// What a rank's peers write.
struct Memory {
    words: Region,
    inbox: Region,
}

/// Matches an exchange. Collective.
pub(super) fn match_all(site: &Site<'_>, spec: &ExchangeSpec, rules: Rules) -> Result<Plan> {
    let Site { world, stream, reach } = *site;
    let is_staged = |sender, receiver| reach.why_staged(sender, receiver).is_some();
    let from = |message: &MessageSpec| is_staged(message.peer, world.rank());
    let to = |message: &MessageSpec| is_staged(world.rank(), message.peer);
    // Where not all messages are staged, but some are, words are where all reach them.
    let is_partly_staged = spec.recvs.iter().any(from) || spec.sends.iter().any(to);
    let words_apart = match reach.inbox() {
        Inbox::Hosts => false,
        Inbox::OfPeers => !stream.host_reaches() || is_partly_staged,
        Inbox::OfWire => true,
    };
    // Counts, then a line for each send's receiver, then the receive buffers.
    let mut layout = Layout::new(words_apart);
    let blocks = |message: &MessageSpec, is_staged: bool| {
        let is_cut = rules.in_blocks && is_staged && reach.is_far(message.peer);
        let blocks = is_cut.then(|| world.staging().cut(message.bytes));
        blocks.filter(|blocks| blocks.count() > 1)
    };
    let send = |message: &MessageSpec| Told {
        blocks: blocks(message, to(message)),
        ..tell_send(message, &mut layout)
    };
    let sends: Vec<Told> = spec.sends.iter().map(send).collect();
    let recv = |message: &MessageSpec| Told {
        blocks: blocks(message, from(message)),
        ..tell_recv(message, &mut layout, from(message))
    };
    let recvs: Vec<Told> = spec.recvs.iter().map(recv).collect();
    let inbox = match reach.inbox() {
        Inbox::Hosts => world.fabric().allocate(layout.inbox_bytes),
        Inbox::OfPeers => stream.allocate(world, layout.inbox_bytes),
        Inbox::OfWire => stream.allocate_for_wire(world, layout.inbox_bytes.max(LINE)),
    };
    let memory = inbox.and_then(|inbox| {
        let pinned = |bytes| stream.allocate_words(world, bytes, reach.kernels_add());
        let words = layout.words_bytes.map(pinned).transpose()?;
        Ok(Memory { words: words.unwrap_or_else(|| inbox.clone()), inbox })
    });
    let told = |region: &Region| (region.key(), region.bytes());
    let partings = world.fabric().partings();
    let own = memory.as_ref().map(|memory| Announcement {
        sends,
        recvs,
        inbox: told(&memory.inbox),
        words: told(&memory.words),
        partings: partings.map_or(0, |partings| partings.number()),
        last_epoch: spec.last_epoch,
        // By the world that it was made with, whose policy may be another one.
        sleeps: stream.status().context.policy.sleeps,
        device: stream.device_name().into(),
    });
    let all = world.agree("match_exchange", own)?;
    check_all(&all)?;
    let planned = memory.and_then(|memory| plan(site, spec, rules, &all, &memory));
    // A rank that could not map a peer's memory fails on all; and no rank starts before all can
    // receive.
    world.agree("match_exchange", planned.as_ref().map(|_| ()))?;
    planned
}

fn plan(
    site: &Site<'_>,
    spec: &ExchangeSpec,
    rules: Rules,
    all: &[Announcement],
    memory: &Memory,
) -> Result<Plan> {
    let Site { world, reach, .. } = *site;
    let own = world.rank();
    let mut mapped = Mapped::new(site, [&memory.words, &memory.inbox]);
    let sends_to = |rank: usize, peer: usize| all[rank].sends.iter().any(|message| message.peer == peer);
    // In the inbox words are memory of the device.
    let map_words = |mapped: &mut Mapped<'_>, peer: usize| match all[peer].words == all[peer].inbox {
        true => mapped.of_device(peer, all[peer].words),
        false => mapped.of_host(peer, all[peer].words),
    };
    let counts = |region: &Region, from: usize, to: usize| -> Result<[Word; 2]> {
        Ok([region.word(0, Role::Notification, from, to)?, region.word(LINE, Role::Notification, from, to)?])
    };
    let arrivals = |region: &Region, message: &Told, from: usize, to: usize| -> Result<[Word; 2]> {
        let [first, second] =
            message.words.map(|offset| region.word_with_parting(offset, rules.arrival, from, to));
        Ok([first?, second?])
    };
    let slots = |region: &Region, message: &Told| -> Result<[Place; 2]> {
        let place = |offset| region.place(offset, message.bytes, "a receive buffer");
        let [first, second] = message.slots.map(place);
        Ok([first?, second?])
    };
    let far_word = |peer: usize, offset: usize| FarWord { number: all[peer].partings, offset };
    let staging = stage(site, &all[own].sends)?;
    let sends = all[own].sends.iter().zip(staging).map(|(send, staging)| {
        let peer = send.peer;
        let recv = find(&all[peer].recvs, own, send.tag).expect("checked to be there");
        let way = reach.way(peer);
        let (direct, reason) = rules.path(recv, staging.is_none() && !way.is_staged());
        let mut ghosts = |phase: usize| -> Result<Vec<Region>> {
            if !direct {
                return Ok(Vec::new());
            }
            recv.ghosts.iter().map(|field| mapped.of_device(peer, field[phase])).collect()
        };
        let ghosts = [ghosts(0)?, ghosts(1)?];
        let target = match staging {
            Some(place) => Target::Far(place, recv.words.map(|offset| far_word(peer, offset))),
            None => {
                let words = map_words(&mut mapped, peer)?;
                let inbox = match way.is_staged() {
                    false => mapped.of_device(peer, all[peer].inbox)?,
                    true => words.clone(),
                };
                Target::Near(Box::new(Near {
                    slots: slots(&inbox, recv)?,
                    arrivals: arrivals(&words, recv, own, peer)?,
                    counts: counts(&words, own, peer)?,
                    ghosts,
                }))
            }
        };
        let with_words = way.is_staged() || all[peer].words == all[peer].inbox;
        Ok(PlannedSend {
            peer,
            tag: send.tag,
            number: recv.number,
            bytes: send.bytes,
            direct,
            with_signal: with_words && send.bytes <= INLINE_BYTES,
            reason,
            way,
            blocks: blocks_of(send, recv),
            one_way: !sends_to(peer, own),
            peer_sleeps: all[peer].sleeps,
            clear: memory.words.word_with_parting(send.words[0], rules.clear, peer, own)?,
            target,
        })
    });
    let sends = sends.collect::<Result<Vec<_>>>()?;
    let recvs = all[own].recvs.iter().map(|recv| {
        let peer = recv.peer;
        let send = find(&all[peer].sends, own, recv.tag).expect("checked to be there");
        let is_mapped = world.fabric().is_mapped(peer);
        let clear = match is_mapped {
            true => {
                let words = map_words(&mut mapped, peer)?;
                Clear::Near(words.word_with_parting(send.words[0], rules.clear, own, peer)?)
            }
            false => Clear::Far(far_word(peer, send.words[0])),
        };
        let is_staged = reach.why_staged(peer, own).is_some();
        Ok(PlannedRecv {
            peer,
            tag: recv.tag,
            number: recv.number,
            bytes: recv.bytes,
            direct: rules.path(recv, is_mapped && !is_staged).0,
            one_way: !sends_to(own, peer),
            peer_sleeps: is_mapped && all[peer].sleeps,
            clear,
            blocks: blocks_of(send, recv),
            slots: slots(if is_staged { &memory.words } else { &memory.inbox }, recv)?,
            arrivals: arrivals(&memory.words, recv, peer, own)?,
        })
    });
    let recvs = recvs.collect::<Result<Vec<_>>>()?;
    // Words start at the epoch before the first, as after a wait.
    if spec.last_epoch != 0 {
        for word in sends.iter().map(|send| &send.clear).chain(recvs.iter().flat_map(|recv| &recv.arrivals)) {
            word.cell().store(spec.last_epoch);
        }
    }
    let clear = sends.iter().filter(|send| send.is_far()).map(|send| &send.clear);
    let arrivals = recvs.iter().filter(|recv| recv.is_far()).flat_map(|recv| &recv.arrivals);
    let of_far: Vec<Word> = clear.chain(arrivals).cloned().collect();
    // No peer lets go before all have matched.
    let listening = world.fabric().partings().filter(|_| !of_far.is_empty());
    let listening = listening.map(|partings| Arc::new(partings.listen(all[own].partings, of_far)));
    Ok(Plan { sends, recvs, counts: counts(&memory.words, own, own)?, listening })
}

/// The sender's, if it stages the message: it begins before the receiver does.
fn blocks_of(send: &Told, recv: &Told) -> Option<Blocks> {
    send.blocks.or(recv.blocks)
}

/// Memory of this rank for the messages that a wire carries, each on lines of its own.
fn stage(site: &Site<'_>, sends: &[Told]) -> Result<Vec<Option<Place>>> {
    let world = site.world;
    let is_far = |send: &&Told| !world.fabric().is_mapped(send.peer);
    let bytes: usize = sends.iter().filter(is_far).map(|send| send.bytes.next_multiple_of(LINE)).sum();
    if bytes == 0 {
        return Ok(vec![None; sends.len()]);
    }
    let region = site.allocate_for_wire(bytes)?;
    let mut next = 0;
    let place = |send: &Told| -> Result<Option<Place>> {
        if !is_far(&send) {
            return Ok(None);
        }
        let offset = next;
        next += send.bytes.next_multiple_of(LINE);
        region.place(offset, send.bytes, "a staged send").map(Some)
    };
    sends.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::super::reach::Reach;
    use super::*;
    use crate::device::Device;
    use crate::element::ElementType;
    use crate::error::Error;
    use crate::fabric::WaitPolicy;
    use crate::world::{World, WorldOptions};

    const SLEEPS: WaitPolicy = WaitPolicy { spins: 1, yields: 0, sleeps: true };
    const NAPS: WaitPolicy = WaitPolicy { sleeps: false, ..SLEEPS };
    const RULES: Rules =
        Rules { clear: Role::ClearToSend, arrival: Role::Completion, direct: None, in_blocks: false };

    #[test]
    fn peers_are_told_how_the_stream_waits_and_not_the_world_that_matches() {
        let options = |policy| WorldOptions { policy: Some(policy), ..WorldOptions::default() };
        for (of_stream, of_exchange) in [(SLEEPS, NAPS), (NAPS, SLEEPS)] {
            let ranks = World::threads(2, options(of_stream), |world| {
                let stream = Device::host().stream(&world)?;
                let world = world.first_with(2, options(of_exchange))?.expect("both ranks are in it");
                let peer = 1 - world.rank();
                let message = MessageSpec {
                    peer,
                    tag: 0,
                    elements: vec![(ElementType::F64, 1)],
                    bytes: 8,
                    run_bytes: 8,
                    direct: Direct::Never,
                    ghosts: Vec::new(),
                };
                let spec = ExchangeSpec { sends: vec![message.clone()], recvs: vec![message], last_epoch: 0 };
                let sharings = world.all_gather(stream.sharing())?;
                let reach = Reach::agree(&world, &stream, sharings, (std::iter::once(peer), false))?;
                let site = Site { world: &world, stream: &stream, reach: &reach };
                let plan = match_all(&site, &spec, RULES)?;
                Ok::<_, Error>([plan.sends[0].peer_sleeps, plan.recvs[0].peer_sleeps])
            });
            assert_eq!(ranks.expect("threads start"), vec![Ok([of_stream.sleeps; 2]); 2]);
        }
    }
}
