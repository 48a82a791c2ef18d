//! A chart of one line for each of several contestants, over sizes or numbers.

use super::scale::{Axis, Scale, label};
use super::style::Style;
use super::{
    Area, Drawn, Point, TITLE_HEIGHT, beside_legend, draw_entry, draw_sentence, draw_series, draw_titles,
    drawn, framed,
};
use crate::error::AppError;
use crate::report::text;

/// What a chart of lines shows.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// What it is about.
    pub title: String,
    /// What the title leaves out.
    pub below: String,
    /// What is along x.
    pub x: String,
    /// Whether that is bytes.
    pub in_bytes: bool,
    /// Where along x there are ticks, from the least on. Without any they are at powers of 2.
    pub ticks: Vec<usize>,
    /// What is along y.
    pub y: String,
    /// Whether y begins at 0, and is not logarithmic.
    pub from_zero: bool,
    /// The lines, in the order of the legend.
    pub lines: Vec<ChartLine>,
}

/// A line of a chart.
#[derive(Clone, Debug, Default)]
pub struct ChartLine {
    /// Whose it is.
    pub name: String,
    /// Its points: where along x, then the median, and both ends of a whisker.
    pub points: Vec<(f64, [f64; 3])>,
}

/// The text of an SVG file. It names fonts by family only, so it needs none to be made.
///
/// # Errors
///
/// [`AppError::Plot`] where the drawing library refuses.
pub fn lines_svg(chart: &LineChart) -> Result<String, AppError> {
    drawn(|root| draw(root, chart))
}

fn draw(root: &Area<'_>, chart: &LineChart) -> Drawn {
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    draw_titles(&head, &chart.title, &chart.below)?;
    // What is not above 0 has no place on a logarithmic axis.
    let is_shown = |(x, [median, ..]): &&(f64, [f64; 3])| *x > 0.0 && (chart.from_zero || *median > 0.0);
    let shown: Vec<_> = chart.lines.iter().flat_map(|line| line.points.iter().filter(is_shown)).collect();
    if shown.is_empty() {
        return draw_sentence(root, "nothing that was measured has a place on these axes");
    }
    let (area, legend) = beside_legend(&body, chart.lines.iter().map(|line| &line.name));

    let extremes = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)))
    };
    let xs = extremes(&mut shown.iter().map(|(x, _)| *x));
    let positive = |value: &f64| chart.from_zero || *value > 0.0;
    let (least, greatest) = extremes(&mut shown.iter().flat_map(|(_, values)| *values).filter(positive));
    let x_axis = match &chart.ticks[..] {
        [] => Axis::of_powers(xs),
        ticks => Axis::of_ranks(Scale::Log2, ticks),
    };
    let scale = if chart.from_zero { Scale::Linear } else { Scale::Log2 };
    let y_axis = Axis::of_values(scale, least, greatest);
    let along_x = |position: &f64| {
        let value = position.exp2();
        if chart.in_bytes { text::whole_bytes(value.round() as u64) } else { label(value) }
    };
    let along_y = |position: &f64| label(scale.value(*position));
    let axes = [x_axis, y_axis.clone()];
    let built = framed(&area, axes, [&chart.x, &chart.y], [&along_x, &along_y])?;
    for (index, line) in chart.lines.iter().enumerate() {
        let place = |x: f64, y: f64| {
            let y = if y > 0.0 || chart.from_zero { scale.position(y) } else { y_axis.range.start };
            built.backend_coord(&(x.log2(), y))
        };
        let points: Vec<Point> = line
            .points
            .iter()
            .filter(is_shown)
            .map(|(x, [median, min, max])| Point {
                x: place(*x, *median).0,
                median: place(*x, *median).1,
                min: place(*x, *min).1,
                max: place(*x, *max).1,
            })
            .collect();
        draw_series(root, &points, Style::of(index))?;
        draw_entry(&legend, index, &line.name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, [f64; 3])>) -> LineChart {
        let line = ChartLine { name: "st-send".to_owned(), points };
        LineChart { title: "t < u".to_owned(), in_bytes: true, lines: vec![line], ..LineChart::default() }
    }

    #[test]
    fn every_point_is_drawn_and_labels_are_sizes() {
        let points = (3..=22).map(|power| {
            let bytes = f64::from(1 << power);
            (bytes, [0.1 + bytes / 1e4, 0.1 + bytes / 2e4, 0.1 + bytes / 1e4])
        });
        let svg = lines_svg(&chart(points.collect())).expect("can be drawn");
        // The marks of the points, and that of the legend.
        assert_eq!(svg.matches("<polygon").count(), 21);
        for part in ["t &lt; u", "st-send", "32 KiB", "<polyline"] {
            assert!(svg.contains(part), "no {part}:\n{svg}");
        }
    }

    #[test]
    fn charts_without_points_and_with_one_can_be_drawn() {
        assert!(lines_svg(&chart(Vec::new())).expect("can be drawn").contains("nothing that was measured"));
        assert!(lines_svg(&chart(vec![(8.0, [1.0; 3])])).expect("can be drawn").contains("<polygon"));
        let share = LineChart { from_zero: true, ..chart(vec![(8.0, [0.0; 3]), (16.0, [40.0, 30.0, 50.0])]) };
        assert_eq!(lines_svg(&share).expect("can be drawn").matches("<polygon").count(), 3);
    }
}
