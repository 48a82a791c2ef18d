//! `auto`: of the other backends the one that is the fastest for exchanges of a shape, as measured.
//!
//! Which one that is depends on the machine, the fabric and the sizes: no rule that could be written down here holds on
//! all of them. So the first exchange of a shape is rehearsed as it is matched, on memory of its own, by every backend in
//! turns. What that took is kept by the world: the next exchange of the shape is matched as any other. Where an
//! application keeps it for the next run, and hands it to the world again ([`World::set_measured`]), nothing is measured at
//! all, and the choice is the same.
//!
//! After matching there is no `auto` any more: the exchange is one of the backend that was chosen.

mod measured;
mod rehearsal;

pub use measured::{ExchangeShape, Measured};

use super::{BACKENDS, Exchange, ExchangeSpec, Ground, find, st_send, standard};
use crate::error::{Error, Result};
use crate::world::World;
use rehearsal::rehearse;

/// The name in configurations.
pub const AUTO: &str = "auto";

/// The exchange that ranks want, by the fastest backend that the fabric takes it by. Collective; blocks.
pub(super) fn make(ground: &Ground<'_>, spec: ExchangeSpec) -> Result<Box<dyn Exchange>> {
    let world = ground.world;
    let shape = ExchangeShape::agree(world, ground.stream, &spec)?;
    if shape.bytes == 0 {
        // No rank sends anything.
        return ground.make(&st_send::ROW, spec);
    }
    // Ranks may have been told different things: what the first one knows holds.
    let known = world.agree::<_, Error>("match_exchange", Ok(world.find_measured(&shape)))?.swap_remove(0);
    let is_known = known.is_some();
    let measured = match known {
        Some(measured) => measured,
        None => match rehearse(ground, &spec, shape.most_bytes()) {
            Ok(microseconds) => Measured::new(shape.clone(), microseconds).expect("clocks go on"),
            // What the two sides have in mind does not match: matching it says so, of the exchange itself.
            Err(Error::Mismatch { .. } | Error::BadExchange { .. }) => {
                return ground.make(&st_send::ROW, spec);
            }
            Err(error) => return Err(error),
        },
    };
    let mut refused = Vec::new();
    for (name, _) in measured.by_time() {
        if let Some(exchange) = unless_refused(world, ground.make(find(name)?, spec.clone()))? {
            // What was left out may fit another time.
            if is_known || measured.by_time().len() == BACKENDS.len() {
                note(&mut world.known_to_auto().borrow_mut().all, &measured);
            }
            if let Some(fitting) = measured.without(&refused) {
                note(&mut world.known_to_auto().borrow_mut().matched, &fitting);
            }
            return Ok(exchange);
        }
        refused.push(name);
    }
    // Also where nothing says what it takes; if it is refused as well, its reason is told.
    ground.make(&standard::ROW, spec)
}

/// What was made, unless the fabric does not take it, as a network interface that has no room for its operations: then it is
/// left out on all ranks. Collective.
fn unless_refused<T>(world: &World, made: Result<T>) -> Result<Option<T>> {
    let error = match made {
        Ok(made) => return Ok(Some(made)),
        Err(error) => error,
    };
    // As that was collective, all ranks have an error: their own, or what another one has failed with.
    let is_refused = matches!(error, Error::FabricUnavailable { .. });
    let is_of_another = matches!(error, Error::CollectiveFailed { .. });
    let all = world.all_gather(&(is_refused, is_of_another))?;
    let is_left_out = all.iter().any(|(is_refused, _)| *is_refused)
        && all.iter().all(|(is_refused, is_of_another)| *is_refused || *is_of_another);
    if is_left_out { Ok(None) } else { Err(error) }
}

/// What a world knows of exchanges with the backend `auto`.
#[derive(Debug, Default)]
pub(crate) struct Known {
    all: Vec<Measured>,
    /// Of the exchanges that were matched.
    matched: Vec<Measured>,
}

impl World {
    /// What exchanges with the backend `auto` are known to take in this world and in those of its
    /// [first](World::first) ranks: by shape, in the order in which they were matched first, behind what
    /// [`World::set_measured`] has said.
    pub fn measured(&self) -> Vec<Measured> {
        self.known_to_auto().borrow().all.clone()
    }

    /// What the backend `auto` was chosen by for exchanges of this world and of those of its [first](World::first) ranks, be it
    /// measured here or [said](World::set_measured): by shape, in the order in which they were matched first.
    pub fn chosen_by(&self) -> Vec<Measured> {
        self.known_to_auto().borrow().matched.clone()
    }

    /// Says what exchanges take, such as an earlier run has measured: those of these shapes are not measured again. Does
    /// not communicate; what rank 0 says counts.
    pub fn set_measured(&self, measured: Vec<Measured>) {
        self.known_to_auto().borrow_mut().all = measured;
    }

    fn find_measured(&self, shape: &ExchangeShape) -> Option<Measured> {
        self.known_to_auto().borrow().all.iter().find(|measured| measured.shape() == shape).cloned()
    }
}

fn note(all: &mut Vec<Measured>, measured: &Measured) {
    match all.iter_mut().find(|known| known.shape() == measured.shape()) {
        Some(known) => known.clone_from(measured),
        None => all.push(measured.clone()),
    }
}
