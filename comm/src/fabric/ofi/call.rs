//! Calling libfabric: finding a function in an object's table, and turning what it returns into a
//! result.

use super::library::Library;
use crate::error::{Error, Result};

/// Whether an operation was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Posted {
    /// It was; its completion will be seen.
    Yes,
    /// The provider has no room just now: poll for completions, then try again.
    NoRoom,
}

/// The function at a place of a table, which must exist there.
macro_rules! function {
    ($call:expr, $table:expr, $Table:ty, $function:ident) => {{
        let table: *const $Table = $table;
        if table.is_null() {
            Err($crate::fabric::ofi::call::missing($call))
        } else {
            // SAFETY: every table begins with its size, and lives as long as the object that the
            // caller keeps open.
            let size = unsafe { (*table).size };
            if size > std::mem::offset_of!($Table, $function) {
                // SAFETY: the table says that it reaches as far as this function.
                unsafe { (*table).$function }.ok_or_else(|| $crate::fabric::ofi::call::missing($call))
            } else {
                Err($crate::fabric::ofi::call::missing($call))
            }
        }
    }};
}
pub(crate) use function;

/// A provider without that function.
pub(crate) fn missing(call: &'static str) -> Error {
    Error::Libfabric { call, reason: "this provider does not have the operation; choose another one".into() }
}

/// What the library says of a negative return value.
pub(crate) fn failed(library: &Library, call: &'static str, code: i64, what: &str) -> Error {
    let number = code.unsigned_abs() as i32;
    Error::Libfabric { call, reason: format!("{} (error {number}) {what}", library.describe(number)) }
}

/// For calls that return 0 or an error; `what` says what it was for.
pub(crate) fn check(library: &Library, call: &'static str, code: i32, what: &str) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(library, call, code.into(), what)) }
}

/// For operations, which may also find no room.
pub(crate) fn posted(library: &Library, call: &'static str, code: i64, what: &str) -> Result<Posted> {
    match code {
        0 => Ok(Posted::Yes),
        code if code == -i64::from(super::sys::FI_EAGAIN) => Ok(Posted::NoRoom),
        code => Err(failed(library, call, code, what)),
    }
}
