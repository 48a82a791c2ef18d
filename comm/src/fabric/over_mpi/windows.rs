//! The windows of a rank. Making and freeing one is collective.

use super::communicators::Communicators;
use super::of_device::within;
use crate::device::Accelerator;
use crate::error::Result;
use crate::fabric::mpi::{Communicator, Window};
use crate::fabric::{Keep, Region};
use crate::locks::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A window, and the memory that it is of.
#[derive(Debug)]
pub(super) struct OwnWindow {
    pub(super) window: Window,
    _memory: Option<Region>,
    /// Whose memory it is, if not the host's.
    device: Option<Arc<dyn Accelerator>>,
}

impl OwnWindow {
    /// Frees it. Collective over its ranks.
    fn free(self) -> Result<()> {
        let Self { window, _memory, device } = self;
        let mut window = Some(window);
        let freed = within(device.as_ref(), || window.take().map_or(Ok(()), Window::free));
        // The others wait for it, whatever has become of this rank's device.
        window.map_or(freed, Window::free)
    }
}

/// By how many of the first ranks are in it, the windows that a rank is done with.
pub(super) type Done = (usize, Vec<u32>);

/// All of them.
#[derive(Debug)]
pub(super) struct Windows {
    all: Arc<Communicators>,
    /// By how many of the first ranks are in it.
    communicators: Mutex<HashMap<usize, Communicator>>,
    keep: Keep<OwnWindow>,
}

impl Windows {
    pub(super) fn new(all: Arc<Communicators>) -> Self {
        Self { all, communicators: Mutex::default(), keep: Keep::new() }
    }

    /// A window over the first `size` ranks, of this rank's `memory`, which is that of `device` if not the host's.
    /// Collective over them.
    pub(super) fn open(
        &self,
        size: usize,
        memory: Option<Region>,
        device: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Arc<OwnWindow>> {
        let mut communicators = lock(&self.communicators);
        let communicator = match communicators.get(&size) {
            Some(communicator) => communicator.clone(),
            None => communicators.entry(size).or_insert(self.all.first(&self.all.base(), size)?).clone(),
        };
        let (base, bytes) =
            memory.as_ref().map_or((std::ptr::null_mut(), 0), |memory| (memory.address(), memory.bytes()));
        // SAFETY: the memory is kept beside the window.
        let create = || unsafe { Window::create(base, bytes, &communicator) };
        let window = within(device, create)?;
        let window = Arc::new(OwnWindow { window, _memory: memory, device: device.cloned() });
        self.keep.add(size, window.clone());
        Ok(window)
    }

    /// The windows over the first `size` ranks that this rank is done with.
    pub(super) fn done(&self, size: usize) -> Vec<u32> {
        self.keep.done(size)
    }

    /// Frees all that all of their ranks are done with, which leaves those that were let go of in an epoch. Collective over
    /// all ranks, when no exchange is left.
    pub(super) fn free_all(
        &self,
        all_gather: impl FnOnce(&Vec<Done>) -> Result<Vec<Vec<Done>>>,
    ) -> Result<()> {
        let mut sizes: Vec<usize> = lock(&self.communicators).keys().copied().collect();
        // In an order that is the same on all ranks.
        sizes.sort_unstable();
        let own: Vec<Done> = sizes.into_iter().map(|size| (size, self.done(size))).collect();
        let all = all_gather(&own)?;
        let said = |rank: usize, size: usize| {
            let said = all[rank].iter().find(|(other, _)| *other == size);
            said.map_or(&[][..], |(_, done)| done)
        };
        own.iter().try_for_each(|(size, _)| {
            self.free(*size, &(0..*size).map(|rank| said(rank, *size)).collect::<Vec<_>>())
        })
    }

    /// Frees those that all ranks are done with. Collective over the first `size` ranks.
    pub(super) fn free(&self, size: usize, done: &[&[u32]]) -> Result<()> {
        self.keep.take(size, done).into_iter().try_for_each(OwnWindow::free)
    }
}
