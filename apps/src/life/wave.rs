//! Several generations of Life in one sweep over rows of cells, 64 of them in a word.
//!
//! Of a cell there is one bit: one comparison makes the bits of a vector of cells, and one choice makes a vector of
//! them. In between the rule takes some thirty operations for a vector of words. Every row is read once: the sums of
//! three cells side by side, two bits each, are kept for two rows. So cells are moved once for all generations of the
//! sweep; `cargo bench --bench kernels` compares one generation with a copy.
//!
//! ```text
//! packed  0  1  2  3  4  5  6      After row 6 has been packed, generation 1 of row 5 is computed, then generation 2
//! 1          1  2  3  4  5         of row 3, and row 1 of generation 3: each two rows behind the one that it is made
//! 2             2  3               of, which has been in memory since the row before.
//! 3                1
//! ```
//!
//! Words begin with the first cell that is owned, since long rows of those begin with a line of the cache: ghosts are bits
//! of the word in front and of the last ones. Of each generation one more layer of them is wrong, the outermost at first;
//! what is owned is right to the last.
//!
//! Two things keep the processor from waiting. A row is packed some rows before it is needed, since its words are
//! stored one by one and read by vectors, which must wait until all have left the processor's queue of stores. And while
//! one row is packed another is written, so that memory is read and written at a time: past the caches, where none holds
//! both generations.

// Iterators need not be inlined into what `dispatch!` makes for an instruction set; loops that count are there.
#![allow(clippy::needless_range_loop)]

use std::hint::black_box;

use fearless_simd::{Level, Simd, dispatch, prelude::*};
use streamhalo::comm::device::{PastCaches, past_caches};

use super::kernel::{Cell, Sweep};
use super::rows::Generations;
use super::words::{Past, Through, WORD, pack, pack_and_spread, spread};

/// Rows that are packed ahead of the one that is needed next.
const AHEAD: usize = 4;

/// Of both generations, what second-level caches hold: from there on lines are asked for ahead. Within it that costs up to
/// a tenth and gains nothing.
const NEAR_BYTES: usize = 1 << 20;

/// How far ahead lines to pack are asked for where no cache holds both generations: of one generation, and of several, between
/// whose rows more is computed.
const PAST_AHEAD_BYTES: usize = 2 << 10;
const PAST_AHEAD_BYTES_OF_MANY: usize = 8 << 10;

/// Where the cells of a row are among its words: a dead one, the one that ends with the ghosts in front, and then what is
/// owned.
const OWNED: usize = 2;

/// Computes one generation of so many rows; if `is_past`, of a field that no cache holds. It is compiled for itself: what
/// several need besides takes a sixth of the time of short rows.
pub(super) fn step_rows<'now, T: Cell>(
    level: Level,
    is_past: bool,
    rows: usize,
    all: impl Generations<'now, T>,
) {
    sweep_rows_as::<_, true>(level, is_past, rows, Sweep::ONE, all);
}

/// Computes so many rows that many generations on; if `is_past`, of a field that no cache holds.
pub(super) fn sweep_rows<'now, T: Cell>(
    level: Level,
    is_past: bool,
    rows: usize,
    sweep: Sweep,
    all: impl Generations<'now, T>,
) {
    sweep_rows_as::<_, false>(level, is_past, rows, sweep, all);
}

/// If `IS_ONE`, the sweep is [`Sweep::ONE`].
fn sweep_rows_as<'now, T: Cell, const IS_ONE: bool>(
    level: Level,
    is_past: bool,
    rows: usize,
    sweep: Sweep,
    mut all: impl Generations<'now, T>,
) {
    if rows == 0 {
        return;
    }
    past_caches(|stores| {
        let stores = is_past.then_some(stores);
        dispatch!(level, simd => {
            let sweep = if IS_ONE { Sweep::ONE } else { sweep };
            sweep_in_widest(simd, stores, rows, sweep, &mut all);
        });
    });
}

/// In the widest vectors that a row has.
// Everything below is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
// instruction set is compiled for it.
#[inline(always)]
fn sweep_in_widest<'now, S: Simd, T: Cell>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    rows: usize,
    sweep: Sweep,
    all: &mut impl Generations<'now, T>,
) {
    let extents = [rows, all.now(0).len().saturating_sub(2 * sweep.generations)];
    if extents[1] >= T::Vector::<S>::LEN {
        sweep_words::<S, T, T::Vector<S>>(simd, stores, extents, sweep, all);
    } else {
        sweep_words::<S, T, <T::Vector<S> as SimdBase<S>>::Block>(simd, stores, extents, sweep, all);
    }
}

#[inline(always)]
fn sweep_words<'now, S: Simd, T: Cell, V: SimdBase<S, Element = T>>(
    simd: S,
    stores: Option<PastCaches<'_>>,
    [rows, columns]: [usize; 2],
    sweep: Sweep,
    all: &mut impl Generations<'now, T>,
) {
    let (layers, width) = (sweep.generations, columns + 2 * sweep.generations);
    // Ghosts are computed too, unless the first generation is the last.
    let (first, cells) = if layers == 1 { (OWNED, columns) } else { (OWNED - 1, columns + layers) };
    let blocks = (OWNED - first + cells.div_ceil(WORD)).div_ceil(S::u64s::LEN);
    let words = first + blocks * S::u64s::LEN + 1;
    let mut memory = vec![0; (AHEAD + 1 + layers) * words];
    let (ahead, memory) = memory.split_at_mut(AHEAD * words);
    let (changing, made) = memory.split_at_mut(words);
    mark_changing(sweep, columns, changing);
    let mut sums = vec![[Sums::none(simd); 2]; blocks * layers];

    let is_far = 2 * rows * columns * size_of::<T>() > NEAR_BYTES;
    let ahead_bytes = if layers == 1 { PAST_AHEAD_BYTES } else { PAST_AHEAD_BYTES_OF_MANY };
    let inputs = rows + 2 * layers;
    let [above, below] = sweep.layers_that_stay()[0];
    for (row, packed) in ahead.chunks_exact_mut(words).enumerate().take(inputs) {
        pack_with_ghosts::<S, T, V>(simd, layers, row_of(width, all.now(row)), packed);
    }
    for turn in 0..rows + 3 * layers - 1 {
        let packed = &mut ahead[turn % AHEAD * words..][..words];
        // Those that have been given rows, and have not been given all.
        let (least, most) = ((turn + 2).saturating_sub(inputs).max(1), (turn / 3 + 1).min(layers));
        for generation in (least..=most).rev() {
            let (from, to) = made.split_at_mut((generation - 1) * words);
            let from = if generation == 1 { &*packed } else { &from[(generation - 2) * words..] };
            let sums = &mut sums[(generation - 1) * blocks..][..blocks];
            make_row(simd, turn % 2, &from[first - 1..], sums, &changing[first..], &mut to[first..]);
            let newest = turn + 2 - 2 * generation;
            if newest <= above || newest > inputs - below {
                to[..words].fill(0);
            }
        }
        let alive = &made[(layers - 1) * words + OWNED..];
        // Not by closures: some would not be inlined, and the compiler forgets across calls what it knows of `layers`.
        let coming = if turn + AHEAD < inputs { Some(row_of(width, all.now(turn + AHEAD))) } else { None };
        let next = if turn + 1 < 3 * layers { None } else { Some(all.next(turn + 1 - 3 * layers)) };
        if let Some(next) = &next {
            assert_eq!(next.len(), columns, "rows of the next generation have one length");
        }
        match (coming, next) {
            (Some(now), Some(next)) => {
                let from = (&now[layers..][..columns], &mut packed[OWNED..]);
                let past = match stores {
                    Some(stores) => stores.row(next, V::LEN),
                    None => Err(next),
                };
                match past {
                    Ok(next) => {
                        pack_and_spread::<S, T, V, _>(simd, from, (alive, &mut Past::new(next, ahead_bytes)))
                    }
                    Err(next) if is_far => {
                        pack_and_spread::<S, T, V, _>(simd, from, (alive, &mut Through::<_, true>(next)))
                    }
                    Err(next) => {
                        pack_and_spread::<S, T, V, _>(simd, from, (alive, &mut Through::<_, false>(next)))
                    }
                }
                pack_ghosts::<S, T, V>(simd, layers, now, packed);
            }
            (Some(now), None) => pack_with_ghosts::<S, T, V>(simd, layers, now, packed),
            (None, Some(next)) => spread::<S, T, V>(simd, alive, next),
            (None, None) => {}
        }
    }
}

/// A row to read, which has to be that wide.
#[inline(always)]
fn row_of<T>(width: usize, row: &[T]) -> &[T] {
    assert_eq!(row.len(), width, "a row to read has one ghost cell on either side for each generation");
    row
}

/// Makes a row of a generation, now that those of the one before are known to the row below it, which is `from`.
#[inline(always)]
fn make_row<S: Simd>(
    simd: S,
    turn: usize,
    from: &[u64],
    sums: &mut [[Sums<S>; 2]],
    changing: &[u64],
    to: &mut [u64],
) {
    for block in 0..sums.len() {
        let words = block * S::u64s::LEN..(block + 1) * S::u64s::LEN;
        let below = Sums::of(simd, &from[words.start..words.end + 2]);
        let [even, odd] = &mut sums[block];
        let (above, here) = if turn == 0 { (even, odd) } else { (odd, even) };
        let alive = alive_next(above, here, &below);
        *above = below; // whose place nobody needs any more
        (alive & S::u64s::from_slice(simd, &changing[words.clone()])).store_slice(&mut to[words]);
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
    let (mut low, mut high) = ([0], [0]);
    pack::<S, T, V>(simd, &row[..width], &mut low);
    pack::<S, T, V>(simd, &row[row.len() - width..], &mut high);
    let (low, high) = (low[0], high[0] >> (width - layers));
    words[OWNED - 1] = low << (WORD - layers);
    let (last, bit) = (OWNED + columns / WORD, columns % WORD);
    let owned = if bit == 0 { 0 } else { words[last] };
    words[last] = owned | high << bit;
    if bit + layers > WORD {
        words[last + 1] = high >> (WORD - bit);
    }
}

/// Of a vector of words, bit by bit: how many live of the cell itself and those beside it, and whether it does.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    ones: S::u64s,
    twos: S::u64s,
    here: S::u64s,
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn none(simd: S) -> Self {
        let zero = S::u64s::splat(simd, 0);
        Self { ones: zero, twos: zero, here: zero }
    }

    /// From packed cells, with one word in front of theirs and one behind.
    #[inline(always)]
    fn of(simd: S, words: &[u64]) -> Self {
        // Not by a map over the three, which is inlined only where all crates are optimised together.
        let before = S::u64s::from_slice(simd, &words[..S::u64s::LEN]);
        let here = S::u64s::from_slice(simd, &words[1..1 + S::u64s::LEN]);
        let behind = S::u64s::from_slice(simd, &words[2..2 + S::u64s::LEN]);
        Self::beside([before, here, behind])
    }

    /// From the words in front of those that it is of, these, and those behind them.
    #[inline(always)]
    fn beside([before, here, behind]: [S::u64s; 3]) -> Self {
        let (left, right) = (here << 1 | before >> 63, here >> 1 | behind << 63);
        let (ones, twos) = added::<S>(left, right, here);
        Self { ones, twos, here }
    }
}

/// Which cells live next.
#[inline(always)]
fn alive_next<S: Simd>(above: &Sums<S>, here: &Sums<S>, below: &Sums<S>) -> S::u64s {
    let (ones, carried) = added::<S>(above.ones, here.ones, below.ones);
    // How often two live, 0 to 4 times: whether it is odd, and whether it is 2 or 3.
    let (odd_rows, two_rows) = added::<S>(above.twos, here.twos, below.twos);
    let odd = odd_rows ^ carried;
    let many = two_rows ^ (odd_rows & carried);
    // Of three, one and once two; of four, twice two and no more.
    (ones ^ many) & (odd ^ many) & (here.here | !many)
}

/// Bits that an odd number of them have, and bits that two or three have.
#[inline(always)]
fn added<S: Simd>(one: S::u64s, two: S::u64s, three: S::u64s) -> (S::u64s, S::u64s) {
    let differ = one ^ two;
    (differ ^ three, (one & two) | (differ & three))
}

/// Computes the rule on words that stay in registers, so many times: what a generation takes at least. Gives for how many
/// cells that was.
pub(crate) fn rule_in_registers(rounds: usize) -> usize {
    dispatch!(Level::new(), simd => rule_in_registers_at(simd, rounds))
}

#[inline(always)]
fn rule_in_registers_at<S: Simd>(simd: S, rounds: usize) -> usize {
    let [one, two] = black_box([1, 2].map(|bits| S::u64s::splat(simd, bits)));
    // Two rows above each other, which wait for each other no more than rows do.
    let mut chains = black_box([[Sums::<S> { ones: one, twos: two, here: one }; 2]; 2]);
    for round in 0..rounds {
        for [even, odd] in &mut chains {
            let (above, here) = if round % 2 == 0 { (even, odd) } else { (odd, even) };
            let below = Sums::beside([above.here, here.here, above.twos]);
            let alive = alive_next(above, here, &below);
            *above = Sums { here: below.here & alive, ..below };
        }
    }
    black_box(chains);
    2 * rounds * S::u64s::LEN * WORD
}
