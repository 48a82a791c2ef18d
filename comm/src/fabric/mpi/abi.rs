//! What differs between the MPI libraries of this world: handles, constants, the layout of a status.

use crate::error::{Error, Result};
use std::ffi::{CStr, c_int, c_void};
use std::fmt;

/// The binary interface of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abi {
    /// That of MPI 5, chapter 20: `libmpi_abi.so.1`.
    Standard,
    /// That of MPICH and what follows it: `libmpi.so.12`, `libmpich.so.12`.
    Mpich,
    /// That of Open MPI: `libmpi.so.40`.
    OpenMpi,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Abi::Standard => "MPI standard ABI",
            Abi::Mpich => "MPICH ABI",
            Abi::OpenMpi => "Open MPI ABI",
        })
    }
}

/// An MPI handle of any kind. A library with 32-bit handles reads the lower half, which is where a
/// little-endian machine has it, in registers as well as in memory.
pub(crate) type Handle = usize;

/// The values that a library was compiled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constants {
    pub(crate) comm_world: Handle,
    pub(crate) comm_self: Handle,
    pub(crate) comm_null: Handle,
    pub(crate) info_null: Handle,
    pub(crate) byte: Handle,
    pub(crate) any_source: c_int,
    pub(crate) undefined: c_int,
    pub(crate) mode_nocheck: c_int,
    pub(crate) tag_upper_bound: c_int,
    /// Single, funneled, serialized, multiple.
    pub(crate) thread_levels: [c_int; 4],
    /// Where the source, the tag and the error are in a status, and its size, in units of `int`.
    pub(crate) status_source: usize,
    pub(crate) status_tag: usize,
    pub(crate) status_error: usize,
    pub(crate) status_size: usize,
    /// Whether a handle in an array takes 4 bytes instead of those of a pointer.
    pub(crate) narrow_handles: bool,
}

const STANDARD: Constants = Constants {
    comm_world: 0x101,
    comm_self: 0x102,
    comm_null: 0x100,
    info_null: 0x130,
    byte: 0x247,
    any_source: -1,
    undefined: -32766,
    mode_nocheck: 1024,
    tag_upper_bound: 501,
    thread_levels: [0, 1024, 2048, 4096],
    status_source: 0,
    status_tag: 1,
    status_error: 2,
    status_size: 8,
    narrow_handles: false,
};

const MPICH: Constants = Constants {
    comm_world: 0x4400_0000,
    comm_self: 0x4400_0001,
    comm_null: 0x0400_0000,
    info_null: 0x1c00_0000,
    byte: 0x4c00_010d,
    any_source: -2,
    undefined: -32766,
    mode_nocheck: 1024,
    tag_upper_bound: 0x6440_0001,
    thread_levels: [0, 1, 2, 3],
    status_source: 2,
    status_tag: 3,
    status_error: 4,
    status_size: 5,
    narrow_handles: true,
};

impl Abi {
    /// The library's constants. `symbol` gives the address of one of its symbols.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] that names the object that the library lacks.
    pub(crate) fn constants(self, symbol: impl Fn(&CStr) -> Option<*const c_void>) -> Result<Constants> {
        match self {
            Abi::Standard => Ok(STANDARD),
            Abi::Mpich => Ok(MPICH),
            // Its predefined handles are the addresses of objects inside the library.
            Abi::OpenMpi => {
                let object = |name: &CStr| match symbol(name) {
                    Some(address) => Ok(address as usize),
                    None => Err(lacks(name)),
                };
                Ok(Constants {
                    comm_world: object(c"ompi_mpi_comm_world")?,
                    comm_self: object(c"ompi_mpi_comm_self")?,
                    comm_null: object(c"ompi_mpi_comm_null")?,
                    info_null: object(c"ompi_mpi_info_null")?,
                    byte: object(c"ompi_mpi_byte")?,
                    any_source: -1,
                    undefined: -32766,
                    mode_nocheck: 1,
                    tag_upper_bound: 0,
                    thread_levels: [0, 1, 2, 3],
                    status_source: 0,
                    status_tag: 1,
                    status_error: 2,
                    status_size: 6,
                    narrow_handles: false,
                })
            }
        }
    }
}

/// The error for a symbol that is not in a library.
pub(crate) fn lacks(name: &CStr) -> Error {
    super::unavailable(format!(
        "the MPI library lacks `{}`; StreamHalo needs a library of MPI 3.0 or newer, set {} to one",
        name.to_string_lossy(),
        super::library::VARIABLE
    ))
}

/// Room for a status of any library, the largest of which takes 32 bytes.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawStatus([c_int; 16]);

impl RawStatus {
    pub(crate) fn source(&self, constants: &Constants) -> c_int {
        self.0[constants.status_source]
    }

    pub(crate) fn tag(&self, constants: &Constants) -> c_int {
        self.0[constants.status_tag]
    }

    /// The error in the status at `index` of an array, which the library has filled with statuses of its own size.
    pub(crate) fn error_in(array: &[RawStatus], index: usize, constants: &Constants) -> c_int {
        let position = index * constants.status_size + constants.status_error;
        array[position / 16].0[position % 16]
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        (&raw const self.0).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_handles_are_addresses_and_a_missing_one_is_named() {
        let constants =
            Abi::OpenMpi.constants(|_| Some(std::ptr::dangling::<u8>().cast())).expect("all are there");
        assert_eq!((constants.comm_world, constants.narrow_handles), (1, false));
        let lost = Abi::OpenMpi.constants(|name| (name != c"ompi_mpi_byte").then_some(std::ptr::null()));
        let message = lost.expect_err("one is missing").to_string();
        assert!(message.contains("`ompi_mpi_byte`") && message.contains("STREAMHALO_MPI"), "{message}");
    }

    #[test]
    fn a_status_is_read_where_the_library_has_it() {
        let mut status = RawStatus::default();
        (status.0[0], status.0[1], status.0[2], status.0[3]) = (1, 2, 3, 4);
        assert_eq!((status.source(&STANDARD), status.tag(&STANDARD)), (1, 2));
        assert_eq!((status.source(&MPICH), status.tag(&MPICH)), (3, 4));
        let mut array = [RawStatus::default(); 2];
        (array[0].0[14], array[1].0[2]) = (5, 6);
        assert_eq!(RawStatus::error_in(&array, 2, &MPICH), 5);
        assert_eq!(RawStatus::error_in(&array, 2, &STANDARD), 6);
    }
}
