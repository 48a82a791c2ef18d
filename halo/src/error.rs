//! What can be wrong with a halo exchange.

use std::fmt;
use streamhalo_grid::GridError;

/// An error of setting up or starting a halo exchange. Set-up is collective: it fails on all ranks
/// or on none. `main` prints the message of one that it returns.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HaloError {
    /// The communication layer failed.
    #[error(transparent)]
    Communication(#[from] streamhalo_comm::Error),
    /// The grid does not allow it.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// An offset of a pattern is not one.
    #[error("offset {offset:?} of the pattern is not usable: {reason}")]
    BadOffset {
        /// The offset, slowest axis first.
        offset: Vec<i32>,
        /// What is wrong with it.
        reason: String,
    },
    /// No field was given.
    #[error("an exchange needs at least one field")]
    NoFields,
    /// An exchange was to have no layers along any axis.
    #[error(
        "an exchange of width {width:?} fills no ghosts, nor nodes that ranks share: give it a width of 1 or more on the axes \
         along which it is to fill any"
    )]
    NoLayers {
        /// The width asked for on each axis.
        width: Vec<usize>,
    },
    /// A field does not fit the others.
    #[error("field {index} cannot be exchanged with field 0: {reason}")]
    MixedFields {
        /// The field, counted from 0.
        index: usize,
        /// What differs, as either has it.
        reason: String,
    },
    /// The generations of an alternating field do not fit each other.
    #[error(
        "the two generations of field {index} differ in their grid, entity, components or stream: one has been replaced by \
         another array; put one like the other in its place"
    )]
    MixedGenerations {
        /// The field, counted from 0.
        index: usize,
    },
    /// The fields given to an exchange are not those that it was made for.
    #[error(
        "`{call}` was given {found}; the exchange was matched for {expected}; \
         give it the same fields in the same order, or make another StreamHalo"
    )]
    OtherFields {
        /// The call.
        call: &'static str,
        /// What was given.
        found: String,
        /// What was matched.
        expected: String,
    },
    /// A field that alternates is in another generation than the exchange counts on.
    #[error(
        "field {index} is in generation {found}, but exchange {epoch} of this `StreamHalo` expects {expected}: it was made for \
         {swaps} swap(s) of each field between two exchanges (`swaps_per_exchange`); was a `swap()` forgotten, or one too many?"
    )]
    WrongGeneration {
        /// The field, counted from 0.
        index: usize,
        /// Its generation.
        found: usize,
        /// The expected one.
        expected: usize,
        /// The number of the exchange, from 1.
        epoch: u32,
        /// Swaps between two exchanges, as given at set-up.
        swaps: usize,
    },
    /// A field is in an exchange that has begun, of this or of another `StreamHalo`.
    #[error(
        "`{call}` was given field {index}, whose exchange has begun: finish that one first (`InFlight::finish`)"
    )]
    FieldInFlight {
        /// The call.
        call: &'static str,
        /// The field, counted from 0.
        index: usize,
    },
    /// Peers may be filling the ghosts of a field at the moment, by an exchange that writes them ahead: one of an
    /// alternating field that is swapped once between two exchanges.
    #[error(
        "`{call}` was given field {index}, whose ghosts peers may be filling by the exchange that it was made for first: \
         carry that one out after each swap, before this one, or drop it on all ranks and make this one again"
    )]
    GhostsFilledAhead {
        /// The call.
        call: &'static str,
        /// The field, counted from 0.
        index: usize,
    },
    /// The ranks were asked for different exchanges.
    #[error(
        "rank {rank} was asked for another exchange than rank 0: {found}, not {expected}; all ranks must make the same calls"
    )]
    RanksDisagree {
        /// The first rank that differs.
        rank: usize,
        /// What it was asked for.
        found: String,
        /// What rank 0 was asked for.
        expected: String,
    },
    /// A scatter was started on an exchange that was made without.
    #[error(
        "this StreamHalo was made without a scatter; ask for one with `StreamHalo::builder(..).scatter(op)`"
    )]
    NoScatter,
}

/// The message, which `main` and `unwrap` print so.
impl fmt::Debug for HaloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a halo exchange's calls.
pub type Result<T, E = HaloError> = std::result::Result<T, E>;
