//! The primitives below the backends with arrays on a GPU, between ranks that are threads, in every way to wait and to
//! signal: the cases of the host's suites, whose values are what they are on the host.

use super::{KIND, gpu};
use streamhalo::{Signals, Waits};
use streamhalo_tests::cases::Subject;
use streamhalo_tests::{on_ranks, set_signals, set_waits};

fn all_cases(primitive: &str, at_length: bool) {
    let Some((_, _turn)) = gpu() else { return };
    let subject = Subject::on_device().find(|subject| subject.name() == primitive).expect("there is one");
    let ways = [
        (Waits::Kernel, Signals::Kernel),
        (Waits::Kernel, Signals::Merged),
        (Waits::Auto, Signals::Memop),
        (Waits::Proxy, Signals::Kernel),
    ];
    for (waits, signals) in ways {
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
    all_cases("active-target", false);
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

#[test]
fn enqueued_collectives() {
    all_cases("enqueued-collectives", true);
}
