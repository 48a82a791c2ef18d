//! Cholesky: the left-looking factorisation of a matrix in tiles, as the paper on notified access has it (2015,
//! section VI-C).
//!
//! Tiles are split over the ranks. A rank computes its tiles one after the other, each as soon as the tiles are there
//! that it needs, and every tile is broadcast along a binary tree of the ranks that need it. Which tile comes next,
//! and from whom, nobody knows: with notified access a rank waits for any tag from any source, and the tag says which
//! tile has come.
//!
//! | what | where |
//! |---|---|
//! | the factorisation | [`driver`] |
//! | which rank computes a tile, in which order, and along which tree it travels | `schedule` |
//! | the tiles that a rank has, receives and passes on | `process` |
//! | tiles from rank to rank, by each of the primitives that the paper compares | `links` |
//! | DPOTRF, DTRSM, DSYRK and DGEMM | `kernel` |
//! | the matrices, whose factors are known, or are multiplied out again | `matrix`, `check` |

mod check;
pub(crate) mod driver;
mod kernel;
mod links;
mod matrix;
mod process;
mod schedule;

#[cfg(test)]
mod tests;
