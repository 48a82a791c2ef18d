//! Active-target RMA: an access epoch begins once the whole group has exposed its windows.

use crate::checker::{Flaw, holds, is_refuted};
use crate::flag::{Buffer, Flag, Shipped};
use crate::protocol::clear_to_send;
use crate::word::store_fence;
use loom::thread;
use std::sync::Arc;

/// One origin and two targets. The origin waits for the exposures of the first `awaited` targets,
/// puts to both windows, and completes both with one fence.
fn group(awaited: usize, epochs: u32) {
    struct Target {
        window: Buffer<Shipped>,
        exposed: Shipped,
    }
    let targets = Arc::new([(); 2].map(|()| Target { window: Buffer::after(0), exposed: Shipped::at(0) }));
    let threads = [0, 1].map(|index| {
        let targets = targets.clone();
        thread::spawn(move || {
            for epoch in 1..=epochs {
                // Post: the last epoch has been unpacked.
                targets[index].exposed.set(clear_to_send(epoch));
                targets[index].window.take(epoch);
            }
        })
    });
    for epoch in 1..=epochs {
        for target in targets.iter().take(awaited) {
            target.exposed.wait(clear_to_send(epoch));
        }
        for target in targets.iter() {
            target.window.write(epoch);
            target.window.arrival.cell.store(epoch);
        }
        store_fence();
        targets.iter().for_each(|target| target.window.arrival.wake());
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn an_access_epoch_begins_when_all_targets_have_exposed() {
    holds(1, || group(2, 3));
}

#[test]
fn an_access_epoch_that_begins_with_the_first_exposure_overwrites() {
    is_refuted(Flaw::Payload, 2, || group(1, 2));
}
