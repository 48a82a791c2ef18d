//! The machine's MPI library, opened at run time: the layer below the fabric `mpi`.
//!
//! One program serves every MPI, without headers or a compiler wrapper at build time; with the feature
//! `mpi` it is linked with one instead, which then is found in this process. A library is
//! found (`search`) and opened (`library`), its functions are put into one table whose calls are
//! checked (`table`), and what differs between libraries is in `abi`. Above are owned types:
//! `Communicator`, `Request`, `RequestSet`, `Window`.
//!
//! **Threads.** The types are `Send` and `Sync`, as they hold nothing but handles. Which thread may
//! call follows the level that `Mpi::start` returns: with `ThreadLevel::Multiple` any at any time,
//! with `Serialized` any but one at a time, below that only the one for which
//! `Mpi::is_main_thread` holds. Dropping a `RequestSet` is a call.
//!
//! **Errors.** Every call returns a `Result`. The communicators and windows of this module have an
//! error handler of ours; an application's own, `Communicator::from_raw`, keeps its handler, so
//! that a failing call on it ends the job if the application left it so. Duplicate it first.

mod abi;
mod communicator;
mod found;
mod gpus;
mod installed;
mod launcher;
mod library;
#[cfg(feature = "mpi")]
mod linked;
mod request;
mod request_set;
mod search;
mod start;
mod table;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use abi::Abi;
pub(crate) use communicator::Communicator;
pub use found::FoundLibrary;
pub use installed::installed;
pub use launcher::{Launched, launched};
pub(crate) use request::Request;
pub(crate) use request_set::RequestSet;
pub(crate) use start::{LastWord, ThreadLevel};
pub(crate) use window::{Group, Window};

use crate::error::{Error, Result};
use abi::Constants;
use launcher::{Family, Launcher, first_line};
use library::Library;
use std::path::Path;
use std::sync::OnceLock;
use table::Table;

/// The MPI library of this process.
pub(crate) struct Mpi {
    pub(crate) table: Table,
    pub(crate) constants: Constants,
    library: Library,
    launcher: Launcher,
    started: start::Started,
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mpi({}, {})", self.path().display(), self.abi())
    }
}

impl Mpi {
    /// The library, which the first call finds and opens. Does not initialise it.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if there is none, or if it is too old.
    pub(crate) fn get() -> Result<&'static Mpi> {
        static MPI: OnceLock<Result<Mpi>> = OnceLock::new();
        MPI.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Mpi> {
        let launcher = Launcher::of_this_process();
        let library = Library::find(&launcher)?;
        #[cfg(feature = "mpi")]
        // SAFETY: the functions are those that the linker has found for these names.
        let table = unsafe { Table::load(library.abi, table::linked) }?;
        #[cfg(not(feature = "mpi"))]
        // SAFETY: the symbols are those of a library that has `MPI_Init_thread`.
        let table = unsafe { Table::load(library.abi, |name| library.symbol(name)) }?;
        let said = (table.version()?, &*table.library_version()?);
        if let Some(reason) = unfit(library.abi, said, &library.path) {
            return Err(unavailable(reason));
        }
        let constants = library.abi.constants(|name| library.symbol(name))?;
        #[cfg(feature = "mpi")]
        linked::check(&constants, &library.path)?;
        Ok(Mpi { table, constants, library, launcher, started: start::Started::default() })
    }

    /// The library's file.
    pub(crate) fn path(&self) -> &Path {
        &self.library.path
    }

    /// Its binary interface.
    pub(crate) fn abi(&self) -> Abi {
        self.library.abi
    }

    /// What the library says of itself, in one or more lines. May be asked before [`Mpi::start`].
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn library_version(&self) -> Result<String> {
        self.table.library_version()
    }
}

fn has_partitioned(library: &Library) -> bool {
    [c"MPI_Psend_init", c"MPI_Precv_init", c"MPI_Pready", c"MPI_Parrived"]
        .iter()
        .all(|name| library.symbol(name).is_some())
}

/// Why a library that seems to have that interface will not do, if so, by the version of the standard and what it says of
/// itself.
fn unfit(abi: Abi, ((major, minor), said): ((i32, i32), &str), path: &Path) -> Option<String> {
    let (path, variable) = (path.display(), library::VARIABLE);
    if major < 3 {
        return Some(format!(
            "the library {path} implements MPI {major}.{minor}, but 3.0 or newer is needed; set {variable} to another one"
        ));
    }
    let is_known = match abi {
        // Libraries that had it before the standard did have other values of some constants.
        Abi::Standard => major >= 5,
        // Nothing else tells it from that of a library that nobody knows here.
        Abi::Mpich => Family::of_library(said) == Some(Family::Mpich),
        Abi::OpenMpi => true,
    };
    (!is_known).then(|| {
        format!(
            "the library {path} (`{}`, MPI {major}.{minor}) has none of the three binary interfaces that are known: the \
             standard one of MPI 5, MPICH's and Open MPI's; set {variable} to a library that has one",
            first_line(said)
        )
    })
}

/// The error for anything that keeps MPI from being used at all.
fn unavailable(reason: String) -> Error {
    Error::FabricUnavailable { name: "mpi".to_owned(), reason }
}

/// A count as MPI takes it.
///
/// # Errors
/// [`Error::Mpi`] if it has more than 31 bits.
fn count(call: &'static str, bytes: usize) -> Result<std::ffi::c_int> {
    std::ffi::c_int::try_from(bytes).map_err(|_| Error::Mpi {
        call,
        reason: format!(
            "one message of {bytes} bytes was asked for, MPI takes {} at most; split it",
            i32::MAX
        ),
    })
}

/// A rank as MPI takes it. Ranks come from communicators, which number them so.
fn rank_number(rank: usize) -> std::ffi::c_int {
    // One that cannot be is left to MPI to refuse.
    std::ffi::c_int::try_from(rank).unwrap_or(std::ffi::c_int::MAX)
}

#[cfg(test)]
mod of_libraries {
    use super::*;

    #[test]
    fn what_is_known_of_none_of_the_interfaces_is_refused() {
        let refused = |abi, standard, said| unfit(abi, (standard, said), Path::new("/x/libmpi.so"));
        for said in
            ["MPICH Version:      4.1", "Intel(R) MPI Library 2021.19", "CRAY MPICH version 8.1.28.15"]
        {
            assert_eq!(refused(Abi::Mpich, (3, 1), said), None);
        }
        for said in ["MVAPICH2 Version: 2.3.7", "ParaStation MPI 5.9.2-1"] {
            assert_eq!(refused(Abi::Mpich, (3, 1), said), None);
        }
        assert_eq!(refused(Abi::Standard, (5, 0), "a library that nobody knows"), None);
        assert_eq!(refused(Abi::OpenMpi, (3, 1), "IBM Spectrum MPI"), None);
        for (abi, standard, said) in
            [(Abi::Mpich, (3, 1), "HPE MPT 2.28"), (Abi::Standard, (4, 1), "MPICH Version: 4.3.0")]
        {
            let reason = refused(abi, standard, said).expect("nobody knows its constants");
            for part in ["/x/libmpi.so", said, "none of the three", "STREAMHALO_MPI"] {
                assert!(reason.contains(part), "{reason}");
            }
        }
        let reason = refused(Abi::OpenMpi, (2, 2), "Open MPI v1.6").expect("is too old");
        assert!(reason.contains("MPI 2.2, but 3.0"), "{reason}");
    }
}
