//! What a measurement leaves behind.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::report::{OutputFile, csv_of_rows};

/// The columns that come first.
const FIRST: [&str; 9] =
    ["bench", "operation", "backend", "fabric", "executor", "ranks", "bytes", "median_us", "min_us"];

/// One JSON object a line.
pub(super) fn lines<F: Serialize>(figures: &[F]) -> String {
    figures.iter().map(|one| text_of(one) + "\n").collect()
}

/// What is left behind is called, the plot too where there is one: JSON, CSV, SVG.
pub(super) fn names_of(name: &str) -> [String; 3] {
    ["json", "csv", "svg"].map(|ending| format!("bench-{name}.{ending}"))
}

/// A list as JSON, and CSV with the same.
pub(super) fn files_of<F: Serialize>(name: &str, figures: &[F]) -> Vec<OutputFile> {
    let list = figures.iter().map(text_of).collect::<Vec<_>>().join(",\n");
    let rows: Vec<Map<String, Value>> = figures
        .iter()
        .map(|one| match serde_json::to_value(one) {
            Ok(Value::Object(row)) => row,
            _ => unreachable!("figures are objects of plain data"),
        })
        .collect();
    let [json, csv, _] = names_of(name);
    vec![
        OutputFile::new(json, format!("[\n{list}\n]\n").into_bytes()),
        OutputFile::new(csv, csv_of_rows(&FIRST, &rows)),
    ]
}

fn text_of<F: Serialize>(figure: &F) -> String {
    serde_json::to_string(figure).expect("figures are plain data")
}
