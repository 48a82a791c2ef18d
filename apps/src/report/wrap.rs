//! Text for a terminal of 80 columns.

/// Columns of a line, unless a word is longer.
pub(crate) const COLUMNS: usize = 80;

/// The lines of a paragraph, none wider than `width` unless a word is.
pub(crate) fn wrapped(paragraph: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text whose lines are paragraphs, each wrapped.
pub(crate) fn filled(text: &str) -> String {
    text.lines().flat_map(|line| wrapped(line, COLUMNS)).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_too_long_are_not_cut() {
        assert_eq!(wrapped("a /long/path b", 5), ["a", "/long/path", "b"]);
        assert_eq!(wrapped("", 5), [""; 0]);
    }
}
