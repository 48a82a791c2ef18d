//! Worlds whose ranks are threads of this process.

use super::{World, WorldOptions};
use crate::error::{Error, Result};
use crate::fabric::{Fabric, LocalFabric, Recording, RecordingFabric};
use std::fmt;
use std::sync::Arc;

impl World {
    /// Runs `rank_main` on `size` threads, each with its rank's world, and gives the results by
    /// rank. Blocks until all have ended.
    ///
    /// # Errors
    /// [`Error::BadWorldSize`] for no rank, [`Error::System`] if a thread cannot be started. As soon as one rank gives an
    /// error or panics the others' waits end; each rank's own result is in the vector.
    ///
    /// # Panics
    /// As a rank has panicked, once all have ended.
    pub fn threads<T: Send, E: Send + From<Error> + fmt::Display>(
        size: usize,
        options: WorldOptions,
        rank_main: impl Fn(World) -> std::result::Result<T, E> + Sync,
    ) -> Result<Vec<std::result::Result<T, E>>> {
        let ends = LocalFabric::ends(size)?.into_iter().map(|end| end as Arc<dyn Fabric>).collect();
        Self::on_threads(ends, options, rank_main)
    }

    /// As [`World::threads`], with what each rank does to its peers' memory recorded.
    ///
    /// # Errors
    /// As [`World::threads`].
    pub fn recorded_threads<T: Send, E: Send + From<Error> + fmt::Display>(
        size: usize,
        options: WorldOptions,
        rank_main: impl Fn(World, Recording) -> std::result::Result<T, E> + Sync,
    ) -> Result<Vec<std::result::Result<T, E>>> {
        let (ends, recordings): (Vec<_>, Vec<_>) = LocalFabric::ends(size)?
            .into_iter()
            .map(|end| {
                let (fabric, recording) = RecordingFabric::new(end);
                (fabric as Arc<dyn Fabric>, recording)
            })
            .unzip();
        Self::on_threads(ends, options, |world| {
            let recording = recordings[world.rank()].clone();
            rank_main(world, recording)
        })
    }

    fn on_threads<T: Send, E: Send + From<Error> + fmt::Display>(
        ends: Vec<Arc<dyn Fabric>>,
        options: WorldOptions,
        rank_main: impl Fn(World) -> std::result::Result<T, E> + Sync,
    ) -> Result<Vec<std::result::Result<T, E>>> {
        if ends.is_empty() {
            return Err(Error::BadWorldSize { asked: 0, reason: "a world has at least one rank".into() });
        }
        let rank_main = &rank_main;
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = ends
                .into_iter()
                .map(|end| {
                    let (abort, rank) = (end.abort(), end.rank());
                    // Ranks that run already wait for this one.
                    let tell =
                        |error: &std::io::Error| abort.raise(rank, &format!("it has no thread: {error}"));
                    std::thread::Builder::new()
                        .name(format!("rank {rank}"))
                        .spawn_scoped(scope, move || {
                            let (abort, rank) = (end.abort(), end.rank());
                            let world = World::new(end, options)
                                .inspect_err(|error| abort.raise(rank, &error.to_string()))?;
                            let result = rank_main(world.clone());
                            if let Err(error) = &result {
                                world.fail(&error.to_string());
                            }
                            result
                        })
                        .inspect_err(tell)
                })
                .collect();
            threads.into_iter().map(|thread| thread.map(|thread| thread.join())).collect::<Vec<_>>()
        });
        let mut outcomes = Vec::with_capacity(results.len());
        for joined in results {
            match joined {
                Ok(Ok(result)) => outcomes.push(result),
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(error) => {
                    return Err(Error::System {
                        call: "starting a rank's thread",
                        reason: error.to_string(),
                    });
                }
            }
        }
        Ok(outcomes)
    }
}
