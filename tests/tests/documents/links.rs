//! Links, and paths in code spans.

use crate::{FOLDERS, assert_none, complaints, read, split, workspace};
use std::path::Path;

/// Targets of links in the prose, inline or as references.
fn link_targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in split(text).1 {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.extend(inline.map(str::to_string));
        let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        targets.extend(reference.map(|(_, target)| target.trim().to_string()));
    }
    targets
}

/// The anchors that a document's headings become.
fn anchors(text: &str) -> Vec<String> {
    let headings = split(text).1.into_iter().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
        let text: String = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(anchor).collect()
}

/// Relative links of a document in `folder` that lead nowhere.
fn dead_links(text: &str, folder: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for target in link_targets(text) {
        if target.starts_with("https://") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let file = folder.join(path);
        if !path.is_empty() && !file.exists() {
            complaints.push(format!("the link `{target}` leads nowhere"));
        } else if !anchor.is_empty() {
            let there = if path.is_empty() { text.to_string() } else { read(&file) };
            if !anchors(&there).contains(&anchor.to_string()) {
                complaints.push(format!("the link `{target}` leads to no heading"));
            }
        }
    }
    complaints
}

/// Paths of the workspace in code spans that are not there.
fn dead_paths(text: &str, root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for line in split(text).1 {
        // Every second piece is between two marks.
        for span in line.split('`').skip(1).step_by(2) {
            let path = span.split(' ').next().unwrap_or_default();
            let first = path.split('/').next().unwrap_or_default();
            let is_path = path.contains('/') && FOLDERS.contains(&first) && !path.contains(['<', '*']);
            if is_path && !root.join(path).exists() {
                complaints.push(format!("there is no `{path}`"));
            }
        }
    }
    complaints
}

#[test]
fn links_and_paths_lead_somewhere() {
    let root = workspace();
    assert_none(&complaints(|document| dead_links(&document.text, &document.folder)));
    assert_none(&complaints(|document| dead_paths(&document.text, &root)));
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn dead_links_and_paths_are_found() {
        let root = workspace();
        let right = "# What is it?\n[a](README.md) [b](#what-is-it) [c](https://example.org/x) `comm/src/lib.rs` `a/b`\n";
        assert_eq!((dead_links(right, &root), dead_paths(right, &root)), (vec![], vec![]));
        assert_eq!(dead_links("[a](ABSENT.md) [b](#absent)\n\n[c]: docs/absent.md\n", &root).len(), 3);
        assert_eq!(dead_links("```text\n[a](ABSENT.md)\n```\n", &root), [""; 0]);
        assert_eq!(dead_paths("`comm/src/absent.rs` and `tests/absent FOLDER`", &root).len(), 2);
    }
}
