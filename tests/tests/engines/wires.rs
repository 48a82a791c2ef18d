//! What wires are given of arrays on a device: addresses of its memory, or copies in the host's. Each says which, and why.

use super::LIMIT;
use std::path::Path;
use std::process::Command;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::HMEM_VARIABLE;
use streamhalo_tests::other_device;
use streamhalo_tests::start::{Ended, Engine, Start, engines, run};

const STRAIGHT: &str = "straight from and to the device's memory, because the host addresses its arrays";
const STAGED: &str = "staged through the host's memory, because ";

/// How many ranks an engine is tried with, if it has a wire and another way to start does not show the same.
fn ranks(engine: &Engine, start: &Start) -> Option<usize> {
    match start {
        Start::Threads | Start::Job | Start::Mpi { is_funneled: true, .. } => None,
        // One node of two ranks, and one of one. The wire between nodes is the same without any within.
        Start::Mpi { is_split, .. } | Start::Rendezvous { is_split, .. }
            if engine.fabric.starts_with("shm+") =>
        {
            is_split.then_some(3)
        }
        // MPICH's ranks poll, so that more than there are cores take long.
        Start::Mpi { launcher, .. } if launcher.library == "Open MPI" => Some(4),
        Start::Mpi { .. } | Start::Rendezvous { .. } => Some(2),
    }
}

fn tried(engines: &[Engine]) -> impl Iterator<Item = (&Engine, &Start, usize)> {
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    engines.iter().filter(move |engine| engine.fabric.contains(&chosen)).filter_map(|engine| {
        // What cannot be started is named by the suite's other tests.
        let start = engine.start.as_ref().ok()?;
        Some((engine, start, ranks(engine, start)?))
    })
}

fn ended(engine: &Engine, start: &Start, ranks: usize, words: &[&str]) -> Ended {
    ended_with(engine, start, ranks, words, |_| ())
}

fn ended_with(
    engine: &Engine,
    start: &Start,
    ranks: usize,
    words: &[&str],
    prepare: impl Fn(&mut Command),
) -> Ended {
    let program = Path::new(env!("CARGO_BIN_EXE_conformance_rank"));
    let arguments: Vec<&str> = [engine.fabric, "routes"].into_iter().chain(words.iter().copied()).collect();
    let mut commands = start.commands(ranks, program, &arguments);
    commands.iter_mut().for_each(prepare);
    let ended = run(commands, LIMIT);
    let took = ended.took.as_secs_f64();
    println!("{} by {}: {ranks} ranks of {words:?} in {took:.1} s", engine.fabric, engine.by);
    ended
}

/// What is said by ranks that all gave right answers: how they went, and for each rank and backend how many moves were
/// between the device's memory and the host's.
fn said(engine: &Engine, start: &Start, ranks: usize, words: &[&str]) -> (Vec<String>, Vec<u64>) {
    let ended = ended(engine, start, ranks, words);
    assert!(ended.is_success(), "{} by {}, {words:?}: {ended:#?}", engine.fabric, engine.by);
    let lines = |of: &'static str| ended.said.lines().filter(move |line| line.starts_with(of));
    let number = |line: &str| line.rsplit_once(" staged ").and_then(|(_, number)| number.parse().ok());
    let staged = lines("rank ").map(|line| number(line).unwrap_or_else(|| panic!("{line}")));
    let staged: Vec<u64> = staged.collect();
    assert_eq!(staged.len(), ranks * backend_names().count(), "{}", ended.said);
    (lines("route ").map(str::to_owned).collect(), staged)
}

/// Whether a message goes between nodes, where two of three ranks are on one.
fn is_far(engine: &Engine, route: &str) -> bool {
    !engine.fabric.starts_with("shm+") || route.contains("2>") || route.contains(">2")
}

#[test]
fn a_wire_is_given_the_devices_memory_where_the_host_addresses_it() {
    if other_device().is_none() {
        return;
    }
    for (engine, start, ranks) in tried(&engines()) {
        let (routes, staged) = said(engine, start, ranks, &["shared", "wires-direct"]);
        assert!(staged.iter().all(|moves| *moves == 0), "{engine:?}: {staged:?}");
        assert!(routes.iter().any(|route| is_far(engine, route)), "{engine:?}: {routes:?}");
        for route in &routes {
            assert_eq!(route.contains(STRAIGHT), is_far(engine, route), "{route}");
            assert!(!route.contains(STAGED), "{route}");
        }
    }
}

#[test]
fn copies_are_made_of_what_no_library_addresses_and_where_the_user_wants_them() {
    if other_device().is_none() {
        return;
    }
    for (engine, start, ranks) in tried(&engines()) {
        // What is staged goes over each library as the host's memory does.
        let is_other = match start {
            Start::Mpi { launcher, .. } => launcher.library != "MPICH",
            Start::Rendezvous { provider, .. } => *provider != "tcp",
            _ => true,
        };
        if is_other {
            continue;
        }
        for (words, because) in [
            (&["separate"][..], "the host does not address its arrays"),
            (&["shared", "wires-staged"], "`device.wires` is `staged`"),
        ] {
            if engine.fabric.starts_with("shm+") && words.contains(&"wires-staged") {
                continue;
            }
            let (routes, staged) = said(engine, start, ranks, words);
            // Within nodes kernels reach some of the memory that messages between them are staged in.
            let is_staged = |moves: &u64| *moves > 0;
            let are_staged = match engine.fabric.starts_with("shm+") {
                true => staged.iter().any(is_staged),
                false => staged.iter().all(is_staged),
            };
            assert!(are_staged, "{engine:?}: {staged:?}");
            for route in routes.iter().filter(|route| is_far(engine, route)) {
                assert!(route.contains(&format!("{STAGED}{because}")), "{route}");
            }
        }
    }
}

#[test]
fn addresses_that_a_library_does_not_take_are_refused() {
    if other_device().is_none() {
        return;
    }
    let engines = engines();
    let Some((engine, start, _)) = tried(&engines).find(|(engine, ..)| engine.fabric == "mpi") else {
        return;
    };
    for (words, because) in [
        (["separate", "wires-direct", "waits-proxy"], "the host does not address its arrays"),
        (["shared", "wires-direct", "staged"], "`device.peers` is `staged`"),
    ] {
        let ended = ended(engine, start, 2, &words);
        let all = ended.all();
        assert!(!ended.is_success() && all.contains("`device.wires` is `direct`, but"), "{all}");
        assert!(all.contains(because) && all.contains("choose `auto`"), "{all}");
    }
}

#[test]
fn libfabric_registers_memory_with_whose_it_is_when_told_to() {
    if other_device().is_none() {
        return;
    }
    let engines = engines();
    let of = |name: &str| {
        tried(&engines).find(|(engine, start, _)| {
            engine.fabric == "ofi" && matches!(start, Start::Rendezvous { provider, .. } if *provider == name)
        })
    };
    let told = |command: &mut Command| {
        command.env(HMEM_VARIABLE, "1");
    };
    // The provider has an interface for it without a GPU; all memory is the host's here.
    if let Some((engine, start, ranks)) = of("shm") {
        let ended = ended_with(engine, start, ranks, &["shared", "wires-direct"], told);
        assert!(ended.is_success() && ended.said.contains(STRAIGHT), "{ended:#?}");
    }
    if let Some((engine, start, ranks)) = of("sockets") {
        let all = ended_with(engine, start, ranks, &["shared"], told).all();
        assert!(all.contains("provider `sockets`") && all.contains("FI_HMEM"), "{all}");
    }
}
