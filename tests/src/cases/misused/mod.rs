//! What may not be done, over every fabric: the exact error, at once or within the time-out, after which the right
//! call still works. What a rank is told of a peer that has left is in `leaving.rs`, and what all ranks are told of a
//! wrong description in `refusals.rs`.

mod epochs;
mod messages;
mod operations;
mod requests;

pub use epochs::{Alone, epochs};
pub use messages::{full_ring, messages, never_served};
pub use operations::operations;
pub use requests::{Rank, line, requests};

use super::Done;
use super::refusals::cells;
use super::worlds::exchange;
use crate::{Scenario, stream_of};
use streamhalo::comm::Error;
use streamhalo::grid::GridError;
use streamhalo::{HaloError, Op, Pattern, StreamHalo, World};

/// Fails unless a call was refused as out of order, for that reason.
///
/// # Panics
/// If it was not.
pub fn refused<T>(result: Result<T, Error>, refused_call: &str, because: &str) {
    match result.map(|_| ()) {
        Err(Error::OutOfOrder { call, reason }) => {
            assert_eq!(call, refused_call);
            assert!(reason.contains(because), "`{reason}` does not say `{because}`");
        }
        other => panic!("{other:?} instead of a refusal of `{refused_call}`"),
    }
}

/// A gather that is begun and dropped is finished; one that is never finished can neither be begun again nor read.
pub fn begun_twice(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut field = cells(world, &stream)?;
    let builder = StreamHalo::builder(world, &stream).backend(way.backend).scatter(Op::Sum);
    let mut halo = builder.build(1, &mut field)?;
    halo.enqueue_gather(&mut field)?;
    drop(halo.begin_gather(&mut field)?);
    assert_eq!(field.copy_with_ghosts().map(drop), Ok(()), "{way:?}");
    halo.enqueue_gather(&mut field)?;
    let new = |field: &mut _| StreamHalo::new(world, &stream, way.backend, Pattern::Faces, 1, field);
    let mut another = new(&mut field)?;
    std::mem::forget(halo.begin_gather(&mut field)?);
    let refused = |call| Err(HaloError::FieldInFlight { call, index: 0 });
    for _ in 0..2 {
        assert_eq!(another.enqueue_gather(&mut field), refused("enqueue_gather"), "{way:?}");
        assert_eq!(new(&mut field).map(drop), refused("StreamHalo::new"), "{way:?}");
    }
    let ghosts = field.copy_with_ghosts();
    assert_eq!(ghosts.err(), Some(GridError::GhostsInFlight { call: "copy_with_ghosts" }));
    // It is finished before the next one begins, or with the exchange.
    halo.enqueue_scatter(&mut field)?;
    another.enqueue_gather(&mut field)?;
    std::mem::forget(halo.begin_gather(&mut field)?);
    halo.enqueue_gather(&mut field)?;
    std::mem::forget(halo.begin_gather(&mut field)?);
    drop(halo);
    assert_eq!(field.copy_with_ghosts().map(drop), Ok(()), "{way:?}");
    world.barrier()?;
    exchange(world, &stream, way, 2)
}
