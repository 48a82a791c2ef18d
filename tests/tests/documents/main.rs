//! The documents: that the README's program is the example and runs, that commands parse and
//! configurations are accepted, that links and paths lead somewhere, and that no backend, fabric or
//! suite is missing.
//!
//! Each check is a function from text to complaints, so that it is itself tested on made-up text.

mod commands;
mod configurations;
mod links;
mod program;
mod suites;

use std::path::{Path, PathBuf};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::FABRICS;

/// Where documents are, besides the root itself.
const FOLDERS: [&str; 8] = ["apps", "benches", "comm", "configs", "docs", "grid", "halo", "tests"];
/// What every design note says.
const NOTE_SECTIONS: [&str; 4] = ["Context", "Decision", "Rejected", "Consequence"];
const LONGEST_NOTE_LINES: usize = 60;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member").to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder can be listed").path()).collect();
    paths.sort();
    paths
}

/// All files with an extension below some folders, and directly in the root.
fn files(extension: &str) -> Vec<PathBuf> {
    let root = workspace();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut found: Vec<PathBuf> = entries(&root).into_iter().filter(|path| path.is_file()).collect();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.retain(|path| path.extension().is_some_and(|found| found == extension));
    found
}

/// What lays a grid over a configuration that is quick to set up, of as many axes as its application has.
fn small_grid(config: &str) -> &'static str {
    match config.split('/').nth(1) {
        Some("faces") => "grid.cells=[8,8,8]",
        Some("stencil3d" | "comb") => "grid.cells=[16,16,16]",
        Some("tree") => "grid.cells=[8]",
        Some("cholesky") => "grid.cells=[256]",
        _ => "grid.cells=[256,256]",
    }
}

/// A Markdown file.
struct Document {
    /// From the root.
    name: String,
    folder: PathBuf,
    text: String,
}

fn documents() -> Vec<Document> {
    let root = workspace();
    let document = |path: PathBuf| Document {
        name: path.strip_prefix(&root).expect("it lies in the workspace").display().to_string(),
        folder: path.parent().expect("a file lies in a folder").to_path_buf(),
        text: read(&path),
    };
    let documents: Vec<Document> = files("md").into_iter().map(document).collect();
    assert!(documents.len() > 10, "only {} documents", documents.len());
    documents
}

fn document(name: &str) -> String {
    read(&workspace().join(name))
}

/// A fenced block.
#[derive(Debug, PartialEq)]
struct Block {
    language: String,
    text: String,
}

/// The fenced blocks of a document, and its lines with empty ones in their place.
fn split(text: &str) -> (Vec<Block>, Vec<&str>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block { language: language.to_string(), text: String::new() });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {
                prose.push(line);
                continue;
            }
        }
        prose.push("");
    }
    assert!(open.is_none(), "a fenced block does not end: {open:?}");
    (blocks, prose)
}

/// Every block in some language, with the name of its document.
fn blocks_in(language: &str) -> Vec<(String, String)> {
    let of_document = |document: Document| {
        let blocks = split(&document.text).0.into_iter().filter(|block| block.language == language);
        blocks.map(|block| (document.name.clone(), block.text)).collect::<Vec<_>>()
    };
    documents().into_iter().flat_map(of_document).collect()
}

/// Complaints about every document, with its name.
fn complaints(check: impl Fn(&Document) -> Vec<String>) -> Vec<String> {
    let of_document = |document: Document| {
        let found = check(&document).into_iter();
        found.map(|complaint| format!("{}: {complaint}", document.name)).collect::<Vec<_>>()
    };
    documents().into_iter().flat_map(of_document).collect()
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Rows of a registry that a document does not name.
fn unnamed<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let missing = names.filter(|name| !text.contains(&format!("`{name}`")));
    missing.map(|name| format!("does not name `{name}`")).collect()
}

#[test]
fn every_row_of_a_registry_is_described() {
    let fabrics = FABRICS.iter().map(|row| row.name);
    for name in ["README.md", "docs/backends.md"] {
        let text = document(name);
        let found = [unnamed(&text, backend_names()), unnamed(&text, fabrics.clone())];
        assert_none(&found.concat().into_iter().map(|one| format!("{name} {one}")).collect::<Vec<_>>());
    }
}

#[test]
fn the_oldest_rust_is_the_one_of_the_workspace() {
    let manifest = document("Cargo.toml");
    let version = manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("the workspace says its oldest Rust");
    assert!(document("README.md").contains(&format!("Rust {version} or later")), "not Rust {version}");
}

#[test]
fn design_notes_are_numbered_pages() {
    let notes = entries(&workspace().join("docs/design"));
    assert!(notes.len() >= 9, "only {} notes", notes.len());
    for (index, path) in notes.iter().enumerate() {
        let (name, text) = (path.file_name().expect("a file").to_str().expect("is text"), read(path));
        let number = format!("{:04}", index + 1);
        assert!(name.starts_with(&format!("{number}-")), "{name} comes as number {number}");
        assert!(text.starts_with(&format!("# {number}: ")), "{name} begins with its number and title");
        assert!(text.lines().count() <= LONGEST_NOTE_LINES, "{name} is longer than a page");
        let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(sections, NOTE_SECTIONS, "{name}");
    }
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn blocks_and_prose_are_told_apart() {
        let (blocks, prose) = split("a\n```sh\nb\nc\n```\nd\n```\n```\n");
        let block = |language: &str, text: &str| Block { language: language.into(), text: text.into() };
        assert_eq!(blocks, [block("sh", "b\nc\n"), block("", "")]);
        assert_eq!(prose, ["a", "", "", "", "", "d", "", ""]);
    }

    #[test]
    fn rows_that_are_missing_are_found() {
        assert_eq!(unnamed("| `a` |", ["a", "b"].into_iter()), ["does not name `b`"]);
    }
}
