//! What can be checked of CUDA without a GPU: that kernels compile, and to what. With one, what all drivers do.

use super::choice::{self, Capability, OLDEST};
use super::compile;
use super::context::{CudaDriver, OWN_PTX};
use super::nvrtc::{self, Nvrtc, Target};
use super::program::kernels_in;
use crate::device::conformance::driver_tests;
use crate::device::driver::Value;
use crate::device::gpu::Packed;
use crate::device::queue::OWN_KERNELS;
use crate::device::text::KernelText;
use crate::error::Error;

/// What the PTX that comes with the library is made by.
const COMPILER: [i32; 2] = [12, 0];

/// Whether the PTX that comes with the library is to be written (by `make-ptx`), not compared.
fn writes_ptx() -> bool {
    std::env::var_os("STREAMHALO_TEST_WRITE_PTX").is_some()
}

/// The compiler; `None` where there is none, which is printed as a part that was left out.
fn compiler() -> Option<&'static Nvrtc> {
    match Nvrtc::load() {
        Ok(compiler) => Some(compiler),
        Err(reason) => {
            println!("skipped: compiling kernels for CUDA: {reason}");
            None
        }
    }
}

/// A GPU, with a compiler for the tests' kernels; `None`, which is said, where there is none.
fn gpu() -> Option<CudaDriver> {
    compiler()?;
    match choice::choose("") {
        Ok((device, found)) => Some(CudaDriver::new(device, found).expect("it can be opened")),
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: tests on a GPU of CUDA: {reason}");
            None
        }
        Err(error) => panic!("there is a GPU, but {error}"),
    }
}

driver_tests!(gpu);

/// The oldest GPUs that the compiler still knows.
fn oldest(compiler: &Nvrtc) -> Capability {
    compiler.oldest().expect("it compiles for something")
}

fn capability(major: i32, minor: i32) -> Capability {
    Capability { major, minor }
}

#[test]
fn the_kernels_of_streams_are_what_their_source_gives() {
    let compiler = match Nvrtc::load() {
        Err(reason) if writes_ptx() => panic!("`streams.ptx` cannot be written: {reason}"),
        _ => compiler(),
    };
    let Some(compiler) = compiler else { return };
    if compiler.version() != COMPILER {
        assert!(
            !writes_ptx(),
            "`streams.ptx` cannot be written: NVRTC is {:?}, not 12.0",
            compiler.version()
        );
        println!(
            "skipped: comparing CUDA's PTX with its source: NVRTC is {:?}, not 12.0",
            compiler.version()
        );
        return;
    }
    let ptx = nvrtc::build(compiler, "any GPU", &OWN_KERNELS, Target::Ptx(OLDEST)).expect("it compiles");
    let ptx = String::from_utf8(ptx).expect("a text");
    if writes_ptx() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/device/cuda/streams.ptx");
        std::fs::write(path, ptx.trim_end_matches('\0')).expect("the file can be written");
        return;
    }
    assert!(ptx == OWN_PTX, "`streams.ptx` is not what its source gives; run comm/src/device/cuda/make-ptx");
}

#[test]
fn the_kernels_of_streams_compile_for_all_gpus() {
    let Some(compiler) = compiler() else { return };
    for (major, minor) in [(7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0)] {
        let device = capability(major, minor);
        if compiler.target(device) != Ok(Target::Machine(device)) {
            println!("skipped: kernels for CUDA {device}: NVRTC {:?} has no such GPUs", compiler.version());
            continue;
        }
        let code = compile(&OWN_KERNELS, device).expect("it compiles");
        assert!(code.starts_with(b"\x7fELF"), "no machine code for {device}");
    }
    // A GPU of the future gets PTX of the newest that there is, for its driver to compile on.
    let Ok(Target::Ptx(newest)) = compiler.target(capability(99, 0)) else { panic!("it knows of 99.0") };
    let ptx = compile(&OWN_KERNELS, capability(99, 0)).expect("it compiles");
    let target = format!(".target sm_{}{}", newest.major, newest.minor);
    assert!(String::from_utf8_lossy(&ptx).contains(&target), "{target}");
}

static WRONG: KernelText = KernelText {
    name: "wrong",
    source: "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n",
    reach: [0; 3],
};

#[test]
fn a_text_that_does_not_compile_is_told_with_its_own_lines() {
    if compiler().is_none() {
        return;
    }
    match compile(&WRONG, capability(9, 0)).expect_err("it is nonsense") {
        Error::KernelDidNotCompile { kernel, log, .. } => {
            assert_eq!(kernel, "wrong");
            assert!(log.contains("wrong(3): error") && log.contains("nonsense"), "{log}");
            assert!(!log.contains("warning"), "the prelude has warnings: {log}");
        }
        other => panic!("{other}"),
    }
}

static FUSED: KernelText = KernelText {
    name: "fused",
    source: "KERNEL(fused)(TILE, READS(f64, in), WRITES(f64, out)) {\n    POINT(i, j, k);\n    \
             AT(out, i, j, k) = AT(in, i, j, k) * AT(in, i, j, k) + AT(in, i, j, k) / 3.0;\n}\n",
    reach: [0; 3],
};

#[test]
fn products_and_sums_are_not_contracted() {
    let Some(compiler) = compiler() else { return };
    let ptx = nvrtc::build(compiler, "any GPU", &FUSED, Target::Ptx(oldest(compiler))).expect("it compiles");
    let ptx = String::from_utf8(ptx).expect("a text");
    let has = |instruction: &str| ptx.contains(instruction);
    assert!(has("mul.rn.f64") && has("add.rn.f64") && has("div.rn.f64") && !has("fma"), "{ptx}");
}

#[test]
fn fused_products_are_those_of_their_type() {
    let Some(compiler) = compiler() else { return };
    let text = |real: &str| KernelText {
        name: "it",
        source: format!(
            "typedef {real} real;\nKERNEL(it)(TILE, READS(real, in), WRITES(real, out)) {{\nPOINT(i, j, k);\n\
             AT(out, i, j, k) = fma(AT(in, i, j, k), AT(in, i, j, k), AT(out, i, j, k));\n}}\n"
        )
        .leak(),
        reach: [0; 3],
    };
    for (real, other) in [("f32", "f64"), ("f64", "f32")] {
        let target = Target::Ptx(oldest(compiler));
        let ptx = nvrtc::build(compiler, "any GPU", &text(real), target).expect("it compiles");
        let ptx = String::from_utf8(ptx).expect("a text");
        assert!(ptx.contains(&format!("fma.rn.{real}")) && !ptx.contains(other), "{ptx}");
    }
}

/// The body of a kernel in the PTX that comes with the library, its parameters first.
fn entry(name: &str) -> &'static str {
    let start = OWN_PTX.find(&format!(".entry {name}(")).expect("it is there");
    let rest = &OWN_PTX[start..];
    &rest[..rest.find("\n}").expect("it ends")]
}

#[test]
fn what_kernels_tell_each_other_is_ordered_for_the_whole_system() {
    assert!(
        OWN_PTX.contains("\n.version 8.0\n") && OWN_PTX.contains("\n.target sm_70\n"),
        "drivers would refuse it"
    );
    let signal = entry("halo_signal");
    let fence = signal.find("fence.acq_rel.sys").expect("a fence");
    for post in ["st.relaxed.sys.u32", "atom.relaxed.gpu.add.u32"] {
        assert!(signal.find(post).expect(post) > fence, "{post} is not behind the fence");
    }
    for name in ["halo_wait", "halo_wait_all", "halo_arrive", "halo_relay"] {
        let wait = entry(name);
        assert!(wait.contains("ld.acquire.sys.u32") && wait.contains("ld.relaxed.sys.u32"), "{wait}");
    }
    // Words of 16 bytes are moved at once, and never through the cache that is not coherent.
    for name in ["halo_move", "halo_send", "halo_arrive", "halo_relay"] {
        let moves = entry(name);
        for (any, global) in [("ld.v2.u64", "ld.global.v2.u64"), ("st.v2.u64", "st.global.v2.u64")] {
            assert!(moves.contains(any) || moves.contains(global), "no {any}: {moves}");
        }
        assert!(!moves.contains(".nc."), "{moves}");
    }
    // What was to be told before a send is told behind a fence of its own. All threads of a group have stored, then it counts
    // itself in behind a fence, and the last one tells behind another.
    let send = entry("halo_send");
    let (before, behind) = send.split_at(send.find("st.v2.u64").expect("it moves"));
    let behind_all = [
        "bar.sync",
        "fence.acq_rel.sys",
        "atom.relaxed.gpu.add.u32",
        "fence.acq_rel.sys",
        "st.relaxed.sys.u32",
    ];
    for (text, order) in [(before, &["fence.acq_rel.sys", "st.relaxed.sys.u32"][..]), (behind, &behind_all)] {
        let mut rest = text;
        for instruction in order {
            let Some((_, behind)) = rest.split_once(instruction) else { panic!("{order:?} in {text}") };
            rest = behind;
        }
        assert!(!text.split("fence.acq_rel.sys").next().expect("a part").contains("relaxed.sys"), "{text}");
    }
    // A group moves what has arrived once all of its threads have waited.
    for name in ["halo_arrive", "halo_relay"] {
        let arrive = entry(name);
        let order = ["ld.acquire.sys.u32", "bar.red", "st.v2.u64"];
        let places = order.map(|instruction| arrive.find(instruction).expect(instruction));
        assert!(places.is_sorted(), "{name}: {order:?} are at {places:?}");
    }
    let fences = [before, behind].map(|text| text.matches("fence.acq_rel.sys").count());
    assert_eq!(fences, [1, 2], "behind what is moved one a group, and one of who counts last");
}

/// Where the parameters of a kernel end, as its PTX declares them.
fn parameters(entry: &str) -> Vec<usize> {
    let list = &entry[entry.find('(').expect("a list") + 1..entry.find(')').expect("a list")];
    let mut end = 0_usize;
    let declared = list.split(',').map(|parameter| {
        let words: Vec<&str> = parameter.split_whitespace().collect();
        let (align, bytes) = match words[1] {
            ".u8" => (1, 1),
            ".u32" | ".f32" => (4, 4),
            ".u64" | ".f64" => (8, 8),
            // `.align 8 .b8 name[48]`
            ".align" => {
                let length = words[4].split_once('[').and_then(|(_, length)| length.strip_suffix(']'));
                (words[2].parse().expect("a number"), length.expect("an array").parse().expect("a number"))
            }
            other => panic!("{other} in {parameter}"),
        };
        end = end.next_multiple_of(align) + bytes;
        end
    });
    declared.collect()
}

static NUMBERS: KernelText = KernelText {
    name: "numbers",
    source: "KERNEL(numbers)(TILE, READS(f64, in), WRITES(f64, out), SCALAR(u8, a), SCALAR(f32, b), SCALAR(i64, c), \
             SCALAR(u8, d), SCALAR(f64, e)) {\n    POINT(i, j, k);\n    \
             AT(out, i, j, k) = AT(in, i, j, k) * a + b * c + d * e;\n}\n",
    reach: [0; 3],
};

#[test]
fn arguments_of_applications_are_packed_as_their_kernels_declare_them() {
    let Some(compiler) = compiler() else { return };
    let ptx =
        nvrtc::build(compiler, "any GPU", &NUMBERS, Target::Ptx(oldest(compiler))).expect("it compiles");
    let ptx = String::from_utf8(ptx).expect("a text");
    let declared = parameters(&ptx[ptx.find(".entry numbers(").expect("it is there")..]);
    let array = [Value::Pointer(std::ptr::without_provenance(7)), Value::U64s(&[7; 5])];
    let numbers = [1, 4, 8, 1, 8].map(|bytes| Value::Bytes(&[7; 8][..bytes]));
    let arguments = [&[Value::U64s(&[7; 6])][..], &array, &array, &numbers].concat();
    let mut packed = Packed::default();
    let ends = (1..=arguments.len()).map(|count| {
        packed.set(&arguments[..count]);
        packed.bytes()
    });
    assert_eq!(ends.collect::<Vec<_>>(), declared);
}

#[test]
fn arguments_are_packed_as_kernels_declare_them() {
    let (pointer, word) = (Value::Pointer(std::ptr::without_provenance(7)), Value::U32(7));
    let long = Value::U64(7);
    let arrive = [
        &[pointer, long, pointer, pointer, pointer, word, pointer, word][..],
        &[pointer, pointer, word, word],
    ];
    let own: [(&str, Vec<Value>); 10] = [
        ("halo_move", vec![pointer, pointer, pointer, word, word]),
        ("halo_reduce_f64", vec![pointer, word, pointer, pointer, pointer, long]),
        ("halo_signal", [[pointer; 6].to_vec(), vec![word, word]].concat()),
        (
            "halo_send",
            [
                &[pointer, pointer, pointer, word, word, pointer][..],
                &[pointer, long, pointer, word],
                &[pointer, long, pointer, word],
            ]
            .concat(),
        ),
        ("halo_wait", [[pointer; 7].to_vec(), vec![word, pointer, word]].concat()),
        ("halo_wait_all", vec![pointer, long, pointer, pointer, pointer, word, pointer, word]),
        ("halo_arrive", arrive.concat()),
        (
            "halo_relay",
            [
                &arrive.concat()[..],
                &[pointer, long, pointer, word, word],
                &[pointer, pointer, word],
                &[pointer, long, pointer, word].repeat(2),
            ]
            .concat(),
        ),
        ("halo_set", vec![pointer, word, word]),
        ("halo_move_on", vec![pointer, pointer, long, pointer]),
    ];
    for (name, arguments) in own {
        let declared = parameters(entry(name));
        let mut packed = Packed::default();
        for count in 1..=arguments.len() {
            packed.set(&arguments[..count]);
            assert_eq!(packed.bytes(), declared[count - 1], "argument {count} of {name}");
        }
        assert_eq!(arguments.len(), declared.len(), "{name}");
    }
    let reductions = ["u8", "i32", "i64", "f32", "f64"].map(|element| format!("halo_reduce_{element}"));
    let known = kernels_in(OWN_PTX);
    assert!(reductions.iter().all(|name| known.contains(&name.as_str())), "{known:?}");
    assert_eq!(known.len(), reductions.len() + 9, "{known:?}");
}
