//! One generation of Life on rows of cells, 64 of them in a word.
//!
//! Equation: `next = 1` if `t = 3` or (`t = 4` and `here = 1`), else 0, where `t` is the number of live cells among
//! the nine.
//!
//! Bytes are computed as they are (`bytes`). Of wider cells each is one bit: one comparison makes the bits of a vector
//! of cells, and one choice makes a vector of them. In between the rule takes some twenty operations for 512 cells.
//! Every row is read once: the sums of three cells side by side, two bits each, are kept for two rows. So cells cost what
//! it costs to move them; `cargo bench --bench kernels` compares with a copy. Words begin with the first cell that is
//! owned, since long rows of those begin with a line of the cache: ghosts are bits of a word in front and of the last one.
//!
//! Two things keep the processor from waiting. A row is packed some rows before it is needed, since its words are
//! stored one by one and read by eight, which must wait until all have left the processor's queue of stores. And while
//! one row is packed another is written, so that memory is read and written at a time.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use std::marker::PhantomData;
use std::ops::{Add, Range, Sub};

use fearless_simd::{Level, Simd, dispatch, prelude::*, u64x8};
use streamhalo::comm::device::{Rows, RowsMut, Tile};

use super::bytes;
use super::words::{WORD, pack, pack_and_spread, spread};
use crate::app::Vectors;

/// Words that are computed at once.
const WORDS: usize = 8;

/// Rows that are packed ahead of the one that is needed next.
const AHEAD: usize = 4;

/// What a cell is stored as: the number 0 or 1.
pub trait Cell: Vectors + From<u8> + Add<Output = Self> + Sub<Output = Self> {
    /// 0 or 1; 2 for whatever is no cell, so that it is seen.
    #[inline]
    fn to_byte(self) -> u8 {
        match self {
            dead if dead == Self::from(0) => 0,
            live if live == Self::from(1) => 1,
            _ => 2,
        }
    }
}

impl Cell for u8 {}
impl Cell for f64 {}

/// Computes one row of the next generation.
///
/// The three rows of the present generation have one ghost cell on either side, so each is two cells
/// longer than `next`. Cells are 0 or 1. Many rows are faster together, by [`step_rows`].
///
/// # Panics
///
/// If a row has another length.
pub fn step_row<T: Cell>(above: &[T], here: &[T], below: &[T], next: &mut [T]) {
    step_rows(1, |row| [above, here, below][row], [next]);
}

/// Computes `rows` consecutive rows of the next generation.
///
/// `next` yields the rows to write, from the lowest y up. Row `i` of them is computed from
/// `now(i)`, `now(i + 1)` and `now(i + 2)`, which have one ghost cell on either side: `now(0)` is
/// the row above the first one written. All rows of one call have one length. Cells are 0 or 1.
///
/// # Panics
///
/// If there are not as many rows in `next`, a row of `now` is not two cells longer than they are, or they differ in
/// length.
pub fn step_rows<'now, 'next, T: Cell>(
    rows: usize,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    step_rows_at(Level::new(), rows, now, next);
}

/// [`step_rows`] with an instruction set of the caller's choice, so that tests reach all of them.
pub(super) fn step_rows_at<'now, 'next, T: Cell>(
    level: Level,
    rows: usize,
    now: impl Fn(usize) -> &'now [T],
    next: impl IntoIterator<Item = &'next mut [T]>,
) {
    step_all(level, rows, Slices { now, next: next.into_iter(), rows: PhantomData });
}

/// Computes the next generation of a tile of an array.
pub(super) fn step_tile<T: Cell>(tile: Tile, now: Rows<'_, T>, next: RowsMut<'_, T>) {
    let (first, x) = (tile.start[1], tile.start[2] - 1..tile.end[2] + 1);
    step_all(Level::new(), tile.extents()[1], OfTile { first, x, now, next });
}

fn step_all<'now, T: Cell>(level: Level, rows: usize, mut all: impl Generations<'now, T>) {
    if size_of::<T>() == 1 {
        // A vector of them is one word of bits: it is computed as it is.
        return bytes::step_rows(level, rows, all);
    }
    if rows > 0 {
        dispatch!(level, simd => step_in_widest(simd, rows, &mut all));
    }
}

/// The rows of two generations. Several are looked up together: of short ones that takes as long as computing them.
pub(super) trait Generations<'now, T> {
    /// So many rows of the present one from the `y`-th on, with one ghost cell on either side. The first of all is above
    /// the first row that is written.
    fn now<const N: usize>(&self, y: usize) -> [&'now [T]; N];

    /// So many rows of the next one from the `y`-th on; each is asked for once, in order.
    fn next<const N: usize>(&mut self, y: usize) -> [&mut [T]; N];
}

/// Those of a tile.
struct OfTile<'r, T> {
    /// The first row to write.
    first: usize,
    /// The columns to read.
    x: Range<usize>,
    now: Rows<'r, T>,
    next: RowsMut<'r, T>,
}

impl<'now, T: Cell> Generations<'now, T> for OfTile<'now, T> {
    #[inline(always)]
    fn now<const N: usize>(&self, y: usize) -> [&'now [T]; N] {
        self.now.spans(0, self.first - 1 + y, self.x.clone())
    }

    #[inline(always)]
    fn next<const N: usize>(&mut self, y: usize) -> [&mut [T]; N] {
        self.next.rows_from(0, self.first + y)
    }
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
    fn now<const N: usize>(&self, y: usize) -> [&'now [T]; N] {
        std::array::from_fn(|row| (self.now)(y + row))
    }

    fn next<const N: usize>(&mut self, _: usize) -> [&mut [T]; N] {
        std::array::from_fn(|_| self.next.next().expect("there is a row to write for each"))
    }
}

/// In the widest vectors that a row has.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
fn step_in_widest<'now, S: Simd, T: Cell>(simd: S, rows: usize, all: &mut impl Generations<'now, T>) {
    let [first] = all.now(0);
    let extents = [rows, first.len().saturating_sub(2)];
    if extents[1] >= T::Vector::<S>::LEN {
        step_words::<S, T, T::Vector<S>>(simd, extents, all);
    } else {
        step_words::<S, T, <T::Vector<S> as SimdBase<S>>::Block>(simd, extents, all);
    }
}

#[inline(always)]
fn step_words<'now, S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    [rows, columns]: [usize; 2],
    all: &mut impl Generations<'now, T>,
) {
    let read = |row: &'now [T]| {
        assert_eq!(row.len(), columns + 2, "a row to read has one ghost cell on either side");
        row
    };
    let blocks = columns.div_ceil(WORD * WORDS);
    // One word more at either end, for the ghost cells.
    let words = blocks * WORDS + 2;
    let mut memory = vec![0; AHEAD * words + blocks * WORDS];
    let (ahead, alive) = memory.split_at_mut(AHEAD * words);
    let mut sums = vec![[Sums::none(simd); 2]; blocks];
    for (row, now) in all.now::<2>(0).into_iter().enumerate() {
        pack_with_ghosts::<S, T, V>(simd, read(now), &mut ahead[..words]);
        for (block, sums) in sums.iter_mut().enumerate() {
            sums[row] = Sums::of(simd, &ahead[block * WORDS..]);
        }
    }
    for (row, packed) in ahead.chunks_exact_mut(words).enumerate().take(rows) {
        let [now] = all.now(row + 2);
        pack_with_ghosts::<S, T, V>(simd, read(now), packed);
    }
    for row in 0..rows {
        let packed = &mut ahead[row % AHEAD * words..][..words];
        for block in 0..blocks {
            let below = Sums::of(simd, &packed[block * WORDS..]);
            let [above, here] = &mut sums[block];
            alive_next(above, here, &below).store_slice(&mut alive[block * WORDS..][..WORDS]);
            (*above, *here) = (*here, below);
        }
        let ahead = (row + AHEAD < rows).then(|| all.now::<1>(row + AHEAD + 2));
        let [next] = all.next(row);
        assert_eq!(next.len(), columns, "rows of the next generation have one length");
        if let Some([now]) = ahead {
            let owned = (&read(now)[1..=columns], &mut packed[1..]);
            pack_and_spread::<S, T, V>(simd, owned, (alive, next));
            pack_ghosts(now, packed);
        } else {
            spread::<S, T, V>(simd, alive, next);
        }
    }
}

/// Packs a row with its ghost cells, of which the lower one is the last bit of the first word.
#[inline(always)]
fn pack_with_ghosts<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(simd: S, row: &[T], words: &mut [u64]) {
    pack::<S, T, V>(simd, &row[1..row.len() - 1], &mut words[1..]);
    pack_ghosts(row, words);
}

/// Packs the ghost cells of a row, when the others are packed.
#[inline(always)]
fn pack_ghosts<T: Cell>(row: &[T], words: &mut [u64]) {
    let columns = row.len() - 2;
    let [low, high] = [row[0], row[columns + 1]].map(|cell| u64::from(cell == T::from(1)));
    words[0] = low << (WORD - 1);
    let (last, bit) = (1 + columns / WORD, columns % WORD);
    let owned = if bit == 0 { 0 } else { words[last] };
    words[last] = owned | high << bit;
}

/// Of 512 cells of a row, bit by bit: how many live of the cell itself and those beside it, and whether it does.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    ones: u64x8<S>,
    twos: u64x8<S>,
    here: u64x8<S>,
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn none(simd: S) -> Self {
        let zero = u64x8::splat(simd, 0);
        Self { ones: zero, twos: zero, here: zero }
    }

    /// From packed cells, with one word in front of theirs and one behind.
    #[inline(always)]
    fn of(simd: S, words: &[u64]) -> Self {
        let before = u64x8::from_slice(simd, &words[..WORDS]);
        let here = u64x8::from_slice(simd, &words[1..][..WORDS]);
        let behind = u64x8::from_slice(simd, &words[2..][..WORDS]);
        let (left, right) = (here << 1 | before >> 63, here >> 1 | behind << 63);
        Self { ones: left ^ here ^ right, twos: most(left, here, right), here }
    }
}

/// Which of 512 cells live next.
#[inline(always)]
fn alive_next<S: Simd>(above: &Sums<S>, here: &Sums<S>, below: &Sums<S>) -> u64x8<S> {
    let ones = above.ones ^ here.ones ^ below.ones;
    let carried = most(above.ones, here.ones, below.ones);
    // How often two live, 0 to 4 times: whether it is odd, and whether it is 2 or 3.
    let odd_rows = above.twos ^ here.twos ^ below.twos;
    let odd = odd_rows ^ carried;
    let many = most(above.twos, here.twos, below.twos) ^ (odd_rows & carried);
    (ones & odd & !many) | (here.here & many & !(ones | odd))
}

/// Bits that two or three of them have.
#[inline(always)]
fn most<S: Simd>(one: u64x8<S>, two: u64x8<S>, three: u64x8<S>) -> u64x8<S> {
    (one & two) | (three & (one | two))
}
