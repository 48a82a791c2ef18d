//! Every backend on every fabric at 1, 2 and 4 ranks gives the reference's answer.

use super::{BACKENDS, FABRICS, Folder, SMALL, assert_verified, checksums};

#[test]
fn all_backends_agree_with_the_reference_and_with_each_other() {
    let folder = Folder::new();
    let mut all = Vec::new();
    for fabric in FABRICS {
        let records =
            folder.records(SMALL, &["run.trials=2", "run.warmup=1", &format!("comm.fabric={fabric}")]);
        assert_verified(&records);
        // Trials of one backend do not lie side by side: what slows the machine slows all.
        let order: Vec<_> = records
            .iter()
            .map(|run| {
                let backend = run["backend"].as_str().expect("is text");
                (
                    run["ranks"].as_u64().expect("is a number"),
                    run["trial"].as_u64().expect("is a number"),
                    backend,
                )
            })
            .collect();
        let expected: Vec<_> = [1, 2, 4]
            .into_iter()
            .flat_map(|ranks| (0..2).flat_map(move |trial| BACKENDS.map(|backend| (ranks, trial, backend))))
            .collect();
        assert_eq!(order, expected);
        assert!(records.iter().all(|run| run["fabric"] == fabric));
        all.extend(records);
    }
    assert_eq!(checksums(&all).len(), 1);
}

#[test]
fn executors_and_traffic_are_those_of_the_backend() {
    let folder = Folder::new();
    for run in folder.records(SMALL, &["run.layout=[[1, 1], [1, 2], [2, 2]]"]) {
        let executor = if run["backend"] == "standard" { "host" } else { "stream" };
        assert_eq!(run["executor"], executor, "{run}");
        // Rows of 40 cells, columns of 24, corners included; an axis that one rank holds alone is
        // spanned ghosts and all.
        let (messages, bytes) = match run["ranks"].as_u64() {
            Some(1) => (0, 0),
            Some(2) => (2, 2 * 2 * (24 + 2)),
            _ => (4 * 3, 4 * (2 * 20 + 2 * 12 + 4)),
        };
        assert_eq!(run["messages_per_exchange"], messages, "{run}");
        assert_eq!(run["bytes_per_exchange"], bytes, "{run}");
    }
}
