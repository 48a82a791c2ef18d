//! Every backend between ranks that are processes on a GPU: by handles of its memory, and staged.

use super::{KIND, gpu};
use std::collections::BTreeMap;
use std::time::Duration;
use streamhalo_tests::start::{carried, job};
use streamhalo_tests::{cells_on_host, check_cells};

#[test]
fn every_backend_gives_the_answer_of_the_host_between_processes() {
    let Some((_, _turn)) = gpu() else { return };
    let mut known = BTreeMap::new();
    let program = carried(env!("CARGO_BIN_EXE_conformance_rank"));
    let limit = Duration::from_secs(120);
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
        let arguments =
            |what| ["shm", what, KIND].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>();
        let said = job(ranks, &program, &arguments("device"), limit).said;
        let by = if words.contains("proxy") { &["proxy"][..] } else { &["stream", "proxy"] };
        check_cells(&said, words, known.entry(ranks).or_insert_with(|| cells_on_host(ranks)), by);
        let said = job(ranks, &program, &arguments("routes"), limit).said;
        assert_eq!(
            said.contains("staged through the host's memory"),
            words.contains("staged"),
            "{words}: {said}"
        );
        assert!(
            words.contains("staged") || ranks == 1 || said.contains("straight into ghosts"),
            "{words}: {said}"
        );
    }
}
