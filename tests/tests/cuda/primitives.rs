//! The primitives below the backends with arrays on a GPU, between ranks that are threads: the cases of the host's suites,
//! whose values are what they are on the host.

use super::{KIND, gpu};
use streamhalo::{Signals, Waits};
use streamhalo_tests::cases::Subject;
use streamhalo_tests::{on_ranks, set_signals, set_waits};

/// The ways to wait and to signal of what kernels post and wait for; words of windows and queues are the host's.
const BY_KERNELS: [(Waits, Signals); 4] = [
    (Waits::Kernel, Signals::Kernel),
    (Waits::Kernel, Signals::Merged),
    (Waits::Auto, Signals::Memop),
    (Waits::Proxy, Signals::Kernel),
];

fn all_cases(primitive: &str, at_length: bool, ways: &[(Waits, Signals)]) {
    let Some((_, _turn)) = gpu() else { return };
    let subject = Subject::on_device().find(|subject| subject.name() == primitive).expect("there is one");
    for &(waits, signals) in ways {
        // Not all runtimes of AMD's have memory operations.
        if signals == Signals::Memop && KIND != "cuda" {
            continue;
        }
        for ranks in 1..=3 {
            on_ranks(ranks, |world| {
                set_waits(waits);
                set_signals(signals);
                for case in subject.cases(ranks, at_length && ranks < 3) {
                    let ran = case.run(world, subject.way());
                    let what = (waits, signals, world.rank(), ranks);
                    assert!(ran.is_ok(), "`{}`, {what:?}: {ran:?}", case.name);
                }
                Ok(())
            });
        }
    }
}

#[test]
fn epochs_of_windows() {
    all_cases("active-target", false, &BY_KERNELS[..1]);
}

#[test]
fn notified_accesses() {
    all_cases("notified-access", false, &BY_KERNELS[..1]);
}

#[test]
fn requests_on_queues() {
    all_cases("queues", true, &[BY_KERNELS[0], BY_KERNELS[2]]);
}

#[test]
fn enqueued_operations() {
    all_cases("enqueued-messages", true, &BY_KERNELS[..1]);
}

#[test]
fn enqueued_collectives() {
    all_cases("enqueued-collectives", true, &BY_KERNELS);
}

/// Messages and calls of the host, whose cases have sections of devices on any stream.
#[test]
fn messages_and_collective_calls() {
    let Some((_, _turn)) = gpu() else { return };
    let subject = Subject::all().find(|subject| subject.name() == "messages").expect("there is one");
    for ranks in 1..=3 {
        on_ranks(ranks, |world| {
            let cases = subject.cases(ranks, ranks < 3).into_iter();
            for case in cases.filter(|case| case.name.contains("devices")) {
                let ran = case.run(world, subject.way());
                assert!(ran.is_ok(), "`{}`, {} of {ranks}: {ran:?}", case.name, world.rank());
            }
            Ok(())
        });
    }
}
