//! Room in the host's memory for as much as an application, or another rank, says.

use crate::error::{Error, Result};

/// An empty vector with room for so many elements: of `what`, errors say.
///
/// # Errors
/// [`Error::OutOfMemory`].
#[doc(hidden)]
pub fn room_for<T>(elements: usize, what: &str) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(elements).map_err(|error| Error::OutOfMemory {
        bytes: elements.saturating_mul(size_of::<T>()),
        kind: "host",
        reason: format!("{what}: {error}"),
    })?;
    Ok(room)
}
