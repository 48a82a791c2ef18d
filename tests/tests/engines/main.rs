//! Every engine gives the same answer, bit for bit: each fabric, however its ranks are started and
//! whoever carries its messages. What cannot be tried here is named with the reason.
//!
//! With `STREAMHALO_TEST_ENGINES=TEXT` in the environment only fabrics whose name has that text are tried.

mod device;
mod leaving;
mod table;
mod wires;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use streamhalo::comm::backend::backend_names;
use streamhalo_tests::Amount::{All, Few, First};
use streamhalo_tests::start::{Engine, Start, carried, engines, job, run};
use streamhalo_tests::{Amount, Cell, KINDS, Outcome, on_ranks, try_cells};
use table::{Row, Table};

/// After how long a start is given up.
const LIMIT: Duration = Duration::from_secs(180);

/// Starts of this suite share the cores with one another, each of which waits for half of its time; those whose ranks
/// never give way are alone, for beside others they would take several times as long.
static CORES: RwLock<()> = RwLock::new(());

/// Runs what starts ranks, once it has the cores that they need.
fn in_turn<T>(is_alone: bool, run: impl FnOnce() -> T) -> T {
    if is_alone {
        let _all = CORES.write().unwrap_or_else(PoisonError::into_inner);
        run()
    } else {
        let _some = CORES.read().unwrap_or_else(PoisonError::into_inner);
        run()
    }
}

/// How many ranks, and how much is tried.
type Size = (usize, Amount);

/// The starts of an engine. One library is tried at length.
fn sizes(engine: &Engine, start: &Start) -> Vec<Size> {
    match start {
        Start::Threads => vec![(1, All), (2, All), (4, All)],
        Start::Job => vec![(1, Few), (2, All), (4, Few)],
        // One node of two ranks, and one of one.
        Start::Mpi { is_split: true, .. } | Start::Rendezvous { is_split: true, .. } => vec![(3, Few)],
        // Nothing but what brings its ranks together goes over the library, by one thread as by several.
        Start::Mpi { is_funneled: true, .. } if engine.fabric == "shm+mpi" => vec![(2, First)],
        Start::Mpi { is_funneled: false, .. } if engine.fabric == "mpi" => match engine.by.as_str() {
            // More ranks than cores are the other libraries': MPICH's poll, and take minutes.
            "MPICH" => vec![(1, Few), (2, Few)],
            // Its ranks take a third of the time of the others'.
            "Intel MPI" => vec![(2, All), (4, Few)],
            _ => vec![(2, Few), (4, Few)],
        },
        Start::Mpi { .. } => vec![(2, Few)],
        Start::Rendezvous { provider: "tcp", .. } if engine.fabric == "ofi" => {
            vec![(1, Few), (2, Few), (4, Few)]
        }
        Start::Rendezvous { .. } => vec![(2, Few)],
    }
}

/// The cells of a world of threads.
fn of_threads((ranks, amount): Size) -> Vec<Cell> {
    let mut of_ranks = in_turn(false, || {
        on_ranks(ranks, |world| {
            let mut cells = Vec::new();
            try_cells(world, amount, |cell| cells.push(cell))?;
            Ok(cells)
        })
    });
    of_ranks.swap_remove(0)
}

/// The cells of processes.
fn of_processes(engine: &Engine, start: &Start, ranks: usize, words: &[&str]) -> Vec<Cell> {
    let program = &*carried(env!("CARGO_BIN_EXE_conformance_rank"));
    let arguments: Vec<&str> = [engine.fabric].into_iter().chain(words.iter().copied()).collect();
    let arguments = arguments.as_slice();
    let ended = in_turn(start.polls(), || match start {
        Start::Job => job(ranks, program, arguments, LIMIT),
        start => run(start.commands(ranks, program, arguments), LIMIT),
    });
    assert!(ended.is_success(), "{} by {} at {ranks} ranks: {ended:#?}", engine.fabric, engine.by);
    let lines = ended.said.lines().filter(|line| line.starts_with("cell "));
    println!("{} by {}: {ranks} ranks in {:.1} s", engine.fabric, engine.by, ended.took.as_secs_f64());
    lines.map(|line| line.parse().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Checks the cells of one start against those of threads, and adds who carried each backend and primitive.
fn check(engine: &Engine, cells: &[Cell], expected: &[Cell], found: &mut BTreeMap<String, Vec<String>>) {
    assert_eq!(cells.len(), expected.len(), "{engine:?}: {cells:?}");
    for (cell, expected) in cells.iter().zip(expected) {
        assert_eq!(cell.fabric, engine.fabric);
        assert_eq!((&cell.backend, &cell.stream), (&expected.backend, &expected.stream));
        let told = match &cell.outcome {
            Outcome::Refused { reason } => {
                println!("{} by {}: `{}` is refused: {reason}", engine.fabric, engine.by, cell.backend);
                "refused".to_string()
            }
            outcome => {
                assert_eq!(*outcome, expected.outcome, "{cell} by {}", engine.by);
                cell.executor.replace('+', " and ")
            }
        };
        let of_backend = found.entry(cell.backend.clone()).or_default();
        if told != "none" && !of_backend.contains(&told) {
            of_backend.push(told);
        }
    }
}

#[test]
fn every_engine_gives_the_same_answer() {
    let mut expected: BTreeMap<Size, Vec<Cell>> = BTreeMap::new();
    let tables = Table::both();
    let mut rows = [Vec::new(), Vec::new()];
    let mut skipped = Vec::new();
    let engines = engines();
    let chosen = std::env::var("STREAMHALO_TEST_ENGINES").unwrap_or_default();
    for engine in engines.iter().filter(|engine| engine.fabric.contains(&chosen)) {
        let start = match &engine.start {
            Ok(start) => start,
            Err(reason) => {
                skipped.push(format!("skipped: {} by {}: {reason}", engine.fabric, engine.by));
                continue;
            }
        };
        let mut found = BTreeMap::new();
        for size in sizes(engine, start) {
            let expected = &*expected.entry(size).or_insert_with(|| of_threads(size));
            let cells = match start {
                Start::Threads => expected.clone(),
                start => {
                    let words: &[&str] = match size.1 {
                        All => &[],
                        Few => &["few"],
                        First => &["first"],
                    };
                    of_processes(engine, start, size.0, words)
                }
            };
            check(engine, &cells, expected, &mut found);
        }
        for (table, rows) in tables.iter().zip(&mut rows) {
            let cells = table.names.iter().map(|name| found[*name].join(" or ")).collect();
            rows.push(Row { fabric: engine.fabric.into(), by: engine.by.clone(), cells });
        }
    }
    // All backends agree with each other, at one number of ranks, not only with the same way over threads.
    for (size, cells) in &expected {
        let cells = &cells[..backend_names().count() * KINDS.len()];
        assert!(cells.iter().all(|cell| cell.outcome == cells[0].outcome), "{size:?}: {cells:#?}");
    }
    tables.iter().zip(&rows).for_each(|(table, rows)| println!("\n{}", table.markdown(rows)));
    skipped.iter().for_each(|line| println!("{line}"));
    let names: Vec<_> = engines.iter().map(|engine| (engine.fabric.to_string(), engine.by.clone())).collect();
    let wrong = tables.iter().zip(&rows).filter_map(|(table, rows)| table.compare(rows, &names).err());
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
