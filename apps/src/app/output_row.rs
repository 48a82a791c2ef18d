//! Rows that kernels write a vector at a time, through the caches or past them.

use streamhalo::Element;
use streamhalo::comm::device::{PastRow, ask_for_later_line, ask_for_line};

/// Where the cells of a row go, in vectors of `L`.
// Only what lands inside the function that `dispatch!` makes for an instruction set is compiled for it.
pub(crate) trait OutputRow<T, const L: usize> {
    fn cells(&self) -> usize;

    /// Stores the `index`-th vector of the row.
    fn store(&mut self, index: usize, values: &[T; L]);

    /// Asks for the line so many bytes behind the `index`-th vector, if it will be read before it is written.
    fn ask_for(&self, index: usize, ahead_bytes: usize);

    /// Asks likewise for a line that will be needed rows later.
    fn ask_for_later(&self, index: usize, ahead_bytes: usize);

    /// Asks for the line so many bytes behind the last cell, where what fills no vector goes, through the caches always.
    fn ask_for_end(&self, ahead_bytes: usize);

    /// Stores the last cells of the row, of which some may have been stored before.
    fn store_last(&mut self, values: &[T; L]);
}

impl<T: Element, const L: usize> OutputRow<T, L> for &mut [T] {
    #[inline(always)]
    fn cells(&self) -> usize {
        (**self).len()
    }

    #[inline(always)]
    fn store(&mut self, index: usize, values: &[T; L]) {
        self.as_chunks_mut().0[index] = *values;
    }

    #[inline(always)]
    fn ask_for(&self, index: usize, ahead_bytes: usize) {
        ask_for_line(&self.as_chunks::<L>().0[index], ahead_bytes);
    }

    #[inline(always)]
    fn ask_for_later(&self, index: usize, ahead_bytes: usize) {
        ask_for_later_line(&self.as_chunks::<L>().0[index], ahead_bytes);
    }

    #[inline(always)]
    fn ask_for_end(&self, ahead_bytes: usize) {
        ask_for_end(self, ahead_bytes);
    }

    #[inline(always)]
    fn store_last(&mut self, values: &[T; L]) {
        *self.last_chunk_mut().expect("rows have a vector at least") = *values;
    }
}

impl<T: Element, const L: usize> OutputRow<T, L> for PastRow<'_, T> {
    #[inline(always)]
    fn cells(&self) -> usize {
        self.places().len()
    }

    #[inline(always)]
    fn store(&mut self, index: usize, values: &[T; L]) {
        PastRow::store(self, index * L, values);
    }

    #[inline(always)]
    fn ask_for(&self, _: usize, _: usize) {}

    #[inline(always)]
    fn ask_for_later(&self, _: usize, _: usize) {}

    #[inline(always)]
    fn ask_for_end(&self, ahead_bytes: usize) {
        ask_for_end(self.places(), ahead_bytes);
    }

    #[inline(always)]
    fn store_last(&mut self, values: &[T; L]) {
        let rest = self.places().len() % L;
        self.store_end(&values[L - rest..]);
    }
}

#[inline(always)]
fn ask_for_end<T>(places: &[T], ahead_bytes: usize) {
    if let Some(last) = places.last() {
        ask_for_line(last, ahead_bytes);
    }
}
