//! The tree against the serial sum, and that the comparison can fail.

use std::sync::atomic::{AtomicU64, Ordering};

use streamhalo::comm::Result;

use super::driver::Tree;
use super::links::{self, Links};
use crate::app::Verified;
use crate::app::played::{play, reference};
use crate::app::recorded::{notifications, recorded};
use crate::config::{Primitive, RunConfig};

fn tree(settings: &str) -> Tree {
    let text = format!("app = {{ name = 'tree', {settings} }}\ngrid.cells = 21\n");
    Tree::open(&RunConfig::of(&text)).expect("is right")
}

/// Trees of one, two and more levels, and messages that are short, long, and too long to be sent eagerly.
#[test]
fn integers_are_summed_exactly_by_every_primitive_at_every_arity() {
    for (arity, elements, steps) in [(16, 1, 20), (2, 3, 9), (1, 5, 3), (3, 1200, 4), (2, 1, 0)] {
        let settings = format!("arity = {arity}, elements = {elements}, steps = {steps}");
        let tree = tree(&settings);
        let reference = reference(&tree);
        for (backend, _) in Primitive::BACKENDS {
            for ranks in [1, 2, 5, 8] {
                let answer = play(&tree, &[ranks], backend).answer;
                assert_eq!(tree.difference(&answer, &reference), None, "{settings} {backend} {ranks}");
                assert_eq!(answer.checksum, reference.checksum, "{settings} {backend} {ranks}");
            }
        }
    }
}

#[test]
fn only_sums_that_are_to_be_exact_have_a_limit() {
    let open = |values: &str| {
        let text =
            format!("app = {{ name = 'tree', steps = 100_000_000, values = '{values}' }}\ngrid.cells = 21\n");
        Tree::open(&RunConfig::of(&text)).map(|_| ())
    };
    let refused = open("integers").expect_err("they are not").to_string();
    assert!(refused.contains("let `app.values` be \"reals\""), "{refused}");
    open("reals").expect("they are rounded anyway");
}

#[test]
fn every_primitive_gives_the_same_bits_of_rounded_sums() {
    let tree = tree("arity = 2, elements = 4, steps = 12, values = 'reals'");
    let reference = reference(&tree);
    let mut checksums = Vec::new();
    for ranks in [1, 3, 8] {
        let expected = play(&tree, &[ranks], "standard").answer;
        assert_eq!(tree.difference(&expected, &reference), None, "{ranks}");
        for backend in ["active-rma", "notified"] {
            assert_eq!(play(&tree, &[ranks], backend).answer, expected, "{backend} {ranks}");
        }
        checksums.push(expected.checksum);
    }
    checksums.dedup();
    assert!(checksums.len() > 1, "sums in different orders are rounded differently");
}

/// One notification up and one down for each rank but the root, in each step.
#[test]
fn children_and_parents_are_notified_once_a_step() {
    let (outcome, events) = recorded(&tree("arity = 3, steps = 7"), &[6], "notified");
    let mut expected = vec![vec![0; 6]; 6];
    for (parent, child) in [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)] {
        expected[parent][child] = 7;
        expected[child][parent] = 7;
    }
    // The library's allreduce beside it tells of what it sends in another way.
    assert_eq!((outcome.messages_per_exchange, notifications(&events)), (10, expected));
}

/// Loses one of the messages from a child, or from the parent: what was there stays.
struct Forgetful {
    links: Box<dyn Links>,
    lost: Lost,
    step: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lost {
    /// Of the n-th child, in a step.
    Child(usize, u64),
    /// Of the parent, in a step.
    Parent(u64),
}

impl Links for Forgetful {
    fn receive_contributions(&mut self, contributions: &mut [f64]) -> Result<()> {
        let before = contributions.to_vec();
        self.links.receive_contributions(contributions)?;
        if let Lost::Child(child, step) = self.lost
            && step == self.step
        {
            contributions[child] = before[child];
        }
        self.step += 1;
        Ok(())
    }

    fn send_contribution(&mut self, contribution: &[f64]) -> Result<()> {
        self.links.send_contribution(contribution)
    }

    fn receive_total(&mut self, total: &mut [f64]) -> Result<()> {
        let before = total.to_vec();
        self.links.receive_total(total)?;
        // The ranks that lose it have children, whose turn it was before.
        if self.lost == Lost::Parent(self.step - 1) {
            total.copy_from_slice(&before);
        }
        Ok(())
    }

    fn send_total(&mut self, total: &[f64]) -> Result<()> {
        self.links.send_total(total)
    }
}

/// The negative control of the tree: without any one of the messages of a rank the check fails.
#[test]
fn a_message_that_is_dropped_is_found() {
    let settings = "arity = 2, steps = 3";
    let reference = reference(&tree(settings));
    let children = |rank, count| {
        (0..count).flat_map(move |child| (0..3).map(move |step| (rank, Lost::Child(child, step))))
    };
    let parents = (1..3).flat_map(|rank| (0..3).map(move |step| (rank, Lost::Parent(step))));
    let all: Vec<_> = children(0, 2).chain(children(1, 2)).chain(children(2, 2)).chain(parents).collect();
    assert_eq!(all.len(), 24);
    for (backend, _) in Primitive::BACKENDS {
        for (rank, lost) in all.iter().copied() {
            let mut tree = tree(settings);
            tree.connect = Box::new(move |trial, primitive, place, elements| {
                let links = links::connect(trial, primitive, place, elements)?;
                Ok(match trial.world.rank() == rank {
                    true => Box::new(Forgetful { links, lost, step: 0 }) as Box<dyn Links>,
                    false => links,
                })
            });
            let said = tree.difference(&play(&tree, &[7], backend).answer, &reference);
            assert!(said.is_some(), "{backend}: rank {rank} loses {lost:?}");
        }
    }
}

/// The negative control of the library: a total that is wrong on any rank, in any step, is found.
#[test]
fn a_total_of_the_library_that_is_off_is_found_on_every_rank() {
    let settings = "elements = 2, steps = 3";
    let reference = reference(&tree(settings));
    for rank in 0..4 {
        for wrong in 0..3 {
            let mut tree = tree(settings);
            let steps: Vec<_> = (0..4).map(|_| AtomicU64::new(0)).collect();
            tree.library_sum = Box::new(move |trial, library, own, total| {
                library.sum(own, total)?;
                let step = steps[trial.world.rank()].fetch_add(1, Ordering::Relaxed);
                if trial.world.rank() == rank && step == wrong {
                    total[1] += 1.0;
                }
                Ok(())
            });
            let answer = play(&tree, &[4], "notified").answer;
            let said = tree.difference(&answer, &reference).expect("differs");
            assert!(said.contains("the library's allreduce"), "rank {rank}, step {wrong}: {said}");
            assert_eq!(answer.checksum, reference.checksum, "is that of the tree");
        }
    }
}

/// The negative control of the comparison, with a value that is a little off.
#[test]
fn a_value_that_is_off_is_found() {
    for (values, change) in [("integers", 1.0), ("reals", 1e-9)] {
        let tree = tree(&format!("elements = 3, steps = 2, values = '{values}'"));
        let reference = reference(&tree);
        let right = play(&tree, &[4], "notified").answer;
        assert_eq!(tree.difference(&right, &reference), None);
        for (index, whose) in [(0, "the tree"), (2, "the tree"), (3, "the library's allreduce")] {
            let mut wrong = right.clone();
            let bytes = &mut wrong.state.as_mut().expect("is there")[8 * index..8 * (index + 1)];
            let value = f64::from_le_bytes((&*bytes).try_into().expect("eight bytes"));
            bytes.copy_from_slice(&(value + change).to_le_bytes());
            let said = tree.difference(&wrong, &reference).expect("differs");
            assert!(said.starts_with(&format!("of {whose} 1 of 3 values differ")), "{said}");
        }
        let mut wrong = right;
        wrong.result.insert("ranks_agree".to_owned(), false.into());
        assert!(tree.difference(&wrong, &reference).expect("differs").contains("different totals"));
    }
}
