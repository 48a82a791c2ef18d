//! What each state puts where, that the decomposition changes nothing, and every refusal.

use proptest::prelude::*;

use super::super::tests::{config_dir, initial};
use super::*;

const TORUS: [bool; 2] = [true; 2];

fn glider() -> Initial {
    initial("patterns/glider.rle")
}

/// All live cells of a grid, row by row.
fn live(generation: &Generation) -> Vec<(usize, usize)> {
    live_in(generation, [0, 0], generation.cells)
}

/// Those of a box that starts there and may wrap around the grid, counted from its low corner.
fn live_in(generation: &Generation, start: [usize; 2], extents: [usize; 2]) -> Vec<(usize, usize)> {
    let (mut cells, mut row) = (Vec::new(), vec![0; extents[1]]);
    for y in 0..extents[0] {
        generation.fill_row(start[0] + y, start[1], &mut row);
        cells.extend((0..extents[1]).filter(|&x| row[x] == 1).map(|x| (y, x)));
    }
    cells
}

#[test]
fn opens_whatever_the_configuration_names() {
    assert!(matches!(glider(), Initial::File(pattern) if pattern.cells.len() == 5));
    assert_eq!(initial("glider-field"), Initial::GliderField);
    assert_eq!(initial("random:42"), Initial::Random { seed: 42 });
    let absent = Initial::open(&config::Pattern::File("nowhere/a.rle".into()), [9; 2]).unwrap_err();
    assert!(absent.to_string().starts_with("cannot read the pattern file nowhere/a.rle: "), "{absent}");
}

#[test]
fn a_pattern_straddles_the_middle() {
    let generation = glider().place([8, 9], TORUS, None).unwrap();
    assert_eq!(live(&generation), [(2, 4), (3, 5), (4, 3), (4, 4), (4, 5)]);
}

#[test]
fn a_pattern_wraps_around_periodic_axes_only() {
    let generation = glider().place([5, 6], TORUS, Some([4, 4])).unwrap();
    assert_eq!(live(&generation), [(0, 0), (1, 0), (1, 4), (1, 5), (4, 5)]);
    let refused = glider().place([5, 6], [true, false], Some([4, 4])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "from the origin 4 the pattern's 3 cells reach beyond the grid's 6 on axis 1, which is not \
         periodic: use an origin of at most 3"
    );
    assert!(glider().place([5, 6], [false; 2], Some([2, 3])).is_ok());
}

#[test]
fn a_pattern_that_does_not_fit_is_refused() {
    let path = config_dir().join("patterns/glider.rle");
    for cells in [[2, 8], [8, 2]] {
        let refused = Initial::open(&config::Pattern::File(path.clone()), cells).unwrap_err().to_string();
        let expected = format!("does not fit the grid of {} x {}", cells[0], cells[1]);
        assert!(refused.ends_with(&expected), "{refused}");
    }
    let refused = glider().place([8, 8], TORUS, Some([0, 8])).unwrap_err().to_string();
    assert_eq!(refused, "the origin [0, 8] is outside of the grid of 8 x 8 cells");
    assert!(glider().place([3, 3], [false; 2], None).is_ok(), "it may fill the grid");
    let random = Initial::Random { seed: 1 }.place([8, 8], TORUS, Some([0, 0])).unwrap_err();
    assert_eq!(random.to_string(), "an origin is for patterns from a file: random has none");
}

#[test]
fn a_glider_field_needs_whole_blocks() {
    for cells in [[12, 16], [16, 12]] {
        let refused = Initial::GliderField.place(cells, TORUS, None).unwrap_err();
        assert!(matches!(refused, InitialError::NotInBlocks { grid } if grid == cells));
    }
    let generation = Initial::GliderField.place([16, 24], TORUS, None).unwrap();
    let cells = live(&generation);
    assert_eq!(cells.len(), 5 * 2 * 3);
    for (y, x) in [(1, 2), (2, 3), (3, 1), (3, 2), (3, 3)] {
        for (block_y, block_x) in [(0, 0), (8, 16), (0, 8)] {
            assert!(cells.contains(&(block_y + y, block_x + x)));
        }
    }
}

#[test]
fn random_cells_have_density_one_half_and_depend_on_the_seed() {
    let of_seed = |seed| live(&Initial::Random { seed }.place([512, 500], TORUS, None).unwrap());
    let (one, two) = (of_seed(1), of_seed(2));
    // Six standard deviations of 256,000 fair coins: 6 * sqrt(n) / 2 = 1518.
    for cells in [&one, &two] {
        assert!(cells.len().abs_diff(128_000) < 1518, "{}", cells.len());
    }
    let in_both = one.iter().filter(|cell| two.binary_search(cell).is_ok()).count();
    assert!(in_both.abs_diff(64_000) < 1400, "{in_both} live in both");
    // Neighbouring rows, and neighbouring words of a row, are as unlike as two seeds.
    for (step_y, step_x) in [(1, 0), (0, 64), (1, 1)] {
        let moved = |&&(y, x): &&(usize, usize)| one.binary_search(&(y + step_y, x + step_x)).is_ok();
        let repeated = one.iter().filter(moved).count();
        assert!(repeated.abs_diff((512 - step_y) * (500 - step_x) / 4) < 1400, "{repeated}");
    }
}

fn states() -> impl Strategy<Value = (Initial, Option<[usize; 2]>)> {
    prop_oneof![
        (0usize..40, 0usize..80).prop_map(|(y, x)| (glider(), Some([y, x]))),
        Just((Initial::GliderField, None)),
        any::<u64>().prop_map(|seed| (Initial::Random { seed }, None)),
    ]
}

proptest! {
    /// A box anywhere, wrapping or not, shows the cells that the whole grid has there.
    #[test]
    fn a_box_shows_what_the_grid_has(
        (initial, origin) in states(),
        start in [0usize..100, 0usize..200],
        extents in [0usize..50, 0usize..200],
    ) {
        let grid = [40, 80];
        let generation = initial.place(grid, TORUS, origin).unwrap();
        let whole = live(&generation);
        let shown = live_in(&generation, start, extents);
        let expected: Vec<_> = (0..extents[0])
            .flat_map(|y| (0..extents[1]).map(move |x| (y, x)))
            .filter(|(y, x)| whole.contains(&((start[0] + y) % grid[0], (start[1] + x) % grid[1])))
            .collect();
        prop_assert_eq!(shown, expected);
    }

    #[test]
    fn a_row_is_overwritten(initial in states(), start in 0usize..80) {
        let (initial, origin) = initial;
        let generation = initial.place([40, 80], TORUS, origin).unwrap();
        let (mut zeros, mut ones) = ([0; 33], [1; 33]);
        generation.fill_row(7, start, &mut zeros);
        generation.fill_row(7, start, &mut ones);
        prop_assert_eq!(zeros, ones);
    }
}
