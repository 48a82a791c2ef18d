//! Pipeline: a stencil whose rows run through the ranks one behind the other, as the paper on notified access
//! has it (2015, section VI-A) from the Parallel Research Kernels, where it is called Sync_p2p.
//!
//! Columns are split over the ranks. A rank can compute a row as soon as its left neighbour has, so that a row is
//! computed by one rank after the other while the next rows follow it. At the end of an iteration the corner goes
//! back to the first rank, which starts the next iteration from it.
//!
//! | what | where |
//! |---|---|
//! | the loops of the kernel, and its verification value | [`driver`] |
//! | the columns of one rank | `part` |
//! | a block of rows from one rank to the next, by each of the primitives that the paper compares | `links` |
//! | what every value must be in the end, by a formula | `reference` |
//! | what is compared with it | `check` |

mod check;
pub(crate) mod driver;
mod links;
mod part;
mod reference;

#[cfg(test)]
mod tests;
