//! Meetings: the collective calls of set-up, in which every rank tells every other rank something.
//!
//! Nothing here is on the exchange path.

use crate::error::Result;
use crate::fabric::WaitContext;
use std::fmt;

/// Where the ranks of a world meet. Every call is collective, and every rank makes the same calls
/// in the same order.
pub trait Meeting: fmt::Debug + Send {
    /// Blocks until every rank has called it.
    fn barrier(&self, context: &WaitContext) -> Result<()>;
    /// Gives every rank the data of every rank, by rank. Blocks.
    fn all_gather(&self, context: &WaitContext, data: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// The meeting of the first `ranks` ranks, at least one and no more than there are; `None` on the
    /// others. Collective over this one; blocks.
    fn first(&self, context: &WaitContext, ranks: usize) -> Result<Option<Box<dyn Meeting>>>;
}
