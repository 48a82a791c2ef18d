//! Arrays on a device over every engine whose ranks are processes, each with a context of its own: the answers of the
//! host.

use super::{of_processes, of_threads};
use std::collections::{BTreeMap, BTreeSet};
use streamhalo::Device;
use streamhalo::comm::backend::backend_names;
use streamhalo_tests::Amount::Few;
use streamhalo_tests::cases::Subject;
use streamhalo_tests::start::{Engine, Start, engines};
use streamhalo_tests::{Cell, OpenDevice};

/// How many ranks an engine is tried with; `None` where another library has the same way.
fn ranks(start: &Start, kind: &str) -> Option<usize> {
    match start {
        Start::Threads => None,
        // Between processes on a GPU each way is tried by the suite of that kind.
        Start::Job => (kind == "opencl").then_some(4),
        // A library takes staged messages as it takes the host's, which are tried with each: this one's ranks give way
        // where they wait, beside a device that computes on the same cores.
        Start::Mpi { launcher, .. } if launcher.library != "Open MPI" => None,
        // One node of two ranks, and one of one.
        Start::Mpi { is_split: true, .. } | Start::Rendezvous { is_split: true, .. } => Some(3),
        Start::Mpi { .. } | Start::Rendezvous { .. } => Some(2),
    }
}

#[test]
fn every_engine_gives_a_device_of_opencl_the_answer_of_the_host() {
    on_every_engine("opencl", &[], Device::opencl);
}

#[test]
fn every_engine_gives_a_gpu_of_cuda_the_answer_of_the_host() {
    on_every_engine("cuda", &["cuda"], Device::cuda);
}

#[test]
fn every_engine_gives_a_gpu_of_hip_the_answer_of_the_host() {
    on_every_engine("hip", &["hip"], Device::hip);
}

/// On a device of that kind, as ranks are told by those words.
fn on_every_engine(kind: &str, of_kind: &[&str], open: OpenDevice) {
    if let Err(reason) = open("") {
        return println!("skipped: {kind} over every engine: {reason}");
    }
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    let backends: Vec<&str> = backend_names().collect();
    let primitives: Vec<&str> = Subject::on_device().map(|subject| subject.name()).collect();
    let (mut tried, mut on_host) = (BTreeSet::new(), BTreeMap::new());
    for engine in engines().iter().filter(|engine| engine.fabric.contains(&chosen)) {
        let start = match &engine.start {
            Ok(start) => start,
            Err(reason) => {
                println!("skipped: {kind} over {} by {}: {reason}", engine.fabric, engine.by);
                continue;
            }
        };
        let Some(ranks) = ranks(start, kind) else { continue };
        let on_host: &Vec<Cell> = on_host.entry(ranks).or_insert_with(|| of_threads((ranks, Few)));
        // What goes straight over a wire is tried with every library beside this (`wires.rs`).
        let how: &[&str] = match start {
            Start::Job => &[],
            _ => &["wires-staged", "blocks"],
        };
        let cells = of_processes(engine, start, ranks, &[&["both"], of_kind, how].concat());
        let names = cells.iter().map(|cell| cell.backend.as_str());
        assert!(names.eq(backends.iter().chain(&primitives).copied()), "{engine:?}: {cells:?}");
        cells.iter().for_each(|cell| check(kind, engine, cell, on_host));
        tried.insert(engine.fabric);
    }
    println!("{kind} over {tried:?}");
}

/// Checks a cell against that of the host.
fn check(kind: &str, engine: &Engine, cell: &Cell, on_host: &[Cell]) {
    assert_eq!((cell.stream.as_str(), cell.fabric.as_str()), ("device", engine.fabric));
    let expected = on_host.iter().find(|other| other.backend == cell.backend);
    let expected = expected.expect("the same backends and primitives on the host");
    assert_eq!(cell.outcome, expected.outcome, "{cell} by {}", engine.by);
    let by: BTreeSet<&str> = cell.executor.split('+').collect();
    let is_of_host = ["standard", "notified-access"].contains(&cell.backend.as_str());
    let allowed: &[&str] = match (is_of_host, kind) {
        (true, _) => &["host"],
        // Kernels of a GPU wait where ranks of a node share memory.
        (false, "cuda" | "hip") if engine.fabric.starts_with("shm") => &["stream", "proxy", "nic", "host"],
        (false, _) => &["proxy", "nic", "host"],
    };
    assert!(by.iter().all(|by| allowed.contains(by)), "{cell} by {}", engine.by);
}
