//! Programs: code as a driver has loaded it.

use super::context::Context;
use super::sys::{
    self, CUfunction, CUfunction_attribute, CUjit_option::*, CUlimit, CUresult, Failure, check,
};
use crate::error::{Error, Result};
use crate::locks::lock;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

/// Room for what the driver says of code that it does not take.
const LOG_BYTES: usize = 4096;

/// Loaded code. It stays loaded as long as the process: so does the device.
#[derive(Debug)]
pub(super) struct Program {
    kernels: HashMap<String, CUfunction>,
}

// SAFETY: handles of functions that are never unloaded, which any thread may use.
unsafe impl Send for Program {}
// SAFETY: as above; nothing is changed once it is loaded.
unsafe impl Sync for Program {}

/// A kernel of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel(pub(super) CUfunction);

// SAFETY: as of a program.
unsafe impl Send for Kernel {}

impl Program {
    /// Loads machine code, or PTX that ends in a zero byte, with the kernels of those names. They are all loaded at
    /// once: a driver that loads one when it is first asked for may let the whole device come to rest for it, and
    /// kernels that wait for other ranks never would ("Lazy Loading").
    ///
    /// # Errors
    /// That the driver does not take the code, with its log.
    pub(super) fn load(context: &Context, what: &str, image: &[u8], names: &[&str]) -> Result<Self> {
        let _current = context.enter().map_err(|failure| context.failed(failure))?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = null_mut();
        // SAFETY: code that says itself how long it is or ends in zero; as many options as the call is told, with a
        // buffer of the size that they say.
        let loaded = unsafe {
            let image = image.as_ptr().cast();
            sys::cuModuleLoadDataEx(&mut module, image, 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        check("cuModuleLoadDataEx", loaded).map_err(|failure| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
            let log = String::from_utf8_lossy(&log[..end]);
            let reason = not_taken(context.driver(), what, &failure, log.trim());
            Error::DeviceUnavailable { device: context.name().into(), reason }
        })?;
        let mut kernels = HashMap::new();
        for name in names {
            let called = CString::new(*name).expect("names of kernels are words of C");
            let mut function = null_mut();
            // SAFETY: the module has just been loaded; the name ends in zero and outlives the call.
            let found = unsafe { sys::cuModuleGetFunction(&mut function, module, called.as_ptr()) };
            check("cuModuleGetFunction", found).map_err(|failure| {
                let reason = format!("kernel `{name}` of `{what}` is not there: {failure}");
                Error::DeviceUnavailable { device: context.name().into(), reason }
            })?;
            kernels.insert((*name).to_owned(), function);
        }
        reserve_stack(kernels.values()).map_err(|failure| context.failed(failure))?;
        Ok(Self { kernels })
    }

    /// The kernel of that name, which it was loaded with.
    pub(super) fn kernel(&self, name: &str) -> Option<Kernel> {
        self.kernels.get(name).copied().map(Kernel)
    }
}

/// Makes room for what each thread of these keeps in memory of its own, in the context that is entered. A driver makes it as a
/// kernel that needs more is launched first, and may let the whole device come to rest for it ("cuCtxSetLimit"), as it does
/// for code.
fn reserve_stack<'k>(kernels: impl Iterator<Item = &'k CUfunction>) -> Result<(), Failure> {
    // Of several threads that ask for the room and set it, one could lower what another has set.
    static RESERVING: Mutex<()> = Mutex::new(());
    let mut most = 0;
    for kernel in kernels {
        let (mut bytes, local) = (0, CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        // SAFETY: a kernel that is loaded, and a place for the answer.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&mut bytes, local, *kernel) })?;
        most = most.max(usize::try_from(bytes).unwrap_or(0));
    }
    let _reserving = lock(&RESERVING);
    let mut reserved = 0;
    // SAFETY: a place for the answer.
    check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&mut reserved, CUlimit::CU_LIMIT_STACK_SIZE) })?;
    if most <= reserved {
        return Ok(());
    }
    // SAFETY: the call has no more than two numbers.
    check("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, most) })
}

/// Why a driver of that version does not take code, and what to do.
fn not_taken(driver: &str, what: &str, failure: &Failure, log: &str) -> String {
    let remedy = match failure.code {
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "; it is older than what the code was compiled with: install a newer driver, or give an older NVRTC \
             in STREAMHALO_NVRTC"
        }
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "; the code is for other GPUs",
        _ => "",
    };
    let log = if log.is_empty() { String::new() } else { format!(": {log}") };
    format!("its driver (CUDA {driver}) does not take the code of `{what}`: {failure}{log}{remedy}")
}

/// The names of the kernels in a text of PTX.
pub(super) fn kernels_in(ptx: &str) -> Vec<&str> {
    let entries = ptx.split(".entry ").skip(1);
    entries.filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_does_not_take_code_says_why_and_what_to_do() {
        let said = |code, log| not_taken("12.0", "life", &Failure { call: "cuModuleLoadDataEx", code }, log);
        let old = said(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "Unsupported .version 9.0");
        for part in ["CUDA 12.0", "`life`", "Unsupported .version 9.0", "newer driver", "STREAMHALO_NVRTC"] {
            assert!(old.contains(part), "no {part:?} in {old}");
        }
        let other = said(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, "");
        assert!(other.ends_with("; the code is for other GPUs"), "{other}");
    }
}
