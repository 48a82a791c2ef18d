//! The distributed steps against the reference bit by bit, both against the solution that the equation was
//! made for, and that the comparisons can fail.

use streamhalo::WorldOptions;
use streamhalo::comm::backend::backend_names;
use streamhalo::prelude::Pattern;

use super::driver::Stencil3d;
use crate::app::on_device::agrees_with_the_host;
use crate::app::played::{play, reference};
use crate::app::values::Real;
use crate::app::{Application, Between, Trial, Verified};
use crate::config::{AppSettings, RunConfig};
use crate::ranks::on_threads;

fn stencil<T: Real>(settings: &str, grid: &str, every: usize) -> Stencil3d<T> {
    let text = format!(
        "app = {{ name = 'stencil3d', {settings} }}\ngrid = {{ {grid}, halo = {every} }}\n\
         run.exchange_every = {every}\n"
    );
    let config = RunConfig::of(&text);
    let AppSettings::Stencil3d(settings) = &config.app.settings else { panic!("{config:?}") };
    Stencil3d::open(&config, settings).expect("is right")
}

/// The bits of the reference, at every layout.
fn same_bits<T: Real>(settings: &str, grid: &str, every: usize) {
    let stencil = stencil::<T>(settings, grid, every);
    let reference = reference(&stencil);
    for layout in [[1, 1, 1], [1, 2, 1], [2, 1, 2]] {
        let answer = play(&stencil, &layout, "st-rsend").answer;
        let differs = stencil.difference(&answer, &reference);
        assert_eq!(differs, None, "{settings}, {grid}, every {every}, {layout:?}");
    }
}

#[test]
fn steps_have_the_bits_of_the_reference() {
    for points in [7, 27] {
        for boundary in ["true", "false", "[true, false, true]"] {
            let grid = format!("cells = [7, 8, 9], periodic = {boundary}");
            for every in [1, 3] {
                let heat = format!("points = {points}, steps = 7");
                same_bits::<f64>(&format!("{heat}, element = 'f64'"), &grid, every);
                same_bits::<f32>(&format!("{heat}, element = 'f32', overlap = false"), &grid, every);
            }
            let jacobi = format!("equation = 'jacobi', points = {points}, steps = 5, residual_every = 2");
            same_bits::<f64>(&jacobi, &grid, 1);
            same_bits::<f32>(&format!("{jacobi}, element = 'f32'"), &grid, 2);
        }
    }
}

/// Beyond the ends of an axis there may be more ghosts than there are cells.
#[test]
fn grids_thinner_than_their_halo() {
    for points in [7, 27] {
        let settings = format!("points = {points}, steps = 4");
        let stencil = stencil::<f64>(&settings, "cells = [1, 2, 6], periodic = [false, false, true]", 3);
        let answer = play(&stencil, &[1, 1, 2], "standard").answer;
        assert_eq!(stencil.difference(&answer, &reference(&stencil)), None);
    }
}

/// A rank with one column, row or plane has no cell that its neighbours' are not beside.
#[test]
fn ranks_that_own_one_cell_along_an_axis() {
    for points in [7, 27] {
        let settings = format!("points = {points}, steps = 4");
        for (cells, layout) in [([4, 4, 2], [1, 1, 2]), ([4, 2, 4], [1, 2, 1]), ([4, 4, 3], [1, 1, 2])] {
            let stencil = stencil::<f64>(&settings, &format!("cells = {cells:?}"), 1);
            let answer = play(&stencil, &layout, "standard").answer;
            assert_eq!(stencil.difference(&answer, &reference(&stencil)), None, "{cells:?}");
        }
    }
}

/// Rows longer than a piece, and as long as no vector.
#[test]
fn rows_of_any_length() {
    for width in [1, 2, 3, 5, 255, 256, 257, 515] {
        agrees_with_the_reference([2, 2, width]);
    }
}

/// More cells than a second-level cache holds, in whole groups of rows and in what is left over.
#[test]
fn fields_that_are_far() {
    agrees_with_the_reference([2, 7, 4701]);
    agrees_with_the_reference([22, 50, 64]);
}

fn agrees_with_the_reference(cells: [usize; 3]) {
    for points in [7, 27] {
        let stencil =
            stencil::<f64>(&format!("points = {points}, steps = 2"), &format!("cells = {cells:?}"), 1);
        let answer = play(&stencil, &[1, 1, 1], "standard").answer;
        assert_eq!(stencil.difference(&answer, &reference(&stencil)), None, "{cells:?}");
    }
}

#[test]
fn every_backend_gives_the_same_answer() {
    for every in [1, 2] {
        let stencil =
            stencil::<f64>("equation = 'jacobi', points = 27, steps = 6", "cells = [6, 6, 6]", every);
        let expected = play(&stencil, &[2, 1, 2], "standard");
        for backend in backend_names() {
            let outcome = play(&stencil, &[2, 1, 2], backend);
            // Norms too: they are added up in one order at a layout.
            assert_eq!(outcome.answer, expected.answer, "{backend}");
            assert_eq!(outcome.measured, expected.measured, "{backend}");
        }
    }
}

/// Every text, rows of all remainders, and norms: their sums are taken in one order wherever kernels run.
#[test]
fn devices_have_the_bits_of_the_host() {
    for (points, boundary) in [(7, "true"), (27, "[true, false, true]")] {
        for (cells, layout, every) in [([7, 21, 70], [1, 2, 1], 1), ([4, 5, 33], [2, 1, 2], 2)] {
            let grid = format!("cells = {cells:?}, periodic = {boundary}");
            let heat = format!("points = {points}, steps = 4");
            agrees_with_the_host(&stencil::<f64>(&heat, &grid, every), layout, "st-rsend");
            let jacobi = format!("equation = 'jacobi', points = {points}, steps = 3, residual_every = 2");
            agrees_with_the_host(&stencil::<f64>(&jacobi, &grid, every), layout, "notified");
            let single = format!("{jacobi}, element = 'f32', overlap = false");
            agrees_with_the_host(&stencil::<f32>(&single, &grid, every), layout, "st-send");
        }
    }
}

/// The host waits as often with many norms as with one, except where a backend needs it.
#[test]
fn norms_are_not_waited_for() {
    let waits = |backend: &str, every: u64| {
        let settings = format!("equation = 'jacobi', steps = 6, residual_every = {every}");
        let stencil = stencil::<f64>(&settings, "cells = [6, 6, 6]", 1);
        let waits = on_threads(2, WorldOptions::default(), |world| {
            let stream = streamhalo::Device::host().stream(world)?;
            let (layout, between) = (&[1, 2, 1], Between::default());
            let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
            stencil.run_trial(&trial)?;
            Ok(stream.synchronizations())
        });
        waits.expect("nothing fails")
    };
    for backend in backend_names() {
        let (one, many) = (waits(backend, 6), waits(backend, 1));
        assert_eq!(one == many, backend != "standard", "{backend}: {one:?}, {many:?}");
    }
}

/// The error against the manufactured solution at the end of as many steps.
fn error(settings: &str, cells: usize, periodic: bool, steps: u64) -> f64 {
    let grid = format!("cells = [{cells}, {cells}, {cells}], periodic = {periodic}");
    let stencil = stencil::<f64>(&format!("{settings}, steps = {steps}"), &grid, 1);
    let measured = play(&stencil, &[1, 1, 2], "st-send").measured;
    measured["error"].as_f64().expect("is a number")
}

/// Half the spacing, a quarter of the step, the same time at the end: a quarter of the error.
#[test]
fn the_heat_equation_is_solved_with_second_order() {
    for points in [7, 27] {
        let settings = format!("points = {points}");
        // Cells between ends that are held lie at one interval more: 7 and 15 halve the spacing.
        for (periodic, sizes) in [(true, [8, 16]), (false, [7, 15])] {
            let [coarse, fine] = sizes;
            let errors = [error(&settings, coarse, periodic, 16), error(&settings, fine, periodic, 64)];
            let order = (errors[0] / errors[1]).log2();
            assert!((1.9..2.1).contains(&order), "{points} points, {periodic}: order {order} of {errors:?}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes long where nothing is optimised: run it with --release")]
fn jacobis_iteration_comes_to_the_solution() {
    for points in [7, 27] {
        let settings = format!("equation = 'jacobi', points = {points}");
        let errors = [(7, 300), (15, 1000)].map(|(cells, steps)| error(&settings, cells, false, steps));
        let order = (errors[0] / errors[1]).log2();
        assert!((1.9..2.1).contains(&order), "{points} points: order {order} of {errors:?}");
        let stencil = stencil::<f64>(&format!("{settings}, steps = 300"), "cells = [7, 7, 7]", 1);
        let answer = play(&stencil, &[1, 2, 1], "notified").answer;
        let norm = |which: &str| answer.result["residual"][which].as_f64().expect("is a number");
        assert!(norm("last") < 1e-8 * norm("first"), "{:?}", answer.result);
    }
}

/// The negative control of the exchange: without any one of the messages that a stencil needs the check
/// fails.
#[test]
fn a_message_that_is_dropped_is_found() {
    let all: Vec<Vec<i32>> = (0..27)
        .filter(|code| *code != 13)
        .map(|code| vec![code / 9 - 1, code / 3 % 3 - 1, code % 3 - 1])
        .collect();
    for points in [7, 27] {
        let settings = format!("points = {points}, steps = 2");
        let mut stencil = stencil::<f64>(&settings, "cells = [4, 4, 4]", 1);
        let reference = reference(&stencil);
        let is_needed = |offset: &&Vec<i32>| points == 27 || offset.iter().filter(|c| **c != 0).count() == 1;
        let needed: Vec<Vec<i32>> = all.iter().filter(is_needed).cloned().collect();
        assert_eq!(needed.len() + 1, points);
        stencil.pattern = Some(Pattern::Offsets(needed.clone()));
        let complete = play(&stencil, &[2, 2, 2], "st-send").answer;
        assert_eq!(stencil.difference(&complete, &reference), None, "{points} points");
        for dropped in &needed {
            let others = needed.iter().filter(|offset| *offset != dropped).cloned().collect();
            stencil.pattern = Some(Pattern::Offsets(others));
            let said = stencil.difference(&play(&stencil, &[2, 2, 2], "st-send").answer, &reference);
            assert!(said.is_some_and(|said| said.contains(" of 64 values differ")), "{dropped:?}");
        }
    }
}

/// The negative control of the comparison: one bit of one cell, and a norm.
#[test]
fn an_answer_that_is_off_is_found() {
    let stencil = stencil::<f32>("equation = 'jacobi', element = 'f32', steps = 3", "cells = [4, 4, 4]", 1);
    let reference = reference(&stencil);
    let right = play(&stencil, &[1, 1, 2], "active-rma").answer;
    assert_eq!(stencil.difference(&right, &reference), None);
    let mut wrong = right.clone();
    wrong.state.as_mut().expect("is there")[4 * 37] ^= 1;
    let said = stencil.difference(&wrong, &reference).expect("differs");
    assert!(said.starts_with("1 of 64 values differ, the first at [2, 1, 1]"), "{said}");
    let mut wrong = right;
    let last = wrong.result["residual"]["last"].as_f64().expect("is a number");
    wrong.result["residual"]["last"] = (last * (1.0 + 1e-10)).into();
    let said = stencil.difference(&wrong, &reference).expect("differs");
    assert!(said.starts_with("the last norm of the residual is"), "{said}");
}
