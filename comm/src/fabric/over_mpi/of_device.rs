//! Messages whose payloads are in memory of a GPU: libraries want the vendor's context current in the thread that calls.

use crate::device::Accelerator;
use crate::error::Result;
use crate::fabric::Persistent;
use crate::fabric::carrier::Carried;
use std::fmt;
use std::sync::Arc;

/// What a call gives, made within the context of a device if there is one.
pub(super) fn within<T>(
    device: Option<&Arc<dyn Accelerator>>,
    mut call: impl FnMut() -> Result<T>,
) -> Result<T> {
    let Some(device) = device else { return call() };
    let mut given = None;
    device.within(&mut || given = Some(call()))?;
    given.expect("the device has made the call")
}

/// All of whose calls are made within the context of a device.
pub(super) struct OfDevice<T: ?Sized> {
    device: Arc<dyn Accelerator>,
    inner: Box<T>,
}

impl<T: ?Sized> OfDevice<T> {
    pub(super) fn new(device: Arc<dyn Accelerator>, inner: Box<T>) -> Box<Self> {
        Box::new(Self { device, inner })
    }
}

impl Carried for OfDevice<dyn Carried> {
    fn progress(&mut self) -> Result<bool> {
        within(Some(&self.device), || self.inner.progress())
    }

    fn is_quiet(&self) -> bool {
        self.inner.is_quiet()
    }

    fn may_block(&self) -> bool {
        self.inner.may_block()
    }
}

impl Persistent for OfDevice<dyn Persistent> {
    fn start(&mut self) -> Result<()> {
        within(Some(&self.device), || self.inner.start())
    }

    fn test(&mut self) -> Result<bool> {
        within(Some(&self.device), || self.inner.test())
    }

    fn late(&self) -> Option<(usize, bool)> {
        self.inner.late()
    }

    fn path(&self) -> (&'static str, &'static str) {
        self.inner.path()
    }
}

impl<T: ?Sized> fmt::Debug for OfDevice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "messages of {}", self.device.name())
    }
}
