//! Named cases that run over any world, of threads or of processes: what the suites try at length
//! on threads, and what `conformance_rank` tries over every fabric.

pub mod active;
pub mod auto;
pub mod boundaries;
pub mod collectives;
pub mod field_reductions;
mod gather;
pub mod leaving;
mod list;
pub mod messages;
pub mod misused;
pub mod notify;
pub mod on_device;
pub mod order;
pub mod pairing;
pub mod periods;
mod primitives;
pub mod queues;
pub mod ready;
pub mod refusals;
mod scatter;
pub mod staged;
pub mod stream_collectives;
pub mod timed;
pub mod worlds;

pub use gather::{GatherCase, random_gather};
pub use list::{Case, cases_for};
pub use primitives::Subject;
pub use scatter::ScatterCase;

use crate::FieldSpec;
use std::collections::BTreeSet;
use streamhalo::ElementType::F64;
use streamhalo::comm::backend::Route;
use streamhalo::{Entity, Pattern, StreamHalo};

/// Cells of one generation.
pub const CELLS: FieldSpec = FieldSpec::array(F64, Entity::Cell, 1);
/// Cells of two generations.
pub const ALTERNATING: FieldSpec = FieldSpec::alternating(F64, Entity::Cell, 1);

/// The pattern of some offsets.
pub fn offsets(given: &[&[i32]]) -> Pattern {
    Pattern::Offsets(given.iter().map(|offset| offset.to_vec()).collect())
}

/// What came of a case on one rank.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Of all values that it has checked.
    pub checksum: u64,
    /// How its messages went.
    pub paths: BTreeSet<&'static str>,
    /// Who carried them.
    pub executors: BTreeSet<String>,
}

impl Done {
    /// Of one exchange.
    pub fn new(checksum: u64, halo: &StreamHalo) -> Self {
        Self::of_routes(checksum, &halo.routes())
    }

    /// Of messages that went so.
    pub fn of_routes(checksum: u64, routes: &[Route]) -> Self {
        Self {
            checksum,
            paths: routes.iter().map(|route| route.path).collect(),
            executors: routes.iter().map(|route| route.executor.to_string()).collect(),
        }
    }

    /// Adds what came of another, after this one.
    pub fn add(&mut self, other: &Self) {
        self.checksum = crate::random::mix(self.checksum ^ 1).wrapping_add(other.checksum);
        self.paths.extend(&other.paths);
        self.executors.extend(other.executors.iter().cloned());
    }
}
