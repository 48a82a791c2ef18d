//! Communicators: who can talk to whom, point-to-point and collective calls that do not block.

use super::abi::{Handle, RawStatus};
use super::request::{Kind, Request, Status};
use super::window::Group;
use super::{Mpi, count, rank_number, unavailable};
use crate::error::{Error, Result};
use std::ffi::{c_int, c_void};

/// A communicator. Cloning copies the handle; [`Communicator::free`] frees it for all clones.
#[derive(Debug, Clone)]
pub(crate) struct Communicator {
    pub(super) mpi: &'static Mpi,
    pub(super) handle: Handle,
}

impl Mpi {
    /// All processes of the job. Duplicate it before messages are sent, lest they meet an application's.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if MPI is not running.
    pub(crate) fn world(&'static self) -> Result<Communicator> {
        self.communicator(self.constants.comm_world)
    }

    /// All processes that the launcher has started, whoever has initialised MPI: under the launcher of another library each
    /// would be alone.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if those of [`Mpi::world`] are more or fewer, or one alone of which the environment says
    /// that it is one of several; as there.
    pub(crate) fn launched_world(&'static self) -> Result<Communicator> {
        let world = self.world()?;
        let size = world.size()?;
        if let Some(reason) = self.launcher.wrong_size(self.path(), size) {
            return Err(unavailable(reason));
        }
        if size == 1 {
            crate::fabric::check_alone("mpi")?;
        }
        Ok(world)
    }

    fn communicator(&'static self, handle: Handle) -> Result<Communicator> {
        if !self.is_running() {
            return Err(Error::OutOfOrder {
                call: "MPI_Comm_rank",
                reason: "MPI has to be started first, and not finalised".to_owned(),
            });
        }
        Ok(Communicator { mpi: self, handle })
    }
}

impl Communicator {
    /// An application's communicator: its `MPI_Comm`, widened to a `usize`. It keeps its error handler.
    ///
    /// # Safety
    /// `handle` must be a communicator of the library that [`Mpi::path`] names.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if MPI is not running, [`Error::Mpi`] for the null communicator.
    pub(crate) unsafe fn from_raw(mpi: &'static Mpi, handle: usize) -> Result<Self> {
        // A 32-bit handle that was widened as a signed number has ones above.
        let handle = if mpi.constants.narrow_handles { handle & 0xffff_ffff } else { handle };
        if handle == mpi.constants.comm_null || handle == 0 {
            return Err(Error::Mpi {
                call: "MPI_Comm_dup",
                reason:
                    "the communicator that was handed in is MPI_COMM_NULL; hand in one that this rank is in"
                        .to_owned(),
            });
        }
        mpi.communicator(handle)
    }

    /// The library that it belongs to.
    pub(crate) fn mpi(&self) -> &'static Mpi {
        self.mpi
    }

    /// This process's rank.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn rank(&self) -> Result<usize> {
        let mut rank = 0;
        // SAFETY: the handle is a communicator's; the place lives through the call.
        unsafe { self.mpi.table.comm_rank(self.handle, &raw mut rank) }?;
        Ok(rank as usize)
    }

    /// How many ranks it has.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn size(&self) -> Result<usize> {
        let mut size = 0;
        // SAFETY: the handle is a communicator's; the place lives through the call.
        unsafe { self.mpi.table.comm_size(self.handle, &raw mut size) }?;
        Ok(size as usize)
    }

    /// The same ranks, with messages of their own. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn duplicate(&self) -> Result<Communicator> {
        // SAFETY: the handle is a communicator's; `new` is a place for the result.
        self.made(|new| unsafe { self.mpi.table.comm_dup(self.handle, new) })
    }

    /// The first `ranks` ranks of this one. Collective over those alone, which alone may call; blocks. No message of this
    /// communicator may have the greatest tag: Open MPI's ranks tell each other in messages with the tag of this call, which
    /// a receive of the application would take.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn first(&self, ranks: usize) -> Result<Communicator> {
        let ranks: Vec<usize> = (0..ranks).collect();
        let (group, tag) = (Group::new(self, &ranks)?, self.tag_upper_bound()?);
        // SAFETY: the handles are those of a communicator and of a group of it; `new` is a place for the result.
        let made =
            self.made(|new| unsafe { self.mpi.table.comm_create_group(self.handle, group.handle, tag, new) });
        drop(group);
        made
    }

    /// Wraps a new communicator, which then reports its errors.
    fn made(&self, call: impl FnOnce(*mut Handle) -> Result<()>) -> Result<Communicator> {
        let mut handle = 0;
        call(&raw mut handle)?;
        self.mpi.handle_errors(handle)?;
        Ok(Communicator { mpi: self.mpi, handle })
    }

    /// Frees it, for all clones. Collective; not for the world or an application's communicator.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn free(mut self) -> Result<()> {
        // SAFETY: the handle is a communicator's; later uses of clones are errors of the library's checks, not ours.
        unsafe { self.mpi.table.comm_free(&raw mut self.handle) }
    }

    /// The greatest tag: see [`Communicator::first`].
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn tag_upper_bound(&self) -> Result<i32> {
        let key = self.mpi.constants.tag_upper_bound;
        let mut value: *const c_int = std::ptr::null();
        let mut found = 0;
        let place = (&raw mut value).cast::<c_void>();
        // That of all ranks has it. Communicators that are made of others need not, as Open MPI's do not.
        let world = self.mpi.constants.comm_world;
        // SAFETY: both places live through the call, which stores the address of an integer.
        unsafe { self.mpi.table.comm_get_attr(world, key, place, &raw mut found) }?;
        if found == 0 || value.is_null() {
            return Ok(32767); // what every library has at least
        }
        // SAFETY: the address of the library's own integer, which stays.
        Ok(unsafe { value.read() })
    }

    /// The next message with this tag from any rank, if one has come. It stays until it is received.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn iprobe(&self, tag: i32) -> Result<Option<Status>> {
        let mut status = RawStatus::default();
        let mut flag = 0;
        let source = self.mpi.constants.any_source;
        let place = status.as_mut_ptr();
        // SAFETY: the handle is a communicator's; both places live through the call.
        unsafe { self.mpi.table.iprobe(source, tag, self.handle, &raw mut flag, place) }?;
        if flag == 0 { Ok(None) } else { Status::of(self.mpi, &status).map(Some) }
    }

    /// Sends bytes.
    ///
    /// # Safety
    /// The bytes must stay, unchanged, until the request has completed.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn isend(&self, data: *const u8, bytes: usize, to: usize, tag: i32) -> Result<Request> {
        let (bytes, to, byte) = (count("MPI_Isend", bytes)?, rank_number(to), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Send);
        let place = request.place();
        // SAFETY: the caller keeps the bytes; the handles are valid.
        unsafe { self.mpi.table.isend(data.cast(), bytes, byte, to, tag, self.handle, place) }?;
        Ok(request)
    }

    /// Receives up to `bytes` bytes.
    ///
    /// # Safety
    /// The memory must stay, untouched, until the request has completed.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn irecv(&self, data: *mut u8, bytes: usize, from: usize, tag: i32) -> Result<Request> {
        let (bytes, from, byte) = (count("MPI_Irecv", bytes)?, rank_number(from), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Receive);
        let place = request.place();
        // SAFETY: the caller keeps the memory; the handles are valid.
        unsafe { self.mpi.table.irecv(data.cast(), bytes, byte, from, tag, self.handle, place) }?;
        Ok(request)
    }

    /// As [`Communicator::irecv`], from any rank.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn irecv_any(&self, data: *mut u8, bytes: usize, tag: i32) -> Result<Request> {
        let (bytes, byte) = (count("MPI_Irecv", bytes)?, self.mpi.constants.byte);
        let (from, mut request) = (self.mpi.constants.any_source, Request::new(self.mpi, Kind::Receive));
        let place = request.place();
        // SAFETY: the caller keeps the memory; the handles are valid.
        unsafe { self.mpi.table.irecv(data.cast(), bytes, byte, from, tag, self.handle, place) }?;
        Ok(request)
    }

    /// Gives the bytes of rank `root` to all. Collective.
    ///
    /// # Safety
    /// The memory must stay, and be left alone, until the request has completed.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn ibcast(&self, data: *mut u8, bytes: usize, root: usize) -> Result<Request> {
        let (bytes, root, byte) = (count("MPI_Ibcast", bytes)?, rank_number(root), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Collective);
        let place = request.place();
        // SAFETY: the caller keeps the memory; the handles are valid.
        unsafe { self.mpi.table.ibcast(data.cast(), bytes, byte, root, self.handle, place) }?;
        Ok(request)
    }

    /// Gives `bytes` bytes to each rank, by rank, and takes as many of each. Collective.
    ///
    /// # Safety
    /// Both hold that for all ranks, and must stay until the request has completed: the one unchanged, the other left alone.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn ialltoall(
        &self,
        sent: *const u8,
        received: *mut u8,
        bytes: usize,
    ) -> Result<Request> {
        let (bytes, byte) = (count("MPI_Ialltoall", bytes)?, self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Collective);
        let (table, place) = (&self.mpi.table, request.place());
        let (sent, received) = (sent.cast(), received.cast());
        // SAFETY: the caller keeps both; the handles are valid.
        unsafe { table.ialltoall(sent, bytes, byte, received, bytes, byte, self.handle, place) }?;
        Ok(request)
    }

    /// A persistent send: started any number of times.
    ///
    /// # Safety
    /// The bytes must stay for as long as the request, and unchanged while it is active.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn send_init(
        &self,
        data: *const u8,
        bytes: usize,
        to: usize,
        tag: i32,
    ) -> Result<Request> {
        let (bytes, to, byte) = (count("MPI_Send_init", bytes)?, rank_number(to), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Send);
        let place = request.place();
        // SAFETY: the caller keeps the bytes; the handles are valid.
        unsafe { self.mpi.table.send_init(data.cast(), bytes, byte, to, tag, self.handle, place) }?;
        Ok(request)
    }

    /// A persistent send that is started only when its receive is known to be.
    ///
    /// # Safety
    /// As [`Communicator::send_init`].
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn rsend_init(
        &self,
        data: *const u8,
        bytes: usize,
        to: usize,
        tag: i32,
    ) -> Result<Request> {
        let (bytes, to, byte) = (count("MPI_Rsend_init", bytes)?, rank_number(to), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Send);
        let place = request.place();
        // SAFETY: the caller keeps the bytes; the handles are valid.
        unsafe { self.mpi.table.rsend_init(data.cast(), bytes, byte, to, tag, self.handle, place) }?;
        Ok(request)
    }

    /// A persistent receive.
    ///
    /// # Safety
    /// The memory must stay for as long as the request, and be left alone while it is active.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) unsafe fn recv_init(
        &self,
        data: *mut u8,
        bytes: usize,
        from: usize,
        tag: i32,
    ) -> Result<Request> {
        let (bytes, from, byte) =
            (count("MPI_Recv_init", bytes)?, rank_number(from), self.mpi.constants.byte);
        let mut request = Request::new(self.mpi, Kind::Receive);
        let place = request.place();
        // SAFETY: the caller keeps the memory; the handles are valid.
        unsafe { self.mpi.table.recv_init(data.cast(), bytes, byte, from, tag, self.handle, place) }?;
        Ok(request)
    }
}
