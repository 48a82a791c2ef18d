//! Steps between two exchanges that are one sweep, on ranks with and without neighbours on their sides, whose threads
//! take parts of it.

use streamhalo::{Device, StreamOptions, WorldOptions};

use super::super::driver::ROW;
use crate::app::{Between, Trial};
use crate::config::{KnownNames, Overrides, RunConfig};
use crate::ranks::on_threads;

/// Verifies the answers of `every` steps a sweep, and of fewer at the end, on the ranks of each layout, with as many threads.
fn are_verified(grid: &str, every: usize, cells_as: &str, layouts: &[[usize; 2]]) {
    let names =
        KnownNames { apps: &["life"], backends: &["st-send"], fabrics: &["local"], devices: &["host"] };
    let text = format!(
        "app = {{ name = 'life', pattern = 'random:3', steps = {}, cells_as = '{cells_as}' }}\n\
         grid = {{ {grid}, halo = {every} }}\nrun.exchange_every = {every}\n",
        2 * every + every / 2
    );
    let config = RunConfig::parse("f.toml", &text, &Overrides::default(), &names);
    let config = config.unwrap_or_else(|error| panic!("{error}"));
    let life = (ROW.open)(&config).expect("is right");
    let reference = life.reference(&|| Ok(())).expect("nobody stops it");
    for (layout, threads) in layouts.iter().flat_map(|layout| [(layout, 1), (layout, 3), (layout, 7)]) {
        for backend in ["st-send", "st-rsend"] {
            let answers = on_threads(layout[0] * layout[1], WorldOptions::default(), |world| {
                let options = StreamOptions { threads, ..StreamOptions::default() };
                let (stream, between) = (Device::host().stream_with(world, options)?, Between::default());
                let trial = Trial { world, stream: &stream, backend, layout, wants_state: true, between };
                Ok(life.run_trial(&trial)?.answer)
            });
            let answer = answers.expect("nothing fails").swap_remove(0);
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
fn as_many_steps_as_ghosts_fill_a_word_and_one_more() {
    let grid = "cells = [130, 140], periodic = [true, false]";
    are_verified(grid, 64, "u8", &[[2, 2]]);
    are_verified(grid, 65, "f64", &[[1, 2]]);
}
