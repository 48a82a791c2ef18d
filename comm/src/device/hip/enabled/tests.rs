//! What can be tested of it without a GPU: that the compiler takes all kernels. With one, what all drivers do.

use super::compiler::compile;
use super::driver::{HipDriver, choose};
use super::library::Library;
use crate::device::conformance::driver_tests;
use crate::device::queue::OWN_KERNELS;
use crate::device::text::KernelText;
use crate::error::Error;

/// Two of the data centre's, with waves of 64 threads, and one with waves of 32.
const ARCHITECTURES: [&str; 3] = ["gfx908", "gfx90a", "gfx1030"];

/// The library; `None`, which is said, where there is none.
fn library() -> Option<&'static Library> {
    match Library::load() {
        Ok(library) => Some(library),
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: compiling kernels for GPUs of AMD's: {reason}");
            None
        }
        Err(error) => panic!("there is a library, but {error}"),
    }
}

/// A device; `None`, which is said, where there is none.
fn gpu() -> Option<HipDriver> {
    match choose("") {
        Ok((library, index, found)) => Some(HipDriver::new(library, index, found).expect("it can be opened")),
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: tests on a GPU of AMD's: {reason}");
            None
        }
        Err(error) => panic!("there is a device, but {error}"),
    }
}

driver_tests!(gpu);

fn text(name: &'static str, source: &'static str) -> KernelText {
    KernelText { name, source, reach: [0; 3] }
}

/// Whether a code object has a kernel of that name: its descriptor has a symbol.
fn has_kernel(code: &[u8], name: &str) -> bool {
    let symbol = format!("\0{name}.kd\0");
    code.windows(symbol.len()).any(|bytes| bytes == symbol.as_bytes())
}

fn compiles(library: &Library, text: &KernelText, kernels: &[&str]) {
    for architecture in ARCHITECTURES {
        let code = compile(library, architecture, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(code.starts_with(b"\x7fELF"), "{}: {architecture}", text.name);
        for kernel in kernels {
            assert!(has_kernel(&code, kernel), "{kernel}: {architecture}");
        }
    }
}

#[test]
fn the_kernels_of_streams_compile() {
    let Some(library) = library() else { return };
    let types = ["u8", "i32", "i64", "f32", "f64"].map(|element| format!("halo_reduce_{element}"));
    let kernels = ["halo_move", "halo_signal", "halo_wait", "halo_wait_all", "halo_arrive"]
        .into_iter()
        .chain(types.iter().map(String::as_str));
    let kernels: Vec<&str> = kernels.collect();
    compiles(library, &OWN_KERNELS, &kernels);
    let code = compile(library, ARCHITECTURES[0], &OWN_KERNELS).expect("as above");
    assert!(!has_kernel(&code, "halo_nothing"));
}

#[test]
fn a_text_that_is_wrong_is_refused_with_its_own_lines() {
    let Some(library) = library() else { return };
    let wrong =
        "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n";
    let refused = compile(library, "gfx90a", &text("wrong", wrong)).expect_err("it is nonsense");
    let Error::KernelDidNotCompile { kernel, device, log } = refused else { panic!("{refused}") };
    assert_eq!((kernel.as_str(), device.as_str()), ("wrong", "hip, gfx90a"));
    assert!(log.contains("wrong:3:24: error") && log.contains("'nonsense'"), "{log}");
    let zero = compile(library, "gfx90a", &text("zero", "KERNEL(zero)(TILE) {}\0")).expect_err("a zero byte");
    assert!(zero.to_string().contains("zero byte"), "{zero}");
}

/// A kernel whose product and sum could be one operation, behind a line.
fn multiplies(line: &str) -> String {
    format!(
        "{line}\nKERNEL(it)(TILE, READS(f64, a), WRITES(f64, b)) {{\nPOINT(i, j, k);\n\
         AT(b, i, j, k) = AT(a, i, j, k) * AT(a, i, j, k) + AT(b, i, j, k);\n}}\n"
    )
}

fn code_of(library: &Library, source: String) -> Vec<u8> {
    compile(library, "gfx90a", &text("it", source.leak())).expect("it is right")
}

#[test]
fn fused_products_are_those_of_their_type() {
    let Some(library) = library() else { return };
    let code_with = |real: &str, function: &str| {
        let source = format!(
            "typedef {real} real;\nKERNEL(it)(TILE, READS(real, a), WRITES(real, b)) {{\nPOINT(i, j, k);\n\
             AT(b, i, j, k) = {function}(AT(a, i, j, k), AT(a, i, j, k), AT(b, i, j, k));\n}}\n"
        );
        code_of(library, source)
    };
    for (real, function, other) in
        [("f32", "__builtin_fmaf", "__builtin_fma"), ("f64", "__builtin_fma", "__builtin_fmaf")]
    {
        assert_eq!(code_with(real, "fma"), code_with(real, function), "{real}");
        assert_ne!(code_with(real, "fma"), code_with(real, other), "{real}");
    }
}

#[test]
fn products_and_sums_are_not_contracted() {
    let Some(library) = library() else { return };
    let code_with = |line: &str| code_of(library, multiplies(line));
    let plain = code_with("");
    assert_eq!(plain, code_with("#pragma clang fp contract(off)"));
    assert_ne!(plain, code_with("#pragma clang fp contract(fast)"));
}
