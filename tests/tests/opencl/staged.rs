//! Every backend between ranks that do not reach each other's devices: messages are staged through the host's
//! memory, with the answers of the host.

use super::exchanges::with_nobody_that_waits;
use std::collections::BTreeSet;
use streamhalo::comm::Error;
use streamhalo::{HaloError, Signals, StreamKind, Waits};
use streamhalo_tests::cases::on_device::{
    IMPATIENT, Lateness, all_as_on_the_host, check_failures, check_lateness, with_a_rank_that_fails,
    with_a_rank_that_is_late,
};
use streamhalo_tests::cases::{ALTERNATING, CELLS, GatherCase};
use streamhalo_tests::{
    in_both_memories, on_walled_ranks, other_device, set_signals, set_waits, stream_of, walled_outcomes,
    watchdog, ways_of,
};

fn all_cases(ranks: usize, at_length: bool) {
    if other_device().is_none() {
        return;
    }
    in_both_memories(|| cases_on(ranks, at_length));
}

fn cases_on(ranks: usize, at_length: bool) {
    on_walled_ranks(ranks, |world| all_as_on_the_host(world, at_length, "proxy", &"staged"));
}

#[test]
fn one_rank() {
    all_cases(1, true);
}

#[test]
fn two_ranks() {
    all_cases(2, true);
}

#[test]
fn three_ranks() {
    all_cases(3, false);
}

#[test]
fn four_ranks() {
    all_cases(4, false);
}

#[test]
fn only_standard_waits_for_the_stream() {
    if other_device().is_none() {
        return;
    }
    let staged = "staged through the host's memory, because the fabric `local` does not reach the device's";
    on_walled_ranks(2, |world| with_nobody_that_waits(world, staged));
}

#[test]
fn messages_of_every_size_are_packed() {
    if other_device().is_none() {
        return;
    }
    let paths = on_walled_ranks(2, |world| {
        let mut paths = BTreeSet::new();
        for way in ways_of(StreamKind::Device) {
            for (row, spec) in [(8, CELLS), (40, ALTERNATING), (2_000, CELLS)] {
                paths.extend(GatherCase::new([4, row], [2, 1], spec).run_way(world, way)?.paths);
            }
        }
        Ok(paths)
    });
    let expected =
        ["packed into the peer's buffer", "packed, eager", "packed, rendezvous", "packed, with its signal"];
    assert_eq!(paths[0].iter().copied().collect::<Vec<_>>(), expected);
}

#[test]
fn a_rank_that_fails_ends_the_waits_of_the_others() {
    if other_device().is_none() {
        return;
    }
    for way in ways_of(StreamKind::Device) {
        check_failures(walled_outcomes(3, watchdog(), |world, _| with_a_rank_that_fails(world, way)), &way);
    }
}

#[test]
fn a_wait_ends_with_the_time_out() {
    if other_device().is_none() {
        return;
    }
    for way in ways_of(StreamKind::Device) {
        let lateness = Lateness::default();
        let results =
            walled_outcomes(2, IMPATIENT, |world, _| with_a_rank_that_is_late(world, way, &lateness));
        check_lateness(results, &way);
    }
}

#[test]
fn kernels_neither_wait_for_nor_post_words_of_the_host() {
    if other_device().is_none() {
        return;
    }
    for (waits, signals) in [(Waits::Kernel, Signals::Kernel), (Waits::Proxy, Signals::Merged)] {
        let refused = walled_outcomes(1, watchdog(), |world, _| {
            set_waits(waits);
            set_signals(signals);
            stream_of(world, StreamKind::Device).map(|_| ())
        });
        match refused.into_iter().next().expect("one rank").expect_err("refused") {
            HaloError::Communication(Error::DeviceUnavailable { reason, .. }) => {
                let says = |part| reason.contains(part);
                assert!(says("is in the host's memory") && says("`local`"), "{reason}");
            }
            error => panic!("{error}"),
        }
    }
}
