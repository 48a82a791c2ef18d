//! Timelines of streams on a device, in which the device says when it did what.

use super::exchanges::{TURNS, WAYS};
use std::sync::PoisonError;
use streamhalo::StreamKind;
use streamhalo_tests::cases::timed::timed;
use streamhalo_tests::{in_memory, on_ranks, other_device, set_signals, set_waits, ways_of};

#[test]
fn what_depends_on_something_comes_after_it() {
    if other_device().is_none() {
        return;
    }
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    for (memory, waits, signals) in WAYS {
        in_memory(memory, || {
            for (way, ranks) in
                ways_of(StreamKind::Device).flat_map(|way| [1, 2, 3].map(|ranks| (way, ranks)))
            {
                on_ranks(ranks, |world| {
                    set_waits(waits);
                    set_signals(signals);
                    timed(world, way)
                });
            }
        });
    }
}
