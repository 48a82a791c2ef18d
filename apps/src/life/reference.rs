//! An independent and simple Game of Life on the whole grid, to verify the distributed one against.
//!
//! It shares nothing with the kernel: no ghosts, no rows and no lanes. Every live cell tells its
//! eight neighbours that it lives, with indices taken modulo the grid, and the rule is then read off
//! the counts. It costs a few nanoseconds per live cell and neighbour, and nothing for empty space.

use super::checksum::Checksum;

/// A whole grid of Life cells, and what one generation needs.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    height: usize,
    width: usize,
    periodic: [bool; 2],
    cells: Vec<u8>,
    /// Indices into `cells` of those that live, in no particular order.
    live: Vec<usize>,
    /// Live neighbours of each cell; all zero between two steps.
    counts: Vec<u8>,
}

impl Reference {
    /// A grid of `cells` (0 or 1, row by row, `height * width` of them), periodic or not along
    /// y and x. Cells beyond a boundary that is not periodic are dead for ever.
    ///
    /// # Panics
    ///
    /// If `cells` has another length, or a cell is neither 0 nor 1.
    #[must_use]
    pub(crate) fn new(height: usize, width: usize, cells: Vec<u8>, periodic: [bool; 2]) -> Reference {
        assert_eq!(cells.len(), height * width, "a grid of {height} x {width} cells");
        assert!(cells.iter().all(|&cell| cell <= 1), "cells are 0 or 1");
        let live = (0..cells.len()).filter(|&index| cells[index] == 1).collect();
        let counts = vec![0; cells.len()];
        Reference { height, width, periodic, cells, live, counts }
    }

    /// Advances by one generation.
    pub(crate) fn step(&mut self) {
        let mut touched = Vec::with_capacity(4 * self.live.len());
        for &index in &self.live {
            let (y, x) = (index / self.width, index % self.width);
            for step_y in [-1, 0, 1] {
                let Some(y) = neighbour(y, step_y, self.height, self.periodic[0]) else {
                    continue;
                };
                for step_x in [-1, 0, 1] {
                    if (step_y, step_x) == (0, 0) {
                        continue;
                    }
                    let Some(x) = neighbour(x, step_x, self.width, self.periodic[1]) else {
                        continue;
                    };
                    let index = y * self.width + x;
                    if self.counts[index] == 0 {
                        touched.push(index);
                    }
                    self.counts[index] += 1;
                }
            }
        }
        // A cell that nobody touched has no live neighbour and is dead in the next generation.
        touched.retain(|&index| {
            let count = std::mem::take(&mut self.counts[index]);
            count == 3 || (count == 2 && self.cells[index] == 1)
        });
        for &index in &self.live {
            self.cells[index] = 0;
        }
        for &index in &touched {
            self.cells[index] = 1;
        }
        self.live = touched;
    }

    /// The cells, row by row.
    #[must_use]
    pub(crate) fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// The cells of one row.
    #[must_use]
    pub(crate) fn row(&self, y: usize) -> &[u8] {
        &self.cells[y * self.width..][..self.width]
    }

    /// The number of live cells.
    #[must_use]
    pub(crate) fn population(&self) -> u64 {
        self.live.len() as u64
    }

    /// The checksum of the whole grid, to compare with the sum over all ranks.
    #[must_use]
    pub(crate) fn checksum(&self) -> Checksum {
        let mut sum = Checksum::default();
        for y in 0..self.height {
            sum.add_row(y, 0, self.row(y));
        }
        sum
    }
}

/// The index one `step` (-1, 0 or 1) away on an axis of `extent` cells, if there is a cell.
fn neighbour(index: usize, step: isize, extent: usize, periodic: bool) -> Option<usize> {
    match index.checked_add_signed(step) {
        Some(inside) if inside < extent => Some(inside),
        _ if !periodic => None,
        Some(_) => Some(0),
        None => Some(extent - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: &[&str], periodic: [bool; 2]) -> Reference {
        let cells = rows.concat().bytes().map(|byte| u8::from(byte == b'o')).collect();
        Reference::new(rows.len(), rows[0].len(), cells, periodic)
    }

    fn shown(reference: &Reference) -> Vec<String> {
        let symbol = |&cell: &u8| if cell == 1 { 'o' } else { '.' };
        (0..reference.height).map(|y| reference.row(y).iter().map(symbol).collect()).collect()
    }

    #[test]
    fn blinker_turns_and_turns_back() {
        let mut blinker = grid(&[".....", "..o..", "..o..", "..o..", "....."], [false; 2]);
        blinker.step();
        assert_eq!(shown(&blinker), [".....", ".....", ".ooo.", ".....", "....."]);
        blinker.step();
        assert_eq!(shown(&blinker), [".....", "..o..", "..o..", "..o..", "....."]);
    }

    #[test]
    fn block_across_the_corner_of_a_torus_is_still() {
        let corners = ["o..o", "....", "....", "o..o"];
        let mut block = grid(&corners, [true; 2]);
        block.step();
        assert_eq!(shown(&block), corners);
    }

    #[test]
    fn block_cut_by_one_boundary_that_is_not_periodic_dies() {
        for periodic in [[false, true], [true, false], [false, false]] {
            let mut block = grid(&["o..o", "....", "....", "o..o"], periodic);
            block.step();
            assert_eq!(block.population(), 0, "periodic: {periodic:?}");
        }
    }

    /// On a torus one cell thick a cell is its own neighbour, once per direction that leads to it.
    #[test]
    fn thin_tori_count_a_neighbour_once_per_direction() {
        let mut alone = grid(&["o"], [true; 2]);
        alone.step();
        assert_eq!(alone.population(), 0, "8 neighbours: dies");
        // Every cell of the row has three times the row's three cells, less itself, around it.
        let mut row = grid(&["o...."], [true; 2]);
        row.step();
        assert_eq!(shown(&row), ["oo..o"], "2 for the cell itself, 3 for its neighbours");
    }

    #[test]
    #[should_panic(expected = "cells are 0 or 1")]
    fn refuses_other_values() {
        let _ = Reference::new(1, 1, vec![2], [true; 2]);
    }
}
