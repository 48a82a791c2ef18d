//! Meetings: the collective calls of set-up, in which every rank tells every other rank something.
//!
//! Nothing here is on the exchange path.

use crate::error::{Error, Result};
use crate::fabric::WaitContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// Where the ranks of a world meet. Every call is collective, and every rank makes the same calls
/// in the same order. Whoever drops it comes to no more calls: those of the others fail, and name it.
pub trait Meeting: fmt::Debug + Send {
    /// Blocks until every rank has called it.
    fn barrier(&self, context: &WaitContext) -> Result<()>;
    /// Gives every rank the data of every rank, by rank. Blocks.
    fn all_gather(&self, context: &WaitContext, data: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// The meeting of the first `ranks` ranks, at least one and no more than there are; `None` on the
    /// others. Collective over this one; blocks.
    fn first(&self, context: &WaitContext, ranks: usize) -> Result<Option<Box<dyn Meeting>>>;
}

/// The error of a call that a rank does not come to, since it has let go of the meeting.
pub(crate) fn left(rank: usize) -> Error {
    let operation = "it has left the world, and comes to no more calls of all its ranks".into();
    Error::PeerFailed { rank, operation }
}

/// Every rank's value, by rank, on all of them. Collective; blocks.
///
/// # Errors
/// [`Error::CollectiveFailed`] if a rank has no memory for its value, or has given one of another type; else as
/// [`Meeting::all_gather`].
pub(crate) fn all_gather<T: Serialize + DeserializeOwned>(
    meeting: &dyn Meeting,
    context: &WaitContext,
    value: &T,
) -> Result<Vec<T>> {
    // Types are told too: other calls may give values that are as long.
    let own = std::any::type_name::<T>();
    let encoded = postcard::to_stdvec(&(own, value))
        .map_err(|error| Error::System { call: "encoding a message", reason: error.to_string() })?;
    let gathered = meeting.all_gather(context, &encoded)?;
    let decode = |(rank, bytes): (usize, &Vec<u8>)| {
        let differs = |how: String| Error::CollectiveFailed {
            call: "all_gather",
            rank,
            reason: format!(
                "it said something else than this rank ({how}); do all ranks make the same calls?"
            ),
        };
        match postcard::take_from_bytes::<&str>(bytes) {
            Ok((told, value)) if told == own => {
                postcard::from_bytes(value).map_err(|error| differs(error.to_string()))
            }
            Ok((told, _)) => Err(differs(format!("`{told}`, and not `{own}`"))),
            Err(error) => Err(differs(error.to_string())),
        }
    };
    gathered.iter().enumerate().map(decode).collect()
}
