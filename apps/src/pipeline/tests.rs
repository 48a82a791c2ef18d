//! The pipeline against the formula, and that the comparison can fail.

use std::cell::Cell;
use std::ops::Range;

use streamhalo::comm::Result;
use streamhalo::comm::fabric::Role;

use super::driver::Pipeline;
use super::links::{self, Links};
use crate::app::played::{play, reference};
use crate::app::recorded::{notifications, recorded};
use crate::app::{Application, Verified};
use crate::config::{Primitive, RunConfig};
use crate::error::AppError;

fn pipeline(settings: &str) -> Pipeline {
    let text = format!("app.name = 'pipeline'\n{settings}\n");
    Pipeline::open(&RunConfig::of(&text)).expect("is right")
}

/// Blocks that divide the rows and that do not, of more rows than there are, and too long to be sent eagerly;
/// columns that do not divide.
#[test]
fn every_primitive_gives_the_values_of_the_formula() {
    for (cells, block_rows, steps) in
        [("[9, 17]", 1, 3), ("[12, 16]", 4, 2), ("[2, 19]", 5, 0), ("[2100, 18]", 1500, 1)]
    {
        let settings = format!("app.block_rows = {block_rows}\napp.steps = {steps}\ngrid.cells = {cells}");
        let pipeline = pipeline(&settings);
        let reference = reference(&pipeline);
        for (backend, _) in Primitive::BACKENDS {
            for ranks in [1, 2, 3, 8] {
                let answer = play(&pipeline, &[1, ranks], backend).answer;
                assert_eq!(pipeline.difference(&answer, &reference), None, "{settings} {backend} {ranks}");
                assert_eq!(answer, reference, "{settings} {backend} {ranks}");
            }
        }
    }
}

/// One notification for each row or block of rows, from each rank to its right neighbour, and one for the corner.
#[test]
fn rows_are_told_of_one_by_one_or_in_blocks() {
    const ITERATIONS: u64 = 4;
    for (block_rows, blocks) in [(1, 8), (3, 3), (8, 1)] {
        let pipeline =
            pipeline(&format!("app.block_rows = {block_rows}\napp.steps = 3\ngrid.cells = [9, 12]"));
        let (outcome, events) = recorded(&pipeline, &[1, 3], "notified");
        let of = |blocks| ITERATIONS * blocks;
        let expected = [[0, of(blocks), 0], [0, 0, of(blocks)], [of(1), 0, 0]];
        assert_eq!(notifications(&events), expected, "{block_rows} rows a message");
        assert_eq!(of(outcome.messages_per_exchange), expected.concat().iter().sum::<u64>());
        let payloads = events.iter().flatten().filter(|event| event.role == Role::Payload);
        let bytes = payloads.map(|event| event.bytes as u64).sum::<u64>();
        assert_eq!(bytes, of(outcome.bytes_per_exchange), "{block_rows} rows a message");
    }
}

#[test]
fn the_corner_is_the_published_value() {
    let pipeline = pipeline("app.steps = 10\ngrid.cells = [30, 40]");
    // (iterations + 1) (m + n - 2)
    assert_eq!(play(&pipeline, &[1, 4], "notified").answer.result["corner"], 11.0 * 68.0);
}

/// Loses one of the messages that a rank receives: what was there stays.
struct Forgetful {
    links: Box<dyn Links>,
    /// Messages until then.
    until: usize,
}

impl Links for Forgetful {
    fn send(&mut self, rows: Range<usize>, values: &[f64]) -> Result<()> {
        self.links.send(rows, values)
    }

    fn receive(&mut self, rows: Range<usize>, values: &mut [f64]) -> Result<()> {
        let before = values.to_vec();
        self.links.receive(rows, values)?;
        if self.until == 0 {
            values.copy_from_slice(&before);
        }
        self.until = self.until.wrapping_sub(1);
        Ok(())
    }
}

/// The negative control of the pipeline: without any one of the messages the check fails.
#[test]
fn a_message_that_is_dropped_is_found() {
    let settings = "app.block_rows = 2\napp.steps = 1\ngrid.cells = [6, 9]";
    let reference = reference(&pipeline(settings));
    for (backend, _) in Primitive::BACKENDS {
        // Two iterations; the first rank gets a corner in each, the others three blocks of rows.
        for (rank, messages) in [(0, 2), (1, 6), (2, 6)] {
            for until in 0..messages {
                let mut pipeline = pipeline(settings);
                pipeline.connect = Box::new(move |trial, primitive, extent| {
                    let links = links::connect(trial, primitive, extent)?;
                    Ok(links.map(|links| match trial.world.rank() == rank {
                        true => Box::new(Forgetful { links, until }) as Box<dyn Links>,
                        false => links,
                    }))
                });
                let said = pipeline.difference(&play(&pipeline, &[1, 3], backend).answer, &reference);
                assert!(said.is_some(), "{backend}: rank {rank}, message {until}");
            }
        }
    }
}

/// The negative control of the comparison.
#[test]
fn a_value_that_is_off_is_found() {
    let pipeline = pipeline("app.steps = 1\ngrid.cells = [4, 6]");
    let reference = reference(&pipeline);
    let right = play(&pipeline, &[1, 2], "notified").answer;
    let mut wrong = right.clone();
    wrong.state.as_mut().expect("is there")[8 * 3 + 6] ^= 1;
    let said = pipeline.difference(&wrong, &reference).expect("differs");
    assert!(said.starts_with("in the last row 1 of 6 values differ, the first at [0, 0, 3]"), "{said}");
    let mut wrong = right.clone();
    wrong.checksum.replace_range(0..1, "x");
    assert!(pipeline.difference(&wrong, &reference).expect("differs").contains("values above it do"));
    let mut wrong = right;
    wrong.result.insert("corner".to_owned(), 1.0.into());
    assert!(pipeline.difference(&wrong, &reference).expect("differs").contains("\"corner\""));
}

/// Whoever waits for it can stop it at any row.
#[test]
fn the_reference_asks_at_every_row_whether_to_go_on() {
    let pipeline = pipeline("app.steps = 1\ngrid.cells = [7, 10]");
    for stopped_at in 1..=7 {
        let asked = Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            if asked.get() == stopped_at { Err(AppError::Interrupted { signal: 2 }) } else { Ok(()) }
        };
        let stopped = pipeline.reference(&go_on);
        assert!(matches!(stopped, Err(AppError::Interrupted { signal: 2 })), "{stopped:?}");
        assert_eq!(asked.get(), stopped_at);
    }
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    let pipeline = pipeline("grid.cells = [8, 8]");
    let said = |layout: &[usize]| pipeline.check_layout(layout).expect_err("does not fit").to_string();
    assert!(said(&[2, 1]).contains("splits columns only"), "{}", said(&[2, 1]));
    assert!(said(&[1, 5]).contains("8 columns are too few for 5 ranks"), "{}", said(&[1, 5]));
    pipeline.check_layout(&[1, 4]).expect("fits");
    // No address space has room for it; the reference, row by row, would take years.
    let large = self::pipeline("app.steps = 1\ngrid.cells = [268435456, 268435454]");
    let said = large.check_layout(&[1, 2]).expect_err("does not fit").to_string();
    let expected = "[268435456, 268435454] values over 2 ranks are 288230376151711744 bytes for a rank";
    assert!(said.contains(expected), "{said}");
}
