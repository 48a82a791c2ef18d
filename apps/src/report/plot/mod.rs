//! Plots: charts of lines ([`lines`]), of which `time.svg` is one ([`time`]), timelines ([`timeline`]), and
//! `speedup.svg`, speed-up against rank count, one line a backend.
//!
//! Positions along x are moved apart by some pixels a backend: at one rank count the
//! whiskers of five backends would otherwise cover each other.

mod lines;
mod scale;
mod style;
mod time;
mod timeline;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use lines::{ChartLine, LineChart, lines_svg};
pub use time::time_svg;
pub use timeline::timeline_svg;

use super::results::{Results, RunRecord};
use super::summary::{Baseline, Group, Summary};
use crate::error::AppError;
use scale::{Axis, Scale, label};
use style::{FAINT_INK, GRID, IDEAL, INK, Style};

const SIZE: (u32, u32) = (880, 540);
const TITLE_HEIGHT: i32 = 70;
/// Where the chart and the text above it begin; labels of the axis stand to the left.
const LEFT: i32 = 80;
/// What stands in the place of a plot of runs whose times are of nothing but the clock.
const NO_TIME: &str = "no steps took any time: there is nothing to show";
/// Pixels between the lines of two backends at one rank count.
const APART: f64 = 7.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Where a position on both axes lies on the page.
type Place<'f> = &'f dyn Fn(f64, f64) -> (i32, i32);
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The text of `speedup.svg`. It names fonts by family only, so it needs none to be made.
///
/// # Errors
///
/// [`AppError::Plot`] where the drawing library refuses.
pub fn speedup_svg(results: &Results) -> Result<String, AppError> {
    drawn(|root| draw(root, results))
}

/// The text of an SVG file, as it was drawn.
fn drawn(draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, AppError> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let done =
        root.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&root)).and_then(|()| Ok(root.present()?));
    done.map_err(|error| AppError::Plot(error.to_string()))?;
    drop(root);
    Ok(svg)
}

/// A page with a sentence, where there is nothing to draw.
fn draw_sentence(root: &Area<'_>, sentence: &str) -> Drawn {
    let centred = text_style(17, &INK).pos(Pos::new(HPos::Center, VPos::Center));
    Ok(root.draw_text(sentence, &centred, (SIZE.0 as i32 / 2, SIZE.1 as i32 / 2))?)
}

fn draw(root: &Area<'_>, results: &Results) -> Drawn {
    let summary = Summary::of(results);
    let timed: Vec<&Group> = summary.groups.iter().filter(|g| g.speedup.is_some()).collect();
    let (Some(first), Some(baseline), false) = (results.runs.first(), &summary.baseline, timed.is_empty())
    else {
        return draw_sentence(root, NO_TIME);
    };
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    let (title, below) = titles(results, first, &timed);
    draw_titles(&head, &title, &below)?;
    let (chart, legend) = beside_legend(&body, summary.backends.iter());
    draw_chart(root, &chart, &timed, &summary, baseline)?;
    draw_legend(&legend, &summary.backends)
}

/// What runs are of, and below it how they were measured.
fn titles(results: &Results, run: &RunRecord, timed: &[&Group]) -> (String, String) {
    let title = format!("{}: {}, fabric {}", run.app, results.cells(" × "), run.fabric);
    let trials = timed.iter().map(|group| group.trials).max().unwrap_or(0);
    let spread = match trials {
        1 => "one trial each".to_owned(),
        _ => format!("medians of {trials} trials, whiskers from min to max"),
    };
    (title, format!("{spread}; {}, device {}", run.described_steps(), run.device))
}

fn draw_titles(area: &Area<'_>, title: &str, below: &str) -> Drawn {
    let bold = ("sans-serif", 23).into_font().style(FontStyle::Bold);
    area.draw_text(title, &bold.color(&INK), (LEFT, 18))?;
    Ok(area.draw_text(below, &text_style(16, &FAINT_INK), (LEFT, 44))?)
}

fn draw_chart(
    root: &Area<'_>,
    area: &Area<'_>,
    timed: &[&Group],
    summary: &Summary,
    baseline: &Baseline,
) -> Drawn {
    let backends = &summary.backends;
    let mut ranks: Vec<usize> = timed.iter().map(|group| group.ranks).collect();
    ranks.dedup();
    let scale = Scale::for_ranks(&ranks);
    let ideal = |count: usize| summary.ideal(count);
    let measured = timed.iter().filter_map(|group| group.speedup);
    let measured = measured.flat_map(|spread| [spread.min, spread.max]);
    let bounds = measured.chain(ranks.iter().map(|count| ideal(*count)));
    let (least, greatest) = bounds
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| (least.min(value), greatest.max(value)));
    let x = Axis::of_ranks(scale, &ranks);
    let y = Axis::of_speedups(scale, least, greatest);

    let format = |position: &f64| label(scale.value(*position));
    let over = format!("{} over {}", summary.word().to_lowercase(), baseline.describe());
    let chart = framed(area, [x.clone(), y], ["ranks", &over], [&format, &format])?;
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    // At one rank count the ideal is a level, drawn across the chart.
    let ideals: Vec<(f64, f64)> = match ranks[..] {
        [only] => [x.range.start, x.range.end].map(|x| (x, ideal(only))).into(),
        _ => ranks.iter().map(|count| (scale.position(*count as f64), ideal(*count))).collect(),
    };
    let ideal_line: Vec<_> = ideals.into_iter().map(|(x, value)| place(x, scale.position(value))).collect();
    root.draw(&PathElement::new(ideal_line, IDEAL))?;
    let apart = pixels_apart(&place, scale, &ranks, backends.len());
    for (index, backend) in backends.iter().enumerate() {
        let shift = ((index as f64 - (backends.len() - 1) as f64 / 2.0) * apart).round() as i32;
        let points: Vec<Point> = timed
            .iter()
            .filter(|group| group.backend == *backend)
            .filter_map(|group| Point::of(group, scale, &place, shift))
            .collect();
        draw_series(root, &points, Style::of(index))?;
    }
    Ok(())
}

/// What is left for a chart beside the legend with these names, and the legend.
fn beside_legend<'a, 'n>(body: &Area<'a>, names: impl Iterator<Item = &'n String>) -> (Area<'a>, Area<'a>) {
    let longest = names.map(|name| name.chars().count()).max();
    body.split_horizontally(SIZE.0 as i32 - 64 - 8 * longest.unwrap_or(0).max(8) as i32)
}

/// A chart with its axes, what is along them, and how positions on them are written.
fn framed<'c, 'a>(
    area: &'c Area<'a>,
    [x, y]: [Axis; 2],
    [along_x, along_y]: [&str; 2],
    [label_x, label_y]: [&dyn Fn(&f64) -> String; 2],
) -> Result<ChartContext<'c, SVGBackend<'a>, Cartesian2d<Axis, Axis>>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(12)
        .margin_right(12)
        .margin_bottom(14)
        .x_label_area_size(46)
        .y_label_area_size(LEFT - 12)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .label_style(text_style(16, &INK))
        .axis_desc_style(text_style(18, &INK))
        .x_desc(along_x)
        .y_desc(along_y)
        .x_label_formatter(label_x)
        .y_label_formatter(label_y)
        .draw()?;
    Ok(chart)
}

/// How far the points of two backends are moved apart: a little, less where rank counts
/// stand close, and far where there is but one rank count and all of the width is free.
fn pixels_apart(place: Place<'_>, scale: Scale, ranks: &[usize], backends: usize) -> f64 {
    let pixel = |count: &usize| f64::from(place(scale.position(*count as f64), 0.0).0);
    let gaps = ranks.windows(2).map(|pair| pixel(&pair[1]) - pixel(&pair[0]));
    let narrowest = gaps.fold(f64::INFINITY, f64::min);
    match narrowest.is_finite() {
        true => APART.min(0.4 * narrowest / backends as f64),
        false => 60.0_f64.min(500.0 / backends as f64),
    }
}

/// A group on the page: its median and its extremes.
struct Point {
    x: i32,
    median: i32,
    min: i32,
    max: i32,
}

impl Point {
    fn of(group: &Group, scale: Scale, place: Place<'_>, shift: i32) -> Option<Self> {
        let speedup = group.speedup?;
        let x = scale.position(group.ranks as f64);
        let y = |value| place(x, scale.position(value)).1;
        Some(Self {
            x: place(x, 0.0).0 + shift,
            median: y(speedup.median),
            min: y(speedup.min),
            max: y(speedup.max),
        })
    }
}

fn draw_series(root: &Area<'_>, points: &[Point], style: Style) -> Drawn {
    let line: Vec<_> = points.iter().map(|point| (point.x, point.median)).collect();
    if line.len() > 1 {
        root.draw(&PathElement::new(line, style.colour.stroke_width(2)))?;
    }
    for point in points {
        // The page grows downwards: the maximum is the smaller coordinate.
        let stem = [(point.x, point.max), (point.x + 1, point.min)];
        root.draw(&Rectangle::new(stem, style.colour.filled()))?;
        for end in [point.max, point.min] {
            let cap = [(point.x - 3, end), (point.x + 4, end + 1)];
            root.draw(&Rectangle::new(cap, style.colour.filled()))?;
        }
        let outline = style.mark.iter();
        let outline = outline.map(|(dx, dy)| (point.x + dx, point.median + dy));
        root.draw(&Polygon::new(outline.collect::<Vec<_>>(), style.colour))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, backends: &[String]) -> Drawn {
    for (index, backend) in backends.iter().enumerate() {
        draw_entry(area, index, backend)?;
    }
    let (x, y) = place_of_entry(backends.len());
    area.draw(&Rectangle::new([(x - 15, y), (x + 15, y + 1)], IDEAL.filled()))?;
    draw_name(area, "ideal", (x, y))
}

/// Of that number, in a legend.
fn place_of_entry(index: usize) -> (i32, i32) {
    (24, 24 + 26 * index as i32)
}

/// How the line of that number is drawn, and its name.
fn draw_entry(area: &Area<'_>, index: usize, name: &str) -> Drawn {
    let (style, (x, y)) = (Style::of(index), place_of_entry(index));
    let swatch = [(x - 15, y - 1), (x + 15, y + 1)];
    area.draw(&Rectangle::new(swatch, style.colour.filled()))?;
    let outline = style.mark.iter().map(|(dx, dy)| (x + dx, y + dy));
    area.draw(&Polygon::new(outline.collect::<Vec<_>>(), style.colour))?;
    draw_name(area, name, (x, y))
}

fn draw_name(area: &Area<'_>, name: &str, (x, y): (i32, i32)) -> Drawn {
    let left = text_style(17, &INK).pos(Pos::new(HPos::Left, VPos::Center));
    Ok(area.draw_text(name, &left, (x + 24, y))?)
}

/// The library draws a size of 124 as 100 pixels.
fn text_style<'a>(size: u32, colour: &'a RGBColor) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(colour)
}
