//! Who has carried out the messages of an exchange, as text.

use streamhalo::World;
use streamhalo::comm::backend::{BACKENDS, Route};
use streamhalo::comm::fabric::Executor;

use crate::error::AppError;

/// All that there are, those that need the processor least first.
const ALL: [Executor; 4] = [Executor::Stream, Executor::Nic, Executor::Proxy, Executor::Host];

/// "stream", or "stream+proxy" where there are several.
pub(crate) fn executors_of(executors: impl IntoIterator<Item = Executor>) -> String {
    let found: Vec<Executor> = executors.into_iter().collect();
    let named: Vec<String> =
        ALL.iter().filter(|executor| found.contains(executor)).map(ToString::to_string).collect();
    named.join("+")
}

/// Those of the messages of all ranks; where there are none, who would carry out messages of the backend
/// over this fabric. Collective; blocks.
///
/// # Errors
///
/// Which rank failed.
pub(crate) fn executors_of_all(world: &World, backend: &str, routes: &[Route]) -> Result<String, AppError> {
    executors_or(world.fabric().executor(), world, backend, routes)
}

/// As [`executors_of_all`], where messages would be carried out by `otherwise`. Collective; blocks.
///
/// # Errors
///
/// Which rank failed.
pub(crate) fn executors_or(
    otherwise: Executor,
    world: &World,
    backend: &str,
    routes: &[Route],
) -> Result<String, AppError> {
    let own: Vec<bool> =
        ALL.iter().map(|executor| routes.iter().any(|route| route.executor == *executor)).collect();
    let all = world.all_gather(&own)?;
    let found = ALL.iter().enumerate().filter(|(index, _)| all.iter().any(|rank| rank[*index]));
    let found = executors_of(found.map(|(_, executor)| *executor));
    if !found.is_empty() {
        return Ok(found);
    }
    let row = BACKENDS.iter().find(|row| row.name == backend);
    Ok(row.map_or(otherwise, |row| row.executor(otherwise)).to_string())
}
