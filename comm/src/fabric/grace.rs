//! How long a wait for a rank that has let go listens for its failure.

use std::time::{Duration, Instant};

/// A rank that fails drops what it has before it can say why.
const GRACE: Duration = Duration::from_millis(100);

/// Between two looks at most so much counts: while its process is stopped, a rank says nothing.
const GAP: Duration = Duration::from_millis(20);

/// The time in which the failure of a rank that has let go is listened for, from the first question whether it is over.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    last: Option<Instant>,
    listened: Duration,
}

impl Grace {
    /// Whether it is over. To be asked every some milliseconds.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.listened += now.duration_since(last).min(GAP);
        }
        self.listened >= GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nobody_could_listen_does_not_count() {
        let mut grace = Grace::default();
        assert!(!grace.is_over());
        std::thread::sleep(2 * GRACE);
        assert!(!grace.is_over(), "the process may have been stopped");
        let begun = Instant::now();
        while !grace.is_over() {
            std::thread::sleep(GAP / 10);
        }
        assert!(begun.elapsed() >= GRACE - GAP);
    }
}
