//! Numbers for whatever completes: one queue tells of everything, and several threads look.

use crate::error::Result;
use crate::fabric::ofi::{Completion, Endpoint};
use crate::locks::lock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Completions taken from the queue at once.
const AT_ONCE: usize = 16;

/// Sorts completions by the numbers that operations were posted with, and arrivals by the numbers
/// that came with them.
#[derive(Debug)]
pub(super) struct Hub {
    endpoint: Endpoint,
    /// By number: how often it has completed.
    counts: Mutex<Vec<Arc<AtomicU32>>>,
}

/// A number, and how often what bears it has completed, wrapping.
#[derive(Debug, Clone)]
pub(super) struct Number {
    pub(super) number: u32,
    count: Arc<AtomicU32>,
}

impl Number {
    /// How often.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }
}

impl Hub {
    pub(super) fn new(endpoint: Endpoint) -> Arc<Self> {
        Arc::new(Self { endpoint, counts: Mutex::default() })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A number that nothing else bears. They are not used twice: what is late has nobody's.
    pub(super) fn number(&self) -> Number {
        let mut counts = lock(&self.counts);
        let count = Arc::new(AtomicU32::new(0));
        counts.push(count.clone());
        Number { number: counts.len() as u32 - 1, count }
    }

    /// Counts what has completed. Another thread may be at it, and then this one has nothing to do.
    pub(super) fn poll(&self) -> Result<()> {
        let Ok(counts) = self.counts.try_lock() else { return Ok(()) };
        let mut completions = [const { Completion::Nothing }; AT_ONCE];
        loop {
            let found = self.endpoint.poll(&mut completions)?;
            for completion in &completions[..found] {
                let number = match *completion {
                    Completion::Done(token)
                    | Completion::Received { token, .. }
                    | Completion::Cancelled(token) => token.number(),
                    Completion::Arrived { data } => data as u32,
                    Completion::Nothing => continue,
                };
                if let Some(count) = counts.get(number as usize) {
                    count.fetch_add(1, Ordering::Release);
                }
            }
            if found < AT_ONCE {
                return Ok(());
            }
        }
    }
}
