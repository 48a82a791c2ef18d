//! What steps are called in a timeline.

use streamhalo::comm::timeline::{Activity, Span};

/// The end of the last step.
pub(crate) const END_MARK: &str = "end";

const STEP: &str = "step ";

/// The begin of a step.
pub(crate) fn step_mark(step: u64) -> String {
    format!("{STEP}{step}")
}

/// The step that begins there, if the span is such a mark.
pub(crate) fn step_of_mark(span: &Span) -> Option<u64> {
    let is_mark = span.activity == Activity::Mark;
    span.name.strip_prefix(STEP).filter(|_| is_mark)?.parse().ok()
}
