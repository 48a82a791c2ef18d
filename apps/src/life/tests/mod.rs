//! The kernel against the reference, and both against the published histories of famous patterns.

use std::path::PathBuf;

use fearless_simd::Level;

use super::checksum::{Checksum, population};
use super::kernel::{Cell, Sweep, Task, sweep_rows};
use super::pattern::Initial;
use crate::app::levels;
use crate::config;

mod device;
mod exchange;
mod histories;
mod kernel;
mod sweeps;

/// The folder of this application's configurations.
pub(super) fn config_dir() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "configs", "life"].iter().collect()
}

/// A whole grid for the kernel: rows with one ghost on each side, filled before every step by
/// copying, or left dead where an axis is not periodic.
struct Padded<T> {
    height: usize,
    width: usize,
    periodic: [bool; 2],
    level: Level,
    now: Vec<T>,
    next: Vec<T>,
}

impl<T: Cell> Padded<T> {
    fn new(height: usize, width: usize, cells: &[u8], periodic: [bool; 2]) -> Self {
        let empty = vec![T::default(); (height + 2) * (width + 2)];
        let level = Level::new();
        let mut grid = Padded { height, width, periodic, level, now: empty.clone(), next: empty };
        for (y, row) in cells.chunks(width).enumerate() {
            let start = (y + 1) * (width + 2) + 1;
            grid.now[start..].iter_mut().zip(row).for_each(|(cell, byte)| *cell = T::from(*byte));
        }
        grid
    }

    fn fill_ghosts(&mut self) {
        let (height, stride) = (self.height, self.width + 2);
        if self.periodic[1] {
            for row in self.now.chunks_exact_mut(stride) {
                (row[0], row[stride - 1]) = (row[stride - 2], row[1]);
            }
        }
        // After x, so that rows bring their corners along.
        if self.periodic[0] {
            self.now.copy_within(height * stride..(height + 1) * stride, 0);
            self.now.copy_within(stride..2 * stride, (height + 1) * stride);
        }
    }

    fn step(&mut self) {
        self.fill_ghosts();
        self.advance();
    }

    /// The kernel alone, on ghosts that are there.
    fn advance(&mut self) {
        let (height, stride) = (self.height, self.width + 2);
        let next = self.next.chunks_exact_mut(stride).skip(1).take(height);
        let (now, next) = (self.now.chunks_exact(stride), next.map(|row| &mut row[1..stride - 1]));
        let task = Task { level: self.level, is_past: false, extents: [height, self.width], now, next };
        sweep_rows(Sweep::ONE, task);
        std::mem::swap(&mut self.now, &mut self.next);
    }

    fn row(&self, y: usize) -> impl Iterator<Item = u8> {
        self.now[(y + 1) * (self.width + 2) + 1..][..self.width].iter().map(|cell| cell.to_byte())
    }

    fn cells(&self) -> Vec<u8> {
        (0..self.height).flat_map(|y| self.row(y)).collect()
    }

    /// Row by row, for large grids are counted in every generation.
    fn population(&self) -> u64 {
        let mut row = vec![0; self.width];
        let of_row = |y| {
            row.iter_mut().zip(self.row(y)).for_each(|(to, cell)| *to = cell);
            population(&row)
        };
        (0..self.height).map(of_row).sum()
    }

    fn checksum(&self) -> Checksum {
        let mut sum = Checksum::default();
        for (y, row) in self.cells().chunks_exact(self.width).enumerate() {
            sum.add_row(y, 0, row);
        }
        sum
    }
}

/// What a configuration of this application calls `asked`.
pub(super) fn initial(asked: &str) -> Initial {
    let named = match config::Pattern::try_from(asked.to_owned()).unwrap() {
        config::Pattern::File(path) => config::Pattern::File(config_dir().join(path)),
        generated => generated,
    };
    Initial::open(&named, [usize::MAX; 2]).unwrap()
}

/// The cells of an initial state on a torus, row by row.
fn cells_of(asked: &str, cells: [usize; 2]) -> Vec<u8> {
    let generation = initial(asked).place(cells, [true; 2], None).unwrap();
    let mut grid = vec![0; cells[0] * cells[1]];
    for (y, row) in grid.chunks_mut(cells[1]).enumerate() {
        generation.fill_row(y, 0, row);
    }
    grid
}
