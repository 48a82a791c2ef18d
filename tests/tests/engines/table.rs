//! The tables of engines, as they stand in the documents.

use std::path::{Path, PathBuf};
use streamhalo::comm::PRIMITIVES;
use streamhalo::comm::backend::backend_names;

const END: &str = "<!-- end of the table -->";
/// What stands where nobody has tried.
const UNTRIED: &str = "not tried";

/// One of the tables: what its columns are about.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    begin: &'static str,
    pub(crate) names: Vec<&'static str>,
}

impl Table {
    /// That of the backends, and that of the primitives.
    pub(crate) fn both() -> [Table; 2] {
        [
            Table {
                begin: "<!-- table of engines: checked by tests/tests/engines -->",
                names: backend_names().collect(),
            },
            Table {
                begin: "<!-- table of primitives: checked by tests/tests/engines -->",
                names: PRIMITIVES.iter().map(|primitive| primitive.name).collect(),
            },
        ]
    }

    fn untried(&self, fabric: &str, by: &str) -> Row {
        let cells = self.names.iter().map(|_| UNTRIED.to_string()).collect();
        Row { fabric: fabric.into(), by: by.into(), cells }
    }
}

/// A row: an engine, and for each column what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The fabric's name.
    pub(crate) fabric: String,
    /// What started the ranks.
    pub(crate) by: String,
    /// For each column who carried its messages, or that it was refused.
    pub(crate) cells: Vec<String>,
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/backends.md")
}

impl Table {
    /// The table as Markdown.
    pub(crate) fn markdown(&self, rows: &[Row]) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let mut text = format!("| fabric | started by, with | {} |\n", names.join(" | "));
        text += &format!("|---|---|{}\n", "---|".repeat(names.len()));
        for Row { fabric, by, cells } in rows {
            text += &format!("| `{fabric}` | {by} | {} |\n", cells.join(" | "));
        }
        text
    }

    /// The rows between the markers of a document.
    fn parse(&self, text: &str) -> Vec<Row> {
        let begin = self.begin;
        let table = text.split_once(begin).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
        let table = table.unwrap_or_else(|| panic!("the document lacks `{begin}` or `{END}`"));
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
    fn corrected(&self, documented: &[Row], found: &[Row], engines: &[(String, String)]) -> Vec<Row> {
        let of = |rows: &[Row], fabric: &str, by: &str| {
            rows.iter().find(|row| (row.fabric.as_str(), row.by.as_str()) == (fabric, by)).cloned()
        };
        engines
            .iter()
            .map(|(fabric, by)| {
                of(found, fabric, by)
                    .or_else(|| of(documented, fabric, by))
                    .unwrap_or_else(|| self.untried(fabric, by))
            })
            .collect()
    }

    /// Compares what was found with the document; gives the corrected table if they differ.
    pub(crate) fn compare(&self, found: &[Row], engines: &[(String, String)]) -> Result<(), String> {
        let text = std::fs::read_to_string(document()).expect("docs/backends.md is there");
        let documented = self.parse(&text);
        let corrected = self.corrected(&documented, found, engines);
        if documented == corrected {
            return Ok(());
        }
        Err(format!(
            "docs/backends.md says something else than was found; put this behind {}:\n\n{}",
            self.begin,
            self.markdown(&corrected)
        ))
    }
}

mod checks {
    use super::*;

    fn row(table: &Table, fabric: &str, by: &str, cell: &str) -> Row {
        let cells = table.names.iter().map(|_| cell.to_string()).collect();
        Row { fabric: fabric.into(), by: by.into(), cells }
    }

    #[test]
    fn a_table_can_be_read_back() {
        for table in Table::both() {
            let rows =
                [row(&table, "local", "threads", "stream"), row(&table, "mpi", "MPICH, funneled", "host")];
            let text = format!("x\n{}\n\n{}\n{END}\n", table.begin, table.markdown(&rows));
            assert_eq!(table.parse(&text), rows);
        }
    }

    #[test]
    fn what_was_not_tried_stays() {
        let [table, _] = Table::both();
        let engines = [("a", "x"), ("a", "y"), ("b", "x")].map(|(a, b)| (a.to_string(), b.to_string()));
        let documented = [row(&table, "a", "x", "host"), row(&table, "a", "y", "proxy")];
        let documented = [&documented[..], &[row(&table, "gone", "z", "proxy")]].concat();
        let found = [row(&table, "a", "x", "proxy")];
        let expected =
            [row(&table, "a", "x", "proxy"), row(&table, "a", "y", "proxy"), table.untried("b", "x")];
        assert_eq!(table.corrected(&documented, &found, &engines), expected);
    }
}
