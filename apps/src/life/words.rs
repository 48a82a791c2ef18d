//! Rows of cells as bits, 64 to a word and the first in the lowest.
//!
//! A vector of cells becomes its bits by one comparison, and comes of them by one choice.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use fearless_simd::{Simd, prelude::*};
use streamhalo::comm::device::{PastRow, ask_for_line};

use super::kernel::Cell;
use crate::app::LINE_BYTES;

/// Cells of a word.
pub(super) const WORD: usize = 64;

/// Packs a row, at least one vector of cells or fewer than a word has.
// Everything here is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
pub(super) fn pack<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, row: &[T], words: &mut [u64]) {
    pack_from::<S, T, V>(simd, 0, row, words);
}

/// Spreads words over a row, which is as long as those that [`pack`] takes.
#[inline(always)]
pub(super) fn spread<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, words: &[u64], row: &mut [T]) {
    for word in 0..row.len() / WORD {
        T::spread_word(simd, words[word], &mut row[word * WORD..][..WORD]);
    }
    spread_end::<S, T, V>(simd, words, row);
}

/// Where the cells of a row go, a word of them at a time.
pub(super) trait Words<T> {
    /// Asks for the lines that the `index`-th word is packed from, `from`, or some behind them, and for those that it is
    /// spread over, if they are far from the core.
    fn ask_for(&self, index: usize, from: &[T]);

    /// As many cells as a word has, to spread the `index`-th one over.
    fn cells(&mut self, index: usize) -> &mut [T];

    /// They have been spread.
    fn store(&mut self, index: usize);

    /// Spreads what of the row is less than a word.
    fn spread_end<S: Simd, V: SimdBase<S, Element = T>>(&mut self, simd: S, words: &[u64]);

    /// The whole row.
    fn row(&mut self) -> &mut [T];
}

/// A row that is stored through the caches. Far from the core all lines of a word are asked for before the first is needed: with what
/// becomes of them in between the processor comes too late upon most, above all upon those that are written.
pub(super) struct Through<'r, T, const IS_FAR: bool>(pub(super) &'r mut [T]);

impl<T: Cell, const IS_FAR: bool> Words<T> for Through<'_, T, IS_FAR> {
    #[inline(always)]
    fn ask_for(&self, index: usize, from: &[T]) {
        if IS_FAR {
            ask_for_lines(from, 0);
            ask_for_lines(&self.0[index * WORD..][..WORD], 0);
        }
    }

    #[inline(always)]
    fn cells(&mut self, index: usize) -> &mut [T] {
        &mut self.0[index * WORD..][..WORD]
    }

    #[inline(always)]
    fn store(&mut self, _: usize) {}

    #[inline(always)]
    fn spread_end<S: Simd, V: SimdBase<S, Element = T>>(&mut self, simd: S, words: &[u64]) {
        spread_end::<S, T, V>(simd, words, self.0);
    }

    #[inline(always)]
    fn row(&mut self) -> &mut [T] {
        self.0
    }
}

/// A row that is stored past the caches: a word of it is spread nearby, and goes from there.
pub(super) struct Past<'r, T> {
    row: PastRow<'r, T>,
    ahead_bytes: usize,
    cells: [T; WORD],
}

impl<'r, T: Cell> Past<'r, T> {
    /// Lines to pack are asked for so many bytes ahead.
    #[inline(always)]
    pub(super) fn new(row: PastRow<'r, T>, ahead_bytes: usize) -> Self {
        Self { row, ahead_bytes, cells: [T::from(0); WORD] }
    }
}

impl<T: Cell> Words<T> for Past<'_, T> {
    #[inline(always)]
    fn ask_for(&self, _: usize, from: &[T]) {
        ask_for_lines(from, self.ahead_bytes);
    }

    #[inline(always)]
    fn cells(&mut self, _: usize) -> &mut [T] {
        &mut self.cells
    }

    #[inline(always)]
    fn store(&mut self, index: usize) {
        self.row.store(index * WORD, &self.cells);
    }

    #[inline(always)]
    fn spread_end<S: Simd, V: SimdBase<S, Element = T>>(&mut self, simd: S, words: &[u64]) {
        let cells = self.row.places().len();
        if !cells.is_multiple_of(WORD) {
            T::spread_word(simd, words[cells / WORD], &mut self.cells);
            self.row.store_end(&self.cells[..cells % WORD]);
        }
    }

    #[inline(always)]
    fn row(&mut self) -> &mut [T] {
        self.row.places_mut()
    }
}

/// Asks for the lines so many bytes behind those of some cells.
#[inline(always)]
pub(super) fn ask_for_lines<T>(cells: &[T], bytes: usize) {
    for line in (0..cells.len()).step_by(LINE_BYTES / size_of::<T>()) {
        ask_for_line(&cells[line], bytes);
    }
}

/// Packs a row and spreads words over another, which is no longer, side by side: memory is read while other
/// memory is written.
#[inline(always)]
pub(super) fn pack_and_spread<S: Simd, T: Cell, V: SimdBase<S, Element = T>, W: Words<T>>(
    simd: S,
    (from, packed): (&[T], &mut [u64]),
    (words, to): (&[u64], &mut W),
) {
    let whole = to.row().len() / WORD;
    for word in 0..whole {
        let from = &from[word * WORD..][..WORD];
        to.ask_for(word, from);
        packed[word] = pack_word::<S, T, V>(simd, from);
        T::spread_word(simd, words[word], to.cells(word));
        to.store(word);
    }
    pack_from::<S, T, V>(simd, whole, from, packed);
    to.spread_end::<S, V>(simd, words);
}

/// Which cells of a vector live.
#[inline(always)]
pub(super) fn bits<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, cells: &[T]) -> u64 {
    V::from_slice(simd, cells).simd_eq(V::splat(simd, T::from(1))).to_bitmask()
}

#[inline(always)]
fn put<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, bits: u64, cells: &mut [T]) {
    let (zero, one) = (V::splat(simd, T::from(0)), V::splat(simd, T::from(1)));
    V::Mask::from_bitmask(simd, bits).select(one, zero).store_slice(cells);
}

#[inline(always)]
fn pack_word<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, cells: &[T]) -> u64 {
    if V::LEN == WORD {
        return bits::<S, T, V>(simd, cells);
    }
    // Both halves side by side, as one is waited for; each from the last vector to the first, one behind the other: the
    // compiler would make vectors of independent shifts, which cost more than they save.
    let (vectors, mut halves) = (WORD / 2 / V::LEN, [0_u64; 2]);
    for vector in (0..vectors).rev() {
        for half in 0..2 {
            let cells = &cells[(half * vectors + vector) * V::LEN..][..V::LEN];
            halves[half] = halves[half] << V::LEN | bits::<S, T, V>(simd, cells);
        }
    }
    halves[1] << (WORD / 2) | halves[0]
}

/// Spreads a word over as many cells, whose vectors have bits of their own.
#[inline(always)]
pub(super) fn spread_word<S: Simd, T: Cell>(simd: S, word: u64, cells: &mut [T]) {
    for start in (0..WORD).step_by(T::Vector::<S>::LEN) {
        put::<S, T, T::Vector<S>>(simd, word >> start, &mut cells[start..][..T::Vector::<S>::LEN]);
    }
}

/// The same of doubles, with the word in each element of one vector: of masks that are made one by one, each has to come
/// from a register for whole numbers.
#[inline(always)]
pub(super) fn spread_over_doubles<S: Simd>(simd: S, word: u64, cells: &mut [f64]) {
    let (zero, one) = (S::f64s::splat(simd, 0.0), S::f64s::splat(simd, 1.0));
    let (word, none) = (S::u64s::splat(simd, word), S::u64s::splat(simd, 0));
    for start in (0..WORD).step_by(S::u64s::LEN) {
        let bits = S::u64s::from_slice(simd, &BITS[start..][..S::u64s::LEN]);
        let dead = (word & bits).simd_eq(none);
        dead.select(zero, one).store_slice(&mut cells[start..][..S::f64s::LEN]);
    }
}

/// The bits of a word, alone.
static BITS: [u64; WORD] = {
    let mut bits = [1; WORD];
    let mut bit = 0;
    while bit < WORD {
        bits[bit] <<= bit;
        bit += 1;
    }
    bits
};

/// Packs a row from a word on.
#[inline(always)]
fn pack_from<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    word: usize,
    row: &[T],
    words: &mut [u64],
) {
    let whole = row.len() / WORD;
    for word in word..whole {
        words[word] = pack_word::<S, T, V>(simd, &row[word * WORD..][..WORD]);
    }
    let rest = &row[whole * WORD..];
    if rest.is_empty() {
        return;
    }
    let last = &mut words[whole];
    *last = 0;
    if row.len() < V::LEN {
        let alive = rest.iter().map(|cell| u64::from(*cell == T::from(1)));
        *last = alive.enumerate().fold(0, |word, (index, bit)| word | bit << index);
        return;
    }
    let mut start = 0;
    while start + V::LEN <= rest.len() {
        *last |= bits::<S, T, V>(simd, &rest[start..start + V::LEN]) << start;
        start += V::LEN;
    }
    if start < rest.len() {
        // The last vector is moved back to end with the row; what is known of it already is cut off.
        let known = start + V::LEN - rest.len();
        *last |= bits::<S, T, V>(simd, &row[row.len() - V::LEN..]) >> known << start;
    }
}

/// Spreads what of a row is less than a word.
#[inline(always)]
fn spread_end<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, words: &[u64], row: &mut [T]) {
    let before = row.len() / WORD;
    let rest = &mut row[before * WORD..];
    if rest.is_empty() {
        return;
    }
    let last = words[before];
    if WORD * before + rest.len() < V::LEN {
        for (index, cell) in rest.iter_mut().enumerate() {
            *cell = T::from((last >> index & 1) as u8);
        }
        return;
    }
    let mut start = 0;
    while start + V::LEN <= rest.len() {
        put::<S, T, V>(simd, last >> start, &mut rest[start..start + V::LEN]);
        start += V::LEN;
    }
    if start < rest.len() {
        let end = row.len();
        let first = end - V::LEN;
        let (word, shift) = (first / WORD, (first % WORD) as u32);
        let above = words.get(word + 1).map_or(0, |next| next.unbounded_shl(WORD as u32 - shift));
        put::<S, T, V>(simd, words[word] >> shift | above, &mut row[first..]);
    }
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};
    use streamhalo::comm::device::past_caches;

    use super::*;

    /// At every length around the ends of vectors and words, there and back, alone and side by side.
    fn come_back<T: Cell>() {
        dispatch!(Level::new(), simd => {
            for cells in (0_usize..140).chain([191, 192, 193, 320]) {
                let row: Vec<T> = (0..cells).map(|x| T::from(u8::from(x % 7 < 3 || x == cells - 1))).collect();
                let mut words = vec![0; cells.div_ceil(WORD)];
                pack_any(simd, &row, &mut words);
                let bit = |x: usize| (words[x / WORD] >> (x % WORD) & 1) as u8;
                assert!((0..cells).all(|x| T::from(bit(x)) == row[x]), "{cells}: {words:x?}");
                let ones: u32 = words.iter().map(|word| word.count_ones()).sum();
                assert_eq!(ones as usize, row.iter().filter(|cell| **cell == T::from(1)).count(), "{cells}");
                let mut back = vec![T::from(2); cells];
                spread_any(simd, &words, &mut back);
                assert!(back == row, "{cells}");
            }
        });
    }

    #[inline(always)]
    fn pack_any<S: Simd, T: Cell>(simd: S, row: &[T], words: &mut [u64]) {
        pack::<S, T, T::Vector<S>>(simd, row, words);
        // Rows to write that begin with a line, and are shorter.
        let mut other = vec![T::from(1); row.len() + LINE_BYTES];
        let start = other.as_ptr().align_offset(LINE_BYTES);
        let other = &mut other[start..][..row.len().saturating_sub(2)];
        beside_another::<S, T, _>(simd, row, words, Through::<_, false>(&mut *other));
        beside_another::<S, T, _>(simd, row, words, Through::<_, true>(&mut *other));
        past_caches(|stores| match stores.row(other, T::Vector::<S>::LEN) {
            Ok(other) => beside_another::<S, T, _>(simd, row, words, Past::new(other, LINE_BYTES)),
            Err(_) => assert!(size_of::<T::Vector<S>>() < 32 || cfg!(not(target_arch = "x86_64"))),
        });
    }

    /// Packs a row again while dead cells go to another.
    #[inline(always)]
    fn beside_another<S: Simd, T: Cell, W: Words<T>>(simd: S, row: &[T], words: &[u64], mut to: W) {
        let (mut again, dead) = (vec![!0; words.len()], vec![0; words.len()]);
        to.row().fill(T::from(1));
        pack_and_spread::<S, T, T::Vector<S>, _>(simd, (row, &mut again), (&dead, &mut to));
        assert!(again == words && to.row().iter().all(|cell| *cell == T::from(0)), "{}", row.len());
    }

    #[inline(always)]
    fn spread_any<S: Simd, T: Cell>(simd: S, words: &[u64], row: &mut [T]) {
        spread::<S, T, T::Vector<S>>(simd, words, row);
    }

    #[test]
    fn rows_come_back() {
        come_back::<u8>();
        come_back::<f64>();
    }
}
