//! Locks whose data stay right when a thread panics with one: each change of them is whole.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// What a lock guards, once no other thread is at it; also if one has panicked meanwhile.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], for who does not wait: `None` if another thread is at it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
