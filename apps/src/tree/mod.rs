//! Tree: a reduction up a tree of ranks and its result down again, for hierarchical computations, as the paper on
//! notified access times it (2015, section VI-B), beside the library's own allreduce.
//!
//! Leaves are split over the ranks, which are the inner nodes. A rank adds its own leaves, then what its children
//! have sent, in their order; the root has the total. The way down gives it to every rank, which is what makes it
//! comparable with an allreduce, and at the same time the leave to send the next contribution.
//!
//! | what | where |
//! |---|---|
//! | the steps, and what they are timed beside | [`driver`] |
//! | who is whose child | `place` |
//! | contributions up and totals down, by each of the primitives that the paper compares | `links` |
//! | the library's allreduce | `library` |
//! | the serial sum, and how far from it an answer may be | `reference`, `check` |

mod check;
pub(crate) mod driver;
mod library;
mod links;
mod place;
mod reference;

pub(crate) use place::Place;

#[cfg(test)]
mod tests;
