//! Rows of cells as bits, 64 to a word and the first in the lowest.
//!
//! A vector of cells becomes its bits by one comparison, and comes of them by one choice.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use fearless_simd::{Simd, prelude::*};
use streamhalo::comm::device::ask_for_line;

use super::kernel::Cell;

/// Cells of a word.
pub(super) const WORD: usize = 64;

/// Bytes of a line of the caches.
const LINE: usize = 64;

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

/// Packs a row and spreads words over another, which is no longer, side by side: memory is read while other
/// memory is written. If they are far from the core, all lines of a word are asked for before the first is needed: with
/// what becomes of them in between the processor comes too late upon most, above all upon those that are written.
#[inline(always)]
pub(super) fn pack_and_spread<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    is_far: bool,
    (from, packed): (&[T], &mut [u64]),
    (words, row): (&[u64], &mut [T]),
) {
    let whole = row.len() / WORD;
    for word in 0..whole {
        let (from, row) = (&from[word * WORD..][..WORD], &mut row[word * WORD..][..WORD]);
        if is_far {
            for line in (0..WORD).step_by(LINE / size_of::<T>()) {
                ask_for_line(&from[line], 0);
                ask_for_line(&row[line], 0);
            }
        }
        packed[word] = pack_word::<S, T, V>(simd, from);
        T::spread_word(simd, words[word], row);
    }
    pack_from::<S, T, V>(simd, whole, from, packed);
    spread_end::<S, T, V>(simd, words, row);
}

#[inline(always)]
fn bits<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, cells: &[T]) -> u64 {
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
        let mut again = vec![!0; words.len()];
        let mut other = vec![T::from(1); row.len().saturating_sub(2)];
        let dead = vec![0; words.len()];
        for is_far in [false, true] {
            again.fill(!0);
            other.fill(T::from(1));
            pack_and_spread::<S, T, T::Vector<S>>(simd, is_far, (row, &mut again), (&dead, &mut other));
            assert!(again == words && other.iter().all(|cell| *cell == T::from(0)), "{}", row.len());
        }
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
