//! `results.csv`: one row a run, for spreadsheets and data frames.

use serde_json::{Map, Value};

use super::results::{Results, RunRecord};
use super::text::by;

/// The application's own columns follow these, each with the prefix `result_`.
const COLUMNS: [&str; 20] = [
    "app",
    "backend",
    "fabric",
    "executor",
    "device",
    "ranks",
    "layout",
    "cells",
    "steps",
    "timed_steps",
    "trial",
    "solve_s",
    "halo_s",
    "compute_s",
    "setup_s",
    "ns_per_cell_step",
    "bytes_per_exchange",
    "messages_per_exchange",
    "verified",
    "checksum",
];

/// The text of `results.csv`. An application's own results are flattened: `{"a": {"b": 1}}`
/// becomes a column `result_a_b`. A run without a column that others have leaves it empty.
pub fn csv(results: &Results) -> String {
    if results.runs.is_empty() {
        return line(COLUMNS.map(str::to_owned).into_iter());
    }
    let rows = results.runs.iter().map(|run| {
        let columns = COLUMNS.map(str::to_owned).into_iter().zip(cells(run).map(Value::String));
        columns.chain(flatten(&run.result)).collect()
    });
    csv_of_rows(&COLUMNS, &rows.collect::<Vec<_>>())
}

/// Rows of any columns, each an object of plain values: the columns that any of them has, those of `first`
/// first and then by name. A row without a column leaves it empty.
pub fn csv_of_rows(first: &[&str], rows: &[Map<String, Value>]) -> String {
    let mut columns: Vec<&str> = rows.iter().flat_map(|row| row.keys().map(String::as_str)).collect();
    columns
        .sort_by_key(|column| (first.iter().position(|one| one == column).unwrap_or(first.len()), *column));
    columns.dedup();
    let cell = |row: &Map<String, Value>, column: &str| match row.get(column) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(text),
        Some(other) => quoted(&other.to_string()),
    };
    let header = line(columns.iter().map(|column| quoted(column)));
    rows.iter().fold(header, |text, row| text + &line(columns.iter().map(|column| cell(row, column))))
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let mut line = cells.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

fn cells(run: &RunRecord) -> [String; COLUMNS.len()] {
    [
        run.app.clone(),
        run.backend.clone(),
        run.fabric.clone(),
        run.executor.clone(),
        run.device.clone(),
        run.ranks.to_string(),
        by(&run.layout),
        by(&run.cells),
        run.steps.to_string(),
        run.steps_in_time().to_string(),
        run.trial.to_string(),
        run.solve_s.to_string(),
        run.halo_s.to_string(),
        run.compute_s.to_string(),
        run.setup_s.to_string(),
        run.ns_per_cell_step().map_or(String::new(), |ns| ns.to_string()),
        run.bytes_per_exchange.to_string(),
        run.messages_per_exchange.to_string(),
        run.verified.map_or(String::new(), |verified| verified.to_string()),
        run.checksum.clone(),
    ]
}

fn flatten(result: &Map<String, Value>) -> Map<String, Value> {
    let mut columns = Map::new();
    flatten_into(&mut columns, "result", result);
    columns
}

fn flatten_into(columns: &mut Map<String, Value>, prefix: &str, result: &Map<String, Value>) {
    for (key, value) in result {
        let column = format!("{prefix}_{key}");
        match value {
            Value::Object(inner) => flatten_into(columns, &column, inner),
            plain => _ = columns.insert(column, plain.clone()),
        }
    }
}

/// RFC 4180: a cell with a comma, a quotation mark or a line end goes into quotation marks.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_have_the_columns_of_all() {
        let rows = [json!({ "b": "x,y", "a": 1.5 }), json!({ "b": null, "c": [1, 2] })];
        let rows: Vec<_> = rows.iter().map(|row| row.as_object().expect("is one").clone()).collect();
        assert_eq!(csv_of_rows(&["b", "no"], &rows), "b,a,c\n\"x,y\",1.5,\n,,\"[1,2]\"\n");
        assert_eq!(csv_of_rows(&[], &[]), "\n");
    }
}
