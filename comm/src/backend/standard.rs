//! `standard`: the way without streams, the baseline of every paper.
//!
//! The host synchronises the stream, starts persistent two-sided sends, and waits for them and
//! for its receives. Every message is matched by source and tag at every start.

use super::matching::{Rules, match_all};
use super::protocol::{BIND, START_RECVS, START_SENDS, Stage, WAIT};
use super::{BackendRow, Exchange, ExchangeSpec, Route, Slot};
use crate::device::{MoveTable, Stream, serve};
use crate::error::Result;
use crate::fabric::{EAGER_BYTES, Executor, Place, Role, Ticket, TwoSided, phase};
use crate::world::World;
use std::sync::Arc;

pub(super) const ROW: BackendRow = BackendRow {
    name: "standard",
    summary: "two-sided messages, started and waited for by the host",
    source: "the baseline of every paper",
    by_host: true,
    make: |world, _stream, spec| Ok(Box::new(Standard::matched(world, &spec)?)),
};

const RULES: Rules = Rules { clear: Role::ClearToSend, arrival: Role::Completion, direct: None };

struct Standard {
    world: World,
    epoch: u32,
    stage: Stage,
    sends: Vec<Side>,
    recvs: Vec<Side>,
    tickets: Vec<Ticket>,
    moves: Vec<[Arc<MoveTable>; 2]>,
}

/// One message: its place in the staging memory, and its request.
struct Side {
    peer: usize,
    bytes: usize,
    place: Place,
    ticket: Ticket,
}

impl Standard {
    fn matched(world: &World, spec: &ExchangeSpec) -> Result<Self> {
        let plan = match_all(world, spec, RULES)?;
        let mut peers: Vec<usize> =
            plan.sends.iter().map(|send| send.peer).chain(plan.recvs.iter().map(|recv| recv.peer)).collect();
        peers.sort_unstable();
        peers.dedup();
        TwoSided::connect(world, &peers)?;
        // Staging: the sends, then the receives, each on lines of its own.
        let mut next = 0;
        let mut take = |bytes: usize| {
            let offset = next;
            next += bytes.next_multiple_of(64);
            offset
        };
        let send_offsets: Vec<usize> = plan.sends.iter().map(|send| take(send.bytes)).collect();
        let recv_offsets: Vec<usize> = plan.recvs.iter().map(|recv| take(recv.bytes)).collect();
        let staging = world.fabric().allocate(next.max(64));
        let keys = world
            .agree("match_exchange", staging.as_ref().map(|staging| (staging.key(), staging.bytes())))?;
        let staging = staging?;
        let requests = || -> Result<(Vec<Side>, Vec<Side>)> {
            let mut engine = world.two_sided().borrow_mut();
            let sends = plan.sends.iter().zip(send_offsets).map(|(send, offset)| {
                let place = staging.place(offset, send.bytes, "a staged send")?;
                let (key, bytes) = keys[send.peer];
                let target = world.fabric().map(send.peer, key, bytes)?;
                let ticket = engine.send_init(send.peer, send.tag, place.clone(), send.bytes, target);
                Ok(Side { peer: send.peer, bytes: send.bytes, place, ticket })
            });
            let sends = sends.collect::<Result<Vec<_>>>()?;
            let recvs = plan.recvs.iter().zip(recv_offsets).map(|(recv, offset)| {
                let place = staging.place(offset, recv.bytes, "a staged receive")?;
                let ticket = engine.recv_init(recv.peer, recv.tag, place.clone(), recv.bytes);
                Ok(Side { peer: recv.peer, bytes: recv.bytes, place, ticket })
            });
            Ok((sends, recvs.collect::<Result<Vec<_>>>()?))
        };
        let made = requests();
        world.agree("match_exchange", made.as_ref().map(|_| ()))?;
        let (sends, recvs) = made?;
        let tickets = recvs.iter().chain(&sends).map(|side| side.ticket).collect();
        Ok(Self {
            world: world.clone(),
            epoch: spec.last_epoch,
            stage: Stage::Unbound,
            sends,
            recvs,
            tickets,
            moves: Vec::new(),
        })
    }
}

impl Exchange for Standard {
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

    fn start_recvs(&mut self, _stream: &Stream) -> Result<()> {
        self.stage.take(&START_RECVS)?;
        self.epoch = self.epoch.wrapping_add(1);
        Ok(())
    }

    fn start_sends(&mut self, stream: &Stream) -> Result<()> {
        self.stage.take(&START_SENDS)?;
        for moves in &self.moves {
            stream.enqueue_move(&moves[phase(self.epoch)]);
        }
        stream.synchronize()?;
        // Only now has the stream unpacked the last messages: before, any progress of the host could
        // have put the next ones into their place.
        let mut engine = self.world.two_sided().borrow_mut();
        for recv in &self.recvs {
            engine.start(recv.ticket);
        }
        for send in &self.sends {
            engine.start(send.ticket);
        }
        Ok(())
    }

    fn flush(&mut self, _stream: &Stream) {}

    fn wait(&mut self, stream: &Stream) -> Result<()> {
        self.stage.take(&WAIT)?;
        let engine = self.world.two_sided();
        let waited = TwoSided::wait(engine, self.world.wait_context(), &self.tickets, &mut || {
            TwoSided::progress_others(Some(engine)) | (serve() > 0)
        });
        waited.map_err(|error| stream.fail(error))
    }

    fn routes(&self) -> Vec<Route> {
        let route = |send: &Side| Route {
            peer: send.peer,
            bytes: send.bytes,
            path: if send.bytes <= EAGER_BYTES { "packed, eager" } else { "packed, rendezvous" },
            reason: if send.bytes <= EAGER_BYTES {
                "it fits a cell of the ring"
            } else {
                "it is longer than a cell of the ring"
            },
            executor: Executor::Host,
        };
        self.sends.iter().map(route).collect()
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        let mut engine = self.world.two_sided().borrow_mut();
        for ticket in &self.tickets {
            engine.free(*ticket);
        }
    }
}

impl std::fmt::Debug for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Standard({} sends, {} receives, epoch {})", self.sends.len(), self.recvs.len(), self.epoch)
    }
}
