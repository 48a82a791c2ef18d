//! The wire of the fabric `mpi`: makes exchanges ready, each rank telling its peers what they need.

use super::active::ActiveTarget;
use super::messages::Messages;
use super::persistent::Requests;
use super::windows::Windows;
use crate::error::{Error, Result};
use crate::fabric::carrier::{Carried, Carrier};
use crate::fabric::mpi::Communicator;
use crate::fabric::{Bells, Executor, FarExchange, FarMessages, OpenExchange, Persistent, Role, Wire};
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

/// What a rank tells the others of one message.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    peer: usize,
    tag: u32,
    /// What the teller receives with: the payload of a receive, the readiness for a send.
    mpi_tag: i32,
    /// For a receive: its place in the teller's window.
    offset: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    sends: Vec<Told>,
    recvs: Vec<Told>,
    /// Windows that the teller is done with.
    done: Vec<u32>,
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

    fn told<'a>(&self, messages: impl Iterator<Item = (usize, u32, usize)> + 'a) -> Result<Vec<Told>> {
        messages
            .map(|(peer, tag, offset)| Ok(Told { peer, tag, mpi_tag: self.take_tag()?, offset }))
            .collect()
    }
}

/// What `peer` has told of its message with this rank and tag.
fn find(messages: &[Told], own: usize, tag: u32) -> &Told {
    let found = messages.iter().find(|told| (told.peer, told.tag) == (own, tag));
    found.expect("matching has found both sides")
}

/// Tags of all messages, from this rank's side.
fn tags(own: usize, all: &[Announcement]) -> Tags {
    let sends = all[own].sends.iter().map(|send| MessageTags {
        payload: find(&all[send.peer].recvs, own, send.tag).mpi_tag,
        readiness: send.mpi_tag,
    });
    let recvs = all[own].recvs.iter().map(|recv| MessageTags {
        payload: recv.mpi_tag,
        readiness: find(&all[recv.peer].sends, own, recv.tag).mpi_tag,
    });
    Tags { sends: sends.collect(), recvs: recvs.collect() }
}

impl Wire for MpiWire {
    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange> {
        const CALL: &str = "opening an exchange over MPI";
        let sends = exchange.sends.iter().map(|send| (send.peer, send.tag, 0));
        let recvs = exchange.recvs.iter().map(|recv| (recv.peer, recv.tag, recv.slots[0].offset()));
        let done = self.windows.done(world.size());
        let own =
            self.told(sends).and_then(|sends| Ok(Announcement { sends, recvs: self.told(recvs)?, done }));
        let all = world.agree(CALL, own)?;
        let done: Vec<&[u32]> = all.iter().map(|told| &*told.done).collect();
        let freed = self.windows.free(world.size(), &done);
        let tags = tags(world.rank(), &all);
        let bells = freed.and_then(|()| Bells::new(world, &exchange));
        world.agree(CALL, bells.as_ref().map(|_| ()))?;
        let bells = bells?;
        let terms = exchange.terms;
        let is_active = terms.readiness == Role::Exposure;
        let load: Result<Box<dyn Carried>> = if is_active {
            let offsets: Vec<usize> = all[world.rank()]
                .sends
                .iter()
                .map(|send| find(&all[send.peer].recvs, world.rank(), send.tag).offset)
                .collect();
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
        let sides = |messages: &[crate::fabric::FarMessage]| {
            self.told(messages.iter().map(|message| (message.peer, message.tag, 0)))
        };
        let own = sides(&messages.sends)
            .and_then(|sends| Ok(Announcement { sends, recvs: sides(&messages.recvs)?, done: Vec::new() }));
        let all = world.agree(CALL, own)?;
        let tags = tags(world.rank(), &all);
        let payloads = |tags: &[MessageTags]| tags.iter().map(|tags| tags.payload).collect::<Vec<_>>();
        let made =
            Requests::new(&self.communicator, &messages, &payloads(&tags.sends), &payloads(&tags.recvs));
        world.agree(CALL, made.as_ref().map(|_| ()))?;
        Ok(Box::new(made?))
    }
}
