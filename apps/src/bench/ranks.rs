//! Starting a measurement on ranks: threads for `local`, processes of this program for `shm`.

use crate::error::AppError;
use serde::{Serialize, de::DeserializeOwned};
use streamhalo::{HaloError, World, WorldOptions};

/// Tells a process that it is a rank of a measurement, and of which.
const VARIABLE: &str = "STREAMHALO_BENCH";

/// A measurement that every rank takes part in.
pub trait Measurement: Serialize + DeserializeOwned + Sync {
    /// What it gives; rank 0's is the result.
    type Outcome: Serialize + DeserializeOwned + Send;

    /// The part of one rank.
    ///
    /// # Errors
    ///
    /// What goes wrong on the rank.
    fn on_rank(&self, world: &World) -> Result<Self::Outcome, HaloError>;
}

/// Carries a measurement out on `ranks` ranks.
///
/// # Errors
///
/// The first error of a rank, or that the fabric is not there.
pub fn measure<M: Measurement>(fabric: &str, ranks: usize, measurement: &M) -> Result<M::Outcome, AppError> {
    match fabric {
        "local" => on_threads(ranks, measurement),
        #[cfg(target_os = "linux")]
        "shm" => on_processes(ranks, measurement),
        other => Err(AppError::Usage {
            flag: "--fabric".to_owned(),
            message: format!("`{other}` cannot start ranks by itself; use `local` or `shm`"),
        }),
    }
}

fn on_threads<M: Measurement>(ranks: usize, measurement: &M) -> Result<M::Outcome, AppError> {
    let mut outcomes = World::threads(ranks, WorldOptions::default(), |world| {
        world.pin()?;
        measurement.on_rank(&world)
    })
    .map_err(HaloError::from)?;
    // A rank that only stopped because another failed is not the cause.
    let is_cause = |outcome: &Result<M::Outcome, HaloError>| matches!(outcome, Err(error) if !matches!(error, HaloError::Communication(streamhalo::comm::Error::PeerFailed { .. })));
    let index = outcomes.iter().position(is_cause).unwrap_or(0);
    Ok(outcomes.swap_remove(index)?)
}

#[cfg(target_os = "linux")]
fn on_processes<M: Measurement>(ranks: usize, measurement: &M) -> Result<M::Outcome, AppError> {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use streamhalo::comm::fabric::shm::{Exit, Job};

    let failed = |message: String| AppError::Rank { rank: 0, message };
    let program =
        std::env::current_exe().map_err(|error| failed(format!("finding this program: {error}")))?;
    let encoded = serde_json::to_string(measurement).map_err(|error| failed(error.to_string()))?;
    let mut job = Job::start(ranks, &mut |rank| {
        let mut command = Command::new(&program);
        command.env(VARIABLE, &encoded).stdin(Stdio::null());
        command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        command
    })
    .map_err(HaloError::from)?;
    let pipe = job.ranks()[0].stdout.take();
    // Read while the ranks run, so that a long answer does not fill the pipe.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
    });
    let exit = job.wait(&|| false).map_err(HaloError::from)?;
    let text = reader.join().map_err(|_| failed("its output could not be read".to_owned()))?;
    match exit {
        Exit::Success => {
            let text = text.map_err(|error| failed(error.to_string()))?;
            serde_json::from_str(&text).map_err(|error| failed(format!("it answered with {text:?}: {error}")))
        }
        Exit::Failed { rank, reason, .. } => Err(AppError::Rank { rank, message: reason }),
    }
}

/// To be called first in `main`: where this process is a rank of a measurement of type `M`, carries
/// its part out and answers with the exit status.
pub fn rank_main<M: Measurement>() -> Option<u8> {
    let encoded = std::env::var(VARIABLE).ok()?;
    let outcome = (|| -> Result<(), String> {
        let measurement: M =
            serde_json::from_str(&encoded).map_err(|error| format!("{VARIABLE}: {error}"))?;
        let world = World::from_env().map_err(|error| error.to_string())?;
        world.pin().map_err(|error| error.to_string())?;
        let outcome = measurement.on_rank(&world).map_err(|error| {
            world.fail(&error.to_string());
            error.to_string()
        })?;
        if world.rank() == 0 {
            println!("{}", serde_json::to_string(&outcome).map_err(|error| error.to_string())?);
        }
        Ok(())
    })();
    match outcome {
        Ok(()) => Some(0),
        Err(message) => {
            eprintln!("error: {message}");
            Some(1)
        }
    }
}
