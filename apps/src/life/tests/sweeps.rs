//! Steps between two exchanges that are one sweep, on ranks with and without neighbours on their sides, whose threads
//! take parts of it.

use streamhalo::{Device, StreamOptions};

use super::super::driver::ROW;
use crate::app::played::{play_on, reference};
use crate::config::RunConfig;

/// Verifies the answers of `every` steps a sweep, and of fewer at the end, on the ranks of each layout, with as many threads.
fn are_verified(grid: &str, every: usize, cells_as: &str, layouts: &[[usize; 2]]) {
    let text = format!(
        "app = {{ name = 'life', pattern = 'random:3', steps = {}, cells_as = '{cells_as}' }}\n\
         grid = {{ {grid}, halo = {every} }}\nrun.exchange_every = {every}\n",
        2 * every + every / 2
    );
    let life = (ROW.open)(&RunConfig::of(&text)).expect("is right");
    let reference = reference(&*life);
    for (layout, threads) in layouts.iter().flat_map(|layout| [(layout, 1), (layout, 3), (layout, 7)]) {
        for backend in ["st-send", "st-rsend"] {
            let options = StreamOptions { threads, ..StreamOptions::default() };
            let answer = play_on(&Device::host(), options, &*life, layout, backend).answer;
            let differs = life.difference(&answer, &reference);
            assert_eq!(differs, None, "{grid}, every {every}, {layout:?}, {threads} threads, {backend}");
        }
    }
}

#[test]
fn sweeps_end_at_boundaries_on_either_side() {
    for periodic in ["[false, false]", "[true, false]", "[false, true]", "[true, true]"] {
        let layouts = [[1, 1], [3, 1], [1, 3], [2, 2]];
        are_verified(&format!("cells = [32, 75], periodic = {periodic}"), 5, "u8", &layouts);
        are_verified(&format!("cells = [25, 200], periodic = {periodic}"), 4, "f64", &layouts);
    }
}

/// Sixty-five steps are not one sweep: they go one by one.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes long where nothing is optimised: run it with --release")]
fn as_many_steps_as_ghosts_fill_a_word_and_one_more() {
    let grid = "cells = [130, 140], periodic = [true, false]";
    are_verified(grid, 64, "u8", &[[2, 2]]);
    are_verified(grid, 65, "f64", &[[1, 2]]);
}
