//! Whether an MPI library takes addresses of a GPU's memory. The standard has a name for each kind of memory that a job has
//! asked for (MPI 4.1, section 11.4.3); besides libraries have functions of their own that say so, or variables of the
//! environment that have them do so.
//!
//! Level Zero is not asked for (`MPIX_Query_ze_support`): no device here has addresses of it.

use super::Mpi;
use super::abi::Handle;
use super::library::Library;
use crate::device::{Takes, Vendor};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// What there is to ask a library for, of one vendor.
struct Asked {
    name: &'static str,
    /// The standard's name for its memory.
    kind: &'static str,
    /// Functions without arguments that give 1 or 0: Open MPI's and, by the second name, MPICH's for HIP.
    queries: &'static [&'static CStr],
    /// Its number for `MPIX_GPU_query_support`, MPICH's, where none of these is there. HIP's is left out: there are
    /// versions in which a number that they do not know is an error, which may end the job.
    number: Option<c_int>,
    /// The variable that MVAPICH2 looks at.
    mvapich2: &'static str,
}

const CUDA: Asked = Asked {
    name: "CUDA",
    kind: "cuda",
    queries: &[c"MPIX_Query_cuda_support"],
    number: Some(0),
    mvapich2: "MV2_USE_CUDA",
};

const HIP: Asked = Asked {
    name: "HIP",
    kind: "rocm",
    queries: &[c"MPIX_Query_rocm_support", c"MPIX_Query_hip_support"],
    number: None,
    mvapich2: "MV2_USE_ROCM",
};

/// The variable that Cray MPICH looks at.
const CRAY: &str = "MPICH_GPU_SUPPORT_ENABLED";

/// The hint by which communicators say which kinds of memory may be used with them.
const KINDS: &str = "mpi_memory_alloc_kinds";

/// MPICH's function for all vendors.
const GENERAL: &CStr = c"MPIX_GPU_query_support";

/// What a library's function has said.
type Answer = (&'static str, bool);

/// What can be said of a library without starting MPI, for each vendor: their functions may not be called before.
pub(super) fn told(library: &Library, version: &str) -> Vec<String> {
    let of = |asked: &Asked| {
        let name = asked.name;
        let queries = asked.queries.iter().chain(asked.number.map(|_| &GENERAL));
        match by_environment(asked, version) {
            Some(Takes::Yes { because, .. }) => format!("{name}: yes, {because}"),
            Some(Takes::No(because) | Takes::Unknown(because)) => format!("{name}: no, {because}"),
            None => match queries.into_iter().find(|query| library.symbol(query).is_some()) {
                Some(query) => format!("{name}: as {} says in a run", query.to_string_lossy()),
                None => format!("{name}: it cannot be asked, `device.wires` or {KINDS} says it"),
            },
        }
    };
    [&CUDA, &HIP].map(of).to_vec()
}

impl Mpi {
    /// Whether the library takes addresses of a GPU's memory. MPI must have been started: libraries find that out as they
    /// start.
    pub(crate) fn takes(&self, vendor: Vendor) -> Takes {
        let asked = match vendor {
            Vendor::Cuda(_) => CUDA,
            Vendor::Hip(_) => HIP,
        };
        let version = self.library_version().unwrap_or_default();
        if let Some(kinds) = self.kinds().filter(|kinds| has_kind(kinds, asked.kind)) {
            // That is about all objects of MPI, windows among them.
            let because = format!("{KINDS} of the MPI library has `{}` ({kinds})", asked.kind);
            return Takes::Yes { because, no_puts: None };
        }
        by_environment(&asked, &version).unwrap_or_else(|| by_answer(&asked, self.answer(&asked), &version))
    }

    /// The kinds of memory that the job has asked for and the library serves, where it knows of such.
    pub(super) fn kinds(&self) -> Option<String> {
        type CommGetInfo = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
        type InfoGet = unsafe extern "C" fn(Handle, *const c_char, c_int, *mut c_char, *mut c_int) -> c_int;
        type InfoFree = unsafe extern "C" fn(*mut Handle) -> c_int;
        let [comm_get_info, info_get, info_free] =
            [c"MPI_Comm_get_info", c"MPI_Info_get", c"MPI_Info_free"].map(|name| self.library.symbol(name));
        // SAFETY: the function of this name has this type (MPI 3.0 and later), with handles widened to a register.
        let comm_get_info = unsafe { std::mem::transmute::<*const c_void, CommGetInfo>(comm_get_info?) };
        // SAFETY: as above.
        let info_get = unsafe { std::mem::transmute::<*const c_void, InfoGet>(info_get?) };
        // SAFETY: as above.
        let info_free = unsafe { std::mem::transmute::<*const c_void, InfoFree>(info_free?) };
        let (mut info, mut is_there, mut value) = (0, 0, [0u8; 256]);
        let key = CString::new(KINDS).expect("has no zeroes");
        // SAFETY: MPI has been started, and the place lives through the call.
        let code = unsafe { comm_get_info(self.constants.comm_world, &raw mut info) };
        if code != 0 {
            return None;
        }
        let length = value.len() as c_int - 1; // without the zero at the end
        // SAFETY: hints that the library has given; the places live through the call, and have that many bytes.
        let code =
            unsafe { info_get(info, key.as_ptr(), length, value.as_mut_ptr().cast(), &raw mut is_there) };
        // SAFETY: as above; nobody uses them after this.
        unsafe { info_free(&raw mut info) };
        let value = CStr::from_bytes_until_nul(&value).unwrap_or_default();
        (code == 0 && is_there != 0).then(|| value.to_string_lossy().into_owned())
    }

    /// What the first of the functions that the library has says.
    fn answer(&self, asked: &Asked) -> Option<Answer> {
        let text = |name: &'static CStr| name.to_str().expect("is ASCII");
        for name in asked.queries {
            let Some(address) = self.library.symbol(name) else { continue };
            type Query = unsafe extern "C" fn() -> c_int;
            // SAFETY: the functions of these names have this type in all libraries that have them.
            let query = unsafe { std::mem::transmute::<*const c_void, Query>(address) };
            // SAFETY: MPI has been started, as the caller has promised; it has no other conditions.
            return Some((text(name), unsafe { query() } == 1));
        }
        let (number, name) = (asked.number?, GENERAL);
        let address = self.library.symbol(name)?;
        type Query = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
        // SAFETY: as above.
        let query = unsafe { std::mem::transmute::<*const c_void, Query>(address) };
        let mut takes = 0;
        // SAFETY: as above; the place lives through the call.
        let code = unsafe { query(number, &raw mut takes) };
        (code == 0).then_some((text(name), takes == 1))
    }
}

/// Whether a list of kinds has one, without restrictions or for what is allocated on the device.
fn has_kind(kinds: &str, kind: &str) -> bool {
    kinds.split(',').any(|one| {
        let mut words = one.trim().split(':');
        words.next() == Some(kind) && words.next().is_none_or(|restriction| restriction == "device")
    })
}

/// What the environment tells the libraries that look there.
fn by_environment(asked: &Asked, version: &str) -> Option<Takes> {
    let is_set = |name: &str| std::env::var(name).is_ok_and(|value| value.trim() == "1");
    told_by(asked, version, is_set)
}

fn told_by(asked: &Asked, version: &str, is_set: impl Fn(&str) -> bool) -> Option<Takes> {
    let (library, variable, besides) = if version.contains("CRAY MPICH") {
        ("Cray MPICH", CRAY, ", and its GTL library loaded beside it (LD_PRELOAD)")
    } else if version.contains("MVAPICH2") {
        ("MVAPICH2", asked.mvapich2, ", if it was built for it")
    } else {
        return None;
    };
    Some(match is_set(variable) {
        true => Takes::Yes {
            because: format!("{library} is told so by {variable}=1"),
            no_puts: told_of_windows(version),
        },
        false => Takes::No(format!(
            "{library} takes addresses of {} only with {variable}=1 in the environment{besides}",
            asked.name
        )),
    })
}

/// Why what a library says of messages is not to be believed of puts into windows, if so.
fn told_of_windows(version: &str) -> Option<String> {
    // Its support of GPUs, from 3.4 on, has been of one-sided communication too: what its network does not put, it puts
    // by messages of its own (release notes of 3.4; "ch4: Improve RMA fallback with GPU buffers").
    if version.trim_start().starts_with("MPICH Version") {
        return None;
    }
    Some(if version.contains("Open MPI") {
        // "Which MPI APIs do NOT work with CUDA-aware UCX?" of its documentation, up to 6.0.
        "Open MPI's documentation leaves out puts where UCX carries them".into()
    } else {
        "the MPI library answers for messages, and not for puts into windows".into()
    })
}

/// What a library's answer says, or its silence.
fn by_answer(asked: &Asked, answer: Option<Answer>, version: &str) -> Takes {
    let name = asked.name;
    match answer {
        Some((function, true)) => Takes::Yes {
            because: format!("{function} of the MPI library says that it takes addresses of {name}"),
            no_puts: told_of_windows(version),
        },
        Some((function, false)) => Takes::No(format!(
            "{function} of the MPI library says that it takes no addresses of {name}; use a library that was built for it"
        )),
        None => Takes::Unknown(format!(
            "the MPI library has no function that says whether it takes addresses of {name} ({})",
            asked.queries[0].to_string_lossy()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_believed_in_what_they_say() {
        let said = |asked, answer| match by_answer(asked, answer, "MPICH Version: 4.3.2") {
            Takes::Yes { because, no_puts: None } => format!("yes: {because}"),
            Takes::Yes { no_puts: Some(said), .. } => panic!("MPICH puts from a GPU's memory too: {said}"),
            Takes::No(said) => format!("no: {said}"),
            // A function that is not there says nothing.
            Takes::Unknown(said) => format!("unknown: {said}"),
        };
        let function = "MPIX_Query_cuda_support";
        for (answer, expected) in [
            (Some((function, true)), "yes: MPIX_Query_cuda_support of"),
            (Some((function, false)), "no: MPIX_Query_cuda_support of"),
            (None, "unknown: the MPI library has no function"),
        ] {
            let said = said(&CUDA, answer);
            assert!(said.starts_with(expected) && said.contains("addresses of CUDA"), "{said}");
        }
        assert!(said(&HIP, None).contains("addresses of HIP (MPIX_Query_rocm_support)"));
    }

    #[test]
    fn what_is_said_of_messages_is_not_said_of_puts_by_all() {
        for (version, expected) in [
            ("MPICH Version:\t4.3.2\nMPICH Release date:", None),
            ("Open MPI v5.0.8, package: Debian OpenMPI", Some("Open MPI's documentation")),
            ("MPI VERSION    : CRAY MPICH version 8.1.28", Some("not for puts")),
            ("Intel(R) MPI Library 2021.16 for Linux* OS", Some("not for puts")),
        ] {
            for answer in [true, false] {
                match (by_answer(&CUDA, Some(("MPIX_Query_cuda_support", answer)), version), expected) {
                    (Takes::Yes { no_puts: None, .. }, None) | (Takes::No(_), _) => {}
                    (Takes::Yes { no_puts: Some(said), .. }, Some(part)) => {
                        assert!(said.contains(part), "{version}: {said}");
                    }
                    (takes, expected) => panic!("{version}: {takes:?} for {expected:?}"),
                }
            }
        }
    }

    #[test]
    fn kinds_of_memory_are_told_apart() {
        for kinds in ["mpi,system,cuda", "cuda:device, mpi", "system,cuda:host,cuda:device"] {
            assert!(has_kind(kinds, "cuda") && !has_kind(kinds, "rocm"), "{kinds}");
        }
        for kinds in ["", "mpi,system", "cuda:host", "cuda:managed,system", "rocm"] {
            assert!(!has_kind(kinds, "cuda"), "{kinds}");
        }
    }

    #[test]
    fn some_are_told_by_the_environment() {
        for (version, variable, asked) in [
            ("MPI VERSION : CRAY MPICH version 8.1.28", "MPICH_GPU_SUPPORT_ENABLED", CUDA),
            ("MPI VERSION : CRAY MPICH version 8.1.28", "MPICH_GPU_SUPPORT_ENABLED", HIP),
            ("MVAPICH2 Version : 2.3.7", "MV2_USE_CUDA", CUDA),
            ("MVAPICH2 Version : 2.3.7", "MV2_USE_ROCM", HIP),
        ] {
            let told = told_by(&asked, version, |name| name == variable);
            assert!(
                matches!(&told, Some(Takes::Yes { because, .. }) if because.contains(variable)),
                "{told:?}"
            );
            let told = told_by(&asked, version, |_| false);
            assert!(matches!(&told, Some(Takes::No(said)) if said.contains(variable)), "{told:?}");
        }
        for other in ["MPICH Version: 4.3.2", "MVAPICH Version: 3.0", "Open MPI v5.0.8", ""] {
            assert_eq!(told_by(&CUDA, other, |_| true), None, "{other}");
        }
    }
}
