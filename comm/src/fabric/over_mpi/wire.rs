//! The wire of the fabric `mpi`: makes exchanges ready, each rank telling its peers what they need.

use super::communicators::Communicators;
use super::half::{Ear, Half, MessageTags, Tags};
use super::of_device::{OfDevice, within};
use super::packets::{Counts, MpiMessaging, settled};
use super::persistent::Requests;
use super::windows::Windows;
use crate::device::{Takes, Vendor};
use crate::error::{Error, Result};
use crate::fabric::carrier::Carrier;
use crate::fabric::messaging::{Mail, State};
use crate::fabric::mpi::Communicator;
use crate::fabric::{
    Bells, FarExchange, FarMessages, FarPackets, HalfOpen, Keep, OpenExchange, PerMessage, Persistent, Sides,
    WaitContext, Wire, tell,
};
use crate::locks::lock;
use crate::meeting::{Meeting, all_gather};
use crate::world::World;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

/// One rank's end.
#[derive(Debug)]
pub(super) struct MpiWire {
    /// Is not freed: who drops an exchange need not have received all that its peers have sent, which could be taken
    /// for a message of a later communicator.
    communicator: Communicator,
    carrier: Arc<Carrier>,
    /// Tags are chosen by the rank that receives with them, and not used twice.
    next_tag: AtomicI32,
    last_tag: i32,
    windows: Windows,
    /// What peers may still send to.
    packets: Keep<Mutex<State<MpiMessaging>>>,
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

    pub(super) fn new(communicators: Arc<Communicators>, carrier: Arc<Carrier>) -> Result<Arc<Self>> {
        let communicator = communicators.base().duplicate()?;
        // The greatest is for making communicators.
        let last_tag = communicator.tag_upper_bound()? - 1;
        Ok(Arc::new(Self {
            communicator,
            carrier,
            next_tag: AtomicI32::new(0),
            last_tag,
            windows: Windows::new(communicators),
            packets: Keep::new(),
        }))
    }

    /// Frees the windows, which libraries complain about otherwise, and what else can be. Collective, when no exchange
    /// is left.
    pub(super) fn end(&self, size: usize, meeting: &dyn Meeting, context: &WaitContext) {
        self.carrier.stop();
        // What cannot be freed goes with the process.
        let _ = self.windows.free_all(|done| all_gather(meeting, context, done));
        let _ = self.free_packets(size, |said| all_gather(meeting, context, said));
        self.packets.take_all();
    }

    /// Frees the communicators of packets that all ranks are done with, if nothing is on its way any more: a
    /// message that comes later could be taken for one of another communicator. Collective.
    fn free_packets(
        &self,
        size: usize,
        all_gather: impl FnOnce(&Vec<(u32, Counts)>) -> Result<Vec<Vec<(u32, Counts)>>>,
    ) -> Result<()> {
        let done = self.packets.done_as(size, |state| {
            let mut state = lock(state);
            state.discard().map(|()| state.messages())
        });
        let said = done.into_iter().filter_map(|(number, said)| Some((number, said.ok()?)));
        let settled = settled(&all_gather(&said.collect())?);
        for state in self.packets.take(size, &[&settled]) {
            let mut state = lock(&state);
            let communicator = state.library().communicator().clone();
            // Whatever does not end keeps the communicator until it does.
            state.end();
            communicator.free()?;
        }
        Ok(())
    }

    fn take_tag(&self) -> Result<i32> {
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        if tag < 0 || tag > self.last_tag {
            return Err(Error::FabricUnavailable {
                name: "mpi".into(),
                reason: format!(
                    "this library has {} tags and all are used; make exchanges once and keep them",
                    i64::from(self.last_tag) + 1
                ),
            });
        }
        Ok(tag)
    }

    /// Tags for all that this rank receives; `offsets` are by receive.
    fn ears(&self, sends: usize, offsets: impl Iterator<Item = usize>) -> Result<PerMessage<Ear>> {
        let ear = |offset| Ok(Ear { tag: self.take_tag()?, offset });
        Ok(PerMessage {
            sends: (0..sends).map(|_| ear(0)).collect::<Result<_>>()?,
            recvs: offsets.map(ear).collect::<Result<_>>()?,
        })
    }

    /// This rank's side of an exchange. Does not communicate.
    fn half(&self, world: &World, exchange: FarExchange) -> Result<Half> {
        let offsets = exchange.recvs.iter().map(|recv| recv.slots[0].offset());
        Ok(Half {
            communicator: self.communicator.clone(),
            carrier: self.carrier.clone(),
            fabric: world.shared_fabric().clone(),
            own: self.ears(exchange.sends.len(), offsets)?,
            bells: Bells::new(world, &exchange)?,
            exchange,
        })
    }
}

impl Wire for MpiWire {
    fn takes(&self, vendor: Vendor) -> Takes {
        self.communicator.mpi().takes(vendor)
    }

    fn has_windows(&self) -> bool {
        true
    }

    fn open(&self, world: &World, exchange: FarExchange) -> Result<OpenExchange> {
        const CALL: &str = "opening an exchange over MPI";
        let done = world.all_gather(&self.windows.done(world.size()))?;
        let freed = self.windows.free(world.size(), &done.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let sides = Sides::of(&exchange);
        let half = freed.and_then(|()| self.half(world, exchange));
        let theirs =
            tell(world, CALL, &sides, half.as_ref().map(|half| half.own.clone()).map_err(Clone::clone))?;
        let half = half?;
        let window = half.is_active().then(|| {
            let region = half.exchange.recvs.first().map(|recv| recv.slots[0].region().clone());
            self.windows.open(world.size(), region, half.exchange.device.as_ref())
        });
        let opened = window.transpose().and_then(|window| half.complete(&theirs, window));
        // Nobody sends before all have posted what they can.
        world.agree(CALL, opened.as_ref().map(|_| ()))?;
        opened
    }

    fn begin_pair(&self, world: &World, exchange: FarExchange) -> Result<(Vec<u8>, Box<dyn HalfOpen>)> {
        let half = self.half(world, exchange)?;
        let ear = half.own.sends.iter().chain(&half.own.recvs).next();
        let told = postcard::to_stdvec(ear.expect("a pair has one message"))
            .map_err(|error| Error::System { call: "encoding a message", reason: error.to_string() })?;
        Ok((told, Box::new(half)))
    }

    fn open_packets(&self, world: &World) -> Result<Box<dyn FarPackets>> {
        const CALL: &str = "connecting ranks for packets over MPI";
        let freed = self.free_packets(world.size(), |said| world.all_gather(said));
        // Making a communicator blocks without a time-out: not before all have come.
        world.agree(CALL, freed)?;
        let communicator = self.communicator.first(world.size());
        let made = communicator.and_then(MpiMessaging::new).and_then(|library| State::new(world, library));
        let opened = made.and_then(|state| {
            let shared = Arc::new(Mutex::new(state));
            Ok((Mail::open(world, &self.carrier, shared.clone())?, shared))
        });
        world.agree(CALL, opened.as_ref().map(|_| ()))?;
        let (mail, shared) = opened?;
        self.packets.add(world.size(), shared);
        Ok(mail)
    }

    fn open_two_sided(&self, world: &World, messages: FarMessages) -> Result<Box<dyn Persistent>> {
        const CALL: &str = "making persistent messages over MPI";
        let own = self.ears(messages.sends.len(), messages.recvs.iter().map(|_| 0));
        let theirs = tell(world, CALL, &Sides::of_messages(&messages), own.clone())?;
        let tags = Tags::new(&own?, &theirs);
        let payloads = |tags: &[MessageTags]| tags.iter().map(|tags| tags.payload).collect::<Vec<_>>();
        let [sends, recvs] = [&tags.sends, &tags.recvs].map(|tags| payloads(tags));
        let device = messages.device.as_ref();
        let made = within(device, || Requests::new(&self.communicator, &messages, &sends, &recvs));
        world.agree(CALL, made.as_ref().map(|_| ()))?;
        let made: Box<dyn Persistent> = Box::new(made?);
        Ok(match messages.device {
            Some(device) => OfDevice::new(device, made),
            None => made,
        })
    }
}
