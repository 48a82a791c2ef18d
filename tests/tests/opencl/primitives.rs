//! The primitives below the backends with memory of a device, between ranks that are threads: all cases of the host's
//! suites, whose values are what they are on the host.

use streamhalo::comm::PRIMITIVES;
use streamhalo::{StreamKind, World};
use streamhalo_tests::cases::Subject;
use streamhalo_tests::{in_both_memories, on_ranks, on_walled_ranks, other_device};

/// All cases of a primitive, on ranks whose streams are of that kind, by rank.
fn cases(world: &World, primitive: &str, at_length: bool, kind: fn(usize) -> StreamKind) {
    let row = PRIMITIVES.iter().find(|row| row.name == primitive).expect("there is one of that name");
    let subject = Subject::Primitive(row, kind(world.rank()));
    for case in subject.cases(world.size(), at_length) {
        let ran = case.run(world, subject.way());
        assert!(ran.is_ok(), "`{}` on rank {}: {ran:?}", case.name, world.rank());
    }
}

fn all_cases(primitive: &str, at_length: bool) {
    if other_device().is_none() {
        return;
    }
    let mixed = |rank| if rank % 2 == 0 { StreamKind::Device } else { StreamKind::Threaded };
    in_both_memories(|| {
        for ranks in 1..=4 {
            let run = |world: &World| {
                cases(world, primitive, at_length && ranks < 4, |_| StreamKind::Device);
                cases(world, primitive, false, mixed);
                Ok(())
            };
            on_ranks(ranks, run);
            // Arrays that no peer could map make no difference.
            on_walled_ranks(ranks, run);
        }
    });
}

#[test]
fn epochs_of_windows() {
    all_cases("active-target", true);
}

#[test]
fn notified_accesses() {
    all_cases("notified-access", false);
}

#[test]
fn requests_on_queues() {
    all_cases("queues", true);
}

#[test]
fn enqueued_operations() {
    all_cases("enqueued-messages", true);
}
