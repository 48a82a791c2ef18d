//! `timeline-BACKEND.svg`: one exchange and the steps up to the next, a row for each lane of each rank.
//!
//! Written node by node rather than with the library of the other plots: a span is a rectangle as exact as the clock,
//! and says what it is when the pointer rests on it.

use std::ops::Range;

use plotters::style::RGBColor;
use streamhalo::comm::timeline::{Activity, Lane};
use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text, Title};

use super::scale::{label, step_for};
use super::style::{FAINT_INK, GRID, INK};
use crate::app::cell_of;
use crate::error::{AppError, ranks_of};
use crate::report::text::joined;
use crate::report::timeline::{ExchangeTimeline, Placed, lane_name, span_name};

const WIDTH: f64 = 1200.0;
/// Where time begins; names of lanes stand to the left.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
/// Title, and what it leaves out.
const HEAD: f64 = 66.0;
const LEGEND_LINE: f64 = 22.0;
const ROW: f64 = 30.0;
/// Between two lanes of a rank, and between two ranks.
const GAPS: [f64; 2] = [6.0, 20.0];
const AXIS: f64 = 50.0;
/// A span is shown however short it is.
const LEAST_WIDTH: f64 = 0.6;
/// By how much what lies within another span is lower on both sides.
const INSET: f64 = 5.0;
/// About the width of a letter of size 12.
const LETTER: f64 = 6.7;

/// What is drawn for one activity: its colour, and that of text on it. Waiting is pale, work is not. Mostly the palette
/// of Okabe and Ito, as in the other plots.
fn colours(activity: Activity) -> (RGBColor, RGBColor) {
    const WHITE: RGBColor = RGBColor(255, 255, 255);
    match activity {
        Activity::Pack => (RGBColor(0, 114, 178), WHITE),
        Activity::Unpack => (RGBColor(86, 180, 233), INK),
        Activity::Copy => (RGBColor(166, 206, 227), INK),
        Activity::Trigger => (RGBColor(213, 94, 0), WHITE),
        Activity::Signal => (RGBColor(230, 159, 0), INK),
        Activity::Deferred => (RGBColor(240, 228, 66), INK),
        Activity::Kernel => (RGBColor(0, 158, 115), WHITE),
        Activity::Function => (RGBColor(204, 121, 167), INK),
        Activity::Enqueue => (RGBColor(110, 110, 110), WHITE),
        Activity::Wait => (RGBColor(226, 226, 226), INK),
        Activity::Synchronize => (RGBColor(204, 196, 184), INK),
        _ => (INK, WHITE),
    }
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Pixels, to a hundredth.
fn px(value: f64) -> String {
    label((value * 100.0).round() / 100.0)
}

/// The text of the file. It names fonts by family only.
///
/// # Errors
///
/// [`AppError::Plot`] where there is nothing to be drawn.
pub fn timeline_svg(timeline: &ExchangeTimeline) -> Result<String, AppError> {
    let (from, to) = timeline.window_ns();
    let shown: Vec<Placed<'_>> =
        timeline.placed().filter(|placed| placed.begin_ns < to && placed.end_ns >= from).collect();
    if shown.is_empty() {
        return Err(AppError::Plot("a timeline without a span that takes any time".to_owned()));
    }
    let is_shown = |activity: &Activity| {
        *activity != Activity::Mark && shown.iter().any(|placed| placed.span.activity == *activity)
    };
    let activities: Vec<Activity> = Activity::ALL.into_iter().filter(is_shown).collect();
    let (legend, legend_height) = legend(&activities);
    let top = HEAD + legend_height;
    let (rows, bottom) = rows(&timeline.lanes(), top);
    let page =
        Page { from, scale: (WIDTH - LEFT - RIGHT) / (to - from).max(1) as f64, to, rows, top, bottom };

    let height = bottom + AXIS;
    let white = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
    let document = Document::new()
        .set("viewBox", format!("0 0 {WIDTH} {}", px(height)))
        .set("width", WIDTH)
        .set("height", px(height))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(white)
        .add(title(timeline))
        .add(legend)
        .add(page.axis())
        .add(page.names())
        .add(page.spans(&shown))
        .add(page.marks(&shown));
    Ok(format!("{document}\n"))
}

fn text(content: impl Into<String>, x: f64, y: f64) -> Text {
    Text::new(content).set("x", px(x)).set("y", px(y)).set("fill", hex(INK))
}

fn title(timeline: &ExchangeTimeline) -> Group {
    let ExchangeTimeline { app, backend, fabric, executor, stream, .. } = timeline;
    let ranks = ranks_of(timeline.ranks.len());
    let (cells, cell) = (joined(&timeline.cells, " × "), cell_of(app));
    let head = format!("{app}, {backend}: one exchange, and the steps up to the next");
    let uncertain = timeline.ranks.iter().map(|rank| rank.clock.uncertainty_ns).max().unwrap_or(0);
    let clocks = match uncertain {
        0 => "one clock".to_owned(),
        ns => format!("clocks of ranks to within {} µs", label(ns as f64 / 1e3)),
    };
    let below = format!(
        "{ranks} over {fabric}, {cells} {cell}s, {stream} stream, messages carried out by: {executor}; {clocks}. \
         Recording takes time of its own, most of all that of short spans."
    );
    Group::new()
        .add(text(head, 24.0, 28.0).set("font-size", 20).set("font-weight", "bold"))
        .add(text(below, 24.0, 50.0).set("fill", hex(FAINT_INK)))
}

/// A swatch for each activity, and how high they are together.
fn legend(activities: &[Activity]) -> (Group, f64) {
    let mut group = Group::new();
    let (mut x, mut y) = (24.0, HEAD);
    for activity in activities {
        let width = 44.0 + LETTER * activity.name().len() as f64;
        if x + width > WIDTH {
            (x, y) = (24.0, y + LEGEND_LINE);
        }
        let (fill, _) = colours(*activity);
        let swatch = Rectangle::new().set("class", "legend").set("x", px(x)).set("y", px(y));
        let swatch = swatch.set("width", 16).set("height", 14).set("fill", hex(fill));
        group = group.add(swatch).add(text(activity.name(), x + 22.0, y + 12.0));
        x += width;
    }
    (group, y + LEGEND_LINE + 12.0 - HEAD)
}

/// Where each lane is, and where the last one ends.
fn rows(lanes: &[(usize, Lane)], top: f64) -> (Vec<Row>, f64) {
    let mut y = top;
    let mut rows: Vec<Row> = Vec::with_capacity(lanes.len());
    for (rank, lane) in lanes {
        if let Some(last) = rows.last() {
            y += ROW + GAPS[usize::from(last.rank != *rank)];
        }
        rows.push(Row { rank: *rank, lane: *lane, y });
    }
    (rows, y + ROW)
}

struct Row {
    rank: usize,
    lane: Lane,
    y: f64,
}

/// Where everything goes.
struct Page {
    /// The window of time, in nanoseconds.
    from: u64,
    to: u64,
    /// Pixels of a nanosecond.
    scale: f64,
    rows: Vec<Row>,
    top: f64,
    bottom: f64,
}

impl Page {
    /// Of a time, which may lie outside of the window.
    fn x(&self, ns: u64) -> f64 {
        LEFT + (ns.clamp(self.from, self.to) - self.from) as f64 * self.scale
    }

    /// Ticks in microseconds from the begin of the window.
    fn axis(&self) -> Group {
        let mut group = Group::new();
        let length_us = (self.to - self.from) as f64 / 1e3;
        let step = step_for(length_us.max(1e-3));
        let mut tick = 0.0;
        while tick <= length_us {
            let x = LEFT + tick * 1e3 * self.scale;
            let line = Line::new().set("x1", px(x)).set("x2", px(x)).set("stroke", hex(GRID));
            group = group.add(line.set("y1", px(self.top - 4.0)).set("y2", px(self.bottom + 6.0)));
            group = group.add(text(label(tick), x, self.bottom + 20.0).set("text-anchor", "middle"));
            tick += step;
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        group.add(text("time in µs", middle, self.bottom + 38.0).set("text-anchor", "middle"))
    }

    /// Of ranks and lanes.
    fn names(&self) -> Group {
        let mut group = Group::new();
        let mut last = None;
        for row in &self.rows {
            let y = row.y + ROW / 2.0 + 4.0;
            if last != Some(row.rank) {
                group = group.add(text(format!("rank {}", row.rank), 24.0, y).set("font-weight", "bold"));
            }
            last = Some(row.rank);
            group = group.add(text(lane_name(row.lane), LEFT - 10.0, y).set("text-anchor", "end"));
            let line = Line::new().set("x1", LEFT).set("x2", WIDTH - RIGHT).set("stroke", hex(GRID));
            group = group.add(line.set("y1", px(row.y + ROW)).set("y2", px(row.y + ROW)));
        }
        group
    }

    /// A rectangle for each span, what lies within another above it.
    fn spans(&self, shown: &[Placed<'_>]) -> Group {
        let mut group = Group::new();
        for row in &self.rows {
            let of_row = |placed: &&Placed<'_>| {
                (placed.rank, placed.span.lane) == (row.rank, row.lane)
                    && placed.span.activity != Activity::Mark
            };
            let mut around: Vec<Range<u64>> = Vec::new();
            for placed in shown.iter().filter(of_row) {
                around.retain(|outer| outer.end > placed.begin_ns && outer.end >= placed.end_ns);
                group = self.span(group, row.y, around.len(), placed);
                around.push(placed.begin_ns..placed.end_ns);
            }
        }
        group
    }

    fn span(&self, group: Group, row_y: f64, depth: usize, placed: &Placed<'_>) -> Group {
        let span = placed.span;
        let (fill, ink) = colours(span.activity);
        let (x, end) = (self.x(placed.begin_ns), self.x(placed.end_ns));
        let inset = INSET * depth.min(2) as f64;
        let (y, height) = (row_y + inset, ROW - 2.0 * inset);
        let name = span_name(span);
        let length_us = label((placed.end_ns - placed.begin_ns) as f64 / 1e3);
        let from_us = label((placed.begin_ns as f64 - self.from as f64) / 1e3);
        let bytes = span.bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
        let about = format!("{name}: {length_us} µs from {from_us} µs{bytes}");
        let rectangle = Rectangle::new()
            .set("class", "span")
            .set("data-activity", span.activity.name())
            .set("x", px(x))
            .set("y", px(y))
            .set("width", px((end - x).max(LEAST_WIDTH)))
            .set("height", px(height))
            .set("fill", hex(fill))
            .add(Title::new(about));
        let group = group.add(rectangle);
        if end - x < LETTER * name.chars().count() as f64 + 8.0 || depth > 0 {
            return group;
        }
        // The pointer passes through to the span.
        let inside = text(name, x + 4.0, row_y + ROW / 2.0 + 4.0).set("fill", hex(ink));
        group.add(inside.set("pointer-events", "none"))
    }

    /// Where a stream comes to a step.
    fn marks(&self, shown: &[Placed<'_>]) -> Group {
        let mut group = Group::new();
        for row in self.rows.iter().filter(|row| row.lane != Lane::Host) {
            let of_row = |placed: &&Placed<'_>| {
                (placed.rank, placed.span.lane) == (row.rank, row.lane)
                    && placed.span.activity == Activity::Mark
            };
            for placed in shown.iter().filter(of_row) {
                let x = self.x(placed.begin_ns);
                let line = Line::new().set("x1", px(x)).set("x2", px(x)).set("stroke", hex(INK));
                let line = line.set("y1", px(row.y - 4.0)).set("y2", px(row.y + ROW + 2.0));
                let line = line.set("stroke-width", 1.5).set("stroke-dasharray", "3 2");
                group = group.add(line.set("class", "mark").add(Title::new(span_name(placed.span))));
            }
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::timeline::tests::invented;
    use roxmltree::{Document, Node};

    fn number(node: &Node<'_, '_>, attribute: &str) -> f64 {
        node.attribute(attribute).expect("is there").parse().expect("is a number")
    }

    #[test]
    fn every_span_of_the_window_is_a_rectangle_in_its_place() {
        let svg = timeline_svg(&invented()).expect("can be drawn");
        let document = Document::parse(&svg).expect("is well-formed");
        let spans: Vec<_> =
            document.descendants().filter(|node| node.attribute("class") == Some("span")).collect();
        // From 40 to 240 ns: the host's call lies before, the second kernel behind.
        let activities: Vec<_> = spans.iter().filter_map(|node| node.attribute("data-activity")).collect();
        assert_eq!(activities, ["wait", "pack", "kernel"].repeat(2));
        let [wait, pack, kernel] = [0, 1, 2].map(|index| &spans[index]);
        let scale = (WIDTH - LEFT - RIGHT) / 200.0;
        for (node, begin, length) in [(wait, 10.0, 90.0), (pack, 20.0, 30.0), (kernel, 100.0, 60.0)] {
            assert!((number(node, "x") - (LEFT + begin * scale)).abs() < 0.02, "{node:?}");
            assert!((number(node, "width") - length * scale).abs() < 0.02, "{node:?}");
        }
        assert!(number(pack, "height") < number(wait, "height"), "what lies within is seen");
        assert_eq!(number(wait, "y"), number(kernel, "y"));
        assert!(number(&spans[3], "y") > number(wait, "y"), "another rank, another row");
        let about = kernel.first_element_child().and_then(|title| title.text());
        assert_eq!(about.map(str::trim), Some("life: 0.06 µs from 0.1 µs"));
        let marks = document.descendants().filter(|node| node.attribute("class") == Some("mark"));
        assert_eq!(marks.count(), 2, "the first step on both ranks; the next one is outside");
    }

    #[test]
    fn what_happens_is_in_the_legend_and_lanes_have_names() {
        let svg = timeline_svg(&invented()).expect("can be drawn");
        let document = Document::parse(&svg).expect("is well-formed");
        let texts: Vec<_> = document.descendants().filter(|node| node.has_tag_name("text")).collect();
        let texts: Vec<_> = texts.iter().filter_map(|node| node.text()).map(str::trim).collect();
        for wanted in ["pack", "wait", "kernel", "rank 0", "rank 1", "host", "stream", "time in µs", "0.1"] {
            assert!(texts.contains(&wanted), "{wanted} in {texts:?}");
        }
        assert!(!texts.contains(&"synchronize"), "nobody does");
        assert!(texts.iter().any(|text| text.contains("to within 0.01 µs")), "{texts:?}");
        let page = number(&document.root_element(), "height");
        let inside = |node: Node<'_, '_>| number(&node, "y") + 8.0 < page && number(&node, "x") < WIDTH;
        assert!(document.descendants().filter(|node| node.has_tag_name("text")).all(inside));
    }

    #[test]
    fn nothing_is_not_drawn() {
        let mut timeline = invented();
        timeline.ranks.clear();
        assert!(matches!(timeline_svg(&timeline), Err(AppError::Plot(_))));
    }
}
