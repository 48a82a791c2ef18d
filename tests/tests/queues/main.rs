//! Queues: what they carry out, on threads; how many signals it takes; and what they refuse, with nothing enqueued.

mod counts;
mod early;
mod kept;
mod misuse;
mod misused_operations;
mod told;

use streamhalo::{HaloError, World};
use streamhalo_tests::cases::pairing::{
    beside_messages, enqueued_in_order, freed_at_once, freed_before_its_partner, going_on_meanwhile,
    known_to_be_matched, matched_one_by_one, matched_together,
};
use streamhalo_tests::cases::queues::{
    SIZES, freed_early, halo, late_payload, many_messages, operations, opposite_orders,
};
use streamhalo_tests::{KINDS, Scenario, on_ranks};

/// Both kinds of stream; the backend does not matter.
fn ways() -> [Scenario; 2] {
    KINDS.map(|kind| Scenario { backend: "none", kind })
}

/// Tries a case by as many ranks, on both kinds of stream.
fn on_each<T: Send>(ranks: &[usize], case: impl Fn(&World, Scenario) -> Result<T, HaloError> + Sync) {
    for (&ranks, way) in ranks.iter().flat_map(|ranks| ways().map(|way| (ranks, way))) {
        on_ranks(ranks, |world| case(world, way));
    }
}

#[test]
fn a_halo_exchange_of_regular_and_of_ready_sends() {
    for (plane, owned) in [([1, 1], [3, 4]), ([1, 2], [5, 2]), ([2, 2], [16, 7]), ([3, 1], [1, 1])] {
        for way in ways() {
            for ready in [false, true] {
                on_ranks(plane[0] * plane[1], |world| halo(world, way, plane, (owned, 200, ready)));
            }
        }
    }
}

#[test]
fn queues_in_opposite_orders_do_not_block_each_other() {
    on_each(&[1, 2, 3], |world, way| {
        SIZES.iter().try_for_each(|size| opposite_orders(world, way, *size).map(drop))
    });
}

#[test]
fn messages_of_one_tag_match_in_order() {
    on_each(&[1, 2, 4], many_messages);
}

#[test]
fn enqueued_operations_of_one_tag_match_in_order() {
    on_each(&[1, 2, 3], enqueued_in_order);
}

#[test]
fn matches_go_on_while_their_rank_waits() {
    on_each(&[1, 2, 3, 4], going_on_meanwhile);
}

#[test]
fn matched_requests_and_ordinary_messages_do_not_meet() {
    on_each(&[1, 2, 3], |world, way| {
        SIZES.iter().try_for_each(|size| beside_messages(world, way, *size).map(drop))
    });
}

#[test]
fn a_match_that_is_tested_comes_with_the_peers() {
    on_each(&[1, 2, 3], matched_one_by_one);
}

#[test]
fn a_match_is_known_with_the_peers_and_without_a_test() {
    on_each(&[1, 2, 3], known_to_be_matched);
}

#[test]
fn requests_that_are_matched_together_are_complete_with_the_last() {
    on_each(&[1, 2, 3], matched_together);
}

#[test]
fn a_request_whose_partner_was_freed_before_is_told() {
    on_each(&[1, 2, 3], freed_before_its_partner);
}

#[test]
fn what_is_freed_as_soon_as_it_is_matched_has_its_partner() {
    on_each(&[1, 2, 3], freed_at_once);
}

#[test]
fn what_is_enqueued_outlives_its_requests() {
    on_each(&[1, 2], freed_early);
}

#[test]
fn enqueued_operations_meet_queues_and_ordinary_messages() {
    on_each(&[1, 2, 3], |world, way| {
        SIZES.iter().try_for_each(|size| operations(world, way, *size).map(drop))
    });
}

#[test]
fn a_payload_is_read_when_the_stream_comes_to_its_start() {
    on_each(&[1, 2], late_payload);
}
