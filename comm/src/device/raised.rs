//! Flags of a scope.

use std::cell::Cell;

/// Sets a flag until it is dropped.
pub(super) struct Raised<'f> {
    flag: &'f Cell<bool>,
    before: bool,
}

impl<'f> Raised<'f> {
    #[inline]
    pub(super) fn new(flag: &'f Cell<bool>, value: bool) -> Self {
        Self { flag, before: flag.replace(value) }
    }
}

impl Drop for Raised<'_> {
    #[inline]
    fn drop(&mut self) {
        self.flag.set(self.before);
    }
}
