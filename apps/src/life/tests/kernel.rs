//! The kernel, cell by cell against the reference.

use std::slice::{ChunksExact, ChunksExactMut};

use fearless_simd::dispatch;

use super::super::reference::Reference;
use super::super::slices;
use super::*;

/// Whether y and x are periodic.
const BOUNDARIES: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// Every width up to beyond two of the widest vectors, every remainder of rows, all boundaries, every
/// instruction set.
#[test]
fn agrees_with_the_reference_at_every_width() {
    agrees_with_the_reference::<u8>((1..=70).chain(124..=131).chain(189..=194));
    agrees_with_the_reference::<f64>(1..=34);
}

fn agrees_with_the_reference<T: Cell>(widths: impl Iterator<Item = usize>) {
    for width in widths {
        for height in [1, 2, 3, 4, 5, 7] {
            for periodic in BOUNDARIES {
                let cells = cells_of(&format!("random:{}", 100 * width + height), [height, width]);
                let mut reference = Reference::new(height, width, cells.clone(), periodic);
                let padded = || Padded::<T>::new(height, width, &cells, periodic);
                let mut grids: Vec<_> =
                    levels().into_iter().map(|level| Padded { level, ..padded() }).collect();
                for generation in 1..=3 {
                    reference.step();
                    for grid in &mut grids {
                        grid.step();
                        assert_eq!(
                            grid.cells(),
                            reference.cells(),
                            "{height} x {width}, periodic {periodic:?}, generation {generation}, {:?}",
                            grid.level
                        );
                    }
                }
            }
        }
    }
}

/// One sweep is as many generations: around the ends of vectors and words, beside all boundaries, with every instruction
/// set, stored through the caches and past them.
#[test]
fn a_sweep_of_several_generations_agrees_with_the_reference() {
    for width in (1..=8).chain([31, 33, 61, 64, 66, 127, 190, 320, 449, 513]) {
        sweep_agrees_with_the_reference::<u8>(width, &[1, 2, 3, 5]);
    }
    for width in [1, 2, 3, 7, 8, 9, 62, 64, 130] {
        sweep_agrees_with_the_reference::<f64>(width, &[1, 2, 3, 5]);
    }
}

/// Rows of one slice and of several, of which the last is moved back or not, also where another way is faster.
#[test]
fn slices_agree_with_the_reference() {
    slices_agree_at::<u8>([128, 131, 240, 256, 500, 512, 960, 1024, 2100]);
    slices_agree_at::<f64>([32, 33, 64, 100, 128, 250, 256, 600, 640]);
}

fn slices_agree_at<T: Cell>(widths: [usize; 9]) {
    for (height, width, periodic) in
        [1, 2, 5].into_iter().flat_map(|height| widths.map(|width| (height, width, [true, width % 2 == 0])))
    {
        let cells = cells_of(&format!("random:{}", 100 * width + height), [height, width]);
        let mut reference = Reference::new(height, width, cells.clone(), periodic);
        reference.step();
        let sweep = Sweep { generations: 1, changes: periodic.map(|changes| [usize::from(changes); 2]) };
        for (level, is_past) in levels().into_iter().flat_map(|level| [(level, false), (level, true)]) {
            if width >= dispatch!(level, simd => slices::cells_of::<_, T>(simd)) {
                let found =
                    swept::<T>(level, is_past, sweep, [height, width], &cells, |task| slices::step(task));
                assert_eq!(found, reference.cells(), "{height} x {width}, {level:?}, {is_past}");
            }
        }
    }
}

/// As many as the bits of a word are ghosts in front of a row, and more behind it than there are cells.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes long where nothing is optimised: run it with --release")]
fn the_longest_sweeps_agree_with_the_reference() {
    for width in [3, 131] {
        sweep_agrees_with_the_reference::<u8>(width, &[31, 63, Sweep::MOST]);
        sweep_agrees_with_the_reference::<f64>(width, &[Sweep::MOST]);
    }
}

/// The highest have rows that are written while others are packed, of five generations, where there are whole words: an even and
/// an odd number of them.
fn heights(width: usize) -> impl Iterator<Item = usize> {
    [1, 2, 5, 14, 15].into_iter().filter(move |height| *height < 14 || width >= 64)
}

fn sweep_agrees_with_the_reference<T: Cell>(width: usize, sweeps: &[usize]) {
    for (height, periodic) in heights(width).flat_map(|height| BOUNDARIES.map(|periodic| (height, periodic)))
    {
        let cells = cells_of(&format!("random:{}", 100 * width + height), [height, width]);
        let mut reference = Reference::new(height, width, cells.clone(), periodic);
        for generations in 1..=sweeps[sweeps.len() - 1] {
            reference.step();
            if !sweeps.contains(&generations) {
                continue;
            }
            let sweep = Sweep {
                generations,
                changes: periodic.map(|changes| [if changes { generations } else { 0 }; 2]),
            };
            for (level, is_past) in levels().into_iter().flat_map(|level| [(level, false), (level, true)]) {
                let found = swept::<T>(level, is_past, sweep, [height, width], &cells, |task| {
                    sweep_rows(sweep, task);
                });
                assert_eq!(found, reference.cells(), "{height} x {width}, {sweep:?}, {level:?}, {is_past}");
            }
        }
    }
}

/// The cells of a grid after a sweep, whose ghosts are copies where they change and dead elsewhere. The first row that is
/// written begins with a line of the caches, and so do the others if they are whole lines.
fn swept<T: Cell>(
    level: Level,
    is_past: bool,
    sweep: Sweep,
    [height, width]: [usize; 2],
    cells: &[u8],
    step: impl FnOnce(Task<ChunksExact<'_, T>, ChunksExactMut<'_, T>>),
) -> Vec<u8> {
    let (layers, [y_changes, x_changes]) = (sweep.generations, sweep.changes.map(|sides| sides[0] > 0));
    let place = |local: usize, count: usize, changes: bool| {
        let is_owned = (layers..layers + count).contains(&local);
        (is_owned || changes).then(|| (local + layers * (count - 1)) % count)
    };
    let cell = |y: usize, x: usize| {
        let (y, x) = (place(y, height, y_changes)?, place(x, width, x_changes)?);
        Some(cells[y * width + x])
    };
    let stride = width + 2 * layers;
    let now: Vec<T> = (0..(height + 2 * layers) * stride)
        .map(|index| T::from(cell(index / stride, index % stride).unwrap_or(0)))
        .collect();
    let mut memory = vec![T::from(7); height * width + 64];
    let start = memory.as_ptr().align_offset(64);
    let next = &mut memory[start..][..height * width];
    let (now, rows) = (now.chunks_exact(stride), next.chunks_exact_mut(width));
    step(Task { level, is_past, extents: [height, width], now, next: rows });
    next.iter().map(|cell| cell.to_byte()).collect()
}

/// One row, from those around it.
fn step_row<T: Cell>(above: &[T], here: &[T], below: &[T], next: &mut [T]) {
    step_rows([1, next.len()], [above, here, below], [next]);
}

/// The same of several rows.
fn step_rows<'r, T: Cell>(
    extents: [usize; 2],
    now: impl IntoIterator<Item = &'r [T]>,
    next: impl IntoIterator<Item = &'r mut [T]>,
) {
    let (now, next) = (now.into_iter(), next.into_iter());
    sweep_rows(Sweep::ONE, Task { level: Level::new(), is_past: false, extents, now, next });
}

/// Nine cells have 512 states: all of them, in every lane of a wide row.
#[test]
fn follows_the_rule_for_every_neighbourhood() {
    follows_the_rule::<u8>();
    follows_the_rule::<f64>();
}

fn follows_the_rule<T: Cell>() {
    let cell = |state: usize, bit: usize| T::from((state >> bit & 1) as u8);
    for state in 0..512 {
        let row = |first: usize| -> Vec<T> { (0..514).map(|x| cell(state, first + x % 3)).collect() };
        let (above, here, below) = (row(0), row(3), row(6));
        let mut next = vec![T::from(7); 512];
        step_row(&above, &here, &below, &mut next);
        // The window at column x holds the same three columns, rotated: the same count.
        for (x, &found) in next.iter().enumerate() {
            let centre = here[x + 1].to_byte();
            let neighbours = state.count_ones() - u32::from(centre);
            let expected = u8::from(neighbours == 3 || (neighbours == 2 && centre == 1));
            assert_eq!(found, T::from(expected), "state {state:09b}, column {x}");
        }
    }
}

#[test]
fn a_row_alone_is_a_row_among_many() {
    let (height, width) = (10, 131);
    let cells = cells_of("random:5", [height, width]);
    let mut grid = Padded::<u8>::new(height, width, &cells, [true; 2]);
    grid.fill_ghosts();
    let stride = width + 2;
    let rows: Vec<_> = grid.now.chunks_exact(stride).collect();
    let mut alone = vec![0; height * width];
    for (y, next) in alone.chunks_exact_mut(width).enumerate() {
        step_row(rows[y], rows[y + 1], rows[y + 2], next);
    }
    let mut together = vec![0; height * width];
    step_rows([height, width], rows.iter().copied(), together.chunks_exact_mut(width));
    assert_eq!(alone, together);
    grid.step();
    assert_eq!(grid.cells(), together);
}

#[test]
fn no_rows_are_no_work() {
    step_rows::<u8>([0; 2], [], []);
    step_rows::<f64>([0; 2], [], []);
    step_row(&[0.0; 2], &[0.0; 2], &[0.0; 2], &mut []);
}

#[test]
#[should_panic(expected = "one ghost cell on either side")]
fn rows_without_ghosts_are_refused() {
    step_row(&[0_u8; 10], &[0; 8], &[0; 10], &mut [0; 8]);
}

/// Long rows, with ghosts or without, as slices whatever the instruction set.
fn step_slices(now: [&[u8]; 4], next: [&mut [u8]; 2]) {
    let (now, next) = (now.into_iter(), next.into_iter());
    slices::step(Task { level: Level::new(), is_past: false, extents: [2, 512], now, next });
}

#[test]
#[should_panic(expected = "one ghost cell on either side")]
fn the_first_slices_without_ghosts_are_refused() {
    let row = [0; 514];
    step_slices([&row, &row[..512], &row, &row], [&mut [0; 512], &mut [0; 512]]);
}

#[test]
#[should_panic(expected = "one ghost cell on either side")]
fn further_slices_without_ghosts_are_refused() {
    let row = [0; 514];
    step_slices([&row, &row, &row, &row[..512]], [&mut [0; 512], &mut [0; 512]]);
}

#[test]
#[should_panic(expected = "rows of the next generation have one length")]
fn rows_of_slices_of_two_lengths_are_refused() {
    step_slices([&[0; 514]; 4], [&mut [0; 512], &mut [0; 600]]);
}

#[test]
#[should_panic(expected = "rows of the next generation have one length")]
fn rows_of_two_lengths_are_refused() {
    let (mut one, mut two) = ([0.0; 8], [0.0; 9]);
    step_rows([2, 8], [&[0.0; 10][..]; 4], [&mut one[..], &mut two[..]]);
}

#[test]
#[should_panic(expected = "one ghost cell on either side")]
fn rows_of_bytes_of_two_lengths_are_refused() {
    let (mut one, mut two) = ([0_u8; 8], [0; 9]);
    step_rows([2, 8], [&[0; 10][..]; 4], [&mut one[..], &mut two[..]]);
}
