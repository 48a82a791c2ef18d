//! Persistent requests in one array, as the calls for several of them take it.

use super::abi::{Handle, RawStatus};
use super::request::{Kind, Request};
use super::{Mpi, count};
use crate::error::{Error, Result};
use std::ffi::{c_int, c_void};
use std::fmt::Debug;
use std::ops::Range;

/// An array of handles with the width that the library has in arrays.
#[derive(Debug)]
enum Handles {
    Narrow(Vec<u32>),
    Wide(Vec<Handle>),
}

impl Handles {
    fn push(&mut self, handle: Handle) {
        match self {
            Handles::Narrow(handles) => handles.push(handle as u32), // the library's own width
            Handles::Wide(handles) => handles.push(handle),
        }
    }

    /// The address of one, behind which the others follow.
    fn at(&mut self, index: usize) -> *mut c_void {
        match self {
            Handles::Narrow(handles) => (&raw mut handles[index..]).cast(),
            Handles::Wide(handles) => (&raw mut handles[index..]).cast(),
        }
    }
}

/// Persistent requests that are started and tested together. Its calls allocate nothing, except `push`.
///
/// Dropping it frees the requests, after it has cancelled the receives that are active. What they read and write is let go
/// of then; or never, where the library may still use it: after a failure, or while a receiver takes its time.
#[derive(Debug)]
pub(crate) struct RequestSet {
    mpi: &'static Mpi,
    handles: Handles,
    /// Which requests are active, and which of all are receives.
    active: Vec<bool>,
    receives: Vec<bool>,
    /// Where the library puts the indices of completed requests.
    indices: Vec<c_int>,
    /// And their statuses, one after the other, in which only errors are looked for.
    statuses: Vec<RawStatus>,
    memory: Vec<Kept>,
}

/// Memory that lives as long as this does.
type Kept = Box<dyn Debug + Send>;

impl RequestSet {
    /// An empty set.
    pub(crate) fn new(mpi: &'static Mpi) -> Self {
        let handles = if mpi.constants.narrow_handles {
            Handles::Narrow(Vec::new())
        } else {
            Handles::Wide(Vec::new())
        };
        Self {
            mpi,
            handles,
            active: Vec::new(),
            receives: Vec::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Keeps what the requests read or write.
    pub(crate) fn keep(&mut self, memory: impl Debug + Send + 'static) {
        self.memory.push(Box::new(memory));
    }

    /// How many requests there are.
    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Adds an inactive persistent request, and returns its index.
    pub(crate) fn push(&mut self, request: Request) -> usize {
        debug_assert!(std::ptr::eq(request.mpi(), self.mpi), "there is one library in a process");
        self.handles.push(request.handle);
        self.active.push(false);
        self.receives.push(request.kind == Kind::Receive);
        self.indices.push(0);
        self.statuses.push(RawStatus::default());
        self.len() - 1
    }

    /// Starts one.
    ///
    /// # Safety
    /// It is not active, and its memory is as its making demands; the receive of a ready send is started.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn start(&mut self, index: usize) -> Result<()> {
        let request = self.handles.at(index);
        // SAFETY: the handle is that of a request; the rest is the caller's.
        unsafe { self.mpi.table.start(request) }?;
        self.active[index] = true;
        Ok(())
    }

    /// Starts those with these indices.
    ///
    /// # Safety
    /// As [`RequestSet::start`], for each.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn start_all(&mut self, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let active = &mut self.active[range.clone()];
        let requests = self.handles.at(range.start);
        // SAFETY: as many handles follow as the range has, which was checked against the array; the rest is the caller's.
        unsafe { self.mpi.table.start_all(count("MPI_Startall", range.len())?, requests) }?;
        active.fill(true);
        Ok(())
    }

    /// Finds requests that have completed: puts their indices into `completed`, in place of what is there.
    /// Returns whether any was active. Allocates only if `completed` has room for fewer than all.
    ///
    /// # Errors
    /// [`Error::Mpi`] of the first request that has failed; `completed` is filled all the same.
    pub(crate) fn test_some(&mut self, completed: &mut Vec<usize>) -> Result<bool> {
        completed.clear();
        if self.is_empty() {
            return Ok(false);
        }
        let (mpi, number) = (self.mpi, count("MPI_Testsome", self.len())?);
        let mut found = 0;
        let (requests, indices) = (self.handles.at(0), self.indices.as_mut_ptr());
        let statuses = self.statuses.as_mut_ptr().cast();
        // SAFETY: all arrays have as many places as there are requests.
        let tested = unsafe { mpi.table.test_some(number, requests, &raw mut found, indices, statuses) };
        if found == mpi.constants.undefined {
            return tested.map(|()| false);
        }
        let found = usize::try_from(found).unwrap_or(0).min(self.len());
        // Those that failed have completed as well.
        for index in &self.indices[..found] {
            let index = *index as usize;
            self.active[index] = false;
            completed.push(index);
        }
        tested.map_err(|error| self.explained(error, found))?;
        Ok(true)
    }

    /// An error that only refers to the statuses, with what stands in the first one that has failed.
    #[cold]
    fn explained(&self, error: Error, found: usize) -> Error {
        let constants = &self.mpi.constants;
        let code = |place| RawStatus::error_in(&self.statuses, place, constants);
        let failed = (0..found).map(|place| (code(place), self.indices[place])).find(|(code, _)| *code != 0);
        let Error::Mpi { call, reason } = error else { return error };
        let reason = match failed {
            Some((code, index)) => format!("request {index}: {}", self.mpi.table.text(code)),
            // MPICH 5.0 and Intel MPI leave the statuses without it.
            None => format!(
                "one of the requests {:?}, the library does not say why: {reason}",
                &self.indices[..found]
            ),
        };
        Error::Mpi { call, reason }
    }

    /// Whether an active request has ended. MPI has a receive that is cancelled end by itself, without the sender, but not
    /// at once.
    fn ends(&mut self, index: usize) -> Result<bool> {
        const TRIES: usize = 1000;
        let mpi = self.mpi;
        let request = self.handles.at(index);
        if self.receives[index] {
            // SAFETY: the handle is that of an active request.
            unsafe { mpi.table.cancel(request) }?;
        }
        for _ in 0..TRIES {
            let mut status = RawStatus::default();
            let mut flag = 0;
            let place = status.as_mut_ptr();
            // SAFETY: the handle is that of a request; all places live through the call.
            unsafe { mpi.table.test(request, &raw mut flag, place) }?;
            if flag != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees the requests; whether none of them is active any more.
    fn free(&mut self) -> bool {
        let mut has_ended = true;
        for index in 0..self.len() {
            // One that does not end is freed all the same; nobody is there to be told.
            has_ended &= !self.active[index] || self.ends(index).unwrap_or(false);
            let request = self.handles.at(index);
            // SAFETY: the handle is that of a request, which nobody has after this.
            let _ = unsafe { self.mpi.table.request_free(request) };
        }
        has_ended
    }
}

impl Drop for RequestSet {
    fn drop(&mut self) {
        // After a failure other ranks may be gone, and the whole job ends with this process.
        let may_call = self.mpi.is_running() && !self.mpi.is_poisoned();
        let has_ended = self.is_empty() || (may_call && self.free());
        if !has_ended {
            std::mem::forget(std::mem::take(&mut self.memory));
        }
    }
}
