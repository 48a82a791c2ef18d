//! The kernel, cell by cell against the reference, and its speed.

use std::hint::black_box;
use std::time::Instant;

use super::super::kernel::{step_row, step_rows};
use super::super::reference::Reference;
use super::*;

/// Every width up to beyond the widest vector (64 lanes), every remainder of rows, all boundaries,
/// every instruction set.
#[test]
fn agrees_with_the_reference_at_every_width() {
    for width in 1..=70 {
        for height in [1, 2, 3, 4, 5, 7] {
            for periodic in [[true, true], [true, false], [false, true], [false, false]] {
                let cells = cells_of(&format!("random:{}", 100 * width + height), [height, width]);
                let mut reference = Reference::new(height, width, cells.clone(), periodic);
                let padded = || Padded::new(height, width, &cells, periodic);
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

/// Nine cells have 512 states: all of them, in every lane of a wide row.
#[test]
fn follows_the_rule_for_every_neighbourhood() {
    let cell = |state: usize, bit: usize| (state >> bit & 1) as u8;
    for state in 0..512 {
        let row = |first: usize| -> Vec<u8> { (0..302).map(|x| cell(state, first + x % 3)).collect() };
        let (above, here, below) = (row(0), row(3), row(6));
        let mut next = vec![7; 300];
        step_row(&above, &here, &below, &mut next);
        // The window at column x holds the same three columns, rotated: the same count.
        for (x, &found) in next.iter().enumerate() {
            let centre = here[x + 1];
            let neighbours = state.count_ones() - u32::from(centre);
            let expected = u8::from(neighbours == 3 || (neighbours == 2 && centre == 1));
            assert_eq!(found, expected, "state {state:09b}, column {x}");
        }
    }
}

#[test]
fn a_row_alone_is_a_row_among_many() {
    let (height, width) = (10, 131);
    let cells = cells_of("random:5", [height, width]);
    let mut grid = Padded::new(height, width, &cells, [true; 2]);
    grid.fill_ghosts();
    let stride = width + 2;
    let rows: Vec<_> = grid.now.chunks_exact(stride).collect();
    let mut alone = vec![0; height * width];
    for (y, next) in alone.chunks_exact_mut(width).enumerate() {
        step_row(rows[y], rows[y + 1], rows[y + 2], next);
    }
    let mut together = vec![0; height * width];
    step_rows(|row| rows[row], together.chunks_exact_mut(width));
    assert_eq!(alone, together);
    grid.step();
    assert_eq!(grid.cells(), together);
}

#[test]
fn no_rows_are_no_work() {
    step_rows(|_| unreachable!("nothing to read"), []);
    step_row(&[0; 2], &[0; 2], &[0; 2], &mut []);
}

#[test]
#[should_panic(expected = "one ghost cell on either side")]
fn rows_without_ghosts_are_refused() {
    step_row(&[0; 10], &[0; 8], &[0; 10], &mut [0; 8]);
}

#[test]
#[should_panic(expected = "rows of the next generation have one length")]
fn rows_of_two_lengths_are_refused() {
    let (mut one, mut two) = ([0; 8], [0; 9]);
    step_rows(|_| &[0; 10], [&mut one[..], &mut two[..]]);
}

/// Prints what the kernel and the verification cost: `cargo test --release -p streamhalo-apps
/// life::tests::kernel::speed -- --ignored --nocapture`, on an idle machine. Answers are checked first;
/// the timed generations leave the ghosts as they are.
#[test]
#[ignore = "a measurement, for release builds on an idle machine"]
fn speed() {
    println!("{:?}", Level::new());
    for (side, steps) in [(64, 4096), (256, 512), (1024, 32), (4096, 4), (16384, 1)] {
        let cells = cells_of("random:1", [side, side]);
        let mut kernel = Padded::new(side, side, &cells, [true; 2]);
        let mut reference = Reference::new(side, side, cells, [true; 2]);
        kernel.step();
        reference.step();
        assert_eq!(kernel.checksum(), reference.checksum());
        let cells = (side * side) as f64;
        println!(
            "{side} x {side}: kernel {:.2} Gcells/s, checksum {:.2} Gcells/s, population {:.2} Gcells/s, \
             reference {:.2} Gcells/s",
            steps as f64 * cells / least_ns(20, || (0..steps).for_each(|_| kernel.advance())),
            cells / least_ns(3, || kernel.checksum()),
            cells / least_ns(3, || kernel.population()),
            cells / least_ns(3, || reference.step()),
        );
    }
    let side = 1024;
    let mut reference = Reference::new(side, side, cells_of("random:1", [side; 2]), [true; 2]);
    let whole = least_ns(1, || (0..200).for_each(|_| reference.step()));
    println!("reference, 200 generations of {side} x {side} random cells: {:.2} s", whole / 1e9);
}

fn least_ns<Answer>(rounds: usize, mut work: impl FnMut() -> Answer) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        black_box(work());
        least = least.min(start.elapsed().as_secs_f64());
    }
    least * 1e9
}
