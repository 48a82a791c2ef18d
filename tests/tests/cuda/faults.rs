//! What goes wrong on a GPU is an error that says what it was, and the process goes on or ends cleanly.

use super::{alone, gpu};
use std::process::Command;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, cuda_devices};
use streamhalo::{Device, KernelText, Stream, StreamKind, Waits};
use streamhalo_tests::{outcomes, set_waits, stream_of};

const LINE: Extents = Extents { points: [1, 1, 64], components: 1 };
const MARK: &str = "STREAMHALO_TEST_FAULT";

static WRONG: KernelText = KernelText {
    name: "wrong",
    source: "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n",
    reach: [0; 3],
};

static FAULTY: KernelText = KernelText {
    name: "faulty",
    source: "KERNEL(faulty)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    \
             AT(out, i, j, k + 0x100000000000) = 7;\n}\n",
    reach: [0; 3],
};

fn launch(stream: &Stream, text: &'static KernelText, buffer: &mut Buffer<u8>) -> Result<(), Error> {
    let writer = buffer.writer(LINE.whole())?;
    stream.launch_either(text, LINE.whole(), (writer,), |_, _| ())
}

#[test]
fn a_gpu_that_is_not_there() {
    for select in ["99", "a GPU of nobody"] {
        let said = Device::cuda(select).expect_err("there is none").to_string();
        let all = cuda_devices().unwrap_or_default();
        assert!(said.contains(&format!("`cuda:{select}`")), "{said}");
        assert!(all.iter().all(|gpu| said.contains(&gpu.name)), "{said}");
        assert!(!all.is_empty() || said.contains("driver"), "{said}");
    }
}

#[test]
fn gpus_are_chosen_by_number_name_and_address() {
    let Some((device, _turn)) = gpu() else { return };
    let all = cuda_devices().expect("there is one");
    let index = all.iter().position(|one| one.unusable().is_none()).expect("one can be used");
    for select in [index.to_string(), all[index].name.to_uppercase(), all[index].bus.clone()] {
        assert_eq!(Device::cuda(&select).expect("the same one").name(), device.name());
    }
}

#[test]
fn more_memory_than_there_is_leaves_the_stream_as_it_was() {
    let Some((device, _turn)) = gpu() else { return };
    let (world, [stream, _]) = alone();
    let all = cuda_devices().expect("there is one");
    let own = all.iter().find(|one| device.name().ends_with(&one.name)).expect("the one that is used");
    // More than there is, and more than is free.
    for (bytes, part) in [(1 << 42, "at most"), (own.memory_bytes as usize - 4096, "are free")] {
        let extents = Extents { points: [1, 1, bytes], components: 1 };
        match Buffer::<u8>::zeros(&world, &stream, extents).expect_err("too much") {
            Error::OutOfMemory { kind: "device", reason, .. } => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other}"),
        }
    }
    let buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("there is that much");
    assert_eq!(buffer.copy_out(LINE.whole()), Ok(vec![0; 64]));
}

#[test]
fn a_text_that_does_not_compile_leaves_the_stream_as_it_was() {
    let Some((_, _turn)) = gpu() else { return };
    let (world, [stream, _]) = alone();
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    match launch(&stream, &WRONG, &mut buffer).expect_err("it is nonsense") {
        Error::KernelDidNotCompile { kernel, log, .. } => {
            assert!(
                kernel == "wrong" && log.contains("wrong(3): error") && log.contains("nonsense"),
                "{log}"
            );
        }
        other => panic!("{other}"),
    }
    stream.synchronize().expect("nothing was enqueued");
}

/// In a process of its own: a GPU does nothing more for one of whose kernels has failed.
#[test]
fn a_kernel_that_faults_is_named() {
    let Some((_, _turn)) = gpu() else { return };
    if std::env::var_os(MARK).is_none() {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "faults::a_kernel_that_faults_is_named", "--nocapture"]).env(MARK, "1");
        let output = command.output().expect("it can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (world, [stream, _]) = alone();
    let mut buffer = Buffer::<u8>::zeros(&world, &stream, LINE).expect("memory");
    stream.synchronize().expect("nothing has failed");
    launch(&stream, &FAULTY, &mut buffer).expect("it compiles");
    for _ in 0..2 {
        match stream.synchronize().expect_err("it writes where nothing is") {
            Error::KernelFaulted { kernels, reason, .. } => {
                assert_eq!(kernels, ["faulty"]);
                assert!(reason.contains("ILLEGAL_ADDRESS"), "{reason}");
            }
            other => panic!("{other}"),
        }
    }
    // The process goes on: the host's streams are not affected, and the GPU's say why they are.
    let refused = Buffer::<u8>::zeros(&world, &stream, LINE).expect_err("the GPU is lost").to_string();
    assert!(refused.contains("a kernel of another stream has failed"), "{refused}");
}

#[test]
fn more_ranks_than_the_hardware_has_queues_for_are_refused() {
    let Some((_, _turn)) = gpu() else { return };
    let refused = outcomes(40, |world| {
        set_waits(Waits::Kernel);
        let stream = stream_of(world, StreamKind::Device);
        // None goes before all have tried.
        world.barrier()?;
        stream.map(|_| ())
    });
    let refused = refused.into_iter().filter_map(Result::err).map(|error| error.to_string());
    let refused: Vec<String> = refused.collect();
    assert!(refused.len() >= 40 - 31, "{} were refused", refused.len());
    assert!(refused.iter().all(|said| said.contains("CUDA_DEVICE_MAX_CONNECTIONS")), "{refused:?}");
}
