//! Sections of names and of what is to be said of them, for a terminal of 80 columns.

use std::fmt::Write;

use crate::report::wrap::{COLUMNS, wrapped};

/// Longer names have a line of their own, as then do all names of the section.
const WIDEST_NAME: usize = 18;

/// The text of a page.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// One with a title.
    pub(super) fn new(title: &str) -> Self {
        Self { text: format!("{title}\n") }
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds a section: pairs of a name and what is said of it, a paragraph for each.
    pub(super) fn section(&mut self, title: &str, entries: &[(String, Vec<String>)]) {
        let width = entries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        self.line(&format!("\n{title}"));
        for (name, paragraphs) in entries {
            let beside = width <= WIDEST_NAME;
            let indent = if beside { width + 4 } else { 6 };
            let mut first = format!("  {name:width$}  ");
            if !beside {
                self.line(&format!("  {name}"));
                first = " ".repeat(indent);
            }
            for paragraph in paragraphs {
                for line in wrapped(paragraph, COLUMNS - indent) {
                    self.line(&format!("{first}{line}"));
                    first = " ".repeat(indent);
                }
            }
        }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{}", line.trim_end()).expect("a string takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_a_column_and_what_is_said_beside_it() {
        let mut page = Page::new("title");
        let long = "word ".repeat(30);
        let entry = |name: &str, said: &[&str]| {
            (name.to_owned(), said.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
        };
        page.section("part", &[entry("a", &["one", "two"]), entry("four", &[&long])]);
        page.section("long", &[entry("b", &["x"]), entry("a name of its own line", &["y"])]);
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..5], ["title", "", "part", "  a     one", "        two"]);
        assert!(lines[5].starts_with("  four  word word"));
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.ends_with("\n  b\n      x\n  a name of its own line\n      y\n"), "{text}");
    }
}
