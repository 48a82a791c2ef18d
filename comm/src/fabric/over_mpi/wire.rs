//! The wire of the fabric `mpi`: makes exchanges ready, each rank telling its peers what they need.

use super::active::ActiveTarget;
use super::messages::Messages;
use super::persistent::Requests;
use super::windows::Windows;
use crate::error::{Error, Result};
use crate::fabric::carrier::{Carried, Carrier};
use crate::fabric::mpi::Communicator;
use crate::fabric::{
    Bells, Executor, FarExchange, FarMessages, OpenExchange, Persistent, Role, Sides, Told, Wire, tell,
};
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// One rank's end.
#[derive(Debug)]
pub(super) struct MpiWire {
    communicator: Communicator,
    carrier: Arc<Carrier>,
    /// Tags are chosen by the rank that receives with them, and not used twice.
    next_tag: AtomicI32,
    last_tag: i32,
    windows: Windows,
}

/// The tags of an exchange's messages, in the order of its sends and receives.
#[derive(Debug, Default)]
pub(super) struct Tags {
    pub(super) sends: Vec<MessageTags>,
    pub(super) recvs: Vec<MessageTags>,
}

/// The tags of one message: of its payload, and of its receiver's readiness.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageTags {
    pub(super) payload: i32,
    pub(super) readiness: i32,
}

/// What a rank tells of one message: the tag that it receives with, which is that of the payload of a
/// receive and of the readiness for a send, and where a receive lies in its window.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ear {
    tag: i32,
    offset: usize,
}

impl MpiWire {
    /// The library, with its version.
    pub(super) fn engine(&self) -> String {
        let mpi = self.communicator.mpi();
        // Some libraries say more than a line.
        let version = mpi.library_version().unwrap_or_default();
        let version = version.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        format!("{} ({}, {})", version.join(" "), mpi.path().display(), mpi.abi())
    }

    pub(super) fn new(communicator: Communicator, carrier: Arc<Carrier>) -> Result<Arc<Self>> {
        let last_tag = communicator.tag_upper_bound()?;
        Ok(Arc::new(Self {
            communicator,
            carrier,
            next_tag: AtomicI32::new(0),
            last_tag,
            windows: Windows::new(),
        }))
    }

    /// Frees the windows, which libraries complain about otherwise. Collective, when no exchange is left.
    pub(super) fn end(&self) {
        self.carrier.stop();
        // What cannot be freed goes with the process.
        let _ = self.windows.free_all();
    }

    fn take_tag(&self) -> Result<i32> {
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        if tag < 0 || tag > self.last_tag {
            return Err(Error::FabricUnavailable {
                name: "mpi".into(),
                reason: format!(
                    "this library has {} tags and all are used; make exchanges once and keep them",
                    self.last_tag
                ),
            });
        }
        Ok(tag)
    }

    /// Tags for all that this rank receives; `offsets` are by receive.
    fn ears(&self, sends: usize, offsets: impl Iterator<Item = usize>) -> Result<Told<Ear>> {
        let ear = |offset| Ok(Ear { tag: self.take_tag()?, offset });
        Ok(Told {
            sends: (0..sends).map(|_| ear(0)).collect::<Result<_>>()?,
            recvs: offsets.map(ear).collect::<Result<_>>()?,
        })
    }
}

impl Tags {
    /// From what both sides have told.
    fn new(own: &Told<Ear>, theirs: &Told<Ear>) -> Self {
        let pair =
            |payload: &Ear, readiness: &Ear| MessageTags { payload: payload.tag, readiness: readiness.tag };
        Self {
            sends: theirs.sends.iter().zip(&own.sends).map(|(theirs, own)| pair(theirs, own)).collect(),
            recvs: own.recvs.iter().zip(&theirs.recvs).map(|(own, theirs)| pair(own, theirs)).collect(),
        }
    }
}

impl Wire for MpiWire {
    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange> {
        const CALL: &str = "opening an exchange over MPI";
        let done = world.all_gather(&self.windows.done(world.size()))?;
        let freed = self.windows.free(world.size(), &done.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let offsets = exchange.recvs.iter().map(|recv| recv.slots[0].offset());
        let own = self.ears(exchange.sends.len(), offsets);
        let theirs = tell(world, CALL, &Sides::of(&exchange), own.clone())?;
        let tags = Tags::new(&own?, &theirs);
        let bells = freed.and_then(|()| Bells::new(world, &exchange));
        world.agree(CALL, bells.as_ref().map(|_| ()))?;
        let bells = bells?;
        let terms = exchange.terms;
        let is_active = terms.readiness == Role::Exposure;
        let load: Result<Box<dyn Carried>> = if is_active {
            let offsets: Vec<usize> = theirs.sends.iter().map(|ear| ear.offset).collect();
            let region = exchange.recvs.first().map(|recv| recv.slots[0].region().clone());
            let made = self.windows.open(&self.communicator, world.size(), region).and_then(|window| {
                ActiveTarget::new(&self.communicator, exchange, &bells, &tags, &offsets, window)
            });
            made.map(|made| Box::new(made) as Box<dyn Carried>)
        } else {
            let made = Messages::new(&self.communicator, exchange, &bells, &tags);
            made.map(|made| Box::new(made) as Box<dyn Carried>)
        };
        let load = load.and_then(|load| self.carrier.carry(load));
        // Nobody sends before all have posted what they can.
        world.agree(CALL, load.as_ref().map(|_| ()))?;
        // A fabric of the host is not dropped by the thread of a stream, which may not call MPI.
        let executor = self.carrier.executor();
        let fabric = (executor != Executor::Host).then(|| world.shared_fabric().clone());
        Ok(OpenExchange {
            starts: vec![bells.start],
            triggers: bells.triggers,
            departures: bells.departures,
            executor,
            path: match (is_active, terms.buffers) {
                (true, _) => "packed, MPI put",
                (false, 2) => "packed, MPI ready send",
                (false, _) => "packed, MPI send",
            },
            reason: "the peer's memory is not mapped",
            arm: None,
            _fabric: world.shared_fabric().clone(),
            guard: Arc::new((load?, fabric)),
        })
    }

    fn open_two_sided(&self, world: &World, messages: FarMessages) -> Result<Box<dyn Persistent>> {
        const CALL: &str = "making persistent messages over MPI";
        let own = self.ears(messages.sends.len(), messages.recvs.iter().map(|_| 0));
        let theirs = tell(world, CALL, &Sides::of_messages(&messages), own.clone())?;
        let tags = Tags::new(&own?, &theirs);
        let payloads = |tags: &[MessageTags]| tags.iter().map(|tags| tags.payload).collect::<Vec<_>>();
        let made =
            Requests::new(&self.communicator, &messages, &payloads(&tags.sends), &payloads(&tags.recvs));
        world.agree(CALL, made.as_ref().map(|_| ()))?;
        Ok(Box::new(made?))
    }
}
