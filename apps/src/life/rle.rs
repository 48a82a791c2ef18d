//! The run-length encoded pattern format of the Life community (`.rle`), read and written.
//!
//! ```text
//! #N Glider                      lines that begin with # are remarks
//! x = 3, y = 3, rule = B3/S23    the box: width, height; the rule may be absent
//! bob$2bo$3o!                    [count]tag: b dead, o live, $ end of row, ! end of pattern
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

mod parser;
#[cfg(test)]
mod tests;

/// Longest line of an encoded body, in characters: the format's own limit.
const LINE_CHARACTERS: usize = 70;

/// A finite set of live cells in a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Extent of the box along y.
    pub height: usize,
    /// Extent of the box along x.
    pub width: usize,
    /// Live cells as (y, x) within the box, sorted, each once.
    pub cells: Vec<(usize, usize)>,
}

/// Why a text is not a pattern. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what the messages say")]
pub enum RleError {
    #[error(
        "line {line}, column {column}: expected {expected} in the header \
         `x = WIDTH, y = HEIGHT, rule = B3/S23`, found {found}"
    )]
    Header { line: usize, column: usize, expected: &'static str, found: String },
    #[error("line {line}, column {column}: the rule {found} is not supported, expected B3/S23")]
    UnsupportedRule { line: usize, column: usize, found: String },
    #[error("line {line}, column {column}: expected a count, b, o, $ or !, found {found:?}")]
    UnknownCharacter { line: usize, column: usize, found: char },
    #[error("line {line}, column {column}: expected b, o or $ after the count {count}, found {found}")]
    CountWithoutTag { line: usize, column: usize, count: u32, found: String },
    #[error("line {line}, column {column}: expected a number from {least} to {}, found {found}", u32::MAX)]
    NumberOutOfRange { line: usize, column: usize, least: u32, found: String },
    #[error(
        "line {line}, column {column}: expected live cells within the header's box of {height} rows \
         and {width} columns, found one in row {y}, column {x} (counted from 0)"
    )]
    OutsideBox { line: usize, column: usize, y: usize, x: usize, height: usize, width: usize },
    #[error("line {line}, column {column}: expected ! at the end of the pattern, found the end of the text")]
    MissingEnd { line: usize, column: usize },
    #[error(
        "has {} x {} cells (y x x) and does not fit the grid of {} x {}",
        extents[0], extents[1], most[0], most[1]
    )]
    TooLarge { extents: [usize; 2], most: [usize; 2] },
}

/// Why a pattern file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what the messages say")]
pub enum ReadError {
    #[error("cannot read the pattern file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the pattern file {} is not valid: {source}", path.display())]
    Invalid { path: PathBuf, source: RleError },
    #[error("the pattern of {} {source}", path.display())]
    TooLarge { path: PathBuf, source: RleError },
}

impl Pattern {
    /// Reads a pattern from its text. What follows the closing `!` is ignored.
    ///
    /// # Errors
    ///
    /// The first place at which the text departs from the format. Dead cells beyond the box are not
    /// one: nothing is lost by dropping them.
    pub fn parse(text: &str) -> Result<Pattern, RleError> {
        parser::parse(text, [usize::MAX; 2])
    }

    /// Reads a pattern for a grid of `cells` (y, x) from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a pattern, or has one that does not fit the grid; all name its path.
    pub fn read(path: &Path, cells: [usize; 2]) -> Result<Pattern, ReadError> {
        let bytes =
            std::fs::read(path).map_err(|source| ReadError::Unreadable { path: path.into(), source })?;
        // Names and comments of old files are in old encodings.
        parser::parse(&String::from_utf8_lossy(&bytes), cells).map_err(|source| match source {
            RleError::TooLarge { .. } => ReadError::TooLarge { path: path.into(), source },
            _ => ReadError::Invalid { path: path.into(), source },
        })
    }
}

/// Header and body for live cells that come sorted by (y, x), each once: the path for grids whose
/// cells are better not listed in memory.
#[must_use]
pub fn encode(height: usize, width: usize, live: impl IntoIterator<Item = (usize, usize)>) -> String {
    let mut text = format!("x = {width}, y = {height}, rule = B3/S23\n");
    let mut body = Body { text: &mut text, line_characters: 0 };
    // The next cell that has no tag yet, and how many live cells before it wait for theirs.
    let (mut at_y, mut at_x, mut run) = (0, 0, 0);
    for (y, x) in live {
        debug_assert!(y < height && x < width && (y, x) >= (at_y, at_x), "sorted, inside the box");
        if (y, x) != (at_y, at_x) {
            body.push(run, 'o');
            run = 0;
        }
        if y > at_y {
            body.push(y - at_y, '$');
            at_x = 0;
        }
        body.push(x - at_x, 'b');
        run += 1;
        (at_y, at_x) = (y, x + 1);
    }
    body.push(run, 'o');
    body.push(1, '!');
    text.push('\n');
    text
}

/// The body being written.
struct Body<'text> {
    text: &'text mut String,
    line_characters: usize,
}

impl Body<'_> {
    /// Appends `count` times `tag`, on a new line if this one is full; nothing for zero.
    fn push(&mut self, count: usize, tag: char) {
        let digits = if count > 1 { count.ilog10() as usize + 1 } else { 0 };
        if count == 0 {
            return;
        }
        if self.line_characters + digits + 1 > LINE_CHARACTERS {
            self.text.push('\n');
            self.line_characters = 0;
        }
        if count > 1 {
            write!(self.text, "{count}").expect("writing to a string cannot fail");
        }
        self.text.push(tag);
        self.line_characters += digits + 1;
    }
}
