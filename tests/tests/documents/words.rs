//! Words: documents speak of the project alone.

use crate::{assert_none, complaints};

/// Words that do not belong into documents of the project.
fn unwanted(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut complain = |what: &str| complaints.push(format!("line {}: {what}", index + 1));
        let small = line.to_lowercase();
        let words: Vec<&str> =
            small.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        for word in ["session", "sessions", "todo", "fixme", "xxx"] {
            if words.contains(&word) {
                complain(&format!("the word `{word}`"));
            }
        }
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        if words.windows(2).any(|pair| ["issue", "pr"].contains(&pair[0]) && is_number(pair[1])) {
            complain("the number of a ticket");
        }
        for host in ["crates.io", "docs.rs", "pypi.org", "npmjs"] {
            if small.contains(host) {
                complain(&format!("the registry `{host}`"));
            }
        }
        // Paths of a machine: from the root of its file system, or of a home.
        let tokens = line.split(|letter: char| letter.is_whitespace() || "`\"'()[]=".contains(letter));
        let is_absolute = |token: &str| {
            let after_root = token.strip_prefix('/').and_then(|rest| rest.chars().next());
            after_root.is_some_and(char::is_alphanumeric)
        };
        let of_machine = |token: &&str| {
            (is_absolute(token) || token.starts_with("~/"))
                && !["/proc", "/dev", "/sys"].iter().any(|system| token.starts_with(system))
        };
        if let Some(path) = tokens.into_iter().find(of_machine) {
            complain(&format!("the path `{path}` of some machine"));
        }
    }
    complaints
}

#[test]
fn documents_speak_of_the_project_alone() {
    assert_none(&complaints(|document| unwanted(&document.text)));
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn unwanted_words_are_found() {
        assert_eq!(
            unwanted("Obsessions, issues of two kinds, and/or 1/2 of /proc/self.\n`a/b` [c](d/e)"),
            [""; 0]
        );
        for wrong in
            ["in this session", "a TODO", "see issue #12", "from crates.io", "in `/home/me`", "cd ~/code"]
        {
            assert_eq!(unwanted(wrong).len(), 1, "{wrong}: {:?}", unwanted(wrong));
        }
    }
}
