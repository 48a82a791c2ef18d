//! A progress bar on a terminal, and nothing elsewhere.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// How far a command is, on the standard error. It is drawn only when a run begins or ends:
/// a thread that ticked would take time from the ranks that are being measured.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar for a number of runs; none where `quiet` or where nobody sees it.
    pub fn new(runs: u64, quiet: bool) -> Self {
        let shown = !quiet && stderr().is_terminal();
        Self { bar: shown.then(|| bar(runs)) }
    }

    /// A run begins, as in "st-rsend, 4 ranks, trial 2".
    pub fn begin(&self, run: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(run.to_owned());
            bar.tick();
        }
    }

    /// The run has ended.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Prints lines, each with its end, above the bar.
    pub fn say(&self, lines: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| super::say(lines)),
            None => super::say(lines),
        }
    }
}

impl Drop for Progress {
    /// The line is cleared on success and on an error alike: a table or a message follows.
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}")
        .expect("the template is ours")
        .progress_chars("=> ");
    ProgressBar::new(runs).with_style(style)
}
