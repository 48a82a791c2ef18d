//! The kernel on rows that are looked up one by one, with an instruction set of the caller's choice.

use std::marker::PhantomData;

use fearless_simd::Level;

use super::super::kernel::{Cell, Sweep, sweep_all};
use super::super::rows::Generations;

/// Computes `rows` consecutive rows of the next generation.
///
/// `next` yields the rows to write, from the lowest y up. Row `i` of them is computed from `now(i)`, `now(i + 1)` and
/// `now(i + 2)`, which have one ghost cell on either side: `now(0)` is the row above the first one written.
pub(super) fn step_rows<'now, 'next, T: Cell>(
    level: Level,
    rows: usize,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    sweep_rows(level, false, rows, Sweep::ONE, now, next);
}

/// The same that many generations on: rows of `now` have as many ghost cells on either side as there are generations, and
/// `now(0)` is as many rows above the first one written.
pub(super) fn sweep_rows<'now, 'next, T: Cell>(
    level: Level,
    is_past: bool,
    rows: usize,
    sweep: Sweep,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    sweep_all(level, is_past, rows, sweep, Slices { now, next: next.into_iter(), rows: PhantomData });
}

/// Those that are looked up one by one.
struct Slices<'next, T, Now, Next> {
    now: Now,
    next: Next,
    rows: PhantomData<&'next T>,
}

impl<'now, 'next, T: Cell, Now, Next> Generations<'now, T> for Slices<'next, T, Now, Next>
where
    Now: Fn(usize) -> &'now [T],
    Next: Iterator<Item = &'next mut [T]>,
{
    fn now(&self, y: usize) -> &'now [T] {
        (self.now)(y)
    }

    fn next(&mut self, _: usize) -> &mut [T] {
        self.next.next().expect("there is a row to write for each")
    }

    fn in_turn(
        &mut self,
        rows: usize,
    ) -> (impl Iterator<Item = [&'now [T]; 3]>, impl Iterator<Item = &mut [T]>) {
        let Self { now, next, .. } = self;
        ((0..rows).map(|y| [now(y), now(y + 1), now(y + 2)]), next.map(|row| &mut row[..]))
    }
}
