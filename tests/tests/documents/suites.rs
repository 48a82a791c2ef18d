//! The table of suites: that it names each of them, once.

use crate::{assert_none, document, entries, workspace};
use std::path::Path;

/// Where suites are: a file or a folder each.
const SUITES: &str = "tests/tests/";

/// The suites that are there, as the table writes them.
fn suites(root: &Path) -> Vec<String> {
    let name = |path: &Path| {
        let name = path.file_name().expect("a file or a folder").to_str().expect("is text");
        format!("{SUITES}{name}{}", if path.is_dir() { "/" } else { "" })
    };
    entries(&root.join(SUITES)).iter().map(|path| name(path)).collect()
}

/// Suites that do not begin a row of a table, or begin several, and rows that begin with none.
fn complaints(text: &str, suites: &[String]) -> Vec<String> {
    let named: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with(SUITES))
        .collect();
    let mut complaints = Vec::new();
    for suite in suites {
        let rows = named.iter().filter(|name| *name == suite).count();
        if rows != 1 {
            complaints.push(format!("`{suite}` has {rows} rows"));
        }
    }
    let strangers = named.iter().filter(|name| !suites.iter().any(|suite| suite == *name));
    complaints.extend(strangers.map(|name| format!("`{name}` is no suite")));
    complaints
}

#[test]
fn the_table_names_every_suite_once() {
    let suites = suites(&workspace());
    assert!(suites.iter().any(|suite| suite == "tests/tests/documents/"), "this one is there: {suites:?}");
    assert_none(&complaints(&document("CONTRIBUTING.md"), &suites));
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn suites_without_a_row_or_with_two_are_found() {
        let suites = ["tests/tests/a.rs", "tests/tests/b/"].map(str::to_string);
        let right =
            "| suite |\n|---|\n| `tests/tests/a.rs` | x |\n| `tests/tests/b/` | y |\n| `tests/gpu` | z |\n";
        assert_eq!(complaints(right, &suites), [""; 0]);
        let wrong = "| `tests/tests/a.rs` | x |\n| `tests/tests/a.rs` | y |\n| `tests/tests/c.rs` | z |\n";
        assert_eq!(
            complaints(wrong, &suites),
            [
                "`tests/tests/a.rs` has 2 rows",
                "`tests/tests/b/` has 0 rows",
                "`tests/tests/c.rs` is no suite"
            ]
        );
    }
}
