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

/// All of whose calls are made within the context of a device, also those of its end.
pub(super) struct OfDevice<T: ?Sized> {
    device: Arc<dyn Accelerator>,
    /// Until it is dropped.
    inner: Option<Box<T>>,
}

impl<T: ?Sized> OfDevice<T> {
    pub(super) fn new(device: Arc<dyn Accelerator>, inner: Box<T>) -> Box<Self> {
        Box::new(Self { device, inner: Some(inner) })
    }

    fn inner(&self) -> &T {
        self.inner.as_deref().expect(KEPT)
    }

    fn within<R>(&mut self, call: impl Fn(&mut T) -> Result<R>) -> Result<R> {
        let inner = self.inner.as_deref_mut().expect(KEPT);
        within(Some(&self.device), || call(inner))
    }
}

const KEPT: &str = "it is kept until the end";

impl<T: ?Sized> Drop for OfDevice<T> {
    fn drop(&mut self) {
        let inner = &mut self.inner;
        // A device that has failed makes no calls: then it ends without.
        let _ = self.device.within(&mut || drop(inner.take()));
    }
}

impl Carried for OfDevice<dyn Carried> {
    fn progress(&mut self) -> Result<bool> {
        self.within(|inner| inner.progress())
    }

    fn is_quiet(&self) -> bool {
        self.inner().is_quiet()
    }

    fn may_block(&self) -> bool {
        self.inner().may_block()
    }
}

impl Persistent for OfDevice<dyn Persistent> {
    fn start(&mut self) -> Result<()> {
        self.within(|inner| inner.start())
    }

    fn test(&mut self) -> Result<bool> {
        self.within(|inner| inner.test())
    }

    fn late(&self) -> Option<(usize, bool)> {
        self.inner().late()
    }

    fn path(&self) -> (&'static str, &'static str) {
        self.inner().path()
    }
}

impl<T: ?Sized> fmt::Debug for OfDevice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "messages of {}", self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::AnyCalls;
    use std::sync::Mutex;

    /// Notes whether its calls, and its end, are within the device.
    #[derive(Debug)]
    struct Load(Arc<AnyCalls>, Arc<Mutex<Vec<(&'static str, bool)>>>);

    impl Load {
        fn note(&self, call: &'static str) {
            self.1.lock().expect("nobody panics").push((call, self.0.is_in_call()));
        }
    }

    impl Carried for Load {
        fn progress(&mut self) -> Result<bool> {
            self.note("progress");
            Ok(false)
        }

        fn is_quiet(&self) -> bool {
            true
        }
    }

    impl Drop for Load {
        fn drop(&mut self) {
            self.note("drop");
        }
    }

    #[test]
    fn what_is_of_a_device_ends_within_it_too() {
        let (device, notes) = (Arc::new(AnyCalls::default()), Arc::default());
        let load: Box<dyn Carried> = Box::new(Load(device.clone(), Arc::clone(&notes)));
        let mut load = OfDevice::new(device, load);
        assert_eq!(load.progress(), Ok(false));
        drop(load);
        assert_eq!(*notes.lock().expect("nobody panics"), [("progress", true), ("drop", true)]);
    }
}
