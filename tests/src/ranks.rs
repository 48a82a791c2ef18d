//! Worlds with a watchdog, and the ways in which an exchange can be carried out.

use crate::Random;
use std::fmt::Debug;
use std::time::Duration;
use streamhalo::comm::backend::BACKENDS;
use streamhalo::{Device, HaloError, Stream, StreamKind, StreamOptions, World, WorldOptions};

/// After how long a wait fails: an error that says who waits for whom, instead of a hang.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Both kinds of host stream.
pub const KINDS: [StreamKind; 2] = [StreamKind::Inline, StreamKind::Threaded];

/// Worlds whose waits end.
pub fn watchdog() -> WorldOptions {
    WorldOptions { timeout: Some(TIMEOUT), ..WorldOptions::default() }
}

/// One way to carry out an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The backend's name.
    pub backend: &'static str,
    /// The kind of stream.
    pub kind: StreamKind,
}

/// Every backend on both kinds of stream.
pub fn each_way() -> impl Iterator<Item = Scenario> {
    BACKENDS.iter().flat_map(|row| KINDS.map(|kind| Scenario { backend: row.name, kind }))
}

/// A stream of that kind with one thread for kernels.
pub fn stream_of(world: &World, kind: StreamKind) -> Result<Stream, HaloError> {
    Ok(Device::host().stream_with(world, StreamOptions { kind, threads: 1 })?)
}

/// Runs `rank_main` on that many ranks and gives each rank's own result.
pub fn outcomes<T: Send>(
    ranks: usize,
    rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync,
) -> Vec<Result<T, HaloError>> {
    World::threads(ranks, watchdog(), |world| rank_main(&world)).expect("threads can be started")
}

/// Runs `rank_main` on that many ranks, none of which may fail.
///
/// # Panics
/// With the errors of all ranks, if any has one.
pub fn on_ranks<T: Send>(ranks: usize, rank_main: impl Fn(&World) -> Result<T, HaloError> + Sync) -> Vec<T> {
    expect_all(outcomes(ranks, rank_main))
}

/// The values of all ranks.
///
/// # Panics
/// With the errors of all ranks, if any has one.
pub fn expect_all<T, E: std::fmt::Display>(results: Vec<Result<T, E>>) -> Vec<T> {
    let errors: Vec<String> = results
        .iter()
        .enumerate()
        .filter_map(|(rank, result)| result.as_ref().err().map(|error| format!("rank {rank}: {error}")))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    results.into_iter().filter_map(Result::ok).collect()
}

/// The one value that all ranks have.
///
/// # Panics
/// If they differ.
pub fn same_on_all<T: PartialEq + Debug>(values: Vec<T>) -> T {
    for (rank, value) in values.iter().enumerate() {
        assert_eq!(*value, values[0], "rank {rank} has another verdict than rank 0");
    }
    values.into_iter().next().expect("a world has at least one rank")
}

/// Enqueues a pause of random length, mostly none.
pub fn delay(stream: &Stream, random: &mut Random) {
    let pause = match random.below(8) {
        0 => Duration::from_micros(300),
        1 | 2 => Duration::from_micros(30),
        _ => return,
    };
    stream.enqueue_host("a pause", move || {
        std::thread::sleep(pause);
        Ok(())
    });
}
