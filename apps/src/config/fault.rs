//! What is wrong with a configuration, and where.
//!
//! Readers raise a [`Fault`], which knows its [`Origin`] but not the text of the file; the
//! entry point adds the text once and makes a [`ConfigError`] of it. No reader has to carry
//! the file around for that.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::string::FromUtf8Error;

/// Where a key or a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Bytes of the configuration file.
    File(Range<usize>),
    /// A flag of the command line, as it was typed.
    Flag(String),
    /// Nobody set it.
    Default,
}

impl Origin {
    /// Where relative paths of that origin start: at the `folder` of the configuration file, or at the working directory.
    pub(crate) fn base<'f>(&self, folder: &'f Path) -> &'f Path {
        match self {
            Self::Flag(_) => Path::new(""),
            Self::File(_) | Self::Default => folder,
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Located<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// A value that nobody set.
    pub(crate) fn default(value: T) -> Self {
        Self::new(value, Origin::Default)
    }
}

/// One mistake, before the text of the file is at hand.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) origin: Origin,
    pub(crate) message: String,
    pub(crate) expected: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(origin: &Origin, message: impl Into<String>) -> Self {
        Self { origin: origin.clone(), message: message.into(), expected: None, hint: None }
    }

    /// Completes "expected ...".
    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// "did you mean `x`?", where there is such a name.
    pub(crate) fn nearest(mut self, nearest: Option<&str>) -> Self {
        if let Some(name) = nearest {
            self.hint = Some(format!("did you mean `{name}`?"));
        }
        self
    }

    /// Adds the place in the file, or the flag, to the fault.
    pub(crate) fn locate(self, file: &str, text: &str) -> ConfigError {
        let place = match self.origin {
            Origin::File(span) => Place::Line(Excerpt::new(file, text, span)),
            Origin::Flag(flag) => Place::Flag(flag),
            Origin::Default => Place::File(file.to_owned()),
        };
        ConfigError { place, message: self.message, expected: self.expected, hint: self.hint }
    }
}

/// A mistake in a configuration: which file, line and column or which flag, what was
/// expected, and the remedy where one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where the mistake is.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What would have been right, after the word "expected".
    pub expected: Option<String>,
    /// What to do; printed on a line of its own by the program.
    pub hint: Option<String>,
}

/// Where a mistake is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In one line of the file.
    Line(Excerpt),
    /// In a flag of the command line, as it was typed.
    Flag(String),
    /// In the file as a whole: a default does not fit.
    File(String),
}

/// A line of the file with the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The file as it was named by the user.
    pub file: String,
    /// Counts from 1.
    pub line: usize,
    /// Counts characters, from 1.
    pub column: usize,
    /// The line without its end.
    pub text: String,
    /// How many characters are wrong, at least 1.
    pub width: usize,
}

impl Excerpt {
    fn new(file: &str, text: &str, span: Range<usize>) -> Self {
        // The end of an unfinished document lies one past its text, and a parser may stop
        // inside a character: step back to where a slice is allowed.
        let start = floor_boundary(text, span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let whole = &text[line_start..line_end];
        let end = floor_boundary(text, span.end).clamp(start, line_end);
        Self {
            file: file.to_owned(),
            line: text[..line_start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: whole.trim_end_matches('\r').to_owned(),
            width: text[start..end].trim_end().chars().count().max(1),
        }
    }

    /// Blanks up to the column; tabs stay tabs, so that the caret stands under its text at
    /// any tab width.
    fn indent(&self) -> String {
        let blank = |c| if c == '\t' { '\t' } else { ' ' };
        let mut indent: String = self.text.chars().take(self.column - 1).map(blank).collect();
        while indent.chars().count() + 1 < self.column {
            indent.push(' ');
        }
        indent
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// That a file is no text, at the first byte that is none.
pub(super) fn not_utf8(file: &str, error: &FromUtf8Error) -> ConfigError {
    let (bytes, at) = (error.as_bytes(), error.utf8_error().valid_up_to());
    // What is shown has another character in the place of that byte, which begins where it does.
    let shown = String::from_utf8_lossy(bytes);
    let message = format!("byte {} of the file, {:#04x}, is not UTF-8", at + 1, bytes[at]);
    let fault = Fault::new(&Origin::File(at..at + 1), message).expected("text in UTF-8");
    fault.hint("save it as UTF-8").locate(file, &shown)
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut margin = 1;
        match &self.place {
            Place::Line(at) => {
                let number = at.line.to_string();
                margin = number.len();
                writeln!(f, "{}:{}:{}: {}", at.file, at.line, at.column, self.message)?;
                writeln!(f, "{:margin$} |", "")?;
                writeln!(f, "{number} | {}", at.text)?;
                write!(f, "{:margin$} | {}{}", "", at.indent(), "^".repeat(at.width))?;
            }
            Place::Flag(place) | Place::File(place) => write!(f, "{place}: {}", self.message)?,
        }
        if let Some(expected) = &self.expected {
            write!(f, "\n{:margin$} = expected {expected}", "")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(text: &str, span: Range<usize>) -> Excerpt {
        Excerpt::new("f.toml", text, span)
    }

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a = 1\nµ = \"ß\"\n";
        let at = text.find("\"ß\"").expect("is in the text");
        let found = excerpt(text, at..at + 4);
        assert_eq!((found.line, found.column, found.width), (2, 5, 3));
    }

    #[test]
    fn a_span_inside_a_character_or_past_the_end_is_moved_back() {
        assert_eq!(excerpt("µ", 1..9).column, 1);
        let end = excerpt("a = ", 4..5);
        assert_eq!((end.line, end.column, end.width), (1, 5, 1));
    }

    #[test]
    fn a_value_over_several_lines_is_marked_on_its_first() {
        let found = excerpt("x = [1,\r\n 2]\r\n", 4..12);
        assert_eq!((found.line, found.column, found.width), (1, 5, 3));
        assert_eq!(found.text, "x = [1,");
    }

    #[test]
    fn tabs_before_the_caret_are_kept() {
        let fault = Fault::new(&Origin::File(1..2), "m").expected("e");
        assert_eq!(fault.locate("f", "\tx").to_string(), "f:1:2: m\n  |\n1 | \tx\n  | \t^\n  = expected e");
    }
}
