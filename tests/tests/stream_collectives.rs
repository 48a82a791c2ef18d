//! Collectives on a stream, on threads: any number of ranks, all types and operations, and what becomes of
//! them when a rank fails.

use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::{Communicator, Error};
use streamhalo::{HaloError, Op, StreamKind, World};
use streamhalo_tests::cases::Done;
use streamhalo_tests::cases::field_reductions::{between_halves, of_fields};
use streamhalo_tests::cases::leaving::reduced;
use streamhalo_tests::cases::stream_collectives::{in_flight_together, late_ranks, reductions, refused};
use streamhalo_tests::{KINDS, Scenario, each_way, expect_all, on_ranks, outcomes, same_on_all, stream_of};

fn in_every_way(ranks: usize, case: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Sync) {
    on_ranks(ranks, |world| each_way().try_for_each(|way| case(world, way).map(|_| ())));
}

/// The protocol that collectives choose themselves.
fn as_chosen() -> impl Iterator<Item = Scenario> {
    KINDS.into_iter().map(|kind| Scenario { backend: "st-rsend", kind })
}

#[test]
fn every_type_is_reduced_in_the_documented_order() {
    for ranks in 1..=4 {
        in_every_way(ranks, |world, way| {
            let sizes = [1, 129, 1_100];
            reductions::<u8>(world, way, &sizes)?;
            reductions::<i32>(world, way, &sizes)?;
            reductions::<i64>(world, way, &sizes)?;
            reductions::<f32>(world, way, &sizes)?;
            reductions::<f64>(world, way, &sizes)
        });
    }
}

#[test]
fn fields_are_reduced_alike_on_every_stream() {
    for ranks in [1, 3] {
        in_every_way(ranks, between_halves);
        in_every_way(ranks, of_fields::<f32>);
    }
    on_ranks(2, |world| {
        as_chosen().try_for_each(|way| {
            of_fields::<u8>(world, way)?;
            of_fields::<i32>(world, way)?;
            of_fields::<i64>(world, way)?;
            of_fields::<f64>(world, way).map(|_| ())
        })
    });
}

#[test]
fn any_number_of_ranks_reduces_alike() {
    for ranks in 5..=9 {
        on_ranks(ranks, |world| {
            as_chosen().try_for_each(|way| {
                late_ranks(world, way, ranks)?;
                reductions::<f64>(world, way, &[1, 300]).map(|_| ())
            })
        });
    }
}

/// Collectives of the host and of streams combine the values of all ranks in one order.
#[test]
fn hosts_and_streams_reduce_to_the_same_bits() {
    const LONG: usize = 33_000;
    for ranks in [3, 5, 6, 7] {
        on_ranks(ranks, |world| {
            let stream = stream_of(world, StreamKind::Inline)?;
            let communicator = Communicator::new(world)?;
            for elements in [30, LONG] {
                let line = Extents { points: [1, 1, elements], components: 1 };
                let mut cells = Buffer::<f64>::zeros(world, &stream, line)?;
                let own = |index: usize| ((7 * index + 1) as f64).sqrt() / (world.rank() + 1) as f64;
                cells
                    .view_mut(line.whole())?
                    .iter_mut()
                    .zip(0..)
                    .for_each(|(cell, index)| *cell = own(index));
                let (mut reduced, mut for_one) =
                    (cells.copy_out(line.whole())?, cells.copy_out(line.whole())?);
                let section = cells.section(0..elements)?;
                AllReduce::new(world, &stream, &section, &section, Op::Sum)?.enqueue()?;
                let expected = cells.copy_out(line.whole())?;
                communicator.allreduce(&mut reduced, Op::Sum)?;
                communicator.reduce(&mut for_one, Op::Sum, 0)?;
                assert!(reduced == expected, "{elements} elements on {ranks} ranks");
                assert!(world.rank() > 0 || for_one == expected, "{elements} elements on {ranks} ranks");
            }
            Ok(())
        });
    }
}

#[test]
fn nobody_passes_a_barrier_before_the_last_has_come() {
    for ranks in [1, 2, 3, 4, 5, 8] {
        in_every_way(ranks, |world, way| late_ranks(world, way, 3 * ranks));
    }
}

#[test]
fn a_reduction_that_a_rank_has_dropped_ends_at_once() {
    for way in each_way() {
        for ranks in [2, 3] {
            expect_all(outcomes(ranks, |world| reduced(world, way)));
        }
    }
}

#[test]
fn collectives_and_exchanges_share_a_stream() {
    for ranks in [1, 2, 3, 5] {
        in_every_way(ranks, |world, way| in_flight_together(world, way, 20));
    }
}

#[test]
fn what_does_not_fit_is_refused_on_all_ranks() {
    for ranks in [1, 2, 3] {
        in_every_way(ranks, refused);
    }
}

/// Also where nothing is sent.
#[test]
fn backends_that_there_are_not_and_that_differ() {
    for ranks in [1, 2, 3] {
        on_ranks(ranks, |world| {
            let stream = stream_of(world, StreamKind::Inline)?;
            let line = Extents { points: [1, 1, 8], components: 1 };
            let array = Buffer::<f64>::zeros(world, &stream, line)?;
            let made = |backend: &str| -> Result<[Result<(), Error>; 3], Error> {
                let all = [0, 8].map(|elements| {
                    let section = array.section(0..elements)?;
                    let sections = (&section, &section);
                    AllReduce::with_backend(world, &stream, backend, sections, Op::Sum).map(drop)
                });
                let [empty, some] = all;
                Ok([Barrier::with_backend(world, &stream, backend).map(drop), empty, some])
            };
            for made in made("telepathy")? {
                assert!(
                    matches!(&made, Err(Error::UnknownBackend { name, .. }) if name == "telepathy"),
                    "{made:?}"
                );
            }
            if ranks > 1 {
                let own = if world.rank() == 1 { "notified" } else { "st-send" };
                for made in made(own)? {
                    assert!(matches!(&made, Err(Error::BadExchange { rank: 1, .. })), "{made:?}");
                }
            }
            assert_eq!(made("notified")?, [Ok(()), Ok(()), Ok(())]);
            // One of another world is refused by whoever gives it, and by all others with it.
            let elsewhere = stream_of(&World::alone()?, StreamKind::Inline)?;
            let made = Barrier::new(world, &elsewhere).map(drop);
            assert!(matches!(&made, Err(Error::CollectiveFailed { call: "Barrier::new", .. })), "{made:?}");
            Ok(())
        });
    }
}

#[test]
fn the_host_waits_for_nothing() {
    on_ranks(3, |world| {
        let stream = stream_of(world, StreamKind::Threaded)?;
        let line = Extents { points: [1, 1, 500], components: 1 };
        let array = Buffer::<f64>::zeros(world, &stream, line)?;
        let section = array.section(0..500)?;
        let mut allreduce = AllReduce::new(world, &stream, &section, &section, Op::Sum)?;
        let mut barrier = Barrier::new(world, &stream)?;
        world.barrier()?;
        if world.rank() == 0 {
            stream.enqueue_host("being late", || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                Ok(())
            });
        }
        let before = std::time::Instant::now();
        for _ in 0..10 {
            allreduce.enqueue()?;
            barrier.enqueue()?;
        }
        let enqueued = before.elapsed();
        let synchronizations = stream.synchronizations();
        stream.synchronize()?;
        assert_eq!(synchronizations, 0, "none but the caller synchronises");
        assert!(enqueued < before.elapsed(), "{enqueued:?}");
        Ok(())
    });
}

#[test]
fn after_a_failure_nothing_is_enqueued() {
    for kind in KINDS {
        let results = outcomes(3, |world| {
            let stream = stream_of(world, kind)?;
            let line = Extents { points: [1, 1, 8], components: 1 };
            let array = Buffer::<i64>::zeros(world, &stream, line)?;
            let section = array.section(0..8)?;
            let mut allreduce = AllReduce::new(world, &stream, &section, &section, Op::Min)?;
            let mut barrier = Barrier::new(world, &stream)?;
            if world.rank() == 1 {
                stream.enqueue_host("a host function", || Err("it is broken".into()));
                stream.synchronize().expect_err("the stream has failed");
            } else {
                // On these the first wait fails, which tells the host at the latest when it synchronises.
                allreduce.enqueue()?;
                stream.synchronize().expect_err("rank 1 does not come");
            }
            let errors = [allreduce.enqueue(), barrier.enqueue(), stream.synchronize()];
            Ok(errors.map(|result| result.expect_err("a failed stream does no more")))
        });
        for (rank, result) in results.into_iter().enumerate() {
            let errors = result.expect("the error is looked at");
            match same_on_all(errors.to_vec()) {
                Error::OperationFailed { operation, .. } => {
                    assert_eq!((rank, operation.as_str()), (1, "a host function"));
                }
                Error::PeerFailed { rank: failed, .. } => {
                    assert!(rank != 1 && failed == 1, "{rank}: {failed}")
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn what_has_several_bit_patterns_has_the_same_on_all_ranks() {
    for (ranks, elements) in [(2, 3), (3, 3), (3, 700), (5, 40)] {
        let bits = same_on_all(on_ranks(ranks, |world| {
            let stream = stream_of(world, StreamKind::Inline)?;
            let line = Extents { points: [1, 1, elements], components: 1 };
            let mut input = Buffer::<f64>::zeros(world, &stream, line)?;
            let output = Buffer::<f64>::zeros(world, &stream, line)?;
            let (from, to) = (input.section(0..elements)?, output.section(0..elements)?);
            let mut bits = Vec::new();
            // NaNs that say whose they are, and zeros of both signs, which are equal.
            for (op, own) in [
                (Op::Sum, f64::from_bits(f64::NAN.to_bits() | world.rank() as u64)),
                (Op::Min, if world.rank() % 2 == 0 { 0.0 } else { -0.0 }),
                (Op::Max, if world.rank() % 2 == 1 { 0.0 } else { -0.0 }),
            ] {
                let mut allreduce = AllReduce::new(world, &stream, &from, &to, op)?;
                input.view_mut(line.whole())?.fill(own);
                allreduce.enqueue()?;
                bits.extend(output.copy_out(line.whole())?.into_iter().map(f64::to_bits));
            }
            Ok(bits)
        }));
        assert!(f64::from_bits(bits[0]).is_nan());
    }
}
