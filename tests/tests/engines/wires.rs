//! What wires are given of arrays on a device: addresses of its memory, or copies in the host's. Each says which, and why.

use super::{LIMIT, in_turn};
use std::path::Path;
use std::process::Command;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::HMEM_VARIABLE;
use streamhalo_tests::start::{Ended, Engine, Start, engines, run};
use streamhalo_tests::{LONG_BYTES, LONG_EPOCHS, other_device};

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
    let ended = in_turn(start.polls(), || run(commands, LIMIT));
    let took = ended.took.as_secs_f64();
    println!("{} by {}: {ranks} ranks of {words:?} in {took:.1} s", engine.fabric, engine.by);
    ended
}

/// What is said by ranks that all gave right answers: how they went, and for each rank and backend how many moves were
/// between the device's memory and the host's.
fn said(engine: &Engine, start: &Start, ranks: usize, words: &[&str]) -> (Vec<String>, Vec<u64>) {
    let (routes, lines) = lines(engine, start, ranks, words);
    let staged = lines.iter().map(|line| number(line, "staged")).collect();
    (routes, staged)
}

/// The lines of routes, and those of ranks, of which there is one for each backend.
fn lines(engine: &Engine, start: &Start, ranks: usize, words: &[&str]) -> (Vec<String>, Vec<String>) {
    let ended = ended(engine, start, ranks, words);
    assert!(ended.is_success(), "{} by {}, {words:?}: {ended:#?}", engine.fabric, engine.by);
    let [routes, of_ranks] = ["route ", "rank "].map(|of| {
        let lines = ended.said.lines().filter(|line| line.starts_with(of));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(of_ranks.len(), ranks * backend_names().count(), "{}", ended.said);
    (routes, of_ranks)
}

fn number(line: &str, of: &str) -> u64 {
    let mut words = line.split(' ').skip_while(|word| *word != of).skip(1);
    words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
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

/// What a line of a route says: its backend, and how many bytes the message has.
fn backend_and_bytes(route: &str) -> (&str, usize) {
    let mut words = route.split(' ').skip(2);
    let backend = words.next().unwrap_or_else(|| panic!("{route}"));
    (backend, words.next().and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{route}")))
}

/// Each block is copied down and up by itself, and some leave while the device copies later ones.
#[test]
fn staged_messages_go_in_blocks_while_later_ones_are_copied() {
    if other_device().is_none() {
        return;
    }
    // Put into windows by one library and sent by another; carried by a thread, or by triggered operations.
    let shows_more = |start: &Start| match start {
        Start::Mpi { launcher, .. } => launcher.library != "Intel MPI",
        Start::Rendezvous { provider, .. } => *provider != "shm",
        _ => false,
    };
    let engines = engines();
    let wired = tried(&engines).filter(|(engine, ..)| !engine.fabric.starts_with("shm+"));
    let wired: Vec<_> = wired.filter(|(_, start, _)| shows_more(start)).collect();
    let mut overlaps = 0;
    for (engine, start, _) in &wired {
        let ranks = 2;
        let (routes, lines) = lines(engine, start, ranks, &["shared", "wires-staged", "blocks"]);
        for (rank, backend) in (0..ranks).flat_map(|rank| backend_names().map(move |name| (rank, name))) {
            let line = lines.iter().find(|line| line.starts_with(&format!("rank {rank} {backend} ")));
            let line = line.expect("one for each rank and backend");
            let own = routes.iter().filter(|route| route.starts_with(&format!("route {rank}>")));
            let own: Vec<&String> = own.filter(|route| backend_and_bytes(route).0 == backend).collect();
            let (mut cut, mut copies) = (0, 0);
            for route in &own {
                let (_, bytes) = backend_and_bytes(route);
                let is_cut = route.contains(", in 3 blocks; staged through the host's memory");
                assert_eq!(is_cut, bytes > 256 && backend != "standard", "{engine:?}: {route}");
                if is_cut {
                    // Every rank receives as much as it sends.
                    copies += 2 * 3 * if bytes >= LONG_BYTES { u64::from(LONG_EPOCHS) } else { 10 };
                    cut += 1;
                }
            }
            assert!(number(line, "staged") >= copies, "{engine:?}: {line}, {own:?}");
            if backend == "standard" {
                // The host waits for the stream before it starts messages, as the papers' baseline does.
                assert_eq!(number(line, "overlaps"), 0, "{engine:?}: {line}");
            } else {
                assert!(cut > 1, "{engine:?}: {own:?}");
            }
            overlaps += number(line, "overlaps");
        }
    }
    // How many depends on who has which core; that a word is posted behind its own block is tested on its own.
    println!("{overlaps} blocks left while later ones were copied");
    assert!(overlaps > 0 || wired.is_empty());
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
