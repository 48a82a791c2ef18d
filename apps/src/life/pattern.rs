//! Generation 0 as a function of global coordinates, so that every rank fills only its own cells
//! and the decomposition changes none of them.
//!
//! An [`Initial`] is what the configuration names, and no larger than the grid; [`Initial::place`] checks
//! where it lies there and gives the [`Generation`] that fills rows and boxes.

use crate::config;

use super::checksum::Checksum;
use super::rle::{Pattern, ReadError};
use crate::app::mix;

#[cfg(test)]
mod tests;

/// Side of the block that holds one glider of `glider-field`, in cells.
const GLIDER_BLOCK_CELLS: usize = 8;

/// The block, a row per byte, column x in bit x: a glider that moves towards high y and high x.
const GLIDER_BLOCK: [u8; GLIDER_BLOCK_CELLS] =
    [0b0000_0000, 0b0000_0100, 0b0000_1000, 0b0000_1110, 0, 0, 0, 0];

/// The initial state that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Initial {
    /// A pattern from a file, once on the grid.
    File(Pattern),
    /// One glider in every block of 8 x 8 cells, the workload of the 2026 paper. On a torus every
    /// generation has the same population, and every 32nd is the first one again.
    GliderField,
    /// Every cell lives with probability 1/2.
    Random {
        /// Another seed gives other cells.
        seed: u64,
    },
}

/// Why there is no such initial state, or not on this grid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what the messages say")]
pub enum InitialError {
    #[error(transparent)]
    File(#[from] ReadError),
    #[error(
        "glider-field needs multiples of {GLIDER_BLOCK_CELLS} cells on both axes, \
         the grid has {} x {}",
        grid[0], grid[1]
    )]
    NotInBlocks { grid: [usize; 2] },
    #[error("the origin [{}, {}] is outside of the grid of {} x {} cells", origin[0], origin[1], grid[0], grid[1])]
    OriginOutside { origin: [usize; 2], grid: [usize; 2] },
    #[error(
        "from the origin {origin} the pattern's {extent} cells reach beyond the grid's {cells} on \
         axis {axis}, which is not periodic: use an origin of at most {}",
        cells - extent
    )]
    CrossesBoundary { axis: usize, origin: usize, extent: usize, cells: usize },
    #[error("an origin is for patterns from a file: {initial} has none")]
    OriginOfNothing { initial: &'static str },
}

impl Initial {
    /// What the configuration names for a grid of `cells` (y, x), read from its file if it has one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a pattern, or has one that does not fit the grid.
    pub(crate) fn open(named: &config::Pattern, cells: [usize; 2]) -> Result<Initial, InitialError> {
        Ok(match named {
            config::Pattern::File(path) => Initial::File(Pattern::read(path, cells)?),
            config::Pattern::GliderField => Initial::GliderField,
            config::Pattern::Random(seed) => Initial::Random { seed: *seed },
        })
    }

    /// Puts this state on the grid of `cells` (y, x) that it was opened for.
    ///
    /// A pattern's box has its low corner at `origin` (y, x) and wraps around periodic axes;
    /// without an origin its middle is the middle of the grid, so that it straddles the boundaries
    /// between ranks.
    ///
    /// # Errors
    ///
    /// If it cannot lie there.
    pub(crate) fn place(
        self,
        cells: [usize; 2],
        periodic: [bool; 2],
        origin: Option<[usize; 2]>,
    ) -> Result<Generation, InitialError> {
        if let (Some(_), Some(initial)) = (origin, self.word()) {
            return Err(InitialError::OriginOfNothing { initial });
        }
        let state = match self {
            Initial::File(pattern) => State::Listed(placed(&pattern, cells, periodic, origin)?),
            Initial::GliderField if cells.iter().any(|extent| extent % GLIDER_BLOCK_CELLS != 0) => {
                return Err(InitialError::NotInBlocks { grid: cells });
            }
            Initial::GliderField => State::GliderField,
            Initial::Random { seed } => State::Random { seed },
        };
        Ok(Generation { cells, state })
    }

    /// The configuration's word, where it names no file.
    fn word(&self) -> Option<&'static str> {
        match self {
            Initial::File(_) => None,
            Initial::GliderField => Some("glider-field"),
            Initial::Random { .. } => Some("random"),
        }
    }
}

/// The live cells of a pattern in global coordinates, sorted.
fn placed(
    pattern: &Pattern,
    cells: [usize; 2],
    periodic: [bool; 2],
    origin: Option<[usize; 2]>,
) -> Result<Vec<(usize, usize)>, InitialError> {
    let extents = [pattern.height, pattern.width];
    let origin = origin.unwrap_or_else(|| [0, 1].map(|axis| (cells[axis] - extents[axis]) / 2));
    for axis in [0, 1] {
        // A pattern without cells fits a grid without cells.
        if origin[axis] >= cells[axis].max(1) {
            return Err(InitialError::OriginOutside { origin, grid: cells });
        }
        if !periodic[axis] && origin[axis] + extents[axis] > cells[axis] {
            return Err(InitialError::CrossesBoundary {
                axis,
                origin: origin[axis],
                extent: extents[axis],
                cells: cells[axis],
            });
        }
    }
    let wrapped = |&(y, x): &(usize, usize)| ((origin[0] + y) % cells[0], (origin[1] + x) % cells[1]);
    let mut live: Vec<_> = pattern.cells.iter().map(wrapped).collect();
    live.sort_unstable();
    Ok(live)
}

/// The first generation on a grid: which of its cells live.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    cells: [usize; 2],
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Live cells as global (y, x), sorted.
    Listed(Vec<(usize, usize)>),
    GliderField,
    Random {
        seed: u64,
    },
}

impl Generation {
    /// What tells it from others on the same grid: its word in a configuration, or what a file has put there.
    pub(crate) fn identity(&self) -> String {
        match &self.state {
            State::Listed(live) => {
                let mut checksum = Checksum::default();
                live.iter().for_each(|&(y, x)| checksum.add_row(y, x, &[1]));
                let count = live.len();
                format!("a file and an origin with {count} live cells, checksum {checksum}")
            }
            State::GliderField => "glider-field".to_owned(),
            State::Random { seed } => format!("random:{seed}"),
        }
    }

    /// Writes 0 or 1 to every cell of `out`: those of global row `y` from global column `x_start`
    /// on. Coordinates beyond the grid wrap around, so ghosts of a periodic grid can be filled too.
    pub(crate) fn fill_row(&self, y: usize, x_start: usize, out: &mut [u8]) {
        let [height, width] = self.cells;
        let mut rest = out;
        let mut x = x_start;
        while !rest.is_empty() {
            x %= width;
            let length = rest.len().min(width - x);
            let (segment, behind) = rest.split_at_mut(length);
            self.fill_segment(y % height, x, segment);
            rest = behind;
            x += length;
        }
    }

    /// [`Generation::fill_row`] where nothing wraps.
    fn fill_segment(&self, y: usize, x_start: usize, out: &mut [u8]) {
        match &self.state {
            State::Listed(live) => {
                out.fill(0);
                let first = live.partition_point(|&cell| cell < (y, x_start));
                let end = (y, x_start + out.len());
                for &(_, x) in live[first..].iter().take_while(|&&cell| cell < end) {
                    out[x - x_start] = 1;
                }
            }
            State::GliderField => {
                let row = GLIDER_BLOCK[y % GLIDER_BLOCK_CELLS];
                for (step, cell) in out.iter_mut().enumerate() {
                    *cell = row >> ((x_start + step) % GLIDER_BLOCK_CELLS) & 1;
                }
            }
            State::Random { seed } => fill_random(*seed, y, x_start, out),
        }
    }
}

/// Random cells of density 1/2. The cell at (y, x) is bit x mod 64 of a hash of the seed, y and
/// x div 64: one hash gives 64 cells, and depends on nothing that was drawn before it.
fn fill_random(seed: u64, y: usize, x_start: usize, out: &mut [u8]) {
    let row_key = mix(mix(seed) ^ y as u64);
    let mut x = x_start;
    let mut rest = out;
    while !rest.is_empty() {
        let first = x % 64;
        let (cells, behind) = rest.split_at_mut(rest.len().min(64 - first));
        let bits = mix(row_key ^ (x / 64) as u64) >> first;
        for (bit, cell) in cells.iter_mut().enumerate() {
            *cell = (bits >> bit & 1) as u8;
        }
        x += cells.len();
        rest = behind;
    }
}
