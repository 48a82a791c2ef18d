//! Locks that nobody waits for: who finds another thread at it goes on, and comes again.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// What a lock guards, unless another thread is at it; also if one has panicked meanwhile.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
