//! `time.svg`: the time of a step against rank count, one line a backend.
//!
//! What ranks gain is no measure where one rank alone has nothing to send, as in a reduction: there the papers plot times.

use super::lines::{ChartLine, LineChart, lines_svg};
use super::{NO_TIME, draw_sentence, drawn, titles};
use crate::error::AppError;
use crate::report::results::Results;
use crate::report::summary::{Group, Spread, Summary};
use crate::report::text::time_unit;

/// The text of `time.svg`. It names fonts by family only, so it needs none to be made.
///
/// # Errors
///
/// [`AppError::Plot`] where the drawing library refuses.
pub fn time_svg(results: &Results) -> Result<String, AppError> {
    let summary = Summary::of(results);
    let time = |group: &Group| group.step_s.filter(|time| time.median > 0.0);
    let timed: Vec<&Group> = summary.groups.iter().filter(|group| time(group).is_some()).collect();
    let (Some(first), false) = (results.runs.first(), timed.is_empty()) else {
        return drawn(|root| draw_sentence(root, NO_TIME));
    };
    // That of the middle of the axis, for labels with few digits on either side of the point.
    let medians = || timed.iter().filter_map(|group| time(group)).map(|time| time.median);
    let (least_s, greatest_s) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    let (unit_s, unit) = time_unit((least_s * greatest_s).sqrt());
    // The line of a backend without times is empty, so that each has the colour that it has in the other plot.
    let line = |name: &String| {
        let of_backend = timed.iter().filter(|group| group.backend == *name);
        let point = |group: &&Group| {
            let Spread { median, min, max } = time(group)?;
            Some((group.ranks as f64, [median, min, max].map(|seconds| seconds / unit_s)))
        };
        ChartLine { name: name.clone(), points: of_backend.filter_map(point).collect() }
    };
    let mut ticks: Vec<usize> = timed.iter().map(|group| group.ranks).collect();
    ticks.dedup();
    let (title, below) = titles(results, first, &timed);
    lines_svg(&LineChart {
        title,
        below,
        x: "ranks".to_owned(),
        ticks,
        y: format!("time of a step, {unit}"),
        lines: summary.backends.iter().map(line).collect(),
        ..LineChart::default()
    })
}
