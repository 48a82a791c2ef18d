//! Meetings: the collective calls of set-up, in which every rank tells every other rank something.
//!
//! Nothing here is on the exchange path.

use crate::error::{Error, Result, TIMEOUT_IS, in_seconds};
use crate::fabric::WaitContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::time::Duration;

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

/// The error of a call that a rank comes to after others have given up one, which ends all calls of their world.
#[cold]
pub(crate) fn is_over(call: &'static str, rank: usize, waited: Duration) -> Error {
    let reason = format!(
        "others had waited {} s for it, and given up, which ends all calls of this world; their time-out is \
         {TIMEOUT_IS}",
        in_seconds(&waited)
    );
    Error::CollectiveFailed { call, rank, reason }
}

/// Every rank's value, by rank, on all of them. Collective; blocks.
///
/// # Errors
/// [`Error::CollectiveFailed`] if a rank has no memory for its value, cannot encode it, or has given one of another type;
/// else as
/// [`Meeting::all_gather`].
pub(crate) fn all_gather<T: Serialize + DeserializeOwned>(
    meeting: &dyn Meeting,
    context: &WaitContext,
    value: &T,
) -> Result<Vec<T>> {
    // Types are told too: other calls may give values that are as long.
    let own = std::any::type_name::<T>();
    // A rank that cannot tell its value comes all the same, and says so: the others wait for it.
    let encode = |value: std::result::Result<&T, String>| postcard::to_stdvec(&(own, value));
    let cannot = |error: postcard::Error| format!("its value cannot be told: {error}");
    let encoded = encode(Ok(value)).or_else(|error| encode(Err(cannot(error)))).expect("a text can be told");
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
                match postcard::from_bytes::<std::result::Result<T, String>>(value) {
                    Ok(Ok(value)) => Ok(value),
                    Ok(Err(reason)) => Err(Error::CollectiveFailed { call: "all_gather", rank, reason }),
                    Err(error) => Err(differs(error.to_string())),
                }
            }
            Ok((told, _)) => Err(differs(format!("`{told}`, and not `{own}`"))),
            Err(error) => Err(differs(error.to_string())),
        }
    };
    gathered.iter().enumerate().map(decode).collect()
}
