//! The fabric where no MPI library is looked for: it says so.

use super::spanning::{Bootstrap, Spanning};
use super::{Fabric, unavailable};
use crate::error::Result;
use crate::world::WorldOptions;
use std::sync::Arc;

const REASON: &str = "this version opens MPI libraries on 64-bit Linux only; use `local`";

/// Says why there is no such fabric.
pub(super) fn unusable() -> Option<String> {
    Some(REASON.into())
}

/// Says why there is no such fabric.
pub(super) fn join(_options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    Err(unavailable("mpi", REASON))
}

/// Says why there is no such fabric.
pub(super) fn launched(_options: &WorldOptions) -> Result<Arc<Spanning>> {
    Err(unavailable("mpi", REASON))
}

/// Says why there is no such fabric.
pub(super) fn bootstrap() -> Result<Arc<dyn Bootstrap>> {
    Err(unavailable("mpi", REASON))
}
