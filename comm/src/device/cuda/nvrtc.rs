//! NVRTC, the compiler of CUDA C that applications' kernels are compiled with: found when it is first asked for.
//!
//! It needs neither a driver nor a GPU. The interface is that of CUDA 12.0 (NVRTC's guide, "Compilation"), which
//! later ones still have. It is loaded here and not by `cudarc`, whose loader panics where a library or a function is
//! missing, and takes no path of one that is off the loader's.

use super::choice::Capability;
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Where NVRTC is, if the loader does not find it or should take another one.
pub(super) const LIBRARY_VARIABLE: &str = "STREAMHALO_NVRTC";
/// What the loader is asked for otherwise: without a version where there is a toolkit, with one in Python's packages.
const LIBRARIES: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"];

/// Macros and types that the texts of kernels are written with.
const PRELUDE: &str = concat!(include_str!("../gpu/prelude.h"), include_str!("prelude.cu"));

type Handle = *mut c_void;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

/// The loaded library.
#[derive(Debug)]
pub(super) struct Nvrtc {
    version: [c_int; 2],
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    describe: unsafe extern "C" fn(c_int) -> *const c_char,
    log: (Size, Text),
    ptx: (Size, Text),
    cubin: (Size, Text),
    /// What it makes machine code for.
    architectures: Vec<Capability>,
}

/// What code is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// PTX that devices of that capability and all later ones take, which the driver compiles on.
    Ptx(Capability),
    /// The machine code of that capability, which no version of PTX stands in the way of.
    Machine(Capability),
}

impl Target {
    fn option(self) -> String {
        match self {
            Target::Ptx(Capability { major, minor }) => format!("--gpu-architecture=compute_{major}{minor}"),
            Target::Machine(Capability { major, minor }) => format!("--gpu-architecture=sm_{major}{minor}"),
        }
    }
}

/// A program that is being compiled.
struct Program<'a> {
    library: &'a Nvrtc,
    handle: Handle,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the library and destroyed once. There is nobody to tell of a failure.
        unsafe { (self.library.destroy)(&mut self.handle) };
    }
}

/// Why a text has not been compiled.
#[derive(Debug)]
pub(super) enum Failure {
    /// The text is wrong: what the compiler says.
    Text(String),
    /// The compiler is.
    Compiler(String),
}

impl Nvrtc {
    /// The library of this process, loaded on the first call.
    ///
    /// # Errors
    /// Why it cannot be had, and what to install; later calls give the same.
    pub(super) fn load() -> Result<&'static Nvrtc, String> {
        static LOADED: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Nvrtc::open(std::env::var_os(LIBRARY_VARIABLE)));
        loaded.as_ref().map_err(String::clone)
    }

    fn open(path: Option<OsString>) -> Result<Nvrtc, String> {
        let names: Vec<OsString> = match path {
            Some(path) => vec![path],
            None => LIBRARIES.map(OsString::from).to_vec(),
        };
        let mut refused = Vec::new();
        for name in names {
            // SAFETY: NVRTC's initialisation has no conditions; what else the user names is on the user.
            match unsafe { libloading::Library::new(&name) } {
                // Never unloaded: its functions are kept.
                Ok(library) => return Self::of(Box::leak(Box::new(library))),
                Err(error) => refused.push(format!("`{}`: {error}", name.display())),
            }
        }
        Err(format!(
            "kernels of applications are compiled by NVRTC, which could not be loaded ({}); install that of a CUDA \
             toolkit or the Python package nvidia-cuda-nvrtc-cu12, and give the path of its libnvrtc.so.12 in \
             {LIBRARY_VARIABLE} if the loader does not find it",
            refused.join("; ")
        ))
    }

    fn of(library: &'static libloading::Library) -> Result<Nvrtc, String> {
        // SAFETY: the type is that of the function's declaration.
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            unsafe { symbol(library, c"nvrtcVersion") }?;
        // SAFETY: as above.
        let count: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { symbol(library, c"nvrtcGetNumSupportedArchs") }?;
        // SAFETY: as above.
        let list: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { symbol(library, c"nvrtcGetSupportedArchs") }?;
        let (mut major, mut minor, mut architectures) = (0, 0, 0);
        // SAFETY: two numbers are written.
        unsafe { version(&mut major, &mut minor) };
        // SAFETY: a number is written.
        unsafe { count(&mut architectures) };
        let mut known = vec![0; usize::try_from(architectures).unwrap_or_default()];
        // SAFETY: the library writes as many numbers as it has just said.
        unsafe { list(known.as_mut_ptr()) };
        // Of each the two functions have the types of their declarations.
        let pair = |size: &CStr, text: &CStr| -> Result<(Size, Text), String> {
            // SAFETY: as above.
            let size = unsafe { symbol(library, size) }?;
            // SAFETY: as above.
            Ok((size, unsafe { symbol(library, text) }?))
        };
        Ok(Self {
            version: [major, minor],
            // SAFETY: as above.
            create: unsafe { symbol(library, c"nvrtcCreateProgram") }?,
            // SAFETY: as above.
            compile: unsafe { symbol(library, c"nvrtcCompileProgram") }?,
            // SAFETY: as above.
            destroy: unsafe { symbol(library, c"nvrtcDestroyProgram") }?,
            // SAFETY: as above.
            describe: unsafe { symbol(library, c"nvrtcGetErrorString") }?,
            log: pair(c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")?,
            ptx: pair(c"nvrtcGetPTXSize", c"nvrtcGetPTX")?,
            cubin: pair(c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN")?,
            architectures: known
                .into_iter()
                .map(|number| Capability { major: number / 10, minor: number % 10 })
                .collect(),
        })
    }

    /// Its version, as `[12, 0]`.
    pub(super) fn version(&self) -> [i32; 2] {
        self.version
    }

    /// What to compile to for a device: its machine code, or, if it is newer than the compiler, PTX of the newest
    /// that there is.
    ///
    /// # Errors
    /// That the compiler makes nothing any more that the device takes.
    pub(super) fn target(&self, device: Capability) -> Result<Target, String> {
        match self.architectures.iter().filter(|known| **known <= device).max() {
            Some(known) if *known == device => Ok(Target::Machine(device)),
            Some(older) => Ok(Target::Ptx(*older)),
            None => Err(too_new(self.version, self.oldest(), device)),
        }
    }

    /// The oldest that it makes code for.
    pub(super) fn oldest(&self) -> Option<Capability> {
        self.architectures.iter().copied().min()
    }

    /// Compiles a source that is called `name` in the log: what a driver loads.
    ///
    /// # Errors
    /// What the compiler says.
    pub(super) fn compile(&self, name: &str, source: &str, target: Target) -> Result<Vec<u8>, Failure> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Failure::Text(format!("the text of `{name}` has a zero byte")))
        };
        let (source, called) = (text(source)?, text(name)?);
        // The bits of the host: products and sums are not contracted, and nothing else changes values either.
        let options = [text(&target.option())?, text("--fmad=false")?];
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Program { library: self, handle: std::ptr::null_mut() };
        let none = std::ptr::null();
        // SAFETY: both texts end in zero and outlive the call; there are no headers.
        let made =
            unsafe { (self.create)(&mut program.handle, source.as_ptr(), called.as_ptr(), 0, none, none) };
        self.check("nvrtcCreateProgram", made)?;
        // SAFETY: as many options as it is told, which end in zero and outlive the call.
        let compiled = unsafe { (self.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
        if compiled != 0 {
            let log = self.take("nvrtcGetProgramLog", program.handle, self.log)?;
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
            return Err(if log.is_empty() {
                self.failed("nvrtcCompileProgram", compiled)
            } else {
                Failure::Text(log)
            });
        }
        match target {
            Target::Ptx(_) => self.take("nvrtcGetPTX", program.handle, self.ptx),
            Target::Machine(_) => self.take("nvrtcGetCUBIN", program.handle, self.cubin),
        }
    }

    /// What a program has of something, whose size is asked for first.
    fn take(&self, call: &str, program: Handle, (size, text): (Size, Text)) -> Result<Vec<u8>, Failure> {
        let mut bytes = 0;
        // SAFETY: the program lives, and a number is written.
        self.check(call, unsafe { size(program, &mut bytes) })?;
        let mut taken = vec![0_u8; bytes];
        // SAFETY: as many bytes are written as the library has just said.
        self.check(call, unsafe { text(program, taken.as_mut_ptr().cast()) })?;
        Ok(taken)
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    fn failed(&self, call: &str, code: c_int) -> Failure {
        // SAFETY: any number may be asked for.
        let text = unsafe { (self.describe)(code) };
        if text.is_null() {
            return Failure::Compiler(format!("{call} failed with code {code}"));
        }
        // SAFETY: the library's own text, which ends in zero and stays.
        let text = unsafe { CStr::from_ptr(text) };
        Failure::Compiler(format!("{call} failed: {}", text.to_string_lossy()))
    }
}

/// Why a compiler has no code for a device that is older than all that it knows.
fn too_new([major, minor]: [c_int; 2], oldest: Option<Capability>, device: Capability) -> String {
    let from = oldest.map(|oldest| format!(" before {oldest}")).unwrap_or_default();
    format!(
        "NVRTC {major}.{minor} compiles for no compute capability{from}, and this is {device}; give an older NVRTC in \
         {LIBRARY_VARIABLE}"
    )
}

/// A function of a library.
///
/// # Safety
/// `T` must be the type of a pointer to the function of that name.
unsafe fn symbol<T: Copy>(library: &'static libloading::Library, name: &CStr) -> Result<T, String> {
    // SAFETY: by the caller.
    match unsafe { library.get::<T>(name) } {
        Ok(symbol) => Ok(*symbol),
        Err(error) => Err(format!("the library of NVRTC lacks `{}`: {error}", name.to_string_lossy())),
    }
}

/// Compiles a text behind the prelude, with lines counted from its own first.
///
/// # Errors
/// [`Error::KernelDidNotCompile`] for that device with the compiler's log; [`Error::DeviceUnavailable`] if the
/// compiler itself fails.
pub(super) fn build(library: &Nvrtc, device: &str, text: &KernelText, target: Target) -> Result<Vec<u8>> {
    let KernelText { name, source, .. } = text;
    let whole = format!("#line 1 \"prelude\"\n{PRELUDE}\n#line 1 \"{name}\"\n{source}");
    library.compile(name, &whole, target).map_err(|failure| match failure {
        Failure::Text(log) => {
            Error::KernelDidNotCompile { kernel: (*name).into(), device: device.into(), log }
        }
        Failure::Compiler(reason) => Error::DeviceUnavailable { device: device.into(), reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_has_forgotten_a_device_says_what_to_do() {
        let [known, device] = [(7, 5), (7, 0)].map(|(major, minor)| Capability { major, minor });
        let said = too_new([13, 0], Some(known), device);
        for part in ["NVRTC 13.0", "before 7.5", "this is 7.0", "STREAMHALO_NVRTC"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    }
}
