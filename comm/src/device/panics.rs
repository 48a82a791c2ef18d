//! Panics of an application's functions, which must not end the thread of a stream.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a function; the message if it panics. What it has of the application is not looked at again then.
pub(super) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
