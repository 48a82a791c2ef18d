//! Ranks that are threads and map each other's memory, but for that of devices: what a fabric between processes
//! looks like to a device, without processes.

use crate::ranks::{MEMORY, expect_all, watchdog};
use streamhalo::comm::fabric::{LocalFabric, Recording, RecordingFabric};
use streamhalo::{HaloError, World, WorldOptions};

/// Runs `rank_main` on that many ranks, with what each does to its peers' memory recorded, and gives each rank's own
/// result.
pub fn walled_outcomes<T: Send>(
    ranks: usize,
    options: WorldOptions,
    rank_main: impl Fn(&World, &Recording) -> Result<T, HaloError> + Sync,
) -> Vec<Result<T, HaloError>> {
    let ends = LocalFabric::ends(ranks).expect("memory for the ranks");
    let memory = MEMORY.get();
    std::thread::scope(|scope| {
        let rank_main = &rank_main;
        let threads: Vec<_> = ends
            .into_iter()
            .map(|end| {
                scope.spawn(move || {
                    MEMORY.set(memory);
                    let (fabric, recording) = RecordingFabric::walled(end);
                    let world = World::new(fabric, options)?;
                    let result = rank_main(&world, &recording);
                    if let Err(error) = &result {
                        world.fail(&error.to_string());
                    }
                    result
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// As [`walled_outcomes`], on ranks none of which may fail.
///
/// # Panics
/// With the errors of all ranks, if any has one.
pub fn on_walled_ranks<T: Send>(
    ranks: usize,
    rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync,
) -> Vec<T> {
    expect_all(walled_outcomes(ranks, watchdog(), |world, _| rank_main(world)))
}
