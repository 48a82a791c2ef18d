//! Calls of CUDA's driver, checked: the one place that says what its codes mean.
//!
//! The bindings are `cudarc`'s, of the newest version that it has, since the driver that is found here may be newer
//! than what a program was built for, and codes that a version does not have are not among its values. Functions
//! are looked up by name at their first call, so that only those matter which are called: all of them are in CUDA
//! 12.0. The library must have been found ([`driver`]) before anything else is called.

pub(super) use cudarc::driver::sys::*;

use std::ffi::c_int;
use std::sync::OnceLock;

/// The oldest version of the driver's interface: it takes PTX 8.0, which streams' own kernels are in.
pub(super) const OLDEST: c_int = 12_000;

/// What a call has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) code: CUresult,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed: {:?}", self.call, self.code)
    }
}

/// Whether a call has succeeded.
pub(super) fn check(call: &'static str, code: CUresult) -> Result<(), Failure> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Failure { call, code }),
    }
}

impl Failure {
    /// Whether a kernel that has run before is to blame: the context does nothing more from then on, and all later
    /// calls say the same.
    pub(super) fn is_a_kernels(self) -> bool {
        use CUresult::*;
        matches!(
            self.code,
            CUDA_ERROR_ECC_UNCORRECTABLE
                | CUDA_ERROR_ILLEGAL_ADDRESS
                | CUDA_ERROR_LAUNCH_TIMEOUT
                | CUDA_ERROR_ASSERT
                | CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUDA_ERROR_MISALIGNED_ADDRESS
                | CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUDA_ERROR_INVALID_PC
                | CUDA_ERROR_LAUNCH_FAILED
        )
    }
}

/// `cuEventElapsedTime`, by the name that it has in all drivers: the newest bindings have but that of 12.8.
///
/// # Errors
/// That the driver does not have it.
pub(super) fn elapsed_time() -> Result<ElapsedTime, Failure> {
    static FOUND: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    let find = || {
        // SAFETY: the library has been found.
        let library = unsafe { culib() };
        // SAFETY: the function is of that type since the first version, and the library is never closed.
        unsafe { library.get::<ElapsedTime>(b"cuEventElapsedTime\0") }.ok().map(|found| *found)
    };
    let missing = Failure { call: "cuEventElapsedTime", code: CUresult::CUDA_ERROR_NOT_FOUND };
    FOUND.get_or_init(find).ok_or(missing)
}

/// Milliseconds from the first event to the second.
pub(super) type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// The version of the driver, initialised on the first call: 12040 for CUDA 12.4.
///
/// # Errors
/// Why CUDA cannot be used on this machine, and what to do; later calls give the same.
pub(super) fn driver() -> Result<c_int, String> {
    static STARTED: OnceLock<Result<c_int, String>> = OnceLock::new();
    STARTED.get_or_init(start).clone()
}

fn start() -> Result<c_int, String> {
    // SAFETY: loading NVIDIA's driver has no conditions. Without the library the calls below would panic.
    if !unsafe { is_culib_present() } {
        return Err(
            "there is no CUDA driver (libcuda.so.1) on this machine; install NVIDIA's, 525 or newer, \
                    or choose another device"
                .into(),
        );
    }
    let mut version = 0;
    // SAFETY: a number is written; the one call that may come before `cuInit`.
    let found = check("cuDriverGetVersion", unsafe { cuDriverGetVersion(&mut version) });
    found.map_err(|failure| refused(failure, version))?;
    new_enough(version)?;
    // SAFETY: it has no conditions.
    check("cuInit", unsafe { cuInit(0) }).map_err(|failure| refused(failure, version))?;
    Ok(version)
}

/// Whether a driver of that version takes what streams are made of: their own kernels are PTX of CUDA 12.0.
fn new_enough(version: c_int) -> Result<(), String> {
    match version {
        OLDEST.. => Ok(()),
        _ => Err(format!(
            "the driver has CUDA {}, and at least {} is needed; install NVIDIA's driver 525 or newer",
            written(version),
            written(OLDEST)
        )),
    }
}

/// The GPUs that this process sees.
pub(super) fn devices() -> Result<Vec<CUdevice>, Failure> {
    let mut count = 0;
    // SAFETY: a number is written.
    check("cuDeviceGetCount", unsafe { cuDeviceGetCount(&mut count) })?;
    let device = |index| {
        let mut device = 0;
        // SAFETY: a number is written.
        check("cuDeviceGet", unsafe { cuDeviceGet(&mut device, index) }).map(|()| device)
    };
    (0..count).map(device).collect()
}

/// Why there is no CUDA although there is a driver.
fn refused(failure: Failure, version: c_int) -> String {
    let reason = match failure.code {
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "the driver has found no NVIDIA GPU; is one in this machine, and not hidden by CUDA_VISIBLE_DEVICES?"
        }
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "the library that was found is a toolkit's stub, not a driver; take its folder off LD_LIBRARY_PATH"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module are of different versions; restart the machine or \
             install one of them again"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "the system is not ready for it; on machines with NVSwitch the fabric manager has to run"
        }
        _ => "`nvidia-smi` may say more",
    };
    format!("the driver (CUDA {}) could not be started: {failure}; {reason}", written(version))
}

/// A version as people write it.
pub(super) fn written(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_what_cuda_needs_says_what_to_do() {
        let failure = |code| Failure { call: "cuInit", code };
        for (code, part) in [
            (CUresult::CUDA_ERROR_NO_DEVICE, "CUDA_VISIBLE_DEVICES"),
            (CUresult::CUDA_ERROR_STUB_LIBRARY, "stub"),
            (CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "different versions"),
            (CUresult::CUDA_ERROR_UNKNOWN, "nvidia-smi"),
        ] {
            let said = refused(failure(code), 12_040);
            assert!(said.contains(part) && said.contains("CUDA 12.4") && said.contains("cuInit"), "{said}");
        }
        assert!(failure(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_a_kernels());
        assert!(!failure(CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_a_kernels());
    }

    #[test]
    fn a_driver_that_is_too_old_says_which_one_it_takes() {
        for version in [12_000, 12_080, 13_000] {
            assert_eq!(new_enough(version), Ok(()));
        }
        let said = new_enough(11_080).expect_err("too old");
        assert!(said.contains("CUDA 11.8") && said.contains("12.0") && said.contains("525"), "{said}");
    }
}
