//! What a rank reports about its owned cells, such that the parts of all ranks add up to the same
//! value whatever the decomposition.

use std::fmt;

use crate::app::mix;

/// A sum, modulo 2⁶⁴, of one hash of (global y, global x) per live cell.
///
/// A sum does not depend on order, so each rank takes its own rows, in any cut, and the partial
/// values are added by a wrapping integer reduction over [`Checksum::value`]. Shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds the cells of global row `y` from global column `x_start` on.
    ///
    /// A cell counts as often as its value says, so that a cell which is neither 0 nor 1 changes
    /// the sum too.
    pub(crate) fn add_row(&mut self, y: usize, x_start: usize, cells: &[u8]) {
        let row_key = mix(y as u64);
        let mut add = |x: usize, value: u8| {
            let hash = mix(row_key ^ x as u64);
            self.0 = self.0.wrapping_add(hash.wrapping_mul(u64::from(value)));
        };
        // Most cells are dead after some hundred generations: eight of them cost one comparison.
        let (words, rest) = cells.as_chunks::<8>();
        for (word, values) in words.iter().enumerate() {
            if *values == [0; 8] {
                continue;
            }
            for (byte, &value) in values.iter().enumerate() {
                add(x_start + 8 * word + byte, value);
            }
        }
        for (byte, &value) in rest.iter().enumerate() {
            add(x_start + 8 * words.len() + byte, value);
        }
    }

    /// The number, for a reduction over ranks.
    #[must_use]
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

impl From<u64> for Checksum {
    fn from(value: u64) -> Self {
        Checksum(value)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of live cells in a row whose cells are all 0 or 1.
#[must_use]
pub(crate) fn population(cells: &[u8]) -> u64 {
    // Sums of 255 cells fit a byte, which keeps the inner loop in byte lanes.
    cells.chunks(255).map(|chunk| u64::from(chunk.iter().sum::<u8>())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(width: usize, cells: &[u8]) -> Checksum {
        let mut sum = Checksum::default();
        for (y, row) in cells.chunks(width).enumerate() {
            sum.add_row(y, 0, row);
        }
        sum
    }

    #[test]
    fn is_shown_as_sixteen_digits() {
        assert_eq!(Checksum::from(0xabc).to_string(), "0000000000000abc");
        assert_eq!(Checksum::default().to_string(), "0000000000000000");
    }

    /// Two ranks of a reduction see the value, not the type.
    #[test]
    fn is_one_hash_per_live_cell() {
        let mut sum = Checksum::default();
        sum.add_row(7, 100, &[0, 0, 1, 0]);
        assert_eq!(sum.value(), mix(mix(7) ^ 102));
    }

    #[test]
    fn sees_a_cell_that_is_neither_dead_nor_alive() {
        let (mut one, mut two) = (Checksum::default(), Checksum::default());
        one.add_row(0, 0, &[1]);
        two.add_row(0, 0, &[2]);
        assert_ne!(one, two);
    }

    #[test]
    fn counts_rows_longer_than_a_byte_can_count() {
        for length in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(population(&vec![1; length]), length as u64);
        }
    }

    proptest! {
        #[test]
        fn does_not_depend_on_the_decomposition(
            (width, cells, cut_y, cut_x) in (1usize..60, 1usize..20).prop_flat_map(|(width, height)| (
                Just(width),
                prop::collection::vec(0u8..2, width * height),
                0..=height,
                0..=width,
            ))
        ) {
            let mut parts = [Checksum::default(); 4];
            for (y, row) in cells.chunks(width).enumerate() {
                let half = 2 * usize::from(y >= cut_y);
                parts[half].add_row(y, 0, &row[..cut_x]);
                parts[half + 1].add_row(y, cut_x, &row[cut_x..]);
            }
            let sum = parts.iter().fold(0_u64, |sum, part| sum.wrapping_add(part.value()));
            prop_assert_eq!(sum, whole(width, &cells).value());
        }

        #[test]
        fn a_moved_cell_changes_it(width in 2usize..50, from in 0usize..500, to in 0usize..500) {
            prop_assume!(from != to);
            let mut cells = vec![0; 512 * width];
            cells[from] = 1;
            let before = whole(width, &cells);
            cells[from] = 0;
            cells[to] = 1;
            prop_assert_ne!(before, whole(width, &cells));
        }
    }
}
