//! Collectives on streams of a device: the cases of the host's suites, with the bits that the host gives.

use streamhalo::{HaloError, StreamKind, World};
use streamhalo_tests::cases::Done;
use streamhalo_tests::cases::field_reductions::{between_halves, of_fields};
use streamhalo_tests::cases::stream_collectives::{in_flight_together, late_ranks, reductions, refused};
use streamhalo_tests::{Scenario, in_both_memories, on_ranks, other_device, ways_of};

/// With every backend, wherever the arrays are; what is computed is what streams of the host compute.
fn in_every_way(ranks: usize, case: impl Fn(&World, Scenario) -> Result<Done, HaloError> + Sync) {
    if other_device().is_none() {
        return;
    }
    in_both_memories(|| {
        on_ranks(ranks, |world| {
            ways_of(StreamKind::Device).into_iter().try_for_each(|way| {
                let found = case(world, way)?;
                let expected = case(world, Scenario { kind: StreamKind::Inline, ..way })?;
                assert_eq!(found.checksum, expected.checksum, "{way:?}");
                Ok(())
            })
        });
    });
}

#[test]
fn reductions_have_the_bits_of_the_host() {
    for ranks in 1..=4 {
        in_every_way(ranks, |world, way| {
            let sizes = [1, 129];
            reductions::<u8>(world, way, &sizes)?;
            reductions::<i64>(world, way, &sizes)?;
            reductions::<f32>(world, way, &sizes)?;
            reductions::<f64>(world, way, &sizes)
        });
    }
}

#[test]
fn reductions_of_fields_have_the_bits_of_the_host() {
    for ranks in [1, 2] {
        in_every_way(ranks, of_fields::<f32>);
    }
    in_every_way(2, between_halves);
    in_every_way(1, of_fields::<u8>);
    in_every_way(1, of_fields::<i32>);
    in_every_way(1, of_fields::<i64>);
    in_every_way(3, of_fields::<f64>);
}

#[test]
fn nobody_passes_a_barrier_before_the_last_has_come() {
    in_every_way(3, |world, way| late_ranks(world, way, 6));
}

#[test]
fn collectives_and_exchanges_share_a_stream() {
    in_every_way(3, |world, way| in_flight_together(world, way, 6));
}

#[test]
fn what_does_not_fit_is_refused_on_all_ranks() {
    in_every_way(2, refused);
}
