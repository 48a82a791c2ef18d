//! Whoever waits for what a peer over a wire has let go of is told so, whatever carries it.

use super::{LIMIT, in_turn};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use streamhalo::comm::backend::backend_names;
use streamhalo_tests::other_device;
use streamhalo_tests::start::{Engine, Start, engines, run};

/// How long the ranks may take: far less than their time-out of a minute.
const SOON: Duration = Duration::from_secs(20);

/// How many ranks show it; `None` without a wire between them.
fn ranks(engine: &Engine, start: &Start) -> Option<usize> {
    match start {
        Start::Threads | Start::Job => None,
        Start::Mpi { is_split: true, .. } | Start::Rendezvous { is_split: true, .. } => Some(3),
        Start::Mpi { .. } | Start::Rendezvous { .. } => (!engine.fabric.starts_with("shm+")).then_some(2),
    }
}

fn leave(engine: &Engine, start: &Start, ranks: usize, arguments: &[&str]) {
    let program = Path::new(env!("CARGO_BIN_EXE_tried_rank"));
    let mut commands = start.commands(ranks, program, arguments);
    commands.iter_mut().for_each(|command| {
        command.env("STREAMHALO_FABRIC", engine.fabric);
    });
    let ended = in_turn(|| run(commands, LIMIT));
    // They say so before MPI ends a job in which a rank has failed.
    let told = ended.all().matches("was told").count();
    assert!(
        told == ranks && ended.took < SOON,
        "{arguments:?} over {} by {}: {ended:#?}",
        engine.fabric,
        engine.by
    );
}

#[test]
fn who_waits_for_a_rank_that_has_let_go_is_told() {
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    let (engines, has_device) = (engines(), other_device().is_some());
    let mut fabrics = BTreeSet::new();
    // What cannot be started is named by the suite's other tests.
    let started = engines.iter().filter(|engine| engine.fabric.contains(&chosen));
    let started = started.filter_map(|engine| {
        let start = engine.start.as_ref().ok()?;
        Some((engine, start, ranks(engine, start)?))
    });
    for (index, (engine, start, ranks)) in started.enumerate() {
        let is_first = fabrics.insert(engine.fabric);
        // One engine of each fabric with all backends, the others with one each.
        for (turn, backend) in backend_names().enumerate().filter(|(turn, _)| is_first || *turn == index % 5)
        {
            let kind = ["inline", "threaded"][(index + turn) % 2];
            leave(engine, start, ranks, &["leave", kind, "exchange", backend]);
            if is_first && ranks == 2 {
                leave(engine, start, ranks, &["leave", kind, "one-way", backend]);
                leave(engine, start, ranks, &["leave", kind, "part", backend]);
            }
        }
        let kind = ["threaded", "inline"][index % 2];
        let sides =
            if is_first { &["sender", "receiver"][..] } else { &["sender", "receiver"][index % 2..][..1] };
        sides.iter().for_each(|side| leave(engine, start, ranks, &["leave", kind, side]));
        if is_first {
            sides.iter().for_each(|side| leave(engine, start, ranks, &["leave", kind, side, "started"]));
            ["origin", "target"].iter().for_each(|side| leave(engine, start, ranks, &["leave", kind, side]));
            leave(engine, start, ranks, &["leave", kind, "reduction", "st-send"]);
            leave(engine, start, ranks, &["leave", kind, "world"]);
            leave(engine, start, ranks, &["leave", kind, "world", "first"]);
            leave(engine, start, ranks, &["leave", kind, "exchange", "st-send", "first"]);
        }
        // The stream of a device looks at the same words in its own way.
        if is_first && has_device {
            for (wires, side) in [("wires-direct", "exchange"), ("wires-staged", "receiver")] {
                leave(engine, start, ranks, &["device", "shared", wires, "--", "leave", "device", side]);
            }
        }
    }
    println!("ranks that leave over {fabrics:?}");
}
