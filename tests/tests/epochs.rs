//! Active target epochs over threads, at length, and what a rank does to its peers in them.

use streamhalo::comm::fabric::{Event, Role};
use streamhalo::comm::window::ActiveOptions;
use streamhalo::{HaloError, World};
use streamhalo_tests::cases::active::{self, Ring};
use streamhalo_tests::{KINDS, Scenario, expect_all, on_ranks, stream_of, watchdog};

fn ways() -> [Scenario; 2] {
    KINDS.map(|kind| Scenario { backend: "standard", kind })
}

#[test]
fn rings() {
    for ranks in [1, 2, 3, 4] {
        for way in ways() {
            for elements in [1, 5, 9_000] {
                on_ranks(ranks, |world| active::ring(world, way, elements));
            }
            on_ranks(ranks, |world| active::opposite_orders(world, way));
            on_ranks(ranks, |world| active::large(world, way));
        }
    }
}

#[test]
fn accumulates() {
    for ranks in [1, 2, 4] {
        for way in ways() {
            on_ranks(ranks, |world| active::accumulates::<u8>(world, way, 70));
            on_ranks(ranks, |world| active::accumulates::<i32>(world, way, 3_000));
            on_ranks(ranks, |world| active::accumulates::<i64>(world, way, 7));
            on_ranks(ranks, |world| active::accumulates::<f32>(world, way, 33));
            on_ranks(ranks, |world| active::accumulates::<f64>(world, way, 40));
        }
    }
}

#[test]
fn groups_of_any_kind() {
    for ranks in [1, 2, 3, 5] {
        for way in ways() {
            for seed in 0..10 {
                on_ranks(ranks, |world| active::at_random(world, way, seed));
            }
        }
    }
}

#[test]
fn little_room() {
    for ranks in [1, 2, 4] {
        on_ranks(ranks, |world| active::throttled(world, ways()[1]));
    }
}

/// What a rank does to one peer in an epoch, in the order in which it does it.
fn roles(events: &[Event], to: usize) -> Vec<Role> {
    events.iter().filter(|event| event.to == to).map(|event| event.role).collect()
}

#[test]
fn an_epoch_is_one_exposure_its_puts_and_one_completion() {
    let ranks = World::recorded_threads(4, watchdog(), |world, recording| {
        for kind in KINDS {
            let stream = stream_of(&world, kind)?;
            let mut ring = Ring::new(&world, &stream, 50, ActiveOptions::default())?;
            recording.take();
            for epoch in 0..6 {
                if epoch % 2 == 0 {
                    ring.step_stream()?
                } else {
                    ring.step_host(false)?
                }
                ring.finish()?;
                let events = recording.take();
                for peer in 0..4 {
                    let expected = match (peer + 4 - world.rank()) % 4 {
                        1 | 3 => vec![Role::Exposure, Role::Payload, Role::Completion],
                        _ => vec![],
                    };
                    assert_eq!(roles(&events, peer), expected, "rank {} to {peer}: {events:?}", world.rank());
                }
                // Both exposures go out together, before any put.
                let of = |role: Role| events.iter().filter(move |event| event.role == role).count();
                assert!(events[..2].iter().all(|event| event.role == Role::Exposure), "{events:?}");
                assert_eq!((of(Role::Payload), of(Role::Completion)), (2, 2));
                assert!(events.iter().all(|event| event.role != Role::Payload || event.bytes == 400));
            }
        }
        Ok::<(), HaloError>(())
    });
    expect_all(ranks.expect("threads can be started"));
}
