//! hipRTC: texts to code objects. It needs no device.

use super::library::{CompilerProgram, Library, SUCCESS};
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use crate::locks::lock;
use std::ffi::{CString, c_char};
use std::sync::Mutex;

/// Macros and types that the texts of kernels are written with.
const PRELUDE: &str = concat!(include_str!("../../gpu/prelude.h"), include_str!("prelude.hip"));

/// What the compiler is told besides the architecture. No product and sum become one operation, so that the bits are
/// the host's; nothing allows what changes values.
const OPTIONS: [&str; 2] = ["-ffp-contract=off", "-O3"];

/// Compiles a text behind the prelude for an architecture, such as `gfx90a`, with lines counted from its own first.
///
/// # Errors
/// [`Error::KernelDidNotCompile`] with what the compiler says.
pub(super) fn compile(library: &Library, architecture: &str, text: &KernelText) -> Result<Vec<u8>> {
    // The compiler's library has had races, and one text after the other is fast enough.
    static TURNS: Mutex<()> = Mutex::new(());
    let _turn = lock(&TURNS);
    let wrong = |log: String| Error::KernelDidNotCompile {
        kernel: text.name.into(),
        device: format!("hip, {architecture}"),
        log,
    };
    let string = |text: String| CString::new(text).map_err(|_| wrong("there is a zero byte in it".into()));
    let source = string(format!("{PRELUDE}\n#line 1 \"{}\"\n{}", text.name, text.source))?;
    let name = string(text.name.into())?;
    let mut options = vec![string(format!("--offload-arch={architecture}"))?];
    for option in OPTIONS {
        options.push(string(option.into())?);
    }
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();

    let failed = |code: u32| wrong(format!("hipRTC: {}", library.describe_compiler(code)));
    let check = |code: u32| if code == SUCCESS { Ok(()) } else { Err(failed(code)) };
    let mut program = Program { library, raw: std::ptr::null_mut() };
    let no_headers = std::ptr::null();
    // SAFETY: strings that end in zero, of which the call makes copies, and no headers.
    let code = unsafe {
        (library.compiler.create)(&mut program.raw, source.as_ptr(), name.as_ptr(), 0, no_headers, no_headers)
    };
    check(code)?;
    // SAFETY: the program has just been made; there are that many options.
    let code = unsafe { (library.compiler.compile)(program.raw, options.len() as i32, options.as_ptr()) };
    if code != SUCCESS {
        let log = program.log();
        return Err(if log.is_empty() { failed(code) } else { wrong(log) });
    }
    let mut bytes = 0;
    // SAFETY: the program lives and has been compiled.
    check(unsafe { (library.compiler.code_size)(program.raw, &mut bytes) })?;
    let mut compiled = vec![0_u8; bytes];
    // SAFETY: as above; there is room for as many bytes as it has.
    check(unsafe { (library.compiler.code)(program.raw, compiled.as_mut_ptr().cast()) })?;
    Ok(compiled)
}

/// A program of hipRTC, from when it is made until it is dropped.
struct Program<'a> {
    library: &'a Library,
    raw: CompilerProgram,
}

impl Program<'_> {
    /// What the compiler has said; empty if it cannot be had.
    fn log(&self) -> String {
        let mut bytes = 0;
        // SAFETY: the program lives.
        let code = unsafe { (self.library.compiler.log_size)(self.raw, &mut bytes) };
        if code != SUCCESS || bytes == 0 {
            return String::new();
        }
        let mut log = vec![0_u8; bytes];
        // SAFETY: the program lives, and there is room for as many bytes as the log has.
        let code = unsafe { (self.library.compiler.log)(self.raw, log.as_mut_ptr().cast()) };
        if code == SUCCESS {
            String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).into()
        } else {
            String::new()
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by the library and not used any more. There is nobody to tell of a failure.
            let _ = unsafe { (self.library.compiler.destroy)(&mut self.raw) };
        }
    }
}
