//! What a rank keeps for its peers after its own exchange has ended: they may not be as far.
//!
//! Dropping an exchange is not collective. So what peers reach into lives until the ranks meet again
//! and all say that they are done with it.

use crate::locks::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What was made for the exchanges of the first ranks of a world, by how many these are.
#[derive(Debug)]
pub(crate) struct Keep<T> {
    worlds: Mutex<HashMap<usize, Made<T>>>,
}

#[derive(Debug)]
struct Made<T> {
    /// The number of the next one, which is the same on all its ranks.
    next: u32,
    kept: Vec<(u32, Arc<T>)>,
}

impl<T> Keep<T> {
    pub(crate) fn new() -> Self {
        Self { worlds: Mutex::default() }
    }

    fn worlds(&self) -> MutexGuard<'_, HashMap<usize, Made<T>>> {
        lock(&self.worlds)
    }

    /// Keeps one more, made by the first `size` ranks together.
    pub(crate) fn add(&self, size: usize, one: Arc<T>) {
        let mut worlds = self.worlds();
        let made = worlds.entry(size).or_insert_with(|| Made { next: 0, kept: Vec::new() });
        made.kept.push((made.next, one));
        made.next += 1;
    }

    /// Those that nobody on this rank uses any more.
    pub(crate) fn done(&self, size: usize) -> Vec<u32> {
        self.done_as(size, |_| ()).into_iter().map(|(number, ())| number).collect()
    }

    /// As [`Keep::done`], with what is to be said of each.
    pub(crate) fn done_as<R>(&self, size: usize, say: impl Fn(&T) -> R) -> Vec<(u32, R)> {
        let worlds = self.worlds();
        let kept = worlds.get(&size).map_or(&[][..], |made| &made.kept);
        let done = kept.iter().filter(|(_, one)| Arc::strong_count(one) == 1);
        done.map(|(number, one)| (*number, say(one))).collect()
    }

    /// Takes out all that nobody on this rank uses any more, in an order that is the same on all ranks.
    pub(crate) fn take_all(&self) -> Vec<T> {
        let mut worlds: Vec<_> = std::mem::take(&mut *self.worlds()).into_iter().collect();
        worlds.sort_unstable_by_key(|(size, _)| *size);
        let kept = worlds.into_iter().flat_map(|(_, made)| made.kept);
        kept.filter_map(|(_, one)| Arc::into_inner(one)).collect()
    }

    /// Takes out those that all ranks are done with, in an order that is the same on all of them.
    pub(crate) fn take(&self, size: usize, done: &[&[u32]]) -> Vec<T> {
        let mut worlds = self.worlds();
        let Some(made) = worlds.get_mut(&size) else { return Vec::new() };
        let by_all = |(number, _): &mut (u32, Arc<T>)| done.iter().all(|done| done.contains(number));
        let taken = made.kept.extract_if(.., by_all);
        taken
            .map(|(_, one)| Arc::into_inner(one).expect("this rank has said that it is done with it"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_anywhere_is_kept() {
        let keep = Keep::new();
        let (first, second) = (Arc::new("first"), Arc::new("second"));
        keep.add(4, first.clone());
        keep.add(4, second.clone());
        keep.add(2, Arc::new("of two"));
        assert_eq!((keep.done(4), keep.done(2), keep.done(3)), (vec![], vec![0], vec![]));
        drop(second);
        assert_eq!(keep.done(4), [1]);
        assert_eq!(keep.take(4, &[&[1], &[0, 1], &[0]]), Vec::<&str>::new(), "one rank still uses it");
        assert_eq!(keep.take(4, &[&[1], &[0, 1]]), ["second"]);
        drop(first);
        assert_eq!((keep.done(4), keep.take(2, &[&[0]])), (vec![0], vec!["of two"]));
    }
}
