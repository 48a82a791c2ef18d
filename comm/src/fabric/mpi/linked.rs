//! What a program that is linked with an MPI library knows of it from its header.

use super::abi::{Constants, Handle};
use super::unavailable;
use crate::error::Result;
use std::path::Path;

/// Makes sure that the library in this process is of the interface that the program was compiled for.
///
/// # Errors
/// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) if the loader has found another one.
pub(crate) fn check(constants: &Constants, path: &Path) -> Result<()> {
    // SAFETY: a constant of the crate's own C code, which is the header's MPI_COMM_WORLD.
    let theirs = unsafe { ::mpi::ffi::RSMPI_COMM_WORLD };
    let bytes = size_of_val(&theirs);
    // The header says whether a handle is a pointer, an integer or a structure of one.
    assert!(bytes <= size_of::<Handle>(), "a handle fits into a register");
    let mut world: Handle = 0;
    let (from, to) = ((&raw const theirs).cast::<u8>(), (&raw mut world).cast::<u8>());
    // SAFETY: both places have that many bytes, by the assertion.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    let narrow = bytes < size_of::<Handle>();
    if narrow == constants.narrow_handles && world == constants.comm_world {
        return Ok(());
    }
    Err(unavailable(format!(
        "this program was compiled with another MPI than the library {} that it runs with; \
         build it again with that library's `mpicc`, or without the feature `mpi`",
        path.display()
    )))
}
