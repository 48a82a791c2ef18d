//! AMD's HIP runtime, found on this machine when it is first asked for, and its compiler hipRTC.
//!
//! Nothing is linked: a program built with the feature starts where there is no HIP, and says so when it is asked
//! for a device. `hip-sys` gives the types, against which each function here is checked as it compiles; hipRTC's
//! are those of `hip/hiprtc.h`. The library is never unloaded: it has threads that would go on running.

use crate::error::{Error, Result};
use hip_sys::hiprt;
use libloading::Library as Opened;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

/// Where the runtime is, if the loader does not find it or should take another one.
const VARIABLE: &str = "STREAMHALO_HIP";
/// What the loader is asked for otherwise, in that order.
const NAMES: [&str; 5] = [
    "libamdhip64.so.7",
    "libamdhip64.so.6",
    "libamdhip64.so.5",
    "libamdhip64.so",
    "/opt/rocm/lib/libamdhip64.so",
];
/// Where hipRTC is where it is not in the runtime: beside it, or where the loader finds it.
const COMPILER_NAMES: [&str; 4] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"];

/// A program of hipRTC.
pub(super) type CompilerProgram = *mut c_void;

/// Numbers that calls return. Those of later versions are none of the bindings' `enum`, so it is not used.
pub(super) const SUCCESS: u32 = hiprt::hipError_t::hipSuccess as u32;
pub(super) const NOT_READY: u32 = hiprt::hipError_t::hipErrorNotReady as u32;
pub(super) const OUT_OF_MEMORY: u32 = hiprt::hipError_t::hipErrorOutOfMemory as u32;
pub(super) const NO_DEVICE: u32 = hiprt::hipError_t::hipErrorNoDevice as u32;
pub(super) const INVALID_DEVICE: u32 = hiprt::hipError_t::hipErrorInvalidDevice as u32;

/// The errors of kernels that have failed. An address that is nobody's is not among them: there the runtime ends the process.
pub(super) const FAULTS: [u32; 4] = [
    hiprt::hipError_t::hipErrorIllegalAddress as u32,
    hiprt::hipError_t::hipErrorLaunchTimeOut as u32,
    hiprt::hipError_t::hipErrorAssert as u32,
    hiprt::hipError_t::hipErrorLaunchFailure as u32,
];

/// The runtime's functions: a table of them, and checks that their types are those of the bindings.
macro_rules! runtime {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions of the runtime that are used, by their own names. All return a number, [`SUCCESS`] or
        /// what has failed.
        #[allow(non_snake_case, reason = "the runtime's own names")]
        pub(super) struct Runtime {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }
        // Nothing of this is in the program: the linker is not asked for the functions.
        $(const _: unsafe extern "C" fn($($argument),*) -> hiprt::hipError_t = hiprt::$name;)*
        impl Runtime {
            fn of(opened: &'static Opened) -> std::result::Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: the types are those of the bindings, but for the number that is returned: an `enum` in
                    // C, which is passed as this number is.
                    $($name: unsafe { symbol(opened, stringify!($name)) }?,)*
                })
            }
        }
    };
}

runtime! {
    hipInit(c_uint);
    hipGetDeviceCount(*mut c_int);
    hipDeviceGetName(*mut c_char, c_int, hiprt::hipDevice_t);
    hipDeviceTotalMem(*mut usize, hiprt::hipDevice_t);
    hipDeviceGetAttribute(*mut c_int, hiprt::hipDeviceAttribute_t, c_int);
    hipGetDevice(*mut c_int);
    hipSetDevice(c_int);
    hipMemGetInfo(*mut usize, *mut usize);
    hipMalloc(*mut *mut c_void, usize);
    hipFree(*mut c_void);
    hipHostMalloc(*mut *mut c_void, usize, c_uint);
    hipHostGetDevicePointer(*mut *mut c_void, *mut c_void, c_uint);
    hipHostRegister(*mut c_void, usize, c_uint);
    hipHostUnregister(*mut c_void);
    hipIpcGetMemHandle(*mut hiprt::hipIpcMemHandle_t, *mut c_void);
    hipIpcOpenMemHandle(*mut *mut c_void, hiprt::hipIpcMemHandle_t, c_uint);
    hipIpcCloseMemHandle(*mut c_void);
    hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    hipDeviceGetPCIBusId(*mut c_char, c_int, c_int);
    hipDeviceGetByPCIBusId(*mut c_int, *const c_char);
    hipMemsetAsync(*mut c_void, c_int, usize, hiprt::hipStream_t);
    hipMemcpyAsync(*mut c_void, *const c_void, usize, hiprt::hipMemcpyKind, hiprt::hipStream_t);
    hipStreamCreateWithFlags(*mut hiprt::hipStream_t, c_uint);
    hipExtStreamCreateWithCUMask(*mut hiprt::hipStream_t, u32, *const u32);
    hipStreamDestroy(hiprt::hipStream_t);
    hipStreamSynchronize(hiprt::hipStream_t);
    hipStreamQuery(hiprt::hipStream_t);
    hipEventCreateWithFlags(*mut hiprt::hipEvent_t, c_uint);
    hipEventRecord(hiprt::hipEvent_t, hiprt::hipStream_t);
    hipEventQuery(hiprt::hipEvent_t);
    hipEventDestroy(hiprt::hipEvent_t);
    hipEventElapsedTime(*mut f32, hiprt::hipEvent_t, hiprt::hipEvent_t);
    hipModuleLoadData(*mut hiprt::hipModule_t, *const c_void);
    hipModuleUnload(hiprt::hipModule_t);
    hipModuleGetFunction(*mut hiprt::hipFunction_t, hiprt::hipModule_t, *const c_char);
    hipModuleLaunchKernel(
        hiprt::hipFunction_t, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, hiprt::hipStream_t,
        *mut *mut c_void, *mut *mut c_void
    );
}

/// How a device's properties are asked for. The structure changed with ROCm 6; which one the name without a number
/// gives depends on the version.
pub(super) enum AskProperties {
    /// Since ROCm 6: `hipDeviceProp_tR0600`, of which the bindings do not know.
    Numbered(unsafe extern "C" fn(*mut NumberedProperties, c_int) -> u32),
    /// Before.
    Old(unsafe extern "C" fn(*mut hiprt::hipDeviceProp_t, c_int) -> u32),
}

/// What is read of `hipDeviceProp_tR0600` (1472 bytes), with room for what later versions may append.
#[repr(C, align(8))]
pub(super) struct NumberedProperties {
    before: [u8; 1160],
    pub(super) architecture: [c_char; 256],
    after: [u8; 2680],
}

impl NumberedProperties {
    pub(super) const EMPTY: Self = Self { before: [0; 1160], architecture: [0; 256], after: [0; 2680] };
}

const _: unsafe extern "C" fn(*mut hiprt::hipDeviceProp_t, c_int) -> hiprt::hipError_t =
    hiprt::hipGetDeviceProperties;

/// The functions of hipRTC.
pub(super) struct Compiler {
    pub(super) create: unsafe extern "C" fn(
        *mut CompilerProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> u32,
    pub(super) compile: unsafe extern "C" fn(CompilerProgram, c_int, *const *const c_char) -> u32,
    pub(super) log_size: unsafe extern "C" fn(CompilerProgram, *mut usize) -> u32,
    pub(super) log: unsafe extern "C" fn(CompilerProgram, *mut c_char) -> u32,
    pub(super) code_size: unsafe extern "C" fn(CompilerProgram, *mut usize) -> u32,
    pub(super) code: unsafe extern "C" fn(CompilerProgram, *mut c_char) -> u32,
    pub(super) destroy: unsafe extern "C" fn(*mut CompilerProgram) -> u32,
    describe: unsafe extern "C" fn(u32) -> *const c_char,
}

/// The loaded libraries.
pub(super) struct Library {
    pub(super) runtime: Runtime,
    pub(super) compiler: Compiler,
    pub(super) properties: AskProperties,
    /// `None` in versions that do not have both.
    pub(super) memory_operations: Option<MemoryOperations>,
    /// `None` in versions that do not have all of them.
    pub(super) graphs: Option<GraphFunctions>,
    describe: unsafe extern "C" fn(u32) -> *const c_char,
}

/// Operations of a stream on words of memory.
#[derive(Clone, Copy)]
pub(super) struct MemoryOperations {
    pub(super) write: unsafe extern "C" fn(hiprt::hipStream_t, *mut c_void, u32, c_uint) -> u32,
    pub(super) wait: unsafe extern "C" fn(hiprt::hipStream_t, *mut c_void, u32, c_uint, u32) -> u32,
}

const _: unsafe extern "C" fn(hiprt::hipStream_t, *mut c_void, u32, c_uint) -> hiprt::hipError_t =
    hiprt::hipStreamWriteValue32;
const _: unsafe extern "C" fn(hiprt::hipStream_t, *mut c_void, u32, c_uint, u32) -> hiprt::hipError_t =
    hiprt::hipStreamWaitValue32;

/// What streams record, and launch again.
#[derive(Clone, Copy)]
pub(super) struct GraphFunctions {
    pub(super) begin: unsafe extern "C" fn(hiprt::hipStream_t, hiprt::hipStreamCaptureMode) -> u32,
    pub(super) end: unsafe extern "C" fn(hiprt::hipStream_t, *mut hiprt::hipGraph_t) -> u32,
    pub(super) instantiate: unsafe extern "C" fn(
        *mut hiprt::hipGraphExec_t,
        hiprt::hipGraph_t,
        *mut hiprt::hipGraphNode_t,
        *mut c_char,
        usize,
    ) -> u32,
    pub(super) destroy: unsafe extern "C" fn(hiprt::hipGraph_t) -> u32,
    pub(super) launch: unsafe extern "C" fn(hiprt::hipGraphExec_t, hiprt::hipStream_t) -> u32,
    pub(super) destroy_executable: unsafe extern "C" fn(hiprt::hipGraphExec_t) -> u32,
}

const _: unsafe extern "C" fn(hiprt::hipStream_t, hiprt::hipStreamCaptureMode) -> hiprt::hipError_t =
    hiprt::hipStreamBeginCapture;
const _: unsafe extern "C" fn(hiprt::hipStream_t, *mut hiprt::hipGraph_t) -> hiprt::hipError_t =
    hiprt::hipStreamEndCapture;
const _: unsafe extern "C" fn(
    *mut hiprt::hipGraphExec_t,
    hiprt::hipGraph_t,
    *mut hiprt::hipGraphNode_t,
    *mut c_char,
    usize,
) -> hiprt::hipError_t = hiprt::hipGraphInstantiate;
const _: unsafe extern "C" fn(hiprt::hipGraph_t) -> hiprt::hipError_t = hiprt::hipGraphDestroy;
const _: unsafe extern "C" fn(hiprt::hipGraphExec_t, hiprt::hipStream_t) -> hiprt::hipError_t =
    hiprt::hipGraphLaunch;
const _: unsafe extern "C" fn(hiprt::hipGraphExec_t) -> hiprt::hipError_t = hiprt::hipGraphExecDestroy;

impl GraphFunctions {
    fn of(opened: &'static Opened) -> std::result::Result<Self, &'static str> {
        Ok(Self {
            // SAFETY: the types are those of the bindings, but for the number that is returned, here and below.
            begin: unsafe { symbol(opened, "hipStreamBeginCapture") }?,
            // SAFETY: as above.
            end: unsafe { symbol(opened, "hipStreamEndCapture") }?,
            // SAFETY: as above.
            instantiate: unsafe { symbol(opened, "hipGraphInstantiate") }?,
            // SAFETY: as above.
            destroy: unsafe { symbol(opened, "hipGraphDestroy") }?,
            // SAFETY: as above.
            launch: unsafe { symbol(opened, "hipGraphLaunch") }?,
            // SAFETY: as above.
            destroy_executable: unsafe { symbol(opened, "hipGraphExecDestroy") }?,
        })
    }
}

/// `device hip` cannot be used, for that reason.
pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::DeviceUnavailable { device: "hip".into(), reason: reason.into() }
}

impl Library {
    /// The libraries of this process, loaded on the first call.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`]; later calls give the same.
    pub(super) fn load() -> Result<&'static Library> {
        static LOADED: OnceLock<Result<Library>> = OnceLock::new();
        let path = std::env::var_os(VARIABLE);
        if let (None, Some(clang)) = (&path, another_clang()) {
            return Err(unavailable(format!(
                "this process has `{clang}`, as PoCL of OpenCL does. Distributions' HIP brings the same clang once more, \
                 and LLVM ends a process that has both. Ask for HIP without OpenCL, or give the path of AMD's own \
                 libamdhip64 in {VARIABLE}"
            )));
        }
        LOADED.get_or_init(|| Library::open(path)).as_ref().map_err(Error::clone)
    }

    /// Loads the runtime of that path, or the one that the loader finds.
    fn open(path: Option<OsString>) -> Result<Library> {
        let asked: Vec<&OsStr> = match &path {
            Some(path) => vec![path],
            None => NAMES.iter().map(OsStr::new).collect(),
        };
        let (opened, name) = first(&asked).ok_or_else(|| {
            unavailable(match &path {
                Some(path) => format!(
                    "`{}` could not be loaded; {VARIABLE} must name libamdhip64, the runtime of HIP",
                    path.display()
                ),
                None => format!(
                    "there is no libamdhip64, the runtime of HIP, on this machine; install ROCm (Debian: \
                     `apt install libamdhip64-dev`; on clusters: `module load rocm`) or give its path in {VARIABLE}"
                ),
            })
        })?;
        let shown = name.display();
        let lacks = |function| {
            unavailable(format!(
                "`{shown}` has no function `{function}`; give the path of another libamdhip64 in {VARIABLE}"
            ))
        };
        let runtime = Runtime::of(opened).map_err(lacks)?;
        // SAFETY: as the header of ROCm 6 declares it; the structure is shorter than the bytes that are given.
        let numbered = unsafe { symbol(opened, "hipGetDevicePropertiesR0600") };
        let properties = match numbered {
            Ok(function) => AskProperties::Numbered(function),
            // SAFETY: the type is that of the bindings, but for the number that is returned.
            Err(_) => AskProperties::Old(unsafe { symbol(opened, "hipGetDeviceProperties") }.map_err(lacks)?),
        };
        // SAFETY: as above.
        let write = unsafe { symbol(opened, "hipStreamWriteValue32") };
        // SAFETY: as above.
        let wait = unsafe { symbol(opened, "hipStreamWaitValue32") };
        let memory_operations =
            write.and_then(|write| wait.map(|wait| MemoryOperations { write, wait })).ok();
        // SAFETY: as above, of an argument.
        let describe = unsafe { symbol(opened, "hipGetErrorString") }.map_err(lacks)?;
        let compiler = Compiler::of(opened, Path::new(name)).map_err(|function| {
            unavailable(format!(
                "hipRTC, which compiles kernels, is neither in `{shown}` nor in a libhiprtc.so: there is no \
                 `{function}`; install it as a part of ROCm"
            ))
        })?;
        let graphs = GraphFunctions::of(opened).ok();
        Ok(Library { runtime, compiler, properties, memory_operations, graphs, describe })
    }

    /// What a number that a call has returned means.
    pub(super) fn describe(&self, code: u32) -> String {
        // SAFETY: any number may be asked for.
        text(unsafe { (self.describe)(code) })
            .map_or_else(|| format!("error {code}"), |text| format!("{text} ({code})"))
    }

    /// What a number that hipRTC has returned means.
    pub(super) fn describe_compiler(&self, code: u32) -> String {
        // SAFETY: any number may be asked for.
        text(unsafe { (self.compiler.describe)(code) }).unwrap_or_else(|| format!("error {code}"))
    }
}

impl Compiler {
    /// The compiler in the runtime's library, or else of one beside it.
    fn of(runtime: &'static Opened, path: &Path) -> std::result::Result<Self, &'static str> {
        Self::in_library(runtime).or_else(|_| {
            let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let beside = beside.into_iter().flat_map(|folder| COMPILER_NAMES.map(|name| folder.join(name)));
            let anywhere = COMPILER_NAMES.iter().map(Into::into);
            let asked: Vec<_> = beside.chain(anywhere).collect();
            let asked: Vec<&OsStr> = asked.iter().map(|path| path.as_os_str()).collect();
            let (opened, _) = first(&asked).ok_or("hiprtcCompileProgram")?;
            Self::in_library(opened)
        })
    }

    fn in_library(opened: &'static Opened) -> std::result::Result<Self, &'static str> {
        Ok(Self {
            // SAFETY: as `hip/hiprtc.h` declares it, whose `enum` is passed as a number.
            create: unsafe { symbol(opened, "hiprtcCreateProgram") }?,
            // SAFETY: as above.
            compile: unsafe { symbol(opened, "hiprtcCompileProgram") }?,
            // SAFETY: as above.
            log_size: unsafe { symbol(opened, "hiprtcGetProgramLogSize") }?,
            // SAFETY: as above.
            log: unsafe { symbol(opened, "hiprtcGetProgramLog") }?,
            // SAFETY: as above.
            code_size: unsafe { symbol(opened, "hiprtcGetCodeSize") }?,
            // SAFETY: as above.
            code: unsafe { symbol(opened, "hiprtcGetCode") }?,
            // SAFETY: as above.
            destroy: unsafe { symbol(opened, "hiprtcDestroyProgram") }?,
            // SAFETY: as above.
            describe: unsafe { symbol(opened, "hiprtcGetErrorString") }?,
        })
    }
}

/// A library of clang that something else in this process uses.
fn another_clang() -> Option<String> {
    use libloading::os::unix::{Library, RTLD_LAZY};
    // Of `dlopen`: a library is found only if it is there already.
    let only_if_there = RTLD_LAZY | libc::RTLD_NOLOAD;
    let there = |name: &String| {
        // SAFETY: nothing is loaded, and so nothing is initialised.
        unsafe { Library::open(Some(name), only_if_there) }.is_ok()
    };
    (13..=22).map(|version| format!("libclang-cpp.so.{version}")).find(there)
}

/// The first of some libraries that can be loaded, for ever.
fn first<'a>(asked: &[&'a OsStr]) -> Option<(&'static Opened, &'a OsStr)> {
    asked.iter().find_map(|name| {
        // SAFETY: the initialisation of AMD's libraries has no conditions; what else the user names in the variable
        // is on the user.
        let opened = unsafe { Opened::new(*name) }.ok()?;
        let opened: &'static Opened = Box::leak(Box::new(opened));
        Some((opened, *name))
    })
}

/// A function of a library, or its name if there is none.
///
/// # Safety
/// `T` must be the type of that function.
unsafe fn symbol<T: Copy>(
    opened: &'static Opened,
    name: &'static str,
) -> std::result::Result<T, &'static str> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { opened.get::<T>(name) };
    found.map(|function| *function).map_err(|_| name)
}

/// A C string, unless there is none.
fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the libraries' own strings, which end in zero and are never freed.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> String {
        match Library::open(Some(path.into())) {
            Ok(_) => panic!("`{path}` is no runtime of HIP"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn another_library_is_refused_with_what_it_lacks() {
        let error = refused("libc.so.6");
        assert!(
            error.contains("`libc.so.6` has no function `hipInit`") && error.contains(VARIABLE),
            "{error}"
        );
        let error = refused("/nowhere/libamdhip64.so");
        assert!(error.contains("`/nowhere/libamdhip64.so` could not be loaded"), "{error}");
    }
}
