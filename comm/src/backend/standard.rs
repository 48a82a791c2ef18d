//! `standard`: the way without streams, the baseline of every paper.
//!
//! The host synchronises the stream, starts persistent two-sided sends, and waits for them and
//! for its receives. Every message is matched by source and tag at every start: a tag of its own, so that exchanges that
//! are given the same ones are told apart.

use super::far;
use super::farewell::{Farewell, Listened};
use super::matching::{Rules, Target, match_all};
use super::reach::{Site, Way};
use super::step::{BIND, START_RECVS, START_SENDS, WAIT};
use super::{BackendRow, Carried, Exchange, ExchangeSpec, Route, Slot};
use crate::communicator::{Contents, Exchanges, Kind, MOST_AHEAD, Ticket};
use crate::device::{MoveTable, Stage, Stream};
use crate::error::{Error, Result};
use crate::fabric::{
    Executor, FarMessage, FarMessages, LINE, Listening, Persistent, Place, Role, WaitContext, phase,
};
use crate::source::{Source, Tag};
use crate::timeline::Activity;
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) const ROW: BackendRow = BackendRow {
    name: "standard",
    summary: "two-sided messages, started and waited for by the host",
    source: "the baseline of every paper",
    carried: Carried::ByHost,
};

const RULES: Rules =
    Rules { clear: Role::ClearToSend, arrival: Role::Completion, direct: None, in_blocks: false };

/// Wires wake nobody.
const NAP: Duration = Duration::from_micros(50);

pub(super) struct Standard {
    world: World,
    epoch: u32,
    stage: Stage,
    sends: Vec<Side>,
    recvs: Vec<Side>,
    /// The messages between ranks whose memory is mapped, if there are any between any two ranks.
    near: Option<Near>,
    /// The others.
    far: Option<Box<dyn Persistent>>,
    moves: Vec<[Arc<MoveTable>; 2]>,
    /// Messages say nothing of who lets go of the exchange: the words that are matched with them do.
    farewell: Farewell,
    listened: Listened,
    _listening: Option<Arc<Listening>>,
}

/// A message before it has a place in the staging memory.
struct Wanted<'p> {
    peer: usize,
    tag: u32,
    number: u32,
    bytes: usize,
    is_far: bool,
    /// Where it lies already.
    place: Option<&'p Place>,
}

/// One message and its place.
struct Side {
    peer: usize,
    tag: u32,
    /// By which the messages of all exchanges are told apart.
    number: u32,
    bytes: usize,
    place: Place,
    is_far: bool,
    way: Way,
}

impl Standard {
    pub(super) fn matched(site: &Site<'_>, spec: &ExchangeSpec) -> Result<Self> {
        let Site { world, stream, .. } = *site;
        let plan = match_all(site, spec, RULES)?;
        // A wire that has addresses of the device's memory is given those of the plan.
        let is_direct = site.reach.direct_wire().is_some();
        let sends = plan.sends.iter().map(|send| Wanted {
            peer: send.peer,
            tag: send.tag,
            number: send.number,
            bytes: send.bytes,
            is_far: send.is_far(),
            place: match &send.target {
                Target::Far(place, _) if is_direct => Some(place),
                _ => None,
            },
        });
        let recvs = plan.recvs.iter().map(|recv| Wanted {
            peer: recv.peer,
            tag: recv.tag,
            number: recv.number,
            bytes: recv.bytes,
            is_far: recv.is_far(),
            place: (is_direct && recv.is_far()).then_some(&recv.slots[0]),
        });
        // Staging: the sends, then the receives, each on lines of its own.
        let all: Vec<Wanted> = sends.chain(recvs).collect();
        let staged = all.iter().filter(|one| one.place.is_none());
        let staged: usize = staged.map(|one| one.bytes.next_multiple_of(LINE)).sum();
        // The host carries messages.
        let staging = stream.allocate_pinned(world, staged.max(LINE));
        let own = staging.as_ref().map(|_| all.iter().any(|one| !one.is_far));
        let any_near = world.agree("match_exchange", own)?.contains(&true);
        let staging = staging?;
        let staged_near =
            site.reach.staged_stream().map_or(Way::Plain, |because| Way::Staged(because.into()));
        let mut next = 0;
        let sides = all.into_iter().map(|Wanted { peer, tag, number, bytes, is_far, place }| {
            let place = match place {
                Some(place) => place.clone(),
                None => {
                    let place = staging.place(next, bytes, "a staged message")?;
                    next += bytes.next_multiple_of(LINE);
                    place
                }
            };
            let way = if is_far { site.reach.way(peer) } else { staged_near.clone() };
            Ok(Side { peer, tag, number, bytes, place, is_far, way })
        });
        let mut sends = sides.collect::<Result<Vec<Side>>>()?;
        let recvs = sends.split_off(plan.sends.len());
        let near = if any_near { Some(Near::new(world, &sends, &recvs)?) } else { None };
        let far = match far::wire(world) {
            Some(wire) => Some(wire.open_two_sided(world, far_messages(site, &sends, &recvs))?),
            None => None,
        };
        Ok(Self {
            world: world.clone(),
            epoch: spec.last_epoch,
            stage: Stage::Unbound,
            sends,
            recvs,
            near,
            far,
            moves: Vec::new(),
            farewell: Farewell::new(world, &plan, 1),
            listened: Listened::new(&plan),
            _listening: plan.listening,
        })
    }
}

/// The messages between ranks whose memory is mapped.
struct Near {
    messages: Rc<Exchanges>,
    /// That many receives, then the sends, with the tags that the caller has given them.
    tickets: Vec<(Ticket, u32)>,
    recvs: usize,
    /// How many early messages room was made for, and to whom those that go again and again.
    reserved: usize,
    receivers: Vec<usize>,
}

impl Near {
    /// Collective over the world, the first time.
    fn new(world: &World, sends: &[Side], recvs: &[Side]) -> Result<Self> {
        let messages = world.messages()?.clone();
        let mut engine = messages.engine();
        let near = |side: &&Side| !side.is_far;
        let mut tickets = Vec::with_capacity(sends.len() + recvs.len());
        let mut reserved = 0;
        for recv in recvs.iter().filter(near) {
            let kind = Kind::Recv { source: Source::Rank(recv.peer), tag: Tag::Value(recv.number) };
            let ticket = engine.init(kind, Contents::Place(&recv.place, recv.bytes, None))?;
            tickets.push((ticket, recv.tag));
            // A sender that gets messages of this rank is at most one epoch ahead; any other one until its
            // messages are announced.
            let is_two_way = sends.iter().any(|send| send.peer == recv.peer);
            let early = if is_two_way { 2 } else { MOST_AHEAD as usize + 1 };
            let kept = if engine.is_eager(recv.peer, recv.bytes) { recv.bytes } else { 0 };
            engine.reserve(early, kept);
            reserved += early;
        }
        let receives = tickets.len();
        let receivers: Vec<usize> = sends.iter().filter(near).map(|send| send.peer).collect();
        receivers.iter().for_each(|peer| engine.reserve_send(*peer));
        for send in sends.iter().filter(near) {
            let kind = Kind::Send { destination: send.peer, tag: send.number };
            let ticket = engine.init(kind, Contents::Place(&send.place, send.bytes, None))?;
            tickets.push((ticket, send.tag));
        }
        drop(engine);
        Ok(Self { messages, tickets, recvs: receives, reserved, receivers })
    }

    fn start(&self) -> Result<()> {
        let mut engine = self.messages.engine();
        let (recvs, sends) = self.tickets.split_at(self.recvs);
        // Sends first: an announcement that is here already would be answered before the payloads leave.
        sends.iter().chain(recvs).try_for_each(|(ticket, _)| engine.start(*ticket))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let mut engine = self.messages.engine();
        self.tickets.iter().for_each(|(ticket, _)| engine.free(*ticket));
        engine.release(self.reserved, &self.receivers);
    }
}

/// Blocks until a wire's messages are complete, or a peer is `gone`.
fn wait_far(context: &WaitContext, far: &mut dyn Persistent, gone: &dyn Fn() -> Option<Error>) -> Result<()> {
    let far = RefCell::new(far);
    let (mut done, mut sleep) = (|| far.borrow_mut().test(), |nap| std::thread::sleep(NAP.min(nap)));
    context.poll_sleeping(&mut done, gone, &mut sleep, &|waited| {
        let (peer, is_send) = far.borrow().late().unwrap_or((context.rank, false));
        context.late(peer, if is_send { "the acceptance of a message" } else { "a message" }, waited)
    })
}

/// The error that a peer is `gone`, or has failed, which it may say later. Short sends are complete once a library has
/// taken them, for a receiver that will not read them too.
#[cold]
fn wait_in_vain(context: &WaitContext, gone: &dyn Fn() -> Option<Error>) -> Result<()> {
    let mut sleep = |nap| std::thread::sleep(NAP.min(nap));
    let late = |_| gone().expect("who has left does not come back");
    context.poll_sleeping(&mut || Ok(gone().is_none()), gone, &mut sleep, &late)
}

fn refuse_capture(stream: &Stream) -> Result<()> {
    let reason = "the host starts and awaits its messages; choose a stream-triggered backend";
    stream.refuse_capture("an exchange of backend `standard`", reason)
}

fn far_messages(site: &Site<'_>, sends: &[Side], recvs: &[Side]) -> FarMessages {
    let far = |sides: &[Side]| {
        let far = sides.iter().filter(|side| side.is_far);
        far.map(|side| FarMessage {
            peer: side.peer,
            tag: side.tag,
            bytes: side.bytes,
            place: side.place.clone(),
        })
        .collect()
    };
    FarMessages { sends: far(sends), recvs: far(recvs), device: site.device_of_wire() }
}

impl Exchange for Standard {
    fn backend(&self) -> &'static str {
        ROW.name
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn send_slot(&self, message: usize, _phase: usize) -> Slot {
        Slot::Packed(self.sends[message].place.clone())
    }

    fn recv_slot(&self, message: usize, _phase: usize) -> Option<Place> {
        Some(self.recvs[message].place.clone())
    }

    fn bind(&mut self, moves: Vec<[Arc<MoveTable>; 2]>) -> Result<()> {
        self.stage.take(&BIND)?;
        assert_eq!(moves.len(), self.sends.len(), "one table of moves for each send");
        self.moves = moves;
        Ok(())
    }

    fn start_recvs(&mut self, stream: &Stream) -> Result<()> {
        refuse_capture(stream)?;
        stream.refuse_within_operation(START_RECVS.call)?;
        self.stage.take(&START_RECVS)?;
        self.epoch = self.epoch.wrapping_add(1);
        Ok(())
    }

    fn start_sends(&mut self, stream: &Stream) -> Result<()> {
        refuse_capture(stream)?;
        stream.refuse_within_operation(START_SENDS.call)?;
        stream.check_views(self.moves.iter().map(|moves| &moves[phase(self.epoch)]))?;
        self.stage.take(&START_SENDS)?;
        for moves in &self.moves {
            stream.put_move(&moves[phase(self.epoch)]);
        }
        stream.synchronize()?;
        // Only now has the stream unpacked the last messages: before, any progress of the host could
        // have put the next ones into their place.
        let started = stream.by_host(Activity::Trigger, "start messages", || {
            let started = self.near.as_ref().map_or(Ok(()), Near::start);
            started.and_then(|()| self.far.as_mut().map_or(Ok(()), |far| far.start()))
        });
        started.map_err(|error| stream.fail(error))
    }

    fn flush(&mut self, _stream: &Stream) {}

    fn wait(&mut self, stream: &Stream) -> Result<()> {
        refuse_capture(stream)?;
        stream.refuse_within_operation(WAIT.call)?;
        self.stage.take(&WAIT)?;
        let context = self.world.wait_context();
        let waited = stream.by_host(Activity::Wait, "wait for messages", || {
            let gone = || self.listened.gone(self.epoch);
            let wait_near = |near: &Near| near.messages.wait_for_all(&near.tickets, &gone);
            self.near.as_ref().map_or(Ok(()), wait_near)?;
            if let Some(far) = &mut self.far {
                wait_far(context, &mut **far, &gone)?;
            }
            if gone().is_some() { wait_in_vain(context, &gone) } else { Ok(()) }
        });
        waited.map_err(|error| stream.fail(error))
    }

    fn routes(&self) -> Vec<Route> {
        let is_eager = |send: &Side| {
            let near = self.near.as_ref();
            near.is_some_and(|near| near.messages.engine().is_eager(send.peer, send.bytes))
        };
        let path = |send: &Side| match &self.far {
            Some(far) if send.is_far => far.path(),
            _ if is_eager(send) => ("packed, eager", "it fits a packet"),
            _ => ("packed, rendezvous", "it is longer than a packet"),
        };
        let route = |send: &Side| {
            let (path, reason) = path(send);
            let reason = send.way.told(reason, 1);
            Route { peer: send.peer, bytes: send.bytes, path, reason, executor: Executor::Host }
        };
        self.sends.iter().map(route).collect()
    }
}

impl Drop for Standard {
    /// A rank that panics has more to say, and says it later.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let waited = self.stage.last_waited(self.epoch);
            self.farewell.tell(waited, waited);
        }
    }
}

impl std::fmt::Debug for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Standard({} sends, {} receives, epoch {})", self.sends.len(), self.recvs.len(), self.epoch)
    }
}
