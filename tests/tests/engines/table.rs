//! The table of engines, as it stands in the documents.

use std::path::{Path, PathBuf};
use streamhalo::comm::backend::backend_names;

const BEGIN: &str = "<!-- table of engines: checked by tests/tests/engines -->";
const END: &str = "<!-- end of the table -->";
/// What stands where nobody has tried.
const UNTRIED: &str = "not tried";

/// A row: an engine, and for each backend what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The fabric's name.
    pub(crate) fabric: String,
    /// What started the ranks.
    pub(crate) by: String,
    /// For each backend who carried its messages, or that it was refused.
    pub(crate) cells: Vec<String>,
}

impl Row {
    fn untried(fabric: &str, by: &str) -> Self {
        let cells = backend_names().map(|_| UNTRIED.to_string()).collect();
        Self { fabric: fabric.into(), by: by.into(), cells }
    }
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/backends.md")
}

/// The table as Markdown.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let names: Vec<String> = backend_names().map(|name| format!("`{name}`")).collect();
    let mut text = format!("| fabric | started by, with | {} |\n", names.join(" | "));
    text += &format!("|---|---|{}\n", "---|".repeat(names.len()));
    for Row { fabric, by, cells } in rows {
        text += &format!("| `{fabric}` | {by} | {} |\n", cells.join(" | "));
    }
    text
}

/// The rows between the markers of a document.
pub(crate) fn parse(text: &str) -> Vec<Row> {
    let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
    let table = table.unwrap_or_else(|| panic!("the document lacks `{BEGIN}` or `{END}`"));
    let lines = table.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
        let (names, cells) = cells.split_at(2);
        Row { fabric: names[0].trim_matches('`').into(), by: names[1].clone(), cells: cells.to_vec() }
    };
    lines.map(row).collect()
}

/// What the document must say, when it says `documented` and these rows were found, of all engines
/// in their order: what was not tried here stays as it is.
pub(crate) fn corrected(documented: &[Row], found: &[Row], engines: &[(String, String)]) -> Vec<Row> {
    let of = |rows: &[Row], fabric: &str, by: &str| {
        rows.iter().find(|row| (row.fabric.as_str(), row.by.as_str()) == (fabric, by)).cloned()
    };
    engines
        .iter()
        .map(|(fabric, by)| {
            of(found, fabric, by)
                .or_else(|| of(documented, fabric, by))
                .unwrap_or_else(|| Row::untried(fabric, by))
        })
        .collect()
}

/// Compares what was found with the document.
///
/// # Panics
/// With the corrected table, if they differ.
pub(crate) fn compare(found: &[Row], engines: &[(String, String)]) {
    let text = std::fs::read_to_string(document()).expect("docs/backends.md is there");
    let documented = parse(&text);
    let corrected = corrected(&documented, found, engines);
    assert!(
        documented == corrected,
        "docs/backends.md says something else than was found; put this between its markers:\n\n{}",
        markdown(&corrected)
    );
}

mod checks {
    use super::*;

    fn row(fabric: &str, by: &str, cell: &str) -> Row {
        let cells = backend_names().map(|_| cell.to_string()).collect();
        Row { fabric: fabric.into(), by: by.into(), cells }
    }

    #[test]
    fn a_table_can_be_read_back() {
        let rows = [row("local", "threads", "stream"), row("mpi", "MPICH, funneled", "host")];
        assert_eq!(parse(&format!("x\n{BEGIN}\n\n{}\n{END}\n", markdown(&rows))), rows);
    }

    #[test]
    fn what_was_not_tried_stays() {
        let engines = [("a", "x"), ("a", "y"), ("b", "x")].map(|(a, b)| (a.to_string(), b.to_string()));
        let documented = [row("a", "x", "host"), row("a", "y", "proxy"), row("gone", "z", "proxy")];
        let found = [row("a", "x", "proxy")];
        let expected = [row("a", "x", "proxy"), row("a", "y", "proxy"), Row::untried("b", "x")];
        assert_eq!(corrected(&documented, &found, &engines), expected);
    }
}
