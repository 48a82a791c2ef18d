//! The figures of a measurement over sizes, as a table and as a chart.

use comfy_table::{Cell, ContentArrangement, Table};

use super::NO_GPU;
use crate::bench::figure::Figure;
use crate::bench::loggp::FIT;
use crate::bench::micro::MicroBench;
use crate::bench::what::{Row, Value, What};
use crate::error::ranks_of;
use crate::report::text::{significant, whole_bytes};
use crate::report::wrap::{COLUMNS, filled};
use crate::report::{ChartLine, LineChart, RULED, by_executor, right};

/// A measurement and what came of it.
pub(super) struct View<'f> {
    bench: &'f MicroBench,
    figures: &'f [Figure],
}

/// Why a parameter of the LogGP model is missing.
const NOT_TOLD: &str = "-: these measurements give no value above 0. G needs two sizes from 4 KiB on, and gaps that grow \
                        with them; L needs o and G, and more than 2o in half a round trip.\n";

/// Why the share of a latency is missing.
const NO_SHARE: &str = "-: beside computation the message took no longer than the computation alone, so that its overhead \
                        is too small for these measurements.\n";

/// What to think of figures of a flag.
const FLAG: &str = "`flag` is no message: one cache line, one way.\n";

impl View<'_> {
    pub(super) fn new<'f>(bench: &'f MicroBench, figures: &'f [Figure]) -> View<'f> {
        View { bench, figures }
    }

    fn row(&self) -> &'static Row {
        self.bench.what.row()
    }

    /// The median of a figure, and the values at both ends of its spread; `None` where it cannot be told.
    fn values(&self, figure: &Figure) -> Option<[f64; 3]> {
        self.row().value.of(figure)
    }

    fn point(&self, figure: &Figure) -> usize {
        let varied = self.row().varies.and_then(|name| figure.number(name));
        varied.map_or(figure.bytes, |number| number as usize)
    }

    /// What a contestant did, where it did several things, or how it signalled.
    fn way<'a>(&self, figure: &'a Figure) -> Option<&'a str> {
        let signal = figure.signal.as_deref().filter(|_| self.bench.streams.signals.len() > 1);
        figure.operation.as_deref().or(signal)
    }

    /// What a line of the chart is of.
    fn label(&self, figure: &Figure) -> String {
        let label = self.bench.streams.label(&figure.backend, figure.signal.as_deref());
        if self.is_left_out_of_replays(figure) { format!("{label} (enqueued)") } else { label }
    }

    /// Whether it was to be replayed, and cannot be.
    fn is_left_out_of_replays(&self, figure: &Figure) -> bool {
        self.bench.streams.replay > 0 && figure.replayed.is_none()
    }

    /// Who was enqueued each time where the others are replayed.
    fn enqueued(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for figure in self.varied().filter(|figure| self.is_left_out_of_replays(figure)) {
            let name = format!("`{}`", self.bench.streams.label(&figure.backend, figure.signal.as_deref()));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return String::new();
        }
        format!("Enqueued each time, as it cannot be captured for a replay: {}.\n", names.join(", "))
    }

    /// Where and how it was measured, as far as no column and no line says so.
    fn setting(&self) -> String {
        let MicroBench { what, fabric, ranks, sizes, streams, .. } = self.bench;
        let mut setting = format!("fabric {fabric}, {}", ranks_of(*ranks));
        if let Some(kind) = self.bench.stream_name() {
            setting += &format!(", {kind} streams");
        }
        if let Some(waits) = streams.waits_name() {
            setting += &format!(", waits {waits}");
        }
        if *what == What::Throttle {
            setting += &format!(", puts of {}", whole_bytes(sizes[0] as u64));
        }
        setting
    }

    /// The figures over what is varied.
    fn varied(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.operation.as_deref() != Some(FIT))
    }

    /// Rows of the table: what was done, with how many bytes; in order of their first figure.
    fn rows(&self) -> Vec<(Option<&str>, usize)> {
        let mut rows = Vec::new();
        for figure in self.varied() {
            let row = (self.way(figure), self.point(figure));
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// The contestants that have figures.
    fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        for figure in self.figures {
            if !columns.contains(&figure.backend.as_str()) {
                columns.push(&figure.backend);
            }
        }
        columns
    }

    /// Sizes along one side and contestants along the other, with what they are of.
    pub(super) fn table(&self) -> String {
        let Row { title, value, note, .. } = self.row();
        let mut table = self.cells(" ").trim_fmt();
        if table.lines().any(|line| line.chars().count() > COLUMNS) {
            // The best stands below the median.
            let mut narrow = self.cells("\n");
            narrow.set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS as u16);
            table = narrow.trim_fmt();
        }
        let executors =
            by_executor(self.figures.iter().map(|figure| (figure.executor.clone(), figure.backend.as_str())));
        // What a device carries out itself says so anyway.
        let mut others =
            self.figures.iter().filter(|figure| figure.device.as_ref() != Some(&figure.executor));
        let device = others.find_map(|figure| figure.device.as_ref());
        let device = device.map_or(String::new(), |device| format!(", on {device}"));
        let unit = match value {
            Value::Percent => value.unit().to_owned(),
            _ => format!("{}, median (best)", value.unit()),
        };
        let setting = self.setting();
        let head = format!("{title}: {unit}\n{setting}{device}, executed by {executors}");
        let is_known = self.varied().all(|figure| self.values(figure).is_some());
        let end = format!(
            "{}{note}\n{}{}{}All answers were checked before they were timed.\n{}",
            if is_known { "" } else { NO_SHARE },
            if self.columns().contains(&"flag") { FLAG } else { "" },
            self.chosen(),
            self.enqueued(),
            self.of_no_gpu()
        );
        format!("{}{table}\n{}{}", filled(&head), self.fits(), filled(&end))
    }

    /// The table, with `between` a median and the best.
    fn cells(&self, between: &str) -> Table {
        let (rows, columns) = (self.rows(), self.columns());
        let has_operations = rows.iter().any(|(operation, _)| operation.is_some());
        let mut table = Table::new();
        table.load_style(RULED);
        let ways =
            if self.figures.iter().all(|figure| figure.operation.is_none()) { "signal" } else { "operation" };
        let mut header = if has_operations { vec![Cell::new(ways)] } else { Vec::new() };
        header.push(right(self.row().varies.unwrap_or("size")));
        // Where values are on two lines, names may be too: they would be broken anywhere else.
        let named = |name: &str| match between {
            "\n" => name.replacen('-', "-\n", 1),
            _ => name.to_owned(),
        };
        header.extend(columns.iter().map(|name| right(named(name))));
        table.set_header(header);
        for (operation, point) in rows {
            let mut row =
                if has_operations { vec![Cell::new(named(operation.unwrap_or("")))] } else { Vec::new() };
            row.push(right(match self.row().varies {
                None => whole_bytes(point as u64),
                Some(_) => point.to_string(),
            }));
            for name in &columns {
                let of_cell = |figure: &&Figure| {
                    figure.backend == *name && self.point(figure) == point && self.way(figure) == operation
                };
                let values = self.figures.iter().find(of_cell).and_then(|figure| self.values(figure));
                let text = values.map_or("-".to_owned(), |[median, best, _]| match self.row().value {
                    Value::Percent => format!("{median:.0}"),
                    _ => format!("{}{between}({})", significant(median), significant(best)),
                });
                row.push(right(text));
            }
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((1, 0));
        }
        table
    }

    /// Which backends `auto` was, one after the other as messages become longer.
    fn chosen(&self) -> String {
        let mut chosen: Vec<(String, Vec<(&str, usize)>)> = Vec::new();
        for figure in self.varied() {
            let Some(backend) = figure.chosen_backend.as_deref() else { continue };
            let (name, one) = (self.label(figure), (backend, figure.bytes));
            match chosen.iter_mut().find(|(known, _)| *known == name) {
                Some((_, backends)) => backends.push(one),
                None => chosen.push((name, vec![one])),
            }
        }
        let told = |(name, mut backends): (String, Vec<(&str, usize)>)| {
            backends.sort_by_key(|(_, bytes)| *bytes);
            backends.dedup_by_key(|(backend, _)| *backend);
            let each: Vec<String> = match backends[..] {
                [(backend, _)] => vec![format!("`{backend}`")],
                _ => backends
                    .iter()
                    .map(|(backend, bytes)| format!("`{backend}` from {}", whole_bytes(*bytes as u64)))
                    .collect(),
            };
            format!("`{name}` is {}.\n", each.join(", "))
        };
        chosen.into_iter().map(told).collect()
    }

    /// What to think of figures of a device that computes on the host's cores.
    fn of_no_gpu(&self) -> &'static str {
        let is_none = self.figures.iter().any(|figure| figure.number("is_gpu") == Some(0.0));
        if is_none { NO_GPU } else { "" }
    }

    /// The parameters of a model, of each contestant, if there are any.
    fn fits(&self) -> String {
        let is_fit = |figure: &&Figure| figure.operation.as_deref() == Some(FIT);
        let fits: Vec<&Figure> = self.figures.iter().filter(is_fit).collect();
        if fits.is_empty() {
            return String::new();
        }
        let mut table = Table::new();
        table.load_style(RULED);
        let names = ["L, us", "o, us", "g, us", "G, ns/B"];
        table.set_header(std::iter::once(Cell::new("LogGP")).chain(names.map(right)));
        let mut is_complete = true;
        for fit in fits {
            let values = ["l_us", "o_us", "g_us", "g_ns_per_byte"].map(|name| fit.number(name));
            is_complete &= values.iter().all(Option::is_some);
            let values = values.map(|value| right(value.map_or("-".to_owned(), significant)));
            table.add_row(std::iter::once(Cell::new(&fit.backend)).chain(values));
        }
        table.trim_fmt() + "\n" + &if is_complete { String::new() } else { filled(NOT_TOLD) }
    }

    pub(super) fn chart(&self) -> LineChart {
        let Row { title, value, .. } = self.row();
        let mut lines: Vec<ChartLine> = Vec::new();
        // A barrier has no bytes, and so no place on their axis.
        let has_place = |figure: &&Figure| self.point(figure) > 0;
        let is_complete = self.varied().all(|figure| has_place(&figure));
        for figure in self.varied().filter(has_place) {
            let name = match &figure.operation {
                Some(operation) => format!("{operation}, {}", self.label(figure)),
                None => self.label(figure),
            };
            let point = self.values(figure).map(|values| (self.point(figure) as f64, values));
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.extend(point),
                None => lines.push(ChartLine { name, points: Vec::from_iter(point) }),
            }
        }
        // Sizes may have been asked for in any order.
        lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
        LineChart {
            title: (*title).to_owned(),
            below: format!(
                "{}; {}{}{}",
                self.setting(),
                match value {
                    Value::Percent => "by minima",
                    _ => "medians, whiskers to the best",
                },
                if self.of_no_gpu().is_empty() { "" } else { "; no GPU, but the host's cores" },
                if is_complete { "" } else { "; barriers are in the table" }
            ),
            x: self.row().varies.unwrap_or("bytes").to_owned(),
            in_bytes: self.row().varies.is_none(),
            ticks: Vec::new(),
            y: value.unit().to_owned(),
            from_zero: matches!(value, Value::Percent),
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn share(backend: &str, share: Option<f64>) -> Figure {
        let figure = json!({
            "bench": "overlap", "backend": backend, "fabric": "local", "executor": "host", "ranks": 2, "bytes": 8,
            "median_us": 1.0, "min_us": 1.0, "batches": 5, "repeats_per_batch": 1, "overlap_percent": share,
        });
        serde_json::from_value(figure).expect("is a figure")
    }

    #[test]
    fn a_share_that_cannot_be_told_is_no_number_and_the_reason_stands_below() {
        let bench = MicroBench::of(What::Overlap, &["queue", "put-notify"]);
        let known = [share("queue", Some(0.0)), share("put-notify", Some(40.0))];
        let view = View::new(&bench, &known);
        assert!(!view.table().contains("-:"), "{}", view.table());
        assert_eq!(view.chart().lines.iter().map(|line| line.points.len()).sum::<usize>(), 2);
        assert_eq!(view.chart().below, "fabric local, 2 ranks, inline streams; by minima");
        let unknown = [share("queue", None), share("put-notify", Some(40.0))];
        let view = View::new(&bench, &unknown);
        let table = view.table();
        assert!(table.lines().any(|line| line.split_whitespace().eq(["8", "B", "-", "40"])), "{table}");
        assert!(table.contains("\n-: beside computation the message took no longer"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        assert_eq!(view.chart().lines.iter().map(|line| line.points.len()).collect::<Vec<_>>(), [0, 1]);
    }

    /// On whose axis they would be at zero.
    #[test]
    fn barriers_are_not_drawn_beside_what_has_bytes() {
        let bench = MicroBench::of(What::Collectives, &["host"]);
        let figure = |operation: &str, bytes: usize| {
            let mut figure = share("host", None);
            (figure.bytes, figure.operation) = (bytes, Some(operation.to_owned()));
            figure
        };
        let [barrier, sum] = [figure("barrier", 0), figure("allreduce", 8)];
        let chart = View::new(&bench, &[barrier, sum.clone()]).chart();
        assert_eq!(chart.lines.len(), 1);
        assert!(chart.below.ends_with("; barriers are in the table"), "{}", chart.below);
        let chart = View::new(&bench, &[sum]).chart();
        assert!(!chart.below.contains("barriers"), "{}", chart.below);
    }

    #[test]
    fn what_was_chosen_stands_below_from_size_to_size() {
        let bench = MicroBench::of(What::Pingpong, &["auto", "standard"]);
        let figure = |backend: &str, bytes: usize, chosen: Option<&str>| {
            let mut figure = share(backend, None);
            (figure.bytes, figure.chosen_backend) = (bytes, chosen.map(str::to_owned));
            figure
        };
        let [standard, first] = [figure("standard", 8, None), figure("auto", 8, Some("st-send"))];
        let told = |figures: &[Figure]| View::new(&bench, figures).chosen();
        assert_eq!(told(std::slice::from_ref(&standard)), "");
        let second = figure("auto", 32, Some("st-send"));
        assert_eq!(told(&[first.clone(), standard, second.clone()]), "`auto` is `st-send`.\n");
        let [third, last] = [2048, 4096].map(|bytes| figure("auto", bytes, Some("notified")));
        let all = "`auto` is `st-send` from 8 B, `notified` from 2 KiB.\n";
        let figures = [first, second, third, last];
        assert_eq!(told(&figures), all);
        let reversed: Vec<Figure> = figures.iter().rev().cloned().collect();
        assert_eq!(told(&reversed), all, "in whichever order");
        let chart = View::new(&bench, &reversed).chart();
        assert_eq!(
            chart.lines[0].points.iter().map(|point| point.0).collect::<Vec<_>>(),
            [8.0, 32.0, 2048.0, 4096.0]
        );
    }

    #[test]
    fn what_is_the_same_of_all_figures_is_said_of_all() {
        let mut bench = MicroBench::of(What::Throttle, &["static"]);
        bench.stream = streamhalo::StreamKind::Threaded;
        let said = |bench: &MicroBench| View::new(bench, &[]).setting();
        assert_eq!(said(&bench), "fabric local, 2 ranks, threaded streams, puts of 8 B");
        bench.what = What::Pingpong;
        bench.streams.device = Some("opencl".to_owned());
        bench.streams.signals = vec![streamhalo::Signals::Kernel];
        bench.streams.waits = streamhalo::Waits::Proxy;
        assert_eq!(said(&bench), "fabric local, 2 ranks, waits proxy");
    }

    #[test]
    fn what_is_enqueued_beside_replays_is_named() {
        let mut bench = MicroBench::of(What::Pingpong, &["standard", "st-send"]);
        let mut replayed = share("st-send", None);
        replayed.replayed = Some(4);
        let figures = [share("standard", None), replayed];
        assert_eq!(View::new(&bench, &figures).enqueued(), "", "nothing was to be replayed");
        bench.streams.replay = 4;
        let view = View::new(&bench, &figures);
        assert_eq!(
            view.enqueued(),
            "Enqueued each time, as it cannot be captured for a replay: `standard`.\n"
        );
        assert!(view.table().contains("Enqueued each time"), "{}", view.table());
        assert_eq!(figures.each_ref().map(|figure| view.label(figure)), ["standard (enqueued)", "st-send"]);
    }
}
