//! Arrays on a device over every engine whose ranks are processes, each with a context of its own: the answers of the
//! host.

use super::{of_processes, of_threads};
use std::collections::{BTreeMap, BTreeSet};
use streamhalo::comm::backend::backend_names;
use streamhalo_tests::start::{Start, engines};
use streamhalo_tests::{Cell, Outcome, other_device};

/// How many ranks an engine is tried with; `None` where another library has the same way.
fn ranks(start: &Start) -> Option<usize> {
    match start {
        Start::Threads => None,
        Start::Job => Some(4),
        // A library takes staged messages as it takes the host's, which are tried with each.
        Start::Mpi { launcher, .. } if launcher.library != "MPICH" => None,
        // One node of two ranks, and one of one.
        Start::Mpi { is_split: true, .. } | Start::Rendezvous { is_split: true, .. } => Some(3),
        Start::Mpi { .. } | Start::Rendezvous { .. } => Some(2),
    }
}

#[test]
fn every_engine_gives_a_device_the_answer_of_the_host() {
    if other_device().is_none() {
        return;
    }
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    let (mut tried, mut on_host) = (BTreeSet::new(), BTreeMap::new());
    for engine in engines().iter().filter(|engine| engine.fabric.contains(&chosen)) {
        let start = match &engine.start {
            Ok(start) => start,
            Err(reason) => {
                println!("skipped: a device over {} by {}: {reason}", engine.fabric, engine.by);
                continue;
            }
        };
        let Some(ranks) = ranks(start) else { continue };
        let on_host: &Vec<Cell> = on_host.entry(ranks).or_insert_with(|| of_threads((ranks, false)));
        // What goes straight over a wire is tried with every library beside this (`wires.rs`).
        let words: &[&str] = match start {
            Start::Job => &["device"],
            _ => &["device", "wires-staged", "blocks"],
        };
        let cells = of_processes(engine, start, ranks, words);
        let names: Vec<&str> = cells.iter().map(|cell| cell.backend.as_str()).collect();
        assert_eq!(names, backend_names().collect::<Vec<_>>(), "{engine:?}");
        for cell in &cells {
            assert_eq!((cell.stream.as_str(), cell.fabric.as_str()), ("device", engine.fabric));
            let expected = on_host.iter().find(|other| other.backend == cell.backend);
            let expected = expected.expect("the same backends on the host");
            match &cell.outcome {
                // As on the host: what a library cannot do is no matter of devices.
                Outcome::Refused { reason } => println!("{cell} by {}: {reason}", engine.by),
                outcome => assert_eq!(*outcome, expected.outcome, "{cell} by {}", engine.by),
            }
            let by: BTreeSet<&str> = cell.executor.split('+').collect();
            let allowed = if cell.backend == "standard" { ["host"; 3] } else { ["proxy", "nic", "host"] };
            assert!(by.iter().all(|by| allowed.contains(by)), "{cell} by {}", engine.by);
        }
        tried.insert(engine.fabric);
    }
    println!("a device over {tried:?}");
}
