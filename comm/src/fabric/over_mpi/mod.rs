//! The fabric `mpi`: exchanges over any MPI library.
//!
//! Ranks meet, and hear of each other's failures, with messages ([`mod@bootstrap`]). A wire makes each
//! exchange either persistent messages or access epochs of a window, which a carrier goes round to:
//! a progress thread where the library lets several threads call it, else the host in its waits.

mod active;
mod attendance;
mod bootstrap;
mod communicators;
mod half;
mod meeting;
mod messages;
mod news;
mod of_device;
mod packets;
mod persistent;
mod readiness;
mod windows;
mod wire;

use super::mpi::{Communicator, Mpi, ThreadLevel};
use super::spanning::{Bootstrap, Farewell, Spanning};
use super::{Fabric, unavailable};
use crate::error::{Error, Result};
use crate::world::{World, WorldOptions};
use bootstrap::MpiBootstrap;
use std::sync::Arc;
use std::time::Duration;
use wire::MpiWire;

/// Why the fabric cannot be used here, if so.
pub(super) fn unusable() -> Option<String> {
    Mpi::get().err().map(|error| match error {
        Error::FabricUnavailable { reason, .. } => reason,
        other => other.to_string(),
    })
}

/// The fabric `mpi`, for the registry.
pub(super) fn join(options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    Ok(launched(options)?)
}

/// The fabric of the ranks that a launcher has started. Collective over them.
///
/// # Errors
/// [`Error::FabricUnavailable`] if there is no library, or none for this launcher; what the library says.
pub(super) fn launched(options: &WorldOptions) -> Result<Arc<Spanning>> {
    let mpi = Mpi::get()?;
    let level = start(mpi)?;
    over(mpi, level, &mpi.launched_world()?, options.timeout)
}

impl World {
    /// The world of the ranks of an MPI communicator, for an application that has initialised MPI
    /// itself. Collective over the communicator, which is duplicated; blocks. The world must be dropped
    /// before MPI is finalised.
    ///
    /// `communicator` is the application's `MPI_Comm`, of whatever type its library gives it: the bits
    /// of an `int` (MPICH, Intel MPI, Cray MPICH) or of a pointer (Open MPI, the standard ABI). With the
    /// crate `mpi` it is `communicator.as_raw() as usize`.
    ///
    /// # Safety
    /// It must be a communicator of the MPI library that this process uses, and this rank must be in it.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if the library has none of the three ABIs, is too old, was not
    /// initialised, or may not be called by this thread; [`Error::Mpi`].
    pub unsafe fn from_mpi_comm(communicator: usize, options: WorldOptions) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let fabric = unsafe { of_communicator(communicator, &options) }?;
        Self::new(fabric, options)
    }
}

/// Starts MPI, if nobody has, and says in how many threads it may be called.
///
/// # Errors
/// [`Error::FabricUnavailable`] if this thread may not call it; what the library says.
fn start(mpi: &'static Mpi) -> Result<ThreadLevel> {
    let level = mpi.start()?;
    if level < ThreadLevel::Serialized && !mpi.is_main_thread()? {
        return Err(unavailable(
            "mpi",
            "this MPI may be called by the thread that initialised it only, and this is another; \
             make the world there, or initialise MPI with MPI_THREAD_MULTIPLE",
        ));
    }
    Ok(level)
}

/// The ranks that an MPI launcher has started, for other fabrics. Collective over them.
pub(super) fn bootstrap() -> Result<Arc<dyn Bootstrap>> {
    let mpi = Mpi::get()?;
    let level = start(mpi)?;
    Ok(MpiBootstrap::new(mpi, level, &mpi.launched_world()?)?)
}

/// The fabric of the ranks of an application's communicator. Collective over them.
///
/// # Safety
/// `handle` must be a communicator of the MPI library of this process.
///
/// # Errors
/// [`Error::FabricUnavailable`] if MPI was not initialised; else as [`launched`].
unsafe fn of_communicator(handle: usize, options: &WorldOptions) -> Result<Arc<Spanning>> {
    let mpi = Mpi::get()?;
    if !mpi.initialized()? {
        return Err(unavailable(
            "mpi",
            "the application has not initialised MPI, so that it has no communicator yet; call MPI_Init_thread first",
        ));
    }
    let level = start(mpi)?;
    // SAFETY: passed on to the caller.
    let theirs = unsafe { Communicator::from_raw(mpi, handle) }?;
    over(mpi, level, &theirs, options.timeout)
}

fn over(
    mpi: &'static Mpi,
    level: ThreadLevel,
    theirs: &Communicator,
    timeout: Option<Duration>,
) -> Result<Arc<Spanning>> {
    let bootstrap = MpiBootstrap::new(mpi, level, theirs)?;
    let (size, carrier) = (bootstrap.size(), bootstrap.proxy().clone());
    let wire = MpiWire::new(bootstrap.communicators().clone(), carrier.clone())?;
    let ended = wire.clone();
    let farewell = Farewell::new(bootstrap.clone(), timeout, move |meeting, context| {
        ended.end(size, meeting, context);
    })?;
    Ok(Arc::new(Spanning {
        name: "mpi",
        engine: Some(wire.engine()),
        farewell: Some(farewell),
        wire: Some(wire),
        executor: carrier.executor(),
        ..Spanning::of_strangers(bootstrap)?
    }))
}
