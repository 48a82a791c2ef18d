//! Windows: memory that other ranks put data into, between a post and a start on both sides.

use super::abi::Handle;
use super::communicator::Communicator;
use super::{Mpi, count, rank_number};
use crate::error::{Error, Result};
use std::ffi::c_int;

/// Some ranks of a communicator.
#[derive(Debug)]
pub(crate) struct Group {
    mpi: &'static Mpi,
    pub(super) handle: Handle,
}

impl Group {
    /// The group of these ranks. Not collective.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn new(comm: &Communicator, ranks: &[usize]) -> Result<Self> {
        let mpi = comm.mpi;
        let ranks: Vec<c_int> = ranks.iter().map(|rank| rank_number(*rank)).collect();
        let number = count("MPI_Group_incl", ranks.len())?;
        let (mut all, mut handle) = (0, 0);
        // SAFETY: the handle is a communicator's; the place lives through the call.
        unsafe { mpi.table.comm_group(comm.handle, &raw mut all) }?;
        // SAFETY: the handle is a group's, and the array has as many ranks as it is said to.
        let made = unsafe { mpi.table.group_incl(all, number, ranks.as_ptr(), &raw mut handle) };
        // SAFETY: the handle is a group's, which nobody has after this.
        unsafe { mpi.table.group_free(&raw mut all) }?;
        made.map(|()| Self { mpi, handle })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.mpi.is_running() && !self.mpi.is_poisoned() {
            // A group that cannot be freed goes with the process.
            // SAFETY: the handle is a group's, which nobody has after this.
            let _ = unsafe { self.mpi.table.group_free(&raw mut self.handle) };
        }
    }
}

/// A window: memory of every rank of a communicator. Offsets are in bytes.
///
/// What is called in which order follows MPI 4.1, section 12.5: `post`, then `test` until it holds, on the side
/// whose memory is written; `start`, `put`, `complete` on the other.
#[derive(Debug)]
pub(crate) struct Window {
    mpi: &'static Mpi,
    handle: Handle,
}

impl Window {
    /// Makes a window of memory of this rank, and of others of theirs. Collective; blocks.
    ///
    /// # Safety
    /// `base` is good for reads and writes of `bytes` bytes until the window is freed.
    ///
    /// # Errors
    /// [`Error::Mpi`], also if `base` is not aligned to 64 bytes: MPICH 4.0 on UCX rounds it down to 16, and
    /// then writes to the wrong place. All ranks have to keep to that, lest the others wait for one that did not.
    pub(crate) unsafe fn create(base: *mut u8, bytes: usize, comm: &Communicator) -> Result<Self> {
        const ALIGNMENT: usize = 64; // that of a region, and more than any library asks for
        if !base.addr().is_multiple_of(ALIGNMENT) {
            return Err(Error::Mpi {
                call: "MPI_Win_create",
                reason: format!(
                    "the memory at {base:p} is not aligned to {ALIGNMENT} bytes, as libraries need it; allocate it so"
                ),
            });
        }
        let mpi = comm.mpi;
        let mut handle = 0;
        // No object is larger than an `isize` can say.
        let (bytes, info) = (bytes as isize, mpi.constants.info_null);
        // SAFETY: the memory is the caller's; the handles are those of a communicator and of no hints.
        unsafe { mpi.table.win_create(base.cast(), bytes, 1, info, comm.handle, &raw mut handle) }?;
        mpi.handle_window_errors(handle)?;
        Ok(Self { mpi, handle })
    }

    fn assertion(&self, nocheck: bool) -> c_int {
        if nocheck { self.mpi.constants.mode_nocheck } else { 0 }
    }

    /// Lets the ranks of a group write. With `nocheck` the caller vouches that none of them has started yet.
    ///
    /// # Safety
    /// Nothing of the memory that they write is used until [`Window::test`] holds; with `nocheck`, the order is as said.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn post(&self, group: &Group, nocheck: bool) -> Result<()> {
        // SAFETY: the handles are those of a group and of a window; the rest is the caller's.
        unsafe { self.mpi.table.win_post(group.handle, self.assertion(nocheck), self.handle) }
    }

    /// Begins to write to the ranks of a group. May wait for their posts, unless `nocheck` says that they
    /// are known to have been made.
    ///
    /// # Safety
    /// With `nocheck`, the posts have been made, also with it.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn start(&self, group: &Group, nocheck: bool) -> Result<()> {
        // SAFETY: the handles are those of a group and of a window; the rest is the caller's.
        unsafe { self.mpi.table.win_start(group.handle, self.assertion(nocheck), self.handle) }
    }

    /// Writes bytes to `offset` bytes into the window of rank `target`, of any size: as several puts where
    /// MPI cannot count them.
    ///
    /// # Safety
    /// The bytes must stay, unchanged, until [`Window::complete`]; they must lie within the target's window.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn put(
        &self,
        data: *const u8,
        bytes: usize,
        target: usize,
        offset: usize,
    ) -> Result<()> {
        const PIECE: usize = 1 << 30;
        let (target, byte) = (rank_number(target), self.mpi.constants.byte);
        let mut done = 0;
        while done < bytes {
            let piece = count("MPI_Put", (bytes - done).min(PIECE))?;
            let from = data.wrapping_add(done).cast();
            let to = (offset + done) as isize;
            // SAFETY: the caller keeps the bytes; the handles are valid.
            unsafe { self.mpi.table.put(from, piece, byte, target, to, piece, byte, self.handle) }?;
            done += PIECE;
        }
        Ok(())
    }

    /// Ends what [`Window::start`] began: the bytes of all puts may be changed. Blocks until they have left.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn complete(&self) -> Result<()> {
        // SAFETY: the handle is a window's.
        unsafe { self.mpi.table.win_complete(self.handle) }
    }

    /// Whether all that was posted for have completed, so that their data is there. Holds once for each post.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn test(&self) -> Result<bool> {
        let mut flag = 0;
        // SAFETY: the handle is a window's; the place lives through the call.
        unsafe { self.mpi.table.win_test(self.handle, &raw mut flag) }?;
        Ok(flag != 0)
    }

    /// Frees the window. Collective; blocks until all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn free(mut self) -> Result<()> {
        // SAFETY: the handle is a window's, which nobody has after this.
        unsafe { self.mpi.table.win_free(&raw mut self.handle) }
    }
}
