//! What is said of executors is what the engines' tests have found, as it stands in docs/backends.md.

use super::{carried_out, executors};
use std::collections::{BTreeMap, BTreeSet};
use streamhalo::comm::fabric::{Executor, FABRICS};
use streamhalo::comm::{By, PRIMITIVES};

const WORDS: [Executor; 4] = [Executor::Host, Executor::Stream, Executor::Proxy, Executor::Nic];

/// The executors that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let words: BTreeSet<&str> = text.split(|letter: char| !letter.is_alphabetic()).collect();
    WORDS.iter().map(Executor::to_string).filter(|word| words.contains(word.as_str())).collect()
}

/// A table of the document: for each engine, by its fabric and what it was started by, what stands in each column.
fn table(of: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/backends.md");
    let document = std::fs::read_to_string(document).expect("it is in this repository");
    let (_, behind) =
        document.split_once(&format!("<!-- table of {of}: ")).expect("the document has that table");
    let mut rows = behind.lines().skip(1).take_while(|line| line.starts_with('|')).map(|line| {
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        cells.collect::<Vec<_>>()
    });
    let names = rows.next().expect("it has a head");
    let rows = rows.skip(1).map(|cells| {
        let row: BTreeMap<String, String> = names.iter().cloned().zip(cells.iter().cloned()).collect();
        (cells[0].clone(), row)
    });
    rows.collect()
}

#[test]
fn fabrics_are_executed_by_whom_the_engines_have_found() {
    for row in FABRICS {
        let engines = table("engines");
        let found = engines.iter().filter(|(fabric, _)| fabric == row.name);
        let found: BTreeSet<String> = found.flat_map(|(_, cells)| named(&cells["st-rsend"])).collect();
        let mut said = named(&executors(row));
        if row.name == "shm+mpi" {
            // Of a library that takes calls of one thread no several nodes are tried.
            assert!(said.remove("host"));
        }
        assert_eq!(said, found, "{}", row.name);
    }
}

#[test]
fn primitives_are_executed_by_whom_the_engines_have_found() {
    let (engines, primitives) = (table("engines"), table("primitives"));
    assert_eq!(engines.len(), primitives.len());
    for row in PRIMITIVES {
        let found = |cells: &BTreeMap<String, String>| named(&cells[row.name]);
        match row.by {
            By::Fabric => {
                for ((_, fabric), (_, cells)) in engines.iter().zip(&primitives) {
                    assert_eq!(found(cells), named(&fabric["st-rsend"]), "{} in {cells:?}", row.name);
                }
            }
            by => {
                let found: BTreeSet<String> = primitives.iter().flat_map(|(_, cells)| found(cells)).collect();
                assert_eq!(named(carried_out(by)), found, "{}", row.name);
            }
        }
    }
}
