//! Published histories of famous patterns, replayed by the reference and by the kernel.
//!
//! The histories are those of an endless plane. A torus shows them as long as its outermost ring of
//! cells stays dead in every generation, since then nothing can be born beyond it; that is checked,
//! so no side of a grid here has to be believed.

use super::super::reference::Reference;
use super::*;

const TORUS: [bool; 2] = [true; 2];

/// A pattern in the middle of a torus with sides of `side` cells.
fn torus(name: &str, side: usize) -> (Reference, Padded<u8>) {
    let cells = cells_of(&format!("patterns/{name}.rle"), [side, side]);
    let padded = Padded::new(side, side, &cells, TORUS);
    (Reference::new(side, side, cells, TORUS), padded)
}

fn outermost_ring_is_dead(reference: &Reference, side: usize) -> bool {
    let dead = |row: &[u8]| row.iter().all(|&cell| cell == 0);
    dead(reference.row(0))
        && dead(reference.row(side - 1))
        && (0..side).all(|y| reference.row(y)[0] == 0 && reference.row(y)[side - 1] == 0)
}

/// The first generation from which on the population repeats every second one: of still lives,
/// spaceships of constant population and oscillators of period two.
fn settled_at(history: &[u64]) -> usize {
    let repeats = |first: &usize| history[*first] == history[*first + 2];
    (0..history.len() - 2).rev().take_while(repeats).last().expect("settled at the end")
}

/// Plays `name` until some time after the published generation at which it settles, and compares
/// the two implementations then.
fn settles(name: &str, side: usize, generation: usize, population: u64) {
    let (mut reference, mut kernel) = torus(name, side);
    let mut history = vec![reference.population()];
    for _ in 0..generation + 60 {
        reference.step();
        history.push(reference.population());
        assert!(outermost_ring_is_dead(&reference, side), "{name} outgrew {side} cells");
    }
    assert_eq!(settled_at(&history), generation, "{name}");
    assert_eq!(history[generation], population, "{name}");
    for &expected in &history[1..] {
        kernel.step();
        assert_eq!(kernel.population(), expected, "{name}");
    }
    assert_eq!(kernel.cells(), reference.cells(), "{name}");
    assert_eq!(kernel.checksum(), reference.checksum(), "{name}");
}

#[test]
fn small_methuselahs_settle_when_published() {
    settles("diehard", 64, 130, 0);
    settles("b-heptomino", 128, 148, 28);
    settles("pi-heptomino", 128, 173, 55);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds in a release build, minutes in a debug build")]
fn large_methuselahs_settle_when_published() {
    settles("r-pentomino", 640, 1103, 116);
    // Gliders leave at a quarter of a cell per generation: 5266 / 4 = 1317 cells, less the time at
    // which the first of them was born, on either side of the middle.
    settles("acorn", 2624, 5206, 633);
}

/// The populations of the present generation and of those after it; leaves the last.
fn population_history(reference: &mut Reference, generations: usize) -> Vec<u64> {
    let mut history = vec![reference.population()];
    for _ in 0..generations {
        reference.step();
        history.push(reference.population());
    }
    history
}

/// The same with the reference alone, whose cost is that of the live cells: for debug builds.
#[test]
fn acorn_settles_in_the_reference() {
    let (mut reference, _) = torus("acorn", 2624);
    let history = population_history(&mut reference, 5266);
    assert_eq!((settled_at(&history), history[5206]), (5206, 633));
}

#[test]
fn diehard_is_gone_at_generation_130() {
    let (mut reference, _) = torus("diehard", 64);
    let history = population_history(&mut reference, 131);
    assert_eq!(history[128..], [3, 2, 0, 0]);
}

#[test]
fn the_gun_releases_a_glider_every_30_generations() {
    let (mut reference, mut kernel) = torus("gosper-glider-gun", 256);
    let mut history = vec![reference.population()];
    for _ in 0..330 {
        reference.step();
        kernel.step();
        history.push(reference.population());
        assert_eq!(kernel.population(), reference.population());
        assert!(outermost_ring_is_dead(&reference, 256));
    }
    for generation in 0..=300 {
        assert_eq!(history[generation + 30], history[generation] + 5, "{generation}");
    }
    assert_eq!(kernel.cells(), reference.cells());
}

/// Spaceships go around a torus of 20 x 24 cells, through both of its boundaries.
#[test]
fn spaceships_move_as_published() {
    for (name, step_y, step_x) in [("glider", 1, 1), ("lwss", 0, 24 - 2)] {
        let first = cells_of(&format!("patterns/{name}.rle"), [20, 24]);
        let mut reference = Reference::new(20, 24, first.clone(), TORUS);
        let mut kernel = Padded::<f64>::new(20, 24, &first, TORUS);
        for period in 1..=120 {
            for _ in 0..4 {
                reference.step();
                kernel.step();
            }
            let from = |axis: usize, extent: usize, step: usize| (axis + period * (extent - step)) % extent;
            let moved: Vec<_> = (0..20 * 24)
                .map(|cell| first[from(cell / 24, 20, step_y) * 24 + from(cell % 24, 24, step_x)])
                .collect();
            assert_eq!(reference.cells(), moved, "{name} after {period} periods");
            assert_eq!(kernel.cells(), moved, "{name} after {period} periods");
        }
    }
}

/// The gliders of a field never touch, and have crossed their blocks after 32 generations.
#[test]
fn a_glider_field_repeats_after_32_generations() {
    let first = cells_of("glider-field", [24, 136]);
    let mut reference = Reference::new(24, 136, first.clone(), TORUS);
    let mut kernel = Padded::<u8>::new(24, 136, &first, TORUS);
    for generation in 1..=32 {
        reference.step();
        kernel.step();
        assert_eq!(reference.population(), 5 * 3 * 17);
        assert_eq!(kernel.cells(), reference.cells());
        assert_eq!(reference.cells() == first, generation == 32, "generation {generation}");
    }
}
