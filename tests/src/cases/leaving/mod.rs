//! Ranks that let go of what others still use: whoever waits for them is told so, at once and by name, and gets what
//! they had sent before.

mod collective;
mod epochs;
mod exchanges;
mod messages;
mod requests;

pub use collective::met;
pub use epochs::{epochs, streamed};
pub use exchanges::{each_exchange, exchanged, exchanged_in_part, exchanged_one_way, reduced};
pub use messages::{at_once, communicators, enqueued, windows};
pub use requests::requested;

use streamhalo::comm::Error;

/// More than a packet holds, and more than libraries send without asking.
pub const LONG: usize = 40_000;
/// Less than that.
pub const SHORT: usize = 40;

fn said<T: std::fmt::Debug>(leaver: usize, result: Result<T, Error>) {
    match result {
        Err(Error::PeerFailed { rank, operation }) if operation.contains("dropped its") => {
            assert_eq!(rank, leaver, "{operation}");
        }
        other => panic!("rank {leaver} has left, and this is said of it: {other:?}"),
    }
}
