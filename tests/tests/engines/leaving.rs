//! Whoever waits for what a peer over a wire has let go of is told so, whatever carries it.

use super::{LIMIT, in_turn};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streamhalo::comm::backend::backend_names;
use streamhalo_tests::other_device;
use streamhalo_tests::start::{Engine, Start, engines, run};

/// How long the ranks may take: far less than their time-out of a minute.
const SOON: Duration = Duration::from_secs(20);

/// Starts at a time: most of it they wait, and their processes for each other.
const AT_A_TIME: usize = 3;

/// How many ranks show it; `None` without a wire between them.
fn ranks(engine: &Engine, start: &Start) -> Option<usize> {
    match start {
        Start::Threads | Start::Job => None,
        Start::Mpi { is_split: true, .. } | Start::Rendezvous { is_split: true, .. } => Some(3),
        Start::Mpi { .. } | Start::Rendezvous { .. } => (!engine.fabric.starts_with("shm+")).then_some(2),
    }
}

/// Ranks of one engine, and what they do.
struct Leaving<'a> {
    engine: &'a Engine,
    start: &'a Start,
    ranks: usize,
    arguments: Vec<&'a str>,
}

fn leave(Leaving { engine, start, ranks, arguments }: &Leaving<'_>) {
    let program = Path::new(env!("CARGO_BIN_EXE_tried_rank"));
    let mut commands = start.commands(*ranks, program, arguments);
    commands.iter_mut().for_each(|command| {
        command.env("STREAMHALO_FABRIC", engine.fabric);
    });
    let ended = run(commands, LIMIT);
    // They say so before MPI ends a job in which a rank has failed.
    let told = ended.all().matches("was told").count();
    assert!(
        told == *ranks && ended.took < SOON,
        "{arguments:?} over {} by {}: {ended:#?}",
        engine.fabric,
        engine.by
    );
}

#[test]
fn who_waits_for_a_rank_that_has_let_go_is_told() {
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    let (engines, has_device) = (engines(), other_device().is_some());
    let (mut fabrics, mut all) = (BTreeSet::new(), Vec::new());
    // What cannot be started is named by the suite's other tests.
    let started = engines.iter().filter(|engine| engine.fabric.contains(&chosen));
    let started = started.filter_map(|engine| {
        let start = engine.start.as_ref().ok()?;
        Some((engine, start, ranks(engine, start)?))
    });
    for (index, (engine, start, ranks)) in started.enumerate() {
        let is_first = fabrics.insert(engine.fabric);
        let mut leave = |arguments: &[&'static str]| {
            all.push(Leaving { engine, start, ranks, arguments: arguments.to_vec() });
        };
        // One engine of each fabric with all backends, the others with one each.
        for (turn, backend) in backend_names().enumerate().filter(|(turn, _)| is_first || *turn == index % 5)
        {
            let kind = ["inline", "threaded"][(index + turn) % 2];
            leave(&["leave", kind, "exchange", backend]);
            if is_first && ranks == 2 {
                leave(&["leave", kind, "one-way", backend]);
                leave(&["leave", kind, "part", backend]);
            }
        }
        let kind = ["threaded", "inline"][index % 2];
        let sides =
            if is_first { &["sender", "receiver"][..] } else { &["sender", "receiver"][index % 2..][..1] };
        sides.iter().for_each(|side| leave(&["leave", kind, side]));
        if is_first {
            sides.iter().for_each(|side| leave(&["leave", kind, side, "started"]));
            ["origin", "target"].iter().for_each(|side| leave(&["leave", kind, side]));
            leave(&["leave", kind, "reduction", "st-send"]);
            leave(&["leave", kind, "world"]);
            leave(&["leave", kind, "world", "first"]);
            leave(&["leave", kind, "exchange", "st-send", "first"]);
        }
        // The stream of a device looks at the same words in its own way.
        if is_first && has_device {
            for (wires, side) in [("wires-direct", "exchange"), ("wires-staged", "receiver")] {
                leave(&["device", "shared", wires, "--", "leave", "device", side]);
            }
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            leave(one);
        }
    };
    in_turn(true, || std::thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(work)))));
    println!("ranks that leave over {fabrics:?}");
}
