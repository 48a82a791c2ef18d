//! Opening an MPI library, and knowing which interface it has.

use super::abi::Abi;
use super::launcher::{Launcher, first_line};
use super::search::{CRAY_SONAMES, Candidate, Place, SONAMES, candidates};
use super::table::Table;
use super::{unavailable, unfit};
use crate::error::Result;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

/// Names the library to use: a file, its name on the loader's path, or the folder of an installation.
pub(crate) const VARIABLE: &str = "STREAMHALO_MPI";

/// An opened MPI library. It is never closed: what an MPI library has started, threads among it, does
/// not survive that.
#[derive(Debug)]
pub(crate) struct Library {
    opened: std::mem::ManuallyDrop<Opened>,
    /// Where the loader found it.
    pub(crate) path: PathBuf,
    pub(crate) abi: Abi,
}

impl Library {
    /// The library for this process: the one that [`VARIABLE`] names, else the one that the application
    /// has loaded, else that of the launcher, else the first on the loader's path.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) with all places that were looked at.
    pub(crate) fn find(launcher: &Launcher) -> Result<Self> {
        if cfg!(not(all(target_endian = "little", target_pointer_width = "64"))) {
            return Err(unavailable(
                "an MPI library is opened on 64-bit little-endian machines only; use `shm` on one machine"
                    .into(),
            ));
        }
        let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        if let Some(loaded) = Self::loaded() {
            return match &asked {
                Some(asked) => loaded.unless_other_than(Path::new(asked), launcher),
                None => Ok(loaded),
            };
        }
        let mut refused = Vec::new();
        for candidate in candidates(asked.as_deref().map(Path::new), launcher) {
            if let Place::File(path) = &candidate.place
                && !path.exists()
            {
                continue;
            }
            match Self::open_candidate(&candidate, launcher, asked.is_some()) {
                Ok(library) => return Ok(library),
                Err(reason) => refused.push(format!("{candidate}: {reason}")),
            }
        }
        Err(unavailable(nothing_found(asked.as_deref().map(Path::new), launcher, &refused)))
    }

    /// The loaded library, if it is the one that was asked for.
    fn unless_other_than(self, asked: &Path, launcher: &Launcher) -> Result<Self> {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let same = candidates(Some(asked), launcher).iter().any(|candidate| match &candidate.place {
            Place::File(path) => real(path) == real(&self.path),
            Place::Name(name) => self.path.ends_with(name),
        });
        if same {
            return Ok(self);
        }
        Err(unavailable(format!(
            "{VARIABLE}=`{}` was asked for, but this program has loaded the MPI library {} already, and two do not \
             get on in one process; unset the variable, or link the program with the other one",
            asked.display(),
            self.path.display()
        )))
    }

    /// Opens one candidate. One that was asked for by name is taken even if it is of another family than
    /// the launcher; that is refused later, with a better message.
    fn open_candidate(candidate: &Candidate, launcher: &Launcher, asked: bool) -> Result<Self, String> {
        let library = Self::open(&candidate.place)?;
        if !asked {
            // SAFETY: `open` has made sure that these are the functions of an MPI library.
            let table = unsafe { Table::load(library.abi, |name| library.symbol(name)) }
                .map_err(|error| error.to_string())?;
            let asked = table.version().and_then(|standard| Ok((standard, table.library_version()?)));
            let (standard, said) = asked.map_err(|error| error.to_string())?;
            let unfit = unfit(library.abi, (standard, &said), &library.path);
            if let Some(reason) = unfit.or_else(|| launcher.mismatch(&library.path, &said)) {
                return Err(reason);
            }
        }
        library.make_global();
        Ok(library)
    }

    /// Opens a library without giving its symbols to others, and without using it.
    ///
    /// # Errors
    /// The loader's reason.
    pub(crate) fn open(place: &Place) -> Result<Self, String> {
        let name = place.name();
        // SAFETY: runs the initialisers of an MPI library, which an application linked with it runs too.
        let opened = unsafe { Opened::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let opened = opened.map_err(|error| error_text(&error))?;
        Self::recognise(opened, name).ok_or_else(|| "it has no function `MPI_Init_thread`".to_owned())
    }

    /// The MPI library that is in this process already, if one is: linked with the application, or
    /// loaded by it, visibly or not.
    pub(crate) fn loaded() -> Option<Self> {
        if let Some(linked) = Self::recognise(Opened::this(), Path::new("the program")) {
            return Some(linked);
        }
        SONAMES.iter().chain(&CRAY_SONAMES).find_map(|name| {
            // SAFETY: finds a library that is loaded, and runs nothing.
            let opened = unsafe { Opened::open(Some(*name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) };
            Self::recognise(opened.ok()?, Path::new(name))
        })
    }

    /// What an opened library is, if it is an MPI library.
    fn recognise(opened: Opened, name: &Path) -> Option<Self> {
        let opened = std::mem::ManuallyDrop::new(opened);
        let mut library = Self { opened, path: PathBuf::new(), abi: Abi::Mpich };
        let address = library.symbol(c"MPI_Init_thread")?;
        library.path = file_of(address).unwrap_or_else(|| name.to_owned());
        // An implementation of the standard ABI may have its own objects inside as well, so that it is asked first.
        library.abi = if library.has_standard_abi() {
            Abi::Standard
        } else if library.symbol(c"ompi_mpi_comm_world").is_some() {
            Abi::OpenMpi
        } else {
            Abi::Mpich
        };
        Some(library)
    }

    /// Whether the library says that it has the standard ABI; -1 says that it has not.
    fn has_standard_abi(&self) -> bool {
        type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        let Some(address) = self.symbol(c"MPI_Abi_get_version") else { return false };
        // SAFETY: the function of this name has this type (MPI 5.0, section 20.2).
        let abi_version = unsafe { std::mem::transmute::<*const c_void, AbiVersion>(address) };
        let (mut major, mut minor) = (-1, -1);
        // SAFETY: both places live through the call, which is allowed before initialisation.
        let code = unsafe { abi_version(&raw mut major, &raw mut minor) };
        code == 0 && major >= 1
    }

    /// The address of a function or object of the library.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: nothing is called; whoever does knows the type.
        let symbol = unsafe { self.opened.get::<*const c_void>(name) }.ok()?;
        let address = symbol.into_raw();
        (!address.is_null()).then_some(address.cast_const())
    }

    /// Makes the symbols visible to libraries that are opened later: the components of Open MPI need it.
    fn make_global(&self) {
        // SAFETY: only changes the visibility of a library that is loaded.
        let promoted = unsafe { Opened::open(Some(&self.path), RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NOLOAD) };
        // A library under another name than that of its file stays as it is, which most take.
        if let Ok(library) = promoted {
            std::mem::forget(library);
        }
    }
}

/// The file that has the code at an address.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a place for the answer; any address may be asked for.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroes are a value of this structure of pointers, and the call has filled it.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of an object that stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
}

/// The loader's own words, without the wrapping.
fn error_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The reason when no candidate would do.
fn nothing_found(asked: Option<&Path>, launcher: &Launcher, refused: &[String]) -> String {
    let mut reason = match (asked, launcher.family) {
        (Some(path), _) => {
            format!("{VARIABLE}=`{}` is not a usable MPI library or installation", path.display())
        }
        (None, Some(family)) => format!(
            "a launcher of the family {} started this process ({}), but no MPI library of that family was found",
            family.name(),
            launcher.evidence.as_deref().unwrap_or("by its program"),
        ),
        (None, None) => "no MPI library was found".to_owned(),
    };
    let mut looked: Vec<String> = candidates(asked, launcher).iter().map(|one| one.folder()).collect();
    looked.dedup();
    reason.push_str(&format!("; looked in {}", looked.join(", ")));
    for one in refused {
        reason.push_str(&format!("; {}", first_line(one)));
    }
    reason.push_str(&format!(
        "; install MPICH, Open MPI or Intel MPI, or set {VARIABLE} to the path of an MPI library or of its installation"
    ));
    reason
}

#[cfg(test)]
mod tests {
    use super::super::launcher::Family;
    use super::*;

    #[test]
    fn what_was_asked_for_and_where_it_was_looked_for_is_said() {
        let asked = Path::new("/nowhere/at/all");
        let message = nothing_found(Some(asked), &Launcher::default(), &[]);
        for part in ["STREAMHALO_MPI=`/nowhere/at/all`", "/nowhere/at/all/lib", "install MPICH"] {
            assert!(message.contains(part), "{message}");
        }
        let launcher = Launcher {
            family: Some(Family::OpenMpi),
            evidence: Some("OMPI_COMM_WORLD_SIZE=2".into()),
            programs: vec!["/opt/mpi/bin/prterun".into()],
            ..Launcher::default()
        };
        let message = nothing_found(None, &launcher, &["/x/libmpi.so.40: not an ELF file".into()]);
        for part in ["Open MPI", "OMPI_COMM_WORLD_SIZE=2", "/opt/mpi/lib", "loader's path", "not an ELF file"]
        {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_library_that_is_not_mpi_is_refused() {
        let reason = Library::open(&Place::Name("libc.so.6".into())).expect_err("is none");
        assert_eq!(reason, "it has no function `MPI_Init_thread`");
        let reason = Library::open(&Place::File("/nowhere/libmpi.so.40".into())).expect_err("is not there");
        assert!(reason.contains("/nowhere/libmpi.so.40"), "{reason}");
    }
}
