//! Epochs with ranks whose memory is not mapped: packets and bulk transfers carry what is stored straight into
//! the memory of the others.
//!
//! An exposure and a completion set the same words as over mapped memory, in the memory of the rank that waits.
//! An origin sends its operations once the exposure is there, and the completion behind them; the target
//! applies them as it reads, and sees the epoch as complete once transfers that are on their way have come and
//! what it was asked for has left. Whoever waits on this rank reads and sends: the host in any of its waits,
//! and a stream in those of the window.

mod origin;
mod target;

use super::WINDOW;
use super::active::FarAccess;
use super::epoch::Recorded;
use super::signals::Signals;
use crate::device::Mirror;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Bulk, Header, Packets, Place, Progress, WaitContext, Word, register};
use crate::locks::{lock, try_lock};
use crate::world::World;
use origin::{Access, Asked, Outgoing};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use target::Origin;

/// What packets of a window are for.
mod kind {
    /// The window is exposed; the tag is the epoch.
    pub(super) const EXPOSURE: u16 = 1;
    /// The access epoch of the tag is complete.
    pub(super) const COMPLETION: u16 = 2;
    /// The payload goes to the offset.
    pub(super) const PUT: u16 = 3;
    /// A payload goes to the offset by a bulk transfer, whose number is the tag.
    pub(super) const PUT_BULK: u16 = 4;
    /// The payload is combined with what is at the offset; the flags say how.
    pub(super) const ACCUMULATE: u16 = 5;
    /// Asks for bytes from the offset.
    pub(super) const GET: u16 = 6;
    /// A part of what the ticket has asked for.
    pub(super) const GOT: u16 = 7;
    /// All of it, in a bulk transfer with the number of the tag.
    pub(super) const GOT_BULK: u16 = 8;
}

/// The far side of a window, shared by the host and the streams that have its epochs.
#[derive(Debug, Clone)]
pub(super) struct Far {
    shared: Arc<Mutex<State>>,
    context: Arc<WaitContext>,
}

#[derive(Debug)]
struct State {
    packets: Packets,
    desk: Desk,
    failed: Option<Error>,
}

/// All of it but the packets.
#[derive(Debug)]
struct Desk {
    part: Place,
    bytes: usize,
    element: ElementType,
    /// Where the payload of an accumulate lies until it is combined.
    scratch: Place,
    peers: Vec<Peer>,
    /// Epochs of this rank as an origin that are not done.
    accesses: Vec<Access>,
    /// What this rank has asked for and not got, by ticket.
    asked: Vec<Option<Asked>>,
    /// Bulk transfers under way.
    bulks: Vec<(Bulk, Credit)>,
    /// Those to be received that packets have told of.
    expected: Vec<Expected>,
}

#[derive(Debug)]
struct Peer {
    /// Set as the packets say.
    exposure: Word,
    completion: Word,
    /// The last epoch that it was told that this rank's part is exposed.
    exposed: u32,
    outbox: VecDeque<Outgoing>,
    /// The number of the next bulk transfer to it.
    number: u32,
    origin: Origin,
}

/// Whose count goes down once something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credit {
    None,
    /// An access epoch of this rank.
    Access {
        target: usize,
        epoch: u32,
    },
    /// What an origin has to wait for.
    Origin(usize),
}

/// A bulk transfer that comes.
#[derive(Debug)]
struct Expected {
    source: usize,
    number: u32,
    place: Place,
    bytes: usize,
    credit: Credit,
}

/// The longest bulk transfer: headers count bytes in 32 bits.
const LONGEST: usize = 1 << 30;

impl Far {
    /// Connects all ranks, if the memory of any is not mapped by another. Collective; blocks.
    pub(super) fn connect(world: &World, own: &Mirror, signals: &Signals) -> Result<Option<Self>> {
        let ranks = 0..world.size();
        let is_far = !ranks.clone().all(|rank| signals.is_mapped(rank));
        if !world.all_gather(&is_far)?.contains(&true) {
            return Ok(None);
        }
        let packets = Packets::connect(world)?;
        let largest = ranks.clone().map(|rank| packets.largest(rank)).max().unwrap_or(0);
        let scratch = world.fabric().allocate(largest).and_then(|region| region.place(0, largest, "scratch"));
        world.agree("Window::active", scratch.as_ref().map(|_| ()))?;
        let peer = |rank: usize| Peer {
            exposure: signals.exposed_by(rank).clone(),
            completion: signals.completed_by(rank).clone(),
            exposed: world.last_epoch(),
            outbox: VecDeque::new(),
            number: 0,
            origin: Origin::default(),
        };
        let desk = Desk {
            part: own.place().clone(),
            bytes: own.section().bytes(),
            element: own.section().element_type(),
            scratch: scratch?,
            peers: ranks.map(peer).collect(),
            accesses: Vec::new(),
            asked: Vec::new(),
            bulks: Vec::new(),
            expected: Vec::new(),
        };
        let state = State { packets, desk, failed: None };
        let far = Self { shared: Arc::new(Mutex::new(state)), context: world.wait_context().clone() };
        far.serve_here();
        Ok(Some(far))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }

    /// Has all waits of the calling thread make progress on it.
    fn serve_here(&self) {
        thread_local! {
            static SERVED: RefCell<Vec<Rc<Served>>> = const { RefCell::new(Vec::new()) };
        }
        SERVED.with_borrow_mut(|all| {
            all.retain(|one| one.state.strong_count() > 0);
            if all.iter().all(|one| one.state.as_ptr() != Arc::as_ptr(&self.shared)) {
                let state = Arc::downgrade(&self.shared);
                all.push(Rc::new(Served { state, context: self.context.clone() }));
                register(&all[all.len() - 1]);
            }
        });
    }

    /// Tells those ranks that this rank's part is exposed to them, each for its epoch.
    pub(super) fn expose(&self, exposures: &[(usize, u32)]) -> Result<()> {
        self.serve_here();
        let state = &mut *self.state();
        for (origin, epoch) in exposures {
            let peer = &mut state.desk.peers[*origin];
            peer.exposed = *epoch;
            let header = Header { kind: kind::EXPOSURE, tag: *epoch, ..Header::default() };
            peer.outbox.push_back(Outgoing::signal(header, Credit::None));
        }
        state.progress().map(|_| ())
    }

    /// Begins an access epoch, whose operations go out to each target once that is exposed; gives what has to be
    /// finished.
    pub(super) fn begin(&self, accesses: Vec<FarAccess>) -> Result<Vec<(usize, u32)>> {
        self.serve_here();
        let state = &mut *self.state();
        let begun = accesses.iter().map(|(target, epoch, _)| (*target, *epoch)).collect();
        let begin = |(target, epoch, operations)| Access::new(target, epoch, operations);
        state.desk.accesses.extend(accesses.into_iter().map(begin));
        state.progress()?;
        Ok(begun)
    }

    /// Blocks until the access epochs to those targets are done, and calls `serve` meanwhile.
    pub(super) fn finish(&self, accesses: &[(usize, u32)], serve: &mut dyn FnMut() -> bool) -> Result<()> {
        self.wait(
            &mut |desk, has_left| {
                let late = desk.accesses.iter().filter(|one| accesses.contains(&(one.target, one.epoch)));
                let is_in_vain = |one: &&Access| has_left(one.target) && desk.needs_target(one);
                let late = late.clone().find(is_in_vain).or_else(|| late.clone().next())?;
                let exposure = &desk.peers[late.target].exposure;
                let found = exposure.cell().load();
                let is_exposed = exposure.cell().reached(late.epoch);
                Some(Late {
                    is_in_vain: is_in_vain(&late),
                    peer: late.target,
                    what: if is_exposed {
                        "the operations on the part".into()
                    } else {
                        exposure.role.to_string()
                    },
                    wanted: late.epoch,
                    found: if is_exposed { late.epoch.wrapping_sub(1) } else { found },
                })
            },
            &|| None,
            serve,
        )
    }

    /// Whether a rank has left, and nothing of it is on its way any more.
    pub(super) fn has_left(&self, peer: usize) -> bool {
        self.state().packets.has_left(peer)
    }

    /// The first of those targets that has left before the access epoch to it was done.
    pub(super) fn left_target(&self, accesses: &[(usize, u32)]) -> Option<usize> {
        let State { packets, desk, .. } = &*self.state();
        let mut late = desk.accesses.iter().filter(|one| accesses.contains(&(one.target, one.epoch)));
        late.find(|one| packets.has_left(one.target) && desk.needs_target(one)).map(|one| one.target)
    }

    /// Blocks until those origins have completed their access epochs, and calls `serve` meanwhile; `leaver` is whoever of
    /// those that are not far has left.
    pub(super) fn completed(
        &self,
        exposures: &[(usize, u32)],
        leaver: &dyn Fn() -> Option<usize>,
        serve: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.wait(&mut |desk, has_left| desk.late_origin(exposures, has_left), leaver, serve)
    }

    /// Makes progress towards that.
    ///
    /// # Errors
    /// If one has left before it has.
    pub(super) fn look_for_completions(&self, exposures: &[(usize, u32)]) -> Result<()> {
        self.serve_here();
        self.look(&mut |desk, has_left| desk.late_origin(exposures, has_left)).map(|_| ())
    }

    /// Makes progress, and gives who is late; an error if that one has left.
    fn look(&self, late: LookForLate<'_>) -> Result<Option<Late>> {
        let state = &mut *self.state();
        state.progress()?;
        let has_left = |peer: usize| state.packets.has_left(peer);
        match late(&state.desk, &has_left) {
            Some(late) if late.is_in_vain => Err(self.context.left(late.peer, WINDOW)),
            late => Ok(late),
        }
    }

    /// Blocks until nobody is late.
    fn wait(
        &self,
        late: LookForLate<'_>,
        leaver: &dyn Fn() -> Option<usize>,
        serve: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        self.serve_here();
        let last = RefCell::new(None);
        self.context.poll(
            &mut || {
                serve();
                let is_late = self.look(late)?;
                let is_over = is_late.is_none();
                if let (false, Some(rank)) = (is_over, leaver()) {
                    return Err(self.context.left(rank, WINDOW));
                }
                last.replace(is_late);
                Ok(is_over)
            },
            &|waited| {
                let late = last.take().expect("a wait that ends late has somebody to wait for");
                Error::TimedOut {
                    rank: self.context.rank,
                    peer: late.peer,
                    what: late.what,
                    wanted: late.wanted,
                    found: late.found,
                    waited,
                }
            },
        )
    }
}

/// Finds somebody who is late: one that has left, if there is one.
type LookForLate<'a> = &'a mut dyn FnMut(&Desk, &dyn Fn(usize) -> bool) -> Option<Late>;

/// Who a wait is still for.
#[derive(Debug)]
struct Late {
    /// Whether that one has left without what is waited for.
    is_in_vain: bool,
    peer: usize,
    what: String,
    wanted: u32,
    found: u32,
}

/// An operation of an access epoch to a far target.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) kind: super::epoch::Kind,
    pub(super) offset: usize,
    pub(super) place: Place,
    pub(super) bytes: usize,
}

impl From<&Recorded> for Operation {
    fn from(one: &Recorded) -> Self {
        let (place, bytes) = (one.mirror.place().clone(), one.mirror.section().bytes());
        Self { kind: one.kind, offset: one.offset, place, bytes }
    }
}

/// A window that the waits of a thread make progress on.
#[derive(Debug)]
struct Served {
    state: Weak<Mutex<State>>,
    context: Arc<WaitContext>,
}

impl Progress for Served {
    fn progress(&self) -> bool {
        let Some(shared) = self.state.upgrade() else { return false };
        // Otherwise another thread of the rank is at it.
        let Some(mut state) = try_lock(&shared) else { return true };
        state.progress().unwrap_or_else(|error| {
            // Whoever waits learns of it by the abort word; the window itself gives the error.
            self.context.abort.raise(self.context.rank, &error.to_string());
            false
        })
    }
}

impl State {
    /// Reads what has come and sends what there is room for; whether this rank waits for more.
    fn progress(&mut self) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = self.try_progress();
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        done
    }

    fn try_progress(&mut self) -> Result<bool> {
        let State { packets, desk, .. } = self;
        let mut applied = Ok(());
        packets.receive(&mut |packet| {
            if applied.is_ok() {
                applied = desk.take(&packet);
            }
        })?;
        applied?;
        for Expected { source, number, place, bytes, credit } in std::mem::take(&mut desk.expected) {
            let bulk = packets.far().recv_bulk(source, number, &place, bytes)?;
            desk.bulks.push((bulk, credit));
        }
        desk.begin_accesses(packets);
        for peer in 0..desk.peers.len() {
            desk.send(packets, peer)?;
        }
        let mut index = 0;
        while index < desk.bulks.len() {
            if packets.far().is_done(desk.bulks[index].0)? {
                let (_, credit) = desk.bulks.swap_remove(index);
                desk.done(credit);
            } else {
                index += 1;
            }
        }
        Ok(desk.is_busy())
    }
}

impl Desk {
    /// One of those origins that has not completed its epoch: that has left, if one has.
    fn late_origin(&self, exposures: &[(usize, u32)], has_left: &dyn Fn(usize) -> bool) -> Option<Late> {
        let word = |origin: usize| &self.peers[origin].completion;
        let late = exposures.iter().filter(|(origin, epoch)| !word(*origin).cell().reached(*epoch));
        let one = late.clone().find(|(origin, _)| has_left(*origin)).or_else(|| late.clone().next());
        one.map(|(origin, epoch)| Late {
            is_in_vain: has_left(*origin),
            peer: *origin,
            what: word(*origin).role.to_string(),
            wanted: *epoch,
            found: word(*origin).cell().load(),
        })
    }

    /// Takes note that something is done that was counted.
    fn done(&mut self, credit: Credit) {
        match credit {
            Credit::None => {}
            Credit::Access { target, epoch } => {
                let index = self.accesses.iter().position(|one| (one.target, one.epoch) == (target, epoch));
                let index = index.expect("an access is there until all of it is done");
                if self.accesses[index].is_done_but_one() {
                    self.accesses.swap_remove(index);
                }
            }
            Credit::Origin(origin) => self.peers[origin].origin_has_done_one(),
        }
    }

    /// Whether anything is to come or to go.
    fn is_busy(&self) -> bool {
        let waits = |peer: &Peer| !peer.outbox.is_empty() || !peer.completion.cell().reached(peer.exposed);
        !self.accesses.is_empty() || !self.bulks.is_empty() || self.peers.iter().any(waits)
    }
}
