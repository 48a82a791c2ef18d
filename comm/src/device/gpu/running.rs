//! Which kernels an error of a device can be about.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which kernels may be running: those that an error of the device can be about.
#[derive(Debug)]
pub(in crate::device) struct Running {
    /// Commands so far, of all kinds: each takes a place on the stream.
    pub(in crate::device) put: u64,
    /// How many of them are known to have run.
    passed: AtomicU64,
    /// The names of the last kernels among them.
    last: VecDeque<(u64, usize)>,
    names: Vec<String>,
    /// Whether the driver ends each kernel within its launch.
    is_blocking: bool,
}

/// Commands on a stream from which on there may be no room for those of one more operation: of drivers so far, about
/// a thousand kernels can be on a stream, and a launch beyond waits.
const ROOM: u64 = 512;
/// How many kernels are remembered.
const REMEMBERED: usize = 1024;

/// Whether a variable of the environment has launches last until their kernels have ended.
pub(in crate::device) fn launches_block(variable: &str) -> bool {
    asks_to_block(std::env::var(variable).ok().as_deref())
}

fn asks_to_block(told: Option<&str>) -> bool {
    told.and_then(|told| told.trim().parse::<i64>().ok()).is_some_and(|told| told != 0)
}

impl Running {
    pub(in crate::device) fn new(is_blocking: bool) -> Self {
        Self {
            put: 0,
            passed: AtomicU64::new(0),
            last: VecDeque::with_capacity(REMEMBERED),
            names: Vec::new(),
            is_blocking,
        }
    }

    pub(in crate::device) fn add(&mut self, what: &str) {
        let passed = self.passed.load(Ordering::Relaxed);
        while self.last.front().is_some_and(|(number, _)| *number <= passed || self.last.len() >= REMEMBERED)
        {
            self.last.pop_front();
        }
        let known = self.names.iter().position(|name| name == what);
        let name = known.unwrap_or_else(|| {
            self.names.push(what.to_owned());
            self.names.len() - 1
        });
        self.put += 1;
        self.last.push_back((self.put, name));
    }

    /// A graph's kernels of those names, of which it has so many.
    pub(in crate::device) fn add_graph<'a>(&mut self, names: impl Iterator<Item = &'a str>, kernels: usize) {
        let before = self.put;
        names.for_each(|name| self.add(name));
        self.put = self.put.max(before + kernels as u64);
    }

    pub(in crate::device) fn has_launched(&self) {
        if self.is_blocking {
            self.passed(self.put);
        }
    }

    pub(in crate::device) fn passed(&self, put: u64) {
        self.passed.fetch_max(put, Ordering::Relaxed);
    }

    /// Whether so many commands may not have run that there may be no room for more.
    pub(in crate::device) fn is_full(&self) -> bool {
        self.put - self.passed.load(Ordering::Relaxed) >= ROOM
    }

    /// The names of the kernels that are not known to have run, each once.
    pub(in crate::device) fn names(&self) -> Vec<String> {
        let passed = self.passed.load(Ordering::Relaxed);
        let mut names: Vec<String> = Vec::new();
        for (_, name) in self.last.iter().filter(|(number, _)| *number > passed) {
            if !names.contains(&self.names[*name]) {
                names.push(self.names[*name].clone());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_to_blame_until_they_are_known_to_have_run() {
        let mut running = Running::new(false);
        let mut launch = |what| {
            running.add(what);
            running.has_launched();
            running.put
        };
        launch("a move");
        let marked = launch("life");
        launch("a move");
        assert_eq!(running.names(), ["a move", "life"]);
        running.passed(marked);
        assert_eq!(running.names(), ["a move"]);
        running.passed(1);
        assert_eq!(running.names(), ["a move"], "what has run once has run");
        for _ in 0..2 * REMEMBERED {
            running.add("life");
        }
        assert_eq!((running.names(), running.last.len()), (vec!["life".to_owned()], REMEMBERED));
        assert!(running.is_full());
        running.passed(running.put);
        assert_eq!((running.names().len(), running.is_full()), (0, false));
    }

    #[test]
    fn each_kernel_of_a_graph_takes_a_place() {
        let mut running = Running::new(false);
        for graph in 1..=4 {
            assert!(!running.is_full(), "with {} kernels", running.put);
            running.add_graph(["a move", "a wait"].into_iter(), ROOM as usize / 4);
            assert_eq!(running.put, graph * ROOM / 4);
        }
        assert!(running.is_full());
        assert_eq!(running.names(), ["a move", "a wait"]);
        running.passed(ROOM / 4);
        assert!(!running.is_full());
    }

    #[test]
    fn the_environment_says_whether_launches_block() {
        for (told, expected) in [(None, false), (Some("0"), false), (Some(""), false), (Some(" 1 "), true)] {
            assert_eq!(asks_to_block(told), expected, "{told:?}");
        }
    }

    #[test]
    fn a_driver_that_launches_one_at_a_time_leaves_one_to_blame() {
        let mut running = Running::new(true);
        running.add("a move");
        running.has_launched();
        running.add("life");
        assert_eq!(running.names(), ["life"]);
    }
}
