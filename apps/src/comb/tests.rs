//! The exchange against the numbers of the whole grid, and that the comparisons can fail.

use streamhalo::comm::backend::backend_names;
use streamhalo::prelude::Pattern;

use super::driver::Comb;
use crate::app::Verified;
use crate::app::on_device::agrees_with_the_host;
use crate::app::played::{play, reference};
use crate::app::values::Real;
use crate::config::RunConfig;

fn comb<T: Real>(variables: usize, cycles: u64, grid: &str) -> Comb<T> {
    let text = format!("app = {{ name = 'comb', steps = {cycles} }}\ngrid = {{ {grid} }}\n");
    Comb::open(&RunConfig::of(&text), variables).expect("is right")
}

/// Uneven parts, wide halos of several widths, axes that end, and parts as thin as their halo.
fn right_everywhere<T: Real>() {
    for (variables, cycles, grid) in [
        (3, 3, "cells = [7, 8, 9]"),
        (1, 2, "cells = [4, 6, 5], periodic = false"),
        (2, 3, "cells = [4, 4, 6], periodic = [true, false, true], halo = [2, 1, 3]"),
        (2, 0, "cells = [3, 3, 3]"),
    ] {
        let comb = comb::<T>(variables, cycles, grid);
        let reference = reference(&comb);
        for backend in backend_names() {
            for layout in [[1, 1, 1], [1, 2, 1], [2, 2, 1], [2, 2, 2]] {
                let answer = play(&comb, &layout, backend).answer;
                assert_eq!(comb.difference(&answer, &reference), None, "{grid} {backend} {layout:?}");
                assert!(answer == reference, "{grid} {backend} {layout:?}");
            }
        }
    }
}

#[test]
fn devices_have_the_bits_of_the_host() {
    let uneven = "cells = [7, 8, 9], periodic = [true, false, true]";
    let wide = "cells = [4, 4, 6], halo = [2, 1, 3]";
    for (grid, layout) in [(uneven, [1, 2, 1]), (wide, [2, 1, 2])] {
        agrees_with_the_host(&comb::<f64>(2, 3, grid), layout, "active-rma");
        agrees_with_the_host(&comb::<f32>(3, 2, grid), layout, "st-send");
    }
}

#[test]
fn every_backend_and_layout_fills_every_ghost_of_f64() {
    right_everywhere::<f64>();
}

#[test]
fn every_backend_and_layout_fills_every_ghost_of_f32() {
    right_everywhere::<f32>();
}

/// What is not told apart has one name; a phase takes no longer than all of them.
#[test]
fn phases_are_named_as_far_as_they_are_told_apart() {
    let comb = comb::<f64>(2, 4, "cells = [6, 6, 6]");
    for backend in backend_names() {
        let outcome = play(&comb, &[2, 1, 1], backend);
        let phases = outcome.measured["phases_us"].as_object().expect("is an object");
        let mut names: Vec<&str> = phases.keys().map(String::as_str).collect();
        names.sort_unstable();
        let mut expected = vec!["post_comm", "pre_comm", "unpack", "wait_recv_and_send"];
        match backend {
            "standard" => expected.push("post_recv_and_send"),
            _ => expected.extend(["post_recv", "post_send"]),
        }
        expected.sort_unstable();
        assert_eq!(names, expected, "{backend}");
        let mean = |phase: &serde_json::Value| phase["mean"].as_f64().expect("is a number");
        assert!(phases.values().all(|phase| mean(phase) >= 0.0), "{backend}: {phases:?}");
        let sum_s = phases.values().map(mean).sum::<f64>() * 4.0 / 1e6;
        assert!(0.0 < sum_s && sum_s <= outcome.solve_s, "{backend}: {sum_s} of {}", outcome.solve_s);
    }
}

/// The negative control of the exchange: without any one of the 26 neighbours the check fails.
#[test]
fn a_neighbour_that_is_dropped_is_found() {
    let complete = comb::<f64>(2, 2, "cells = [4, 4, 4]");
    let reference = reference(&complete);
    let all = (0..27).map(|code| [code / 9 - 1, code / 3 % 3 - 1, code % 3 - 1]);
    let all: Vec<[i32; 3]> = all.filter(|offset| *offset != [0; 3]).collect();
    for lost in &all {
        let rest = all.iter().filter(|offset| *offset != lost).map(|offset| offset.to_vec()).collect();
        let mut comb = comb::<f64>(2, 2, "cells = [4, 4, 4]");
        comb.pattern = Pattern::Offsets(rest);
        for layout in [[2, 1, 1], [2, 2, 2]] {
            let answer = play(&comb, &layout, "st-rsend").answer;
            let said = comb.difference(&answer, &reference).unwrap_or_else(|| panic!("{lost:?} {layout:?}"));
            assert!(said.starts_with("no value differs, but ghosts did"), "{said}");
        }
    }
}

/// The negative control of the comparison.
#[test]
fn a_value_that_is_off_is_found() {
    let comb = comb::<f64>(2, 2, "cells = [3, 4, 5]");
    let reference = reference(&comb);
    let right = play(&comb, &[1, 1, 2], "st-send").answer;
    assert_eq!(comb.difference(&right, &reference), None);
    let mut wrong = right.clone();
    let place = 8 * (60 + (2 * 4 + 3) * 5 + 1);
    wrong.state.as_mut().expect("is there")[place] ^= 1;
    let said = comb.difference(&wrong, &reference).expect("differs");
    assert!(said.starts_with("of variable 1 1 of 60 values differ, the first at [2, 3, 1]"), "{said}");
    wrong.state.as_mut().expect("is there").truncate(480);
    let said = comb.difference(&wrong, &reference).expect("differs");
    assert!(said.contains("of variable 1 there are 0 of 60 values"), "{said}");
    let mut wrong = right;
    wrong.checksum.replace_range(0..1, "x");
    assert!(comb.difference(&wrong, &reference).expect("differs").contains("the checksum of their bits is"));
}
