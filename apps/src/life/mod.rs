//! Conway's Game of Life on cells that are bytes or `f64`.
//!
//! Rule B3/S23: with `n` the number of live cells among the eight neighbours, a cell lives in the
//! next generation if `n = 3`, or if `n = 2` and it lives now. Axis 0 is y (slowest in memory),
//! axis 1 is x.
//!
//! | step | where |
//! |---|---|
//! | the time loop over ranks | `driver` |
//! | the steps from one exchange to the next | `pace` |
//! | generation 0 from global coordinates, whatever the decomposition | `pattern`, `rle` |
//! | one generation of a tile of rows, or several | `kernel` |
//! | what ranks report about their owned cells, and how it adds up | `checksum` |
//! | the same again, simply, on the whole grid, to verify against | `reference` |

mod answer;
mod bits;
mod bytes;
pub(crate) mod checksum;
pub(crate) mod driver;
pub(crate) mod kernel;
pub(crate) mod pace;
pub(crate) mod pattern;
pub(crate) mod reference;
pub mod rle;
mod rule;
mod slices;
pub(crate) mod wave;
mod words;

#[cfg(test)]
mod tests;
