//! Colours and marks of the backends, told apart without colour too.

use plotters::style::RGBColor;

/// Half the extent of a mark in pixels.
const R: i32 = 5;

/// The palette of Okabe and Ito ("Color Universal Design", 2008), which colour-blind readers
/// can tell apart; its yellow is left out, too pale for a line on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

pub(super) const IDEAL: RGBColor = RGBColor(140, 140, 140);
pub(super) const GRID: RGBColor = RGBColor(225, 225, 225);
pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
pub(super) const FAINT_INK: RGBColor = RGBColor(100, 100, 100);

/// A mark's outline in pixels around its point.
type Outline = &'static [(i32, i32)];

const MARKS: [Outline; 6] = [
    // Octagon: a disc of this size.
    &[(-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2)],
    &[(-R + 1, -R + 1), (R - 1, -R + 1), (R - 1, R - 1), (-R + 1, R - 1)],
    &[(0, -R - 1), (R, R - 1), (-R, R - 1)],
    &[(0, -R - 1), (R + 1, 0), (0, R + 1), (-R - 1, 0)],
    &[(-R, -R + 1), (R, -R + 1), (0, R + 1)],
    &[
        (-6, -2),
        (-2, -2),
        (-2, -6),
        (2, -6),
        (2, -2),
        (6, -2),
        (6, 2),
        (2, 2),
        (2, 6),
        (-2, 6),
        (-2, 2),
        (-6, 2),
    ],
];

/// How one backend is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) colour: RGBColor,
    pub(super) mark: Outline,
}

impl Style {
    /// Seven colours and six marks: the pair repeats after 42 backends only.
    pub(super) fn of(index: usize) -> Self {
        Self { colour: COLOURS[index % COLOURS.len()], mark: MARKS[index % MARKS.len()] }
    }
}
