//! From text to [`Pattern`], with the place of whatever is wrong.

use super::{Pattern, RleError};

/// Reads a whole pattern, whose box may have up to `most` cells (y, x): few letters can stand for more than there is memory
/// for.
pub(super) fn parse(text: &str, most: [usize; 2]) -> Result<Pattern, RleError> {
    let text = text.replace("\r\n", "\n");
    let mut cursor = Cursor { rest: &text, line: 1, column: 1 };
    let mut pattern = Pattern::default();
    loop {
        cursor.skip(char::is_whitespace);
        if cursor.peek() != Some('#') {
            break;
        }
        cursor.skip_line();
    }
    header(&mut cursor, &mut pattern)?;
    let extents = [pattern.height, pattern.width];
    if extents[0] > most[0] || extents[1] > most[1] {
        return Err(RleError::TooLarge { extents, most });
    }
    body(&mut cursor, &mut pattern)?;
    Ok(pattern)
}

/// Takes `x = WIDTH, y = HEIGHT[, rule = RULE]` to the end of its line.
fn header(cursor: &mut Cursor<'_>, pattern: &mut Pattern) -> Result<(), RleError> {
    cursor.expect("x", "`x`")?;
    cursor.expect("=", "`=`")?;
    pattern.width = extent(cursor, "the width")?;
    cursor.expect(",", "`,`")?;
    cursor.expect("y", "`y`")?;
    cursor.expect("=", "`=`")?;
    pattern.height = extent(cursor, "the height")?;
    cursor.skip(is_blank);
    if cursor.ends_line() {
        return Ok(());
    }
    cursor.expect(",", "`,` or the end of the line")?;
    cursor.expect("rule", "`rule`")?;
    cursor.expect("=", "`=`")?;
    cursor.skip(is_blank);
    let (line, column) = (cursor.line, cursor.column);
    let rule = cursor.take(|found| found != '\n').trim();
    match rule.to_ascii_lowercase().as_str() {
        // The second is the older notation: survival first.
        "b3/s23" | "23/3" => Ok(()),
        "" => Err(cursor.unexpected("a rule")),
        _ => Err(RleError::UnsupportedRule { line, column, found: rule.to_owned() }),
    }
}

/// Takes one extent of the box.
fn extent(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<usize, RleError> {
    cursor.skip(is_blank);
    match cursor.number(0)? {
        Some(extent) => Ok(extent as usize),
        None => Err(cursor.unexpected(expected)),
    }
}

/// Takes counts and tags up to the closing `!`.
fn body(cursor: &mut Cursor<'_>, pattern: &mut Pattern) -> Result<(), RleError> {
    let (mut y, mut x) = (0usize, 0usize);
    loop {
        cursor.skip(char::is_whitespace);
        if cursor.peek() == Some('#') && cursor.column == 1 {
            cursor.skip_line();
            continue;
        }
        // A run's place is that of its count, or of its tag if it has none.
        let (line, column) = (cursor.line, cursor.column);
        let count = cursor.number(1)?;
        if count.is_some() {
            cursor.skip(char::is_whitespace);
        }
        let length = count.unwrap_or(1) as usize;
        match (cursor.peek(), count) {
            (Some('b'), _) => x = x.saturating_add(length),
            (Some('$'), _) => (y, x) = (y.saturating_add(length), 0),
            (Some('o'), _) => {
                let (height, width) = (pattern.height, pattern.width);
                if y >= height || length > width.saturating_sub(x) {
                    // The first cell of the run that lies outside.
                    let x = if y < height { x.max(width) } else { x };
                    return Err(RleError::OutsideBox { line, column, y, x, height, width });
                }
                pattern.cells.extend((x..x + length).map(|x| (y, x)));
                x += length;
            }
            (Some('!'), None) => return Ok(()),
            (None, None) => return Err(RleError::MissingEnd { line, column }),
            (Some(found), None) => {
                return Err(RleError::UnknownCharacter { line, column, found });
            }
            (_, Some(count)) => {
                let found = cursor.found();
                return Err(RleError::CountWithoutTag { line, column, count, found });
            }
        }
        cursor.advance();
    }
}

/// White space that stays on the line.
fn is_blank(found: char) -> bool {
    found != '\n' && found.is_whitespace()
}

/// A place in the text.
struct Cursor<'text> {
    rest: &'text str,
    line: usize,
    column: usize,
}

impl<'text> Cursor<'text> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn ends_line(&self) -> bool {
        matches!(self.peek(), None | Some('\n'))
    }

    fn advance(&mut self) {
        let Some(passed) = self.peek() else { return };
        self.rest = &self.rest[passed.len_utf8()..];
        if passed == '\n' {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += 1;
        }
    }

    /// Takes characters as long as they are wanted.
    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'text str {
        let before = self.rest;
        while self.peek().is_some_and(&wanted) {
            self.advance();
        }
        &before[..before.len() - self.rest.len()]
    }

    fn skip(&mut self, unwanted: impl Fn(char) -> bool) {
        self.take(unwanted);
    }

    fn skip_line(&mut self) {
        self.skip(|found| found != '\n');
    }

    /// Takes one word or sign of the header, with blanks before it.
    fn expect(&mut self, word: &str, expected: &'static str) -> Result<(), RleError> {
        self.skip(is_blank);
        if !self.rest.starts_with(word) {
            return Err(self.unexpected(expected));
        }
        word.chars().for_each(|_| self.advance());
        Ok(())
    }

    /// Takes a number of at least `least`, if there are digits.
    fn number(&mut self, least: u32) -> Result<Option<u32>, RleError> {
        let (line, column) = (self.line, self.column);
        let digits = self.take(|found| found.is_ascii_digit());
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(RleError::NumberOutOfRange { line, column, least, found: digits.to_owned() }),
        }
    }

    /// What stands here, for a message.
    fn found(&self) -> String {
        match self.peek() {
            None => "the end of the text".to_owned(),
            Some('\n') => "the end of the line".to_owned(),
            Some(found) => format!("{found:?}"),
        }
    }

    fn unexpected(&self, expected: &'static str) -> RleError {
        RleError::Header { line: self.line, column: self.column, expected, found: self.found() }
    }
}
