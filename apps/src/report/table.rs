//! The table that a run prints: one row for each rank count and backend.

use comfy_table::{Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle};

use super::results::Results;
use super::summary::{Group, Spread, Summary, Verification};
use super::text::{bytes, significant, time, time_unit};
use super::wrap::{COLUMNS, filled};
use crate::app::{CHOSEN_BACKEND, REPLAYED_BY, cell_of};
use crate::error::ranks_of;

/// Rules above, below and under the header; columns are separated by their padding.
pub(crate) const RULED: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .content_lines(ContentLineStyle::none())
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// The results as a table of text that fits a terminal of 80 columns, with what they have in common
/// above it and what the speed-up is relative to below.
pub fn table(results: &Results) -> String {
    let summary = Summary::of(results);
    let (Some(first), Some(baseline)) = (results.runs.first(), &summary.baseline) else {
        return "no runs\n".to_owned();
    };
    let mut head = format!(
        "{}: {}, {}; fabric {}, device {}\nexecuted by {}",
        first.app,
        results.cells(" x "),
        first.described_steps(),
        first.fabric,
        first.device,
        by_executor(results.runs.iter().map(|run| (run.executor.clone(), run.backend.as_str()))),
    );
    let said = |key| {
        results.runs.iter().filter_map(move |run| Some((run.result.get(key)?.as_str()?.to_owned(), run)))
    };
    let replayed = by_executor(said(REPLAYED_BY).map(|(by, run)| (by, run.backend.as_str())));
    if !replayed.is_empty() {
        head.push_str(&format!("\nreplayed by {replayed}"));
    }
    let chosen: Vec<_> = said(CHOSEN_BACKEND).map(|(backend, run)| (backend, ranks_of(run.ranks))).collect();
    if let Some((_, run)) = said(CHOSEN_BACKEND).next() {
        let chosen = by_executor(chosen.iter().map(|(backend, ranks)| (backend.clone(), ranks.as_str())));
        head.push_str(&format!("\n{} is {chosen}", run.backend));
    }
    let over = match summary.groups.iter().any(|group| group.has_steps) {
        true => format!("over {}, {} (medians)", baseline.describe(), time(baseline.solve_s)),
        false => "none, as no steps were timed".to_owned(),
    };
    let mut foot = format!("{}: {over}.", summary.word());
    if let Some(ns) = baseline.ns_per_cell_step {
        foot.push_str(&format!("\nThat is {} for each {} and step.", time(ns * 1e-9), cell_of(&first.app)));
    }
    let failed = results.runs.iter().filter(|run| run.verified == Some(false));
    let failed = failed.count();
    if failed > 0 {
        foot.push_str(&format!("\nVerification FAILED in {failed} of {} runs.", results.runs.len()));
    }
    format!("{}{}\n{}", filled(&head), rows(&summary), filled(&foot))
}

/// "host (standard), stream (st-send, notified)": who stands between the kernels and the wire, from
/// pairs of an executor and a backend, of which any number may be alike.
pub(crate) fn by_executor<'b>(pairs: impl Iterator<Item = (String, &'b str)>) -> String {
    let mut by_executor: Vec<(String, Vec<&str>)> = Vec::new();
    for (executor, backend) in pairs {
        match by_executor.iter_mut().find(|(known, _)| *known == executor) {
            Some((_, backends)) if backends.contains(&backend) => {}
            Some((_, backends)) => backends.push(backend),
            None => by_executor.push((executor, vec![backend])),
        }
    }
    let entries: Vec<String> = by_executor
        .iter()
        .map(|(executor, backends)| format!("{executor} ({})", backends.join(", ")))
        .collect();
    entries.join(", ")
}

fn rows(summary: &Summary) -> String {
    let mut table = Table::new();
    table.load_style(RULED).set_width(COLUMNS as u16).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        right("ranks"),
        Cell::new("backend"),
        right("solve\nmedian"),
        right("min .. max"),
        right(if summary.is_weak_scaling { "effi-\nciency" } else { "speed-\nup" }),
        right("halo\nshare"),
        right("bytes\nper\nexchange"),
        right("messages\nper\nexchange"),
        Cell::new("veri-\nfied"),
    ]);
    for group in &summary.groups {
        table.add_row([
            right(group.ranks.to_string()),
            Cell::new(&group.backend),
            right(time(group.solve_s.median)),
            right(extremes(&group.solve_s)),
            right(or_dash(group.speedup.map(|s| significant(s.median)))),
            right(or_dash(group.halo_share.map(percent))),
            right(bytes(group.bytes_per_exchange)),
            right(group.messages_per_exchange.to_string()),
            Cell::new(mark(group)),
        ]);
    }
    // A blank separates columns already.
    for column in table.column_iter_mut() {
        column.set_padding((0, 0));
    }
    table.trim_fmt()
}

/// A cell of a column of numbers.
pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

/// Both in the unit of the median, which stands beside them.
fn extremes(spread: &Spread) -> String {
    let (unit, _) = time_unit(spread.median);
    format!("{} .. {}", significant(spread.min / unit), significant(spread.max / unit))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn mark(group: &Group) -> &'static str {
    match group.verification {
        Verification::Passed => "yes",
        Verification::Partly => "partly",
        Verification::Failed => "FAILED",
        Verification::NotDone => "-",
    }
}
