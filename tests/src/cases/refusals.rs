//! What is refused: with the same error on every rank, after which the world still works.

use super::Done;
use super::worlds::exchange;
use crate::{Scenario, stream_of};
use streamhalo::comm::Error;
use streamhalo::comm::backend::{ExchangeSpec, MessageSpec, match_exchange};
use streamhalo::{Array, ElementType, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, World};

/// The error of a collective call, which must be that of every rank.
///
/// # Panics
/// If ranks say different things.
pub(super) fn verdict(world: &World, error: impl Into<HaloError>) -> Result<HaloError, HaloError> {
    let error = error.into();
    for (rank, told) in world.all_gather(&error.to_string())?.into_iter().enumerate() {
        assert_eq!(told, error.to_string(), "rank {rank} has another verdict than rank {}", world.rank());
    }
    Ok(error)
}

pub(super) fn is_last(world: &World) -> bool {
    world.size() > 1 && world.rank() + 1 == world.size()
}

/// Cells of a grid that is cut along its first axis.
pub(super) fn cells(world: &World, stream: &Stream) -> Result<Array<f64, 2>, HaloError> {
    let size = world.size();
    let grid = GlobalGrid::new([4 * size, 9], [true; 2])?.partition_as(world, [size, 1])?.local(2)?;
    Ok(Array::zeros(&grid, Entity::Cell, stream)?)
}

/// An exchange whose width is another on the last rank.
pub fn another_width(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let width = if is_last(world) { 2 } else { 1 };
    let made = StreamHalo::new(world, &stream, way.backend, Pattern::All, width, &mut cells(world, &stream)?);
    if world.size() > 1 {
        match verdict(world, made.expect_err("ranks that disagree are refused"))? {
            HaloError::RanksDisagree { rank, .. } => assert_eq!(rank, world.size() - 1),
            other => panic!("{other}"),
        }
    }
    exchange(world, &stream, way, 2)
}

/// A pattern that only the last rank gives wrongly.
pub fn a_wrong_offset(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let bad = is_last(world) || world.size() == 1;
    let pattern = if bad { Pattern::Offsets(vec![vec![0, 5]]) } else { Pattern::All };
    let made = StreamHalo::new(world, &stream, way.backend, pattern, 1, &mut cells(world, &stream)?);
    let error = verdict(world, made.expect_err("an offset of five is refused"))?;
    assert!(error.to_string().contains("[0, 5]"), "{error}");
    exchange(world, &stream, way, 2)
}

/// A backend that does not exist, and one that only the last rank asks for.
pub fn wrong_backends(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let make =
        |backend| StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut cells(world, &stream)?);
    match verdict(world, make("no-such").expect_err("there is no such backend"))? {
        HaloError::Communication(Error::UnknownBackend { name, .. }) => assert_eq!(name, "no-such"),
        other => panic!("{other}"),
    }
    if world.size() > 1 {
        let asked = if is_last(world) { "another" } else { way.backend };
        match verdict(world, make(asked).expect_err("backends differ"))? {
            HaloError::RanksDisagree { rank, .. } => assert_eq!(rank, world.size() - 1),
            other => panic!("{other}"),
        }
    }
    exchange(world, &stream, way, 2)
}

/// A message from rank 0 to the last rank, of another type than that one expects.
pub fn a_mismatch(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let last = world.size() - 1;
    if last > 0 {
        let message = |peer, element: ElementType| MessageSpec {
            peer,
            tag: 5,
            elements: vec![(element, 3)],
            bytes: 3 * element.bytes(),
            run_bytes: 8,
            direct: streamhalo::comm::backend::Direct::Never,
            ghosts: Vec::new(),
        };
        let mut spec = ExchangeSpec { sends: Vec::new(), recvs: Vec::new(), last_epoch: 0 };
        if world.rank() == 0 {
            spec.sends.push(message(last, ElementType::F64));
        } else if world.rank() == last {
            spec.recvs.push(message(0, ElementType::I64));
        }
        let refused = match_exchange(world, &stream, way.backend, spec).expect_err("the types differ");
        match verdict(world, refused)? {
            HaloError::Communication(Error::Mismatch { sender: 0, receiver, tag: 5, .. }) => {
                assert_eq!(receiver, last);
            }
            other => panic!("{other}"),
        }
    }
    exchange(world, &stream, way, 2)
}
