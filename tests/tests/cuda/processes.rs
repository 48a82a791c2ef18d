//! Every backend and primitive between ranks that are processes on a GPU: by handles of its memory, and staged.

use super::{KIND, gpu};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use streamhalo_tests::cases::Subject;
use streamhalo_tests::start::{carried, job};
use streamhalo_tests::{Cell, Outcome, cells_on_host, check_cells};

const LIMIT: Duration = Duration::from_secs(120);

/// What ranks say that are told `what` and the words.
fn said(ranks: usize, program: &Path, what: &str, words: &str) -> String {
    let arguments: Vec<&str> = ["shm", what, KIND].into_iter().chain(words.split_whitespace()).collect();
    let ended = job(ranks, program, &arguments, LIMIT);
    println!("{ranks} ranks of {arguments:?} in {:.1} s", ended.took.as_secs_f64());
    ended.said
}

#[test]
fn every_backend_gives_the_answer_of_the_host_between_processes() {
    let Some((_, _turn)) = gpu() else { return };
    let mut known = BTreeMap::new();
    let program = carried(env!("CARGO_BIN_EXE_conformance_rank"));
    for (ranks, words) in [
        (1, ""),
        (2, ""),
        (2, "merged"),
        (2, "memop"),
        (2, "waits-proxy"),
        (2, "staged waits-proxy"),
        (3, "odd-staged"),
        (4, ""),
    ] {
        // Not all runtimes of AMD's have memory operations.
        if words == "memop" && KIND != "cuda" {
            continue;
        }
        let cells = said(ranks, &program, "device", words);
        let by = if words.contains("proxy") { &["proxy"][..] } else { &["stream", "proxy"] };
        check_cells(&cells, words, known.entry(ranks).or_insert_with(|| cells_on_host(ranks)), by);
        let routes = said(ranks, &program, "routes", words);
        assert_eq!(
            routes.contains("staged through the host's memory"),
            words.contains("staged"),
            "{words}: {routes}"
        );
        assert!(
            words.contains("staged") || ranks == 1 || routes.contains("straight into ghosts"),
            "{words}: {routes}"
        );
    }
}

#[test]
fn every_primitive_passes_between_processes() {
    let Some((_, _turn)) = gpu() else { return };
    let program = carried(env!("CARGO_BIN_EXE_conformance_rank"));
    let expected: Vec<&str> = Subject::on_device().map(|subject| subject.name()).collect();
    for (ranks, words) in [(1, ""), (2, ""), (2, "merged"), (2, "staged waits-proxy"), (3, "odd-staged")] {
        let said = said(ranks, &program, "primitives", words);
        let cells: Vec<Cell> = said.lines().filter_map(|line| line.parse().ok()).collect();
        let names: Vec<&str> = cells.iter().map(|cell| cell.backend.as_str()).collect();
        assert_eq!(names, expected, "{words}: {said}");
        assert!(cells.iter().all(|cell| matches!(cell.outcome, Outcome::Passed { .. })), "{words}: {said}");
    }
}
