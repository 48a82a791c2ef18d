//! The primitives below the backends with memory of a device, between ranks that are threads: all cases of the host's
//! suites, whose values are what they are on the host.

use streamhalo::comm::PRIMITIVES;
use streamhalo::{MemoryMode, StreamKind, World};
use streamhalo_tests::cases::Subject;
use streamhalo_tests::{in_memory, on_ranks, on_walled_ranks, other_device};

/// All cases of a primitive on ranks whose streams are the device's, and then those for which that makes a difference on
/// ranks of which every other one has a stream of the host.
fn cases(world: &World, primitive: &str, at_length: bool) {
    let row = PRIMITIVES.iter().find(|row| row.name == primitive).expect("there is one of that name");
    let mixed = if world.rank().is_multiple_of(2) { StreamKind::Device } else { StreamKind::Threaded };
    let [on_device, mixed] = [StreamKind::Device, mixed].map(|kind| Subject::Primitive(row, kind));
    let all = on_device.cases(world.size(), at_length).into_iter().map(|case| (on_device, case));
    let some = mixed.cases(world.size(), false).into_iter().map(|case| (mixed, case));
    for (subject, case) in all.chain(some.filter(|(_, case)| !case.is_of_any_stream)) {
        let ran = case.run(world, subject.way());
        assert!(ran.is_ok(), "`{}` on rank {}: {ran:?}", case.name, world.rank());
    }
}

fn all_cases(primitive: &str, at_length: bool) {
    if other_device().is_none() {
        return;
    }
    for ranks in 1..=4 {
        let run = |world: &World| {
            cases(world, primitive, at_length && ranks < 4);
            Ok(())
        };
        // Arrays that no peer could map make no difference: the pairs that are left out here are those of two ranks.
        if ranks == 2 {
            in_memory(MemoryMode::Shared, || drop(on_walled_ranks(ranks, run)));
            in_memory(MemoryMode::Separate, || drop(on_ranks(ranks, run)));
        }
        in_memory(MemoryMode::Shared, || drop(on_ranks(ranks, run)));
        in_memory(MemoryMode::Separate, || drop(on_walled_ranks(ranks, run)));
    }
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
