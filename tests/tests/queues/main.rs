//! Queues: what they carry out, on threads; how many signals it takes; and what they refuse, with nothing enqueued.

mod counts;
#[cfg(target_os = "linux")]
mod early;
mod misuse;
mod misused_operations;

use streamhalo_tests::cases::pairing::{
    beside_messages, enqueued_in_order, freed_at_once, matched_one_by_one,
};
use streamhalo_tests::cases::queues::{
    SIZES, freed_early, halo, late_payload, many_messages, operations, opposite_orders,
};
use streamhalo_tests::{KINDS, Scenario, on_ranks};

/// Both kinds of stream; the backend does not matter.
fn ways() -> [Scenario; 2] {
    KINDS.map(|kind| Scenario { backend: "none", kind })
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
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| {
                SIZES.iter().try_for_each(|size| opposite_orders(world, way, *size).map(drop))
            });
        }
    }
}

#[test]
fn messages_of_one_tag_match_in_order() {
    for ranks in [1, 2, 4] {
        for way in ways() {
            on_ranks(ranks, |world| many_messages(world, way));
        }
    }
}

#[test]
fn enqueued_operations_of_one_tag_match_in_order() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| enqueued_in_order(world, way));
        }
    }
}

#[test]
fn matched_requests_and_ordinary_messages_do_not_meet() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| {
                SIZES.iter().try_for_each(|size| beside_messages(world, way, *size).map(drop))
            });
        }
    }
}

#[test]
fn a_match_that_is_tested_comes_with_the_peers() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| matched_one_by_one(world, way));
        }
    }
}

#[test]
fn what_is_freed_as_soon_as_it_is_matched_has_its_partner() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| freed_at_once(world, way));
        }
    }
}

#[test]
fn what_is_enqueued_outlives_its_requests() {
    for ranks in [1, 2] {
        for way in ways() {
            on_ranks(ranks, |world| freed_early(world, way));
        }
    }
}

#[test]
fn enqueued_operations_meet_queues_and_ordinary_messages() {
    for ranks in [1, 2, 3] {
        for way in ways() {
            on_ranks(ranks, |world| {
                SIZES.iter().try_for_each(|size| operations(world, way, *size).map(drop))
            });
        }
    }
}

#[test]
fn a_payload_is_read_when_the_stream_comes_to_its_start() {
    for ranks in [1, 2] {
        for way in ways() {
            on_ranks(ranks, |world| late_payload(world, way));
        }
    }
}
