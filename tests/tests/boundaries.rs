//! Boundary conditions of fields, on threads: every type, entity and condition, with every backend and stream, and what is
//! wrong with them.

use streamhalo::{Array, Boundary, Entity, GlobalGrid, GridError, HaloError, Mirrored, Side};
use streamhalo_tests::cases::boundaries::of_fields;
use streamhalo_tests::{KINDS, Sample, Scenario, each_way, on_ranks, stream_of};

/// With each type that a way does not depend on.
fn of_each_type<T: Sample + Mirrored>(twice_less: impl Fn(T, T) -> T + Copy + Sync) {
    on_ranks(2, |world| {
        let ways = KINDS.map(|kind| Scenario { backend: "st-send", kind });
        ways.into_iter().try_for_each(|way| of_fields(world, way, twice_less).map(|_| ()))
    });
}

#[test]
fn conditions_are_what_the_place_in_the_grid_says() {
    for ranks in 1..=4 {
        on_ranks(ranks, |world| {
            each_way().try_for_each(|way| of_fields::<f64>(world, way, |a, x| a + a - x).map(|_| ()))
        });
    }
}

#[test]
fn conditions_are_of_every_type() {
    of_each_type::<u8>(|a, x| a.wrapping_mul(2).wrapping_sub(x));
    of_each_type::<i32>(|a, x| a.wrapping_mul(2).wrapping_sub(x));
    of_each_type::<i64>(|a, x| a.wrapping_mul(2).wrapping_sub(x));
    of_each_type::<f32>(|a, x| 2.0 * a - x);
}

#[test]
fn zeros_of_either_sign_stay_what_they_are() {
    on_ranks(1, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = GlobalGrid::new([2], [false])?.partition(world)?.local(1)?;
        let mut field = Array::<f64, 1>::with_components(&grid, Entity::Cell, 2, &stream)?;
        field.enqueue_boundary(0, Side::Low, &[Boundary::Value(0.0), Boundary::Value(-0.0)])?;
        let ghosts = field.copy_with_ghosts()?;
        assert_eq!([0, 1].map(|component| ghosts[[0, component]].is_sign_negative()), [false, true]);
        Ok(())
    });
}

/// On all ranks alike, also where no boundary is.
#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    on_ranks(3, |world| {
        let stream = stream_of(world, KINDS[0])?;
        let grid = GlobalGrid::new([6, 1], [false, false])?.partition_as(world, [3, 1])?.local([1, 2])?;
        let mut field = Array::<i32, 2>::with_components(&grid, Entity::Node, 3, &stream)?;
        field.fill_with_ghosts(|_, _| 7)?;
        let refused = field.enqueue_boundary(0, Side::Low, &[Boundary::Even; 2]);
        assert_eq!(refused, Err(GridError::Conditions { given: 2, components: 3 }));
        assert!(field.enqueue_boundary(0, Side::Low, &[]).is_err());
        let mirrored = [Boundary::Nearest, Boundary::Nearest, Boundary::Odd(0)];
        let refused = field.enqueue_boundary(1, Side::High, &mirrored);
        assert_eq!(refused, Err(GridError::ThinMirror { axis: 1, layers: 2, cells: 1 }));
        assert!(field.copy_with_ghosts()?.iter().all(|entry| *entry == 7));
        // What is nearest is there, and along an axis that is split a neighbour has what is missing.
        assert!(refused.expect_err("it is thin").to_string().contains("at most 1, `Boundary::Nearest`"));
        field.enqueue_boundary(1, Side::High, &[Boundary::Nearest])?;
        field.enqueue_boundary(0, Side::High, &[Boundary::Even])?;
        field.copy_with_ghosts().map(|_| ()).map_err(HaloError::from)
    });
}
