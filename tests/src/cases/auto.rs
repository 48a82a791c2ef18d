//! The backend `auto`, which is one of the others.

use super::Done;
use super::worlds::exchange_by;
use crate::{Scenario, stream_of};
use std::collections::BTreeMap;
use streamhalo::comm::backend::{AUTO, ExchangeShape, Measured, backend_names};
use streamhalo::{HaloError, World};

/// Times by which `backend` is the fastest.
pub fn told(shape: &ExchangeShape, backend: &str) -> Measured {
    let time = |name: &str| if name == backend { 1.0 } else { 2.0 };
    let times: BTreeMap<String, f64> = backend_names().map(|name| (name.to_owned(), time(name))).collect();
    Measured::new(shape.clone(), times).expect("there are such backends")
}

/// An exchange by the backend that is measured to be the fastest, and by the one that is said to be.
pub fn chosen(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let auto = Scenario { backend: AUTO, ..way };
    let (done, backend) = exchange_by(world, &stream, auto, 4)?;
    let before = world.measured();
    if world.size() == 1 {
        assert_eq!((backend, before), ("st-send", Vec::new()), "nothing is sent, so nothing is measured");
        return exchange_by(world, &stream, way, 4).map(|(done, _)| done);
    }
    assert!(before.iter().any(|measured| measured.fastest() == backend), "{backend}: {before:?}");
    assert!(before.iter().all(|measured| measured.by_time().len() == backend_names().count()));

    world.set_measured(before.iter().map(|measured| told(measured.shape(), way.backend)).collect());
    let (by_told, backend) = exchange_by(world, &stream, auto, 4)?;
    assert_eq!((backend, by_told.checksum), (way.backend, done.checksum));
    // For the next backend, and without what was only said.
    world.set_measured(before);
    Ok(by_told)
}
