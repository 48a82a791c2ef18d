//! Boundary conditions of fields on a device: those that the place in the grid says, as on the host.

use streamhalo::{HaloError, StreamKind, World};
use streamhalo_tests::cases::boundaries::of_fields;
use streamhalo_tests::{Scenario, in_both_memories, on_ranks, other_device};

fn on_device(ranks: usize, case: impl Fn(&World, Scenario) -> Result<(), HaloError> + Sync) {
    if other_device().is_none() {
        return;
    }
    let way = Scenario { backend: "st-send", kind: StreamKind::Device };
    in_both_memories(|| {
        on_ranks(ranks, |world| case(world, way));
    });
}

#[test]
fn conditions_are_what_the_place_in_the_grid_says() {
    on_device(1, |world, way| of_fields::<f32>(world, way, |a, x| a + a - x).map(drop));
    on_device(2, |world, way| of_fields::<f64>(world, way, |a, x| a + a - x).map(drop));
    on_device(3, |world, way| {
        of_fields::<i64>(world, way, |a, x| a.wrapping_mul(2).wrapping_sub(x)).map(drop)
    });
}

#[test]
fn integers_wrap() {
    on_device(1, |world, way| {
        of_fields::<u8>(world, way, |a, x| a.wrapping_mul(2).wrapping_sub(x)).map(drop)
    });
    on_device(2, |world, way| {
        of_fields::<i32>(world, way, |a, x| a.wrapping_mul(2).wrapping_sub(x)).map(drop)
    });
}
