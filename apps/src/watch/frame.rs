//! What a frame looks like: dots, and a line that says what they are.
//!
//! A grid that fits is shown cell by cell, two of them above each other in a character; a larger one in the
//! eight dots of Braille characters, each of which may stand for a block of cells.

use super::Size;
use crate::pictures::Mosaic;

/// How a grid is drawn in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Canvas {
    pub(super) mosaic: Mosaic,
    size: Size,
    dots: Dots,
}

/// The dots of one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dots {
    /// Two, above each other.
    Halves,
    /// Four rows of two.
    Braille,
}

impl Canvas {
    /// For a grid with so many cells, in a terminal whose last line is for what is said about it.
    pub(super) fn new(cells: [usize; 3], size: Size) -> Self {
        let room = |dots: [usize; 2]| [dots[0] * (size.rows - 1), dots[1] * size.columns];
        let whole = Mosaic::fitting(cells, room([2, 1]));
        match whole.side {
            1 => Self { mosaic: whole, size, dots: Dots::Halves },
            _ => Self { mosaic: Mosaic::fitting(cells, room([4, 2])), size, dots: Dots::Braille },
        }
    }

    /// A frame: lines of dots, and the last one says `said`. `live` has the live cells of each block, row-major.
    pub(super) fn frame(&self, live: &[f64], said: &str) -> String {
        let [height, width] = self.mosaic.extents();
        let lit = self.lit(live);
        let is_lit = |y: usize, x: usize| y < height && x < width && lit[y * width + x];
        let [rows, columns] = match self.dots {
            Dots::Halves => [2, 1],
            Dots::Braille => [4, 2],
        };
        let mut frame = String::new();
        for y in (0..height).step_by(rows) {
            let line = (0..width).step_by(columns).map(|x| match self.dots {
                Dots::Halves => half(is_lit(y, x), is_lit(y + 1, x)),
                Dots::Braille => braille(|row, column| is_lit(y + row, x + column)),
            });
            frame.extend(line);
            frame.push('\n');
        }
        frame.extend(said.chars().take(self.size.columns));
        frame
    }

    /// Which dots are lit. Of a block those with at least as many live cells as blocks have on average: a lonely
    /// glider is seen on a large grid, and so is where a dense one is denser.
    fn lit(&self, live: &[f64]) -> Vec<bool> {
        let all_cells = self.mosaic.cells_of_blocks().sum::<usize>() as f64;
        let all_live = live.iter().sum::<f64>();
        let blocks = live.iter().zip(self.mosaic.cells_of_blocks());
        // Two products that are equal are rounded alike, as a quotient and what it is of are not.
        blocks.map(|(live, cells)| *live > 0.0 && *live * all_cells >= all_live * cells as f64).collect()
    }
}

fn half(upper: bool, lower: bool) -> char {
    match (upper, lower) {
        (false, false) => ' ',
        (true, false) => '▀',
        (false, true) => '▄',
        (true, true) => '█',
    }
}

/// A character of the Unicode block "Braille Patterns", whose bits count down the columns, the fourth row last.
fn braille(is_lit: impl Fn(usize, usize) -> bool) -> char {
    const BITS: [[u32; 2]; 4] = [[0, 3], [1, 4], [2, 5], [6, 7]];
    let bit = |row: usize, column: usize| u32::from(is_lit(row, column)) << BITS[row][column];
    let bits: u32 = (0..4).flat_map(|row| [bit(row, 0), bit(row, 1)]).sum();
    char::from_u32(0x2800 + bits).expect("the block has 256 characters")
}
