//! The part of the ranks: when to look, and what is seen.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Size;
use super::frame::Canvas;
use crate::app::{Look, Looker};
use crate::error::AppError;

/// The time of a frame: 20 in a second.
const FRAME: Duration = Duration::from_millis(50);

/// The steps to the next look may grow by this factor from one to the next, as few steps say little about how
/// long many take.
const GROWTH: u64 = 4;

/// Looks at a trial of `life`, and shows it.
pub(crate) struct Watcher<'a> {
    size: Size,
    /// The steps of the trial: the last generation is shown, however soon it comes.
    steps: u64,
    /// What is said of the trial, such as which it is.
    title: String,
    show: &'a dyn Fn(String),
    next: Cell<u64>,
    /// The step of the last look, and when it had ended.
    looked: Cell<Option<(u64, Instant)>>,
    shown: Cell<Option<Instant>>,
}

/// What rank 0 decides for all, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// Whether the generation is shown.
    pub(super) is_shown: bool,
    /// After how many more steps the next look is.
    pub(super) steps: u64,
}

/// Decides, where `since_look` is how many steps have been taken since the last look, and in which time, and
/// `since_shown` the time since the last frame.
pub(super) fn judge(
    since_look: Option<(u64, Duration)>,
    since_shown: Option<Duration>,
    is_last: bool,
) -> Verdict {
    let is_shown = is_last || since_shown.is_none_or(|since| since >= FRAME);
    let left = if is_shown { FRAME } else { FRAME.saturating_sub(since_shown.unwrap_or_default()) };
    let steps = since_look.map_or(1, |(steps, took)| {
        let fitting = steps as f64 * left.as_secs_f64() / took.as_secs_f64().max(1e-9);
        (fitting.round() as u64).clamp(1, steps.saturating_mul(GROWTH).max(1))
    });
    Verdict { is_shown, steps }
}

/// What is said below a frame, in one line: so much of it that what is shown, `title`, has room. `cells` are how many live,
/// and how many a dot is along each axis.
pub(super) fn said(generation: &str, cells: (f64, usize), title: &str, columns: usize) -> String {
    let (live, side) = cells;
    let (dot, short) = match side {
        0 | 1 => (String::new(), String::new()),
        _ => (format!(", a dot is {side} x {side} cells"), format!(", dots of {side} x {side}")),
    };
    let said = [
        format!("{generation}, {live} live{dot}; {title}"),
        format!("{generation}, {live} live{short}; {title}"),
        format!("{generation}, {live} live; {title}"),
        format!("{generation}; {title}"),
    ];
    said.into_iter().find(|said| said.chars().count() <= columns).unwrap_or_else(|| title.to_owned())
}

impl<'a> Watcher<'a> {
    /// Of a trial with so many steps, in a terminal of that size; `show` gets the frames on rank 0.
    pub(crate) fn new(size: Size, steps: u64, title: String, show: &'a dyn Fn(String)) -> Self {
        let (next, looked, shown) = (Cell::new(0), Cell::new(None), Cell::new(None));
        Self { size, steps, title, show, next, looked, shown }
    }
}

impl Looker for Watcher<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        Some(self.next.get().max(from))
    }

    fn look(&self, look: &Look<'_>) -> Result<(), AppError> {
        let Look { step, .. } = *look;
        let since_look = self.looked.get().map(|(last, when)| (step - last, when.elapsed()));
        let own = judge(since_look, self.shown.get().map(|when| when.elapsed()), step == self.steps);
        let Verdict { is_shown, steps } = look.world().all_gather(&own)?[0];
        if is_shown {
            self.shown.set(Some(Instant::now()));
            let canvas = Canvas::new(look.cells, self.size);
            if let Some(live) = canvas.mosaic.sums(look)? {
                let generation = format!("generation {step} of {}", self.steps);
                let cells = (live.iter().sum(), canvas.mosaic.side);
                let said = said(&generation, cells, &self.title, self.size.columns);
                (self.show)(canvas.frame(&live, &said));
            }
        }
        let next = step.saturating_add(steps);
        self.next.set(if step < self.steps { next.min(self.steps) } else { next });
        self.looked.set(Some((step, Instant::now())));
        Ok(())
    }
}
