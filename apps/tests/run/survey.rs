//! `streamhalo info` and `streamhalo explain`: what there is, and what would happen.

use super::{BACKENDS, Folder, SMALL, text};

#[test]
fn info_lists_every_registry_and_says_what_is_missing() {
    let output = Folder::new().streamhalo(&["info"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for name in BACKENDS.iter().chain(&["local", "shm", "mpi", "shm+mpi", "ofi", "shm+ofi", "host", "life"]) {
        assert!(said.lines().any(|line| line.trim_start().starts_with(name)), "no {name} in\n{said}");
    }
    for part in ["  opencl", "  cuda", "  hip", "\nMPI libraries\n", "\nlibfabric providers\n"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

fn explain(set: &[&str]) -> String {
    explain_config(SMALL, set)
}

fn explain_config(config: &str, set: &[&str]) -> String {
    let folder = Folder::new();
    let config = folder.write("config.toml", config);
    let set = set.iter().flat_map(|one| ["--set", one]);
    let arguments = ["explain", config.to_str().expect("is text")].into_iter().chain(set);
    let output = folder.streamhalo(&arguments.collect::<Vec<_>>());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert!(!folder.out().exists());
    text(&output.stdout)
}

#[test]
fn one_rank_copies_its_own_cells() {
    let said = explain(&["run.ranks=1"]);
    assert!(said.starts_with("1 rank (1 x 1), fabric local, exchange every step\n  no messages: "), "{said}");
}

#[test]
fn every_message_is_listed_with_its_offsets_and_bytes() {
    let said = explain(&["run.ranks=[2, 4]", "run.layout=[[2, 1], [2, 2]]", "comm.fabric=shm"]);
    let (two, four) = said.split_once("4 ranks (2 x 2), fabric shm").expect("both are there");
    assert!(two.starts_with("2 ranks (2 x 1), fabric shm, exchange every step\n"), "{said}");
    // Rank 1 is above and below rank 0; along x rank 0 is its own neighbour, so all of y = ±1.
    let row: Vec<_> = two.lines().filter(|line| line.contains("[-1,*] [1,*]")).collect();
    assert_eq!(row.len(), 2, "{said}");
    let fields: Vec<_> = row[0].split_whitespace().collect();
    assert_eq!(fields[..5], ["0", "1", "[-1,*]", "[1,*]", "84"], "{said}");
    // Of 2 x 2 ranks on a torus each has the same neighbour on both sides, and at all four corners.
    let corners = four.lines().filter(|line| line.split_whitespace().nth(1) == Some("3"));
    assert_eq!(corners.count(), 3, "{said}");
    assert!(two.contains("host") && two.contains("stream"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
}

#[test]
fn a_wide_halo_takes_another_path() {
    let path = |set: &[&str]| {
        let said = explain(&[&["run.ranks=2", "comm.backend=st-rsend", "grid.cells=[64, 64]"], set].concat());
        let [header, row] = [2, 4].map(|line| said.lines().nth(line).expect("is a table"));
        let [begin, end] = [" path ", " by "].map(|name| header.find(name).expect("is a column"));
        (row[begin..end].trim().to_owned(), said)
    };
    let (narrow, _) = path(&["grid.halo=1"]);
    let (wide, said) = path(&["grid.halo=2", "run.exchange_every=2"]);
    assert!(said.contains("exchange every 2 steps"), "{said}");
    assert_eq!([narrow.as_str(), wide.as_str()], ["packed, with its", "straight into ghosts"], "{said}");
}

/// Of a stencil of seven points only faces travel, whatever lies at edges and corners; of one of 27 all that does.
#[test]
fn only_offsets_that_are_sent_are_listed() {
    let config = "
app.name = 'stencil3d'
grid.cells = [8, 8, 8]
run = { ranks = 2, layout = [[2, 1, 1]] }
comm = { backend = 'st-send', timeout_s = 60 }
";
    for (set, expected) in [
        (&["app.points=7"][..], "[-1,0,0] [1,0,0]"),
        (&["app.points=27"], "[-1,*,*] [1,*,*]"),
        (&["app.points=27", "grid.periodic=[false, true, false]"], "[1,*,0]"),
    ] {
        let said = explain_config(config, set);
        let row = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.starts_with(&["0", "1"])).expect("rank 0 sends to rank 1");
        let offsets = row[2..].iter().take_while(|word| word.starts_with('[')).copied().collect::<Vec<_>>();
        assert_eq!(offsets.join(" "), expected, "{said}");
    }
}
