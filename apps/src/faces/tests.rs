//! The distributed sums against the serial reference, and that the comparison can fail.

use streamhalo::comm::backend::backend_names;
use streamhalo::prelude::Pattern;

use super::driver::Faces;
use super::reference::Reference;
use crate::app::on_device::agrees_with_the_host;
use crate::app::played::{play, reference};
use crate::app::values::encode;
use crate::app::{Answer, Application, Verified};
use crate::config::RunConfig;

fn faces(settings: &str, grid: &str) -> Faces {
    let text = format!("app = {{ name = 'faces', {settings} }}\ngrid = {{ {grid} }}\n");
    let config = RunConfig::of(&text);
    Faces::open(&config).expect("is right")
}

const LAYOUTS: [[usize; 3]; 8] =
    [[1, 1, 1], [2, 1, 1], [1, 2, 1], [1, 1, 2], [4, 1, 1], [2, 2, 1], [1, 2, 2], [2, 2, 2]];

/// Periodic or not along each axis.
const BOUNDARIES: [&str; 4] = ["true", "false", "[true, false, true]", "[false, true, false]"];

#[test]
fn devices_have_the_bits_of_the_host() {
    for (order, periodic, layout) in
        [(1, "true", [2, 1, 1]), (2, "[false, true, false]", [1, 2, 2]), (5, "false", [1, 1, 2])]
    {
        for values in ["integers", "reals"] {
            let faces = faces(
                &format!("order = {order}, steps = 3, middle = 2, values = '{values}', extra_compute = 2"),
                &format!("cells = [4, 2, 4], periodic = {periodic}"),
            );
            agrees_with_the_host(&faces, layout, "st-rsend");
        }
    }
}

#[test]
fn integers_are_summed_exactly_at_every_layout_order_and_boundary() {
    for (order, steps) in [(1, 3), (2, 4), (7, 1)] {
        for periodic in BOUNDARIES {
            let faces = faces(
                &format!("order = {order}, steps = {steps}, middle = 2"),
                &format!("cells = [4, 4, 2], periodic = {periodic}"),
            );
            let reference = reference(&faces);
            for layout in LAYOUTS {
                let answer = play(&faces, &layout, "st-rsend").answer;
                assert_eq!(answer.checksum, reference.checksum, "{layout:?}, order {order}, {periodic}");
                assert_eq!(faces.difference(&answer, &reference), None);
            }
        }
    }
}

#[test]
fn every_backend_gives_the_same_bits_of_rounded_sums() {
    let faces = faces(
        "order = 3, steps = 5, values = 'reals', outer = 2, middle = 2, extra_compute = 3",
        "cells = [2, 4, 4], periodic = [true, true, false]",
    );
    let reference = reference(&faces);
    let expected = play(&faces, &[1, 1, 1], "standard").answer;
    for backend in backend_names() {
        for layout in [[1, 1, 4], [2, 2, 1], [2, 2, 2]] {
            let answer = play(&faces, &layout, backend).answer;
            assert_eq!(faces.difference(&answer, &reference), None, "{backend} {layout:?}");
            assert_eq!(answer, expected, "{backend} {layout:?}");
        }
    }
    assert_ne!(expected.checksum, reference.checksum, "rounded in another order");
}

/// Elements of which a block has one: every point is on its surface, or next to it.
#[test]
fn blocks_of_one_element() {
    for order in [1, 2] {
        let faces = faces(&format!("order = {order}, steps = 3"), "cells = [2, 2, 2]");
        let reference = reference(&faces);
        for layout in [[1, 1, 1], [2, 2, 2]] {
            assert_eq!(faces.difference(&play(&faces, &layout, "active-rma").answer, &reference), None);
        }
    }
}

/// The negative control of the exchange: without the message from any one of the 26 neighbours the check
/// fails, also where they are missing in the first of two passes of the outer loop only.
#[test]
fn a_message_that_is_dropped_is_found() {
    let all: Vec<Vec<i32>> = (0..27)
        .filter(|code| *code != 13)
        .map(|code| vec![code / 9 - 1, code / 3 % 3 - 1, code % 3 - 1])
        .collect();
    assert_eq!(all.len(), 26);
    for (settings, shows) in [
        ("order = 2, steps = 1, outer = 1", " of 216 values differ"),
        ("order = 2, steps = 2, outer = 2", "but an earlier round's do"),
        ("order = 2, steps = 2, outer = 2, values = 'reals'", " of 216 values differ"),
    ] {
        let mut faces = faces(settings, "cells = [2, 2, 2]");
        let reference = reference(&faces);
        let mut said_without = |dropped: Option<&Vec<i32>>| {
            let others = all.iter().filter(|offset| Some(*offset) != dropped).cloned().collect();
            let patterns = [Pattern::Offsets(others), Pattern::Offsets(all.clone())];
            faces.pattern = Box::new(move |outer| patterns[outer as usize].clone());
            faces.difference(&play(&faces, &[2, 2, 2], "st-send").answer, &reference)
        };
        assert_eq!(said_without(None), None);
        for dropped in &all {
            let said = said_without(Some(dropped));
            assert!(said.is_some_and(|said| said.contains(shows)), "{settings}: {dropped:?}");
        }
    }
}

/// The negative control of the sums: where one of the contributions to a node is off by one, all copies of
/// that node are wrong.
#[test]
fn a_contribution_that_is_changed_changes_every_copy() {
    let faces = faces("order = 2, steps = 1", "cells = [2, 2, 2]");
    let right = play(&faces, &[2, 2, 2], "st-send").answer;
    for (changed, copies) in [([2, 2, 2], 8), ([0, 3, 5], 8), ([1, 2, 3], 4), ([1, 1, 3], 2), ([4, 4, 4], 1)]
    {
        let value = |point| faces.initial().at(0, point) + f64::from(u8::from(point == changed));
        let mut mesh = Reference::new([2, 2, 2], 3, [true; 3], value);
        mesh.step();
        let reference = Answer { state: Some(encode(&mesh.by_place())), ..right.clone() };
        let said = faces.difference(&right, &reference).expect("differs");
        assert!(said.starts_with(&format!("{copies} of 216 values differ")), "{said}");
    }
}

/// The negative control of the comparison: a value that is a little off, in any of several places, in
/// either kind of values.
#[test]
fn a_value_that_is_off_is_found() {
    for (values, change) in [("integers", 1.0), ("reals", 1e-12)] {
        let faces = faces(&format!("order = 2, steps = 2, values = '{values}'"), "cells = [2, 2, 2]");
        let reference = reference(&faces);
        let right = play(&faces, &[2, 1, 1], "notified").answer;
        assert_eq!(faces.difference(&right, &reference), None);
        for index in [0, 1, 107, 215] {
            let mut wrong = right.clone();
            let bytes = &mut wrong.state.as_mut().expect("is there")[8 * index..8 * (index + 1)];
            let value = f64::from_le_bytes((&*bytes).try_into().expect("eight bytes"));
            bytes.copy_from_slice(&(value + change * value.abs().max(1.0)).to_le_bytes());
            let said = faces.difference(&wrong, &reference).expect("differs");
            assert!(said.starts_with("1 of 216 values differ"), "{said}");
        }
    }
}

/// An error in a round before the last one, or of the extra kernel, is none of the last values.
#[test]
fn what_the_last_values_do_not_show_is_found() {
    let faces = faces("order = 1, steps = 2, extra_compute = 1", "cells = [2, 2, 2]");
    let reference = reference(&faces);
    let mut wrong = play(&faces, &[1, 1, 1], "standard").answer;
    wrong.checksum.replace_range(0..1, "x");
    assert!(faces.difference(&wrong, &reference).expect("differs").contains("an earlier round's"));
    wrong.checksum.clone_from(&reference.checksum);
    wrong.result.insert("extra_compute".to_owned(), 1.0.into());
    assert!(faces.difference(&wrong, &reference).expect("differs").contains("extra kernel"));
}

#[test]
fn elements_that_cannot_be_shared_evenly_are_refused() {
    let faces = faces("order = 1", "cells = [4, 3, 4]");
    let said = faces.check_layout(&[1, 2, 1]).expect_err("does not fit").to_string();
    assert!(said.contains("3 elements along axis 1") && said.contains("[1, 2, 1]"), "{said}");
    faces.check_layout(&[4, 3, 1]).expect("fits");
}
