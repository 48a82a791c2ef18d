//! The terminal, which is given back as it was.

use std::io::{self, Stdout, Write};

/// Another screen than the one with what was printed before, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the screen of before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const TO_THE_CORNER: &str = "\x1b[H";
/// Of a line, from the cursor on.
const CLEAR_THE_LINE: &str = "\x1b[K";
/// That line and all below it.
const CLEAR_THE_REST: &str = "\x1b[J";

/// The terminal while it shows frames: from the first one until this is dropped, whatever the reason.
#[derive(Debug)]
pub(crate) struct Screen<W: Write = Stdout> {
    out: W,
    is_entered: bool,
    /// What is for the screen of before.
    later: Vec<String>,
}

impl Screen {
    /// That of the standard output.
    pub(crate) fn of_terminal() -> Self {
        Self::new(io::stdout())
    }
}

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, is_entered: false, later: Vec::new() }
    }

    /// Shows a frame in place of the one before. A terminal that is gone is no error of the run.
    pub(crate) fn show(&mut self, frame: &str) {
        let enter = if self.is_entered { "" } else { ENTER };
        self.is_entered = true;
        let (dots, said) = frame.rsplit_once('\n').unwrap_or(("", frame));
        let lines = dots.lines().map(|line| format!("{CLEAR_THE_LINE}{line}\n"));
        // What is cleared is so before it is written, as a cursor behind a full line still is on its last
        // character; and all at once, so that no half of a frame is seen.
        self.write(&format!("{enter}{TO_THE_CORNER}{}{CLEAR_THE_REST}{said}", lines.collect::<String>()));
    }

    /// Prints a sentence to the standard error once the terminal is as it was.
    pub(crate) fn say_later(&mut self, sentence: String) {
        self.later.push(sentence);
    }

    fn write(&mut self, text: &str) {
        _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        if self.is_entered {
            self.write(LEAVE);
        }
        self.later.iter().for_each(|sentence| crate::report::say(&format!("{sentence}\n")));
    }
}
