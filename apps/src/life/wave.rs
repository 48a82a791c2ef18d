//! Several generations of Life in one sweep over rows of cells, 64 of them in a word.
//!
//! Of a cell there is one bit: one comparison makes the bits of a vector of cells, and one choice makes a vector of
//! them. In between the rule takes some thirty operations for a vector of words. Every row is read once: the sums of
//! three cells side by side, two bits each, are kept for the rows below. So cells are moved once for all generations of the
//! sweep; `cargo bench --bench kernels` compares one generation with a copy.
//!
//! ```text
//! packed  0  1    2  3    4  5    6  7   After rows 6 and 7 have been packed, rows 5 and 6 of generation 1 are computed,
//! 1          1    2  3    4  5    6      and 2 and 3 of generation 2, of rows that have been in memory since the pair
//! 2               2  3                   before. What is looked up serves two rows, and the sums are kept once for both.
//! ```
//!
//! Words begin with the first cell that is owned, since long rows of those begin with a line of the cache: ghosts are bits
//! of the word in front and of the last ones. Of each generation one more layer of them is wrong, the outermost at first;
//! what is owned is right to the last.
//!
//! Two things keep the processor from waiting. A row is packed some rows before it is needed, since its words are
//! stored one by one and read by vectors, which must wait until all have left the processor's queue of stores. And while
//! one row is packed another is written, so that memory is read and written at a time: past the caches, where none holds
//! both generations. That is so for all rows but the last ones, two for each generation and two more.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use std::hint::black_box;

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, past_caches};

use super::kernel::{Cell, Sweep, Task};
use super::rule::{Known, Sums, alive_next};
use super::words::{Past, Through, WORD, bits, pack, pack_and_spread, spread};
use crate::app::LINE_BYTES;

/// Words of a line.
const LINE: usize = LINE_BYTES / size_of::<u64>();

/// Rows that are computed at a time: the sums of three cells side by side, and what is looked up, serve both. When which row
/// is made of which goes by pairs.
const PAIR: usize = 2;

/// Rows that are kept packed: the pair that is needed next, and the one behind it.
const AHEAD: usize = 2 * PAIR;

/// Of both generations, what second-level caches hold: from there on lines are asked for ahead. Within it that costs up to
/// a tenth and gains nothing.
pub(super) const NEAR_BYTES: usize = 1 << 20;

/// How far ahead lines to pack are asked for where no cache holds both generations: of one generation, and of several, between
/// whose rows more is computed.
const PAST_AHEAD_BYTES: usize = 2 << 10;
const PAST_AHEAD_BYTES_OF_MANY: usize = 8 << 10;

/// Words, and blocks of which something is known, that are not allocated, which takes as long as computing a few short rows.
/// They do for one generation of rows of 1024 cells in vectors of 64 bytes, and of 256 in those of 16.
const FEW_WORDS: usize = 192;
const FEW_BLOCKS: usize = 2;

/// Where the cells of a row are among its words: a dead one, the one that ends with the ghosts in front, and then what is
/// owned.
const OWNED: usize = 2;

/// Computes one generation. It is compiled for itself: what several need besides takes a sixth of the time of short rows.
pub(super) fn step<'r, T: Cell>(
    task: Task<impl Iterator<Item = &'r [T]>, impl Iterator<Item = &'r mut [T]>>,
) {
    sweep_rows_as::<_, true>(Sweep::ONE, task);
}

/// Computes rows that many generations on.
pub(super) fn sweep_rows<'r, T: Cell>(
    sweep: Sweep,
    task: Task<impl Iterator<Item = &'r [T]>, impl Iterator<Item = &'r mut [T]>>,
) {
    sweep_rows_as::<_, false>(sweep, task);
}

/// If `IS_ONE`, the sweep is [`Sweep::ONE`].
fn sweep_rows_as<'r, T: Cell, const IS_ONE: bool>(
    sweep: Sweep,
    task: Task<impl Iterator<Item = &'r [T]>, impl Iterator<Item = &'r mut [T]>>,
) {
    let Task { level, is_past, extents, mut now, mut next } = task;
    if extents[0] == 0 {
        return;
    }
    past_caches(|stores| {
        let stores = is_past.then_some(stores);
        dispatch!(level, simd => {
            let sweep = if IS_ONE { Sweep::ONE } else { sweep };
            sweep_in_widest(simd, stores, extents, sweep, &mut now, &mut next);
        });
    });
}

/// In the widest vectors that a row has.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
fn sweep_in_widest<'r, S: Simd, T: Cell>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    extents: [usize; 2],
    sweep: Sweep,
    now: &mut impl Iterator<Item = &'r [T]>,
    next: &mut impl Iterator<Item = &'r mut [T]>,
) {
    if extents[1] >= T::Vector::<S>::LEN {
        sweep_words::<S, T, T::Vector<S>>(simd, stores, extents, sweep, now, next);
    } else {
        sweep_words::<S, T, <T::Vector<S> as SimdBase<S>>::Block>(simd, stores, extents, sweep, now, next);
    }
}

#[inline(always)]
fn sweep_words<'r, S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    [rows, columns]: [usize; 2],
    sweep: Sweep,
    now: &mut impl Iterator<Item = &'r [T]>,
    next: &mut impl Iterator<Item = &'r mut [T]>,
) {
    let (layers, width) = (sweep.generations, columns + 2 * sweep.generations);
    // Ghosts are computed too, unless the first generation is the last.
    let (first, cells) = if layers == 1 { (OWNED, columns) } else { (OWNED - 1, columns + layers) };
    let blocks = (OWNED - first + cells.div_ceil(WORD)).div_ceil(S::u64s::LEN);
    // Of each row, the first word that is made begins with a line.
    let words = (first + blocks * S::u64s::LEN + 1).next_multiple_of(LINE);
    let needed = (AHEAD + 1 + PAIR * layers) * words + LINE;
    let (mut few, mut many) = ([0; FEW_WORDS], Vec::new());
    let memory = room(needed, &mut few, &mut many, 0);
    let begins = memory[first..].as_ptr().align_offset(LINE_BYTES);
    let (ahead, memory) = memory[begins..].split_at_mut(AHEAD * words);
    let (changing, made) = memory.split_at_mut(words);
    mark_changing(sweep, columns, changing);
    let nothing = nothing_known(simd);
    let (mut few, mut many) = ([nothing; FEW_BLOCKS], Vec::new());
    let known = room(blocks * layers, &mut few, &mut many, nothing);

    let is_far = 2 * rows * columns * size_of::<T>() > NEAR_BYTES;
    let ahead_bytes = if layers == 1 { PAST_AHEAD_BYTES } else { PAST_AHEAD_BYTES_OF_MANY };
    let inputs = rows + 2 * layers;
    let [above, below] = sweep.layers_that_stay()[0];
    for packed in ahead.chunks_exact_mut(words) {
        let Some(now) = now.next() else { break };
        pack_with_ghosts::<S, T, V>(simd, layers, row_of(width, now), packed);
    }
    for turn in 0..rows.div_ceil(PAIR) + 2 * layers - 1 {
        let first_row = PAIR * turn;
        let packed = &mut ahead[first_row % AHEAD * words..][..PAIR * words];
        // Those that have been given rows, and have not been given all.
        let least = (first_row + 4).saturating_sub(inputs) / 2;
        for generation in (least.max(1)..=(turn / 2 + 1).min(layers)).rev() {
            let (from, to) = made.split_at_mut((generation - 1) * PAIR * words);
            let from = if generation == 1 { &*packed } else { &from[(generation - 2) * PAIR * words..] };
            let (from, to) = (from[..PAIR * words].split_at(words), to[..PAIR * words].split_at_mut(words));
            let known = &mut known[(generation - 1) * blocks..][..blocks];
            let changing = &changing[first..];
            // The first row that is made, counted from 1 among those that are read.
            let made_first = first_row + 3 - 3 * generation;
            make_rows(
                simd,
                [&from.0[first - 1..], &from.1[first - 1..]],
                known,
                changing,
                [&mut to.0[first..], &mut to.1[first..]],
            );
            let stays = |row: usize| row <= above || row > inputs - below;
            if stays(made_first) {
                to.0.fill(0);
            }
            if stays(made_first + 1) {
                to.1.fill(0);
            }
        }
        for row in 0..PAIR {
            let alive = &made[((layers - 1) * PAIR + row) * words + OWNED..];
            let packed = &mut packed[row * words..][..words];
            // Before that the last generation has not begun.
            let to = if turn + 1 < 2 * layers { None } else { next.next() };
            if let Some(to) = &to {
                assert_eq!(to.len(), columns, "rows of the next generation have one length");
            }
            match (now.next(), to) {
                (Some(now), Some(next)) => {
                    let from = (&row_of(width, now)[layers..][..columns], &mut packed[OWNED..]);
                    let past = match stores {
                        Some(stores) => stores.row(next, V::LEN),
                        None => Err(next),
                    };
                    match past {
                        Ok(next) => pack_and_spread::<S, T, V, _>(
                            simd,
                            from,
                            (alive, &mut Past::new(next, ahead_bytes)),
                        ),
                        Err(next) if is_far => {
                            pack_and_spread::<S, T, V, _>(simd, from, (alive, &mut Through::<_, true>(next)))
                        }
                        Err(next) => {
                            pack_and_spread::<S, T, V, _>(simd, from, (alive, &mut Through::<_, false>(next)))
                        }
                    }
                    pack_ghosts::<S, T, V>(simd, layers, now, packed);
                }
                (Some(now), None) => pack_with_ghosts::<S, T, V>(simd, layers, row_of(width, now), packed),
                (None, Some(next)) => spread::<S, T, V>(simd, alive, next),
                (None, None) => {}
            }
        }
    }
}

/// So many of the same: `few` of them, or if these are too few `many`, which is empty.
#[inline(always)]
pub(super) fn room<'r, T: Clone>(
    needed: usize,
    few: &'r mut [T],
    many: &'r mut Vec<T>,
    value: T,
) -> &'r mut [T] {
    match needed <= few.len() {
        true => &mut few[..needed],
        false => {
            many.resize(needed, value);
            many
        }
    }
}

/// A row to read, which has to be that wide.
#[inline(always)]
fn row_of<T>(width: usize, row: &[T]) -> &[T] {
    assert_eq!(row.len(), width, "a row to read has one ghost cell on either side for each generation");
    row
}

/// Makes two rows of a generation, now that those of the one before are known to the rows below them, which are `from`.
#[inline(always)]
fn make_rows<S: Simd>(
    simd: S,
    from: [&[u64]; PAIR],
    known: &mut [Known<S>],
    changing: &[u64],
    [first, second]: [&mut [u64]; PAIR],
) {
    for block in 0..known.len() {
        let words = block * S::u64s::LEN..(block + 1) * S::u64s::LEN;
        let (below, below_cells) = sums_of_words(simd, &from[0][words.start..words.end + 2]);
        let (furthest, furthest_cells) = sums_of_words(simd, &from[1][words.start..words.end + 2]);
        let changing = S::u64s::from_slice(simd, &changing[words.clone()]);
        let Known { above, here, cells } = known[block];
        (alive_next(above, (here, cells), below) & changing).store_slice(&mut first[words.clone()]);
        (alive_next(here, (below, below_cells), furthest) & changing).store_slice(&mut second[words]);
        known[block] = Known { above: below, here: furthest, cells: furthest_cells };
    }
}

/// Marks the cells of a row that change.
#[inline(always)]
fn mark_changing(sweep: Sweep, columns: usize, words: &mut [u64]) {
    let [low, high] = sweep.layers_that_stay()[1].map(|layers| sweep.generations - layers);
    let (start, end) = (OWNED * WORD - low, OWNED * WORD + columns + high);
    for (index, word) in words.iter_mut().enumerate() {
        let within = |bit: usize| bit.clamp(index * WORD, (index + 1) * WORD) - index * WORD;
        let below = |bit: usize| !u64::MAX.unbounded_shl(within(bit) as u32);
        *word = below(end) & !below(start);
    }
}

/// Packs a row with its ghost cells.
#[inline(always)]
fn pack_with_ghosts<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    layers: usize,
    row: &[T],
    words: &mut [u64],
) {
    pack::<S, T, V>(simd, &row[layers..row.len() - layers], &mut words[OWNED..]);
    pack_ghosts::<S, T, V>(simd, layers, row, words);
}

/// Packs the ghost cells of a row, when the others are packed.
#[inline(always)]
fn pack_ghosts<S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    layers: usize,
    row: &[T],
    words: &mut [u64],
) {
    let columns = row.len() - 2 * layers;
    // A whole vector of them and what is beside them, where there is one.
    let width = layers.max(V::LEN).min(row.len());
    let (low, high) = (&row[..width], &row[row.len() - width..]);
    let [low, high] = if width == V::LEN {
        [bits::<S, T, V>(simd, low), bits::<S, T, V>(simd, high)]
    } else {
        let mut words = [[0]; 2];
        pack::<S, T, V>(simd, low, &mut words[0]);
        pack::<S, T, V>(simd, high, &mut words[1]);
        [words[0][0], words[1][0]]
    };
    let high = high >> (width - layers);
    words[OWNED - 1] = low << (WORD - layers);
    let (last, bit) = (OWNED + columns / WORD, columns % WORD);
    let owned = if bit == 0 { 0 } else { words[last] };
    words[last] = owned | high << bit;
    if bit + layers > WORD {
        words[last + 1] = high >> (WORD - bit);
    }
}

/// The sums of packed cells, with one word in front of theirs and one behind; and the cells.
#[inline(always)]
fn sums_of_words<S: Simd>(simd: S, words: &[u64]) -> (Sums<S>, S::u64s) {
    // Not by a map over the three, which is inlined only where all crates are optimised together.
    let before = S::u64s::from_slice(simd, &words[..S::u64s::LEN]);
    let here = S::u64s::from_slice(simd, &words[1..1 + S::u64s::LEN]);
    let behind = S::u64s::from_slice(simd, &words[2..2 + S::u64s::LEN]);
    (sums_beside([before, here, behind]), here)
}

/// The same from the words in front of those that it is of, these, and those behind them.
#[inline(always)]
fn sums_beside<S: Simd>([before, here, behind]: [S::u64s; 3]) -> Sums<S> {
    Sums::of([here << 1 | before >> 63, here, here >> 1 | behind << 63])
}

/// Nothing of rows above the first.
#[inline(always)]
fn nothing_known<S: Simd>(simd: S) -> Known<S> {
    let cells = S::u64s::splat(simd, 0);
    let sums = Sums::of([cells; 3]);
    Known { above: sums, here: sums, cells }
}

/// Computes the rule on words that stay in registers, so many times: what a generation takes at least. Gives for how many
/// cells that was.
pub(crate) fn rule_in_registers(rounds: usize) -> usize {
    dispatch!(Level::new(), simd => rule_in_registers_at(simd, rounds))
}

#[inline(always)]
fn rule_in_registers_at<S: Simd>(simd: S, rounds: usize) -> usize {
    /// So many rows at once, each of which waits for its own last round, keep a processor busy; more take the same.
    const ROWS: usize = 4;
    let [one, two] = black_box([1, 2].map(|bits| S::u64s::splat(simd, bits)));
    let sums = Sums::<S>::of([one, two, one]);
    let mut rows = black_box([Known::<S> { above: sums, here: sums, cells: one }; ROWS]);
    for _ in 0..rounds {
        for known in &mut rows {
            let Known { above, here, cells } = *known;
            let below = sums_beside([above.ones, cells, above.twos]);
            let first = alive_next(above, (here, cells), below);
            let furthest = sums_beside([here.ones, first, here.twos]);
            let second = alive_next(here, (below, first), furthest);
            *known = Known { above: below, here: furthest, cells: second };
        }
    }
    black_box(rows);
    PAIR * ROWS * rounds * S::u64s::LEN * WORD
}
