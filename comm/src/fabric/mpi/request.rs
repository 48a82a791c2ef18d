//! One operation under way.

use super::Mpi;
use super::abi::{Handle, RawStatus};
use crate::error::Result;
use std::ffi::c_void;

/// What was received, or can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// The sending rank.
    pub(crate) source: usize,
    /// The message's tag.
    pub(crate) tag: i32,
    /// Its size.
    pub(crate) bytes: usize,
}

impl Status {
    /// What is said of anything but a receive.
    const NOTHING_RECEIVED: Status = Status { source: usize::MAX, tag: 0, bytes: 0 };

    pub(super) fn of(mpi: &Mpi, raw: &RawStatus) -> Result<Self> {
        let mut bytes = 0;
        // SAFETY: the status was filled by the library; the place lives through the call.
        unsafe { mpi.table.get_count(raw.as_ptr(), mpi.constants.byte, &raw mut bytes) }?;
        let source = usize::try_from(raw.source(&mpi.constants)).unwrap_or(usize::MAX);
        Ok(Self { source, tag: raw.tag(&mpi.constants), bytes: usize::try_from(bytes).unwrap_or(0) })
    }
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Receive,
    Collective,
}

/// An operation. Dropping it does nothing: the operation goes on, and the handle is lost.
#[derive(Debug)]
#[must_use = "an operation completes only when its request is tested"]
pub(crate) struct Request {
    mpi: &'static Mpi,
    pub(super) handle: Handle,
    pub(super) kind: Kind,
}

impl Request {
    pub(super) fn new(mpi: &'static Mpi, kind: Kind) -> Self {
        // Zero, so that the upper half of a 32-bit handle is.
        Self { mpi, handle: 0, kind }
    }

    pub(super) fn place(&mut self) -> *mut Handle {
        &raw mut self.handle
    }

    fn pointer(&mut self) -> *mut c_void {
        (&raw mut self.handle).cast()
    }

    pub(super) fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// What has come of the operation, if it has completed; `source` and `bytes` are those of a receive.
    /// A persistent request can then be started again, any other is at its end. One that is not active
    /// counts as completed.
    ///
    /// # Errors
    /// [`Error::Mpi`](crate::Error::Mpi).
    pub(crate) fn test(&mut self) -> Result<Option<Status>> {
        let mut status = RawStatus::default();
        let mut flag = 0;
        let (request, place) = (self.pointer(), status.as_mut_ptr());
        // SAFETY: the handle is a request's; all places live through the call.
        unsafe { self.mpi.table.test(request, &raw mut flag, place) }?;
        match (flag != 0, self.kind) {
            (false, _) => Ok(None),
            (true, Kind::Receive) => Status::of(self.mpi, &status).map(Some),
            (true, _) => Ok(Some(Status::NOTHING_RECEIVED)),
        }
    }

    /// Asks for the end of an active operation, which still has to be tested.
    ///
    /// # Errors
    /// [`Error::Mpi`](crate::Error::Mpi).
    pub(crate) fn cancel(&mut self) -> Result<()> {
        let request = self.pointer();
        // SAFETY: the handle is a request's.
        unsafe { self.mpi.table.cancel(request) }
    }
}
