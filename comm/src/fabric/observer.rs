//! Watching what goes over a fabric: which signals and payloads, from whom to whom, in which order.

use super::{Abort, Carrier, Executor, Fabric, Parted, Partings, Region, Role, WaitPolicy, Wire};
use crate::device::DeviceMemory;
use crate::error::Result;
use crate::locks::lock;
use crate::meeting::Meeting;
use std::sync::{Arc, Mutex};

/// One thing that a rank did to a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What it was.
    pub role: Role,
    /// The rank that did it.
    pub from: usize,
    /// The rank whose memory it went to.
    pub to: usize,
    /// Payload bytes; 0 for signals.
    pub bytes: usize,
}

/// The events of one rank, in the order in which it caused them.
#[derive(Debug, Clone)]
pub struct Recording {
    rank: usize,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recording {
    /// Takes what was recorded since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
    }

    /// A word in the memory of rank `to` was written.
    pub(crate) fn signalled(&self, role: Role, to: usize) {
        self.push(Event { role, from: self.rank, to, bytes: 0 });
    }

    /// Payload was stored into one region of rank `to`.
    pub(crate) fn stored(&self, to: usize, bytes: usize) {
        self.push(Event { role: Role::Payload, from: self.rank, to, bytes });
    }
}

/// A fabric that carries out what another one does and records it.
#[derive(Debug)]
pub struct RecordingFabric {
    inner: Arc<dyn Fabric>,
    recording: Recording,
    /// Whether peers reach the memory of devices if they do over the one that it wraps.
    reaches_devices: bool,
}

impl RecordingFabric {
    /// Wraps a fabric.
    pub fn new(inner: Arc<dyn Fabric>) -> (Arc<Self>, Recording) {
        Self::with(inner, true)
    }

    /// As [`RecordingFabric::new`], but peers do not reach the memory of devices: as over fabrics between processes.
    pub fn walled(inner: Arc<dyn Fabric>) -> (Arc<Self>, Recording) {
        Self::with(inner, false)
    }

    fn with(inner: Arc<dyn Fabric>, reaches_devices: bool) -> (Arc<Self>, Recording) {
        let recording = Recording { rank: inner.rank(), events: Arc::default() };
        (Arc::new(Self { inner, recording: recording.clone(), reaches_devices }), recording)
    }
}

impl Fabric for RecordingFabric {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn executor(&self) -> Executor {
        self.inner.executor()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn allocate(&self, bytes: usize) -> Result<Region> {
        self.inner.allocate(bytes)
    }

    fn reaches_devices(&self) -> bool {
        self.reaches_devices && self.inner.reaches_devices()
    }

    fn takes_handles(&self) -> bool {
        self.reaches_devices && self.inner.takes_handles()
    }

    fn adopt(&self, memory: Arc<DeviceMemory>) -> Region {
        if self.reaches_devices() { self.inner.adopt(memory) } else { Region::private(memory, self.rank()) }
    }

    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
        let region = self.inner.map(owner, key, bytes)?;
        Ok(region.observed(Arc::new(self.recording.clone())))
    }

    fn is_mapped(&self, peer: usize) -> bool {
        self.inner.is_mapped(peer)
    }

    fn wire(&self) -> Option<Arc<dyn Wire>> {
        self.inner.wire()
    }

    fn abort(&self) -> Abort {
        self.inner.abort()
    }

    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
        self.inner.clone().meeting()
    }

    fn wait_policy(&self) -> WaitPolicy {
        self.inner.wait_policy()
    }

    fn tell_failure(&self, rank: usize, operation: &str) {
        self.inner.tell_failure(rank, operation);
    }

    fn partings(&self) -> Option<&Arc<Partings>> {
        self.inner.partings()
    }

    fn tell_parting(&self, peer: usize, parted: &Parted) {
        self.inner.tell_parting(peer, parted);
    }

    fn engine(&self) -> Option<String> {
        self.inner.engine()
    }

    fn carriers(&self) -> Vec<Arc<Carrier>> {
        self.inner.carriers()
    }
}
