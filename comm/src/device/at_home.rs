//! Values that one thread alone comes to, within what others may carry.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value of the thread that has made it. Others may have it, and drop it, but do not come to it: a lock that one thread
/// alone takes would cost it two locked operations each time.
pub(super) struct AtHome<T> {
    home: u64,
    value: RefCell<T>,
}

// SAFETY: the only way to the value is `with`, which refuses all threads but the one that has made it. Who drops it has it
// alone, and may be another thread, since the value may be sent.
unsafe impl<T: Send> Sync for AtHome<T> {}

impl<T> AtHome<T> {
    fn new(value: T) -> Self {
        Self { home: here(), value: RefCell::new(value) }
    }

    /// Does something with the value, on its own thread.
    #[inline]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        assert!(
            self.home == here(),
            "another thread than that of a buffer's stream comes to what is done with it"
        );
        body(&mut self.value.borrow_mut())
    }
}

impl<T: Default> Default for AtHome<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Without the value, which is another thread's.
impl<T> fmt::Debug for AtHome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtHome(thread {})", self.home)
    }
}

/// The number of the calling thread, which none has had before it.
#[inline]
fn here() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static HERE: Cell<u64> = const { Cell::new(0) };
    }
    if HERE.get() == 0 {
        HERE.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    HERE.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn another_thread_may_drop_it_and_not_come_to_it() {
        let value = Arc::new(AtHome::new(vec![1]));
        value.with(|all| all.push(2));
        let other = value.clone();
        let refused = std::thread::spawn(move || other.with(|all| all.push(3))).join();
        assert!(refused.is_err(), "it has come to it");
        assert_eq!(value.with(|all| all.clone()), [1, 2]);
        std::thread::spawn(move || drop(value)).join().expect("it may");
    }
}
