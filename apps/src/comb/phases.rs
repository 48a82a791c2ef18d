//! The phases of a cycle, and their times.

use serde_json::{Map, Value};
use streamhalo::GatherStep;

use crate::app::{Times, Trial};
use crate::error::AppError;

/// The phases of a cycle, as indices of [`Laps`]; those of the exchange are in between.
pub(super) const PRE_COMM: usize = 0;
pub(super) const POST_COMM: usize = 5;
pub(super) const PHASES: usize = 6;

/// The phase of a step of the exchange.
pub(super) fn phase(step: GatherStep) -> usize {
    match step {
        GatherStep::PostReceives => 1,
        GatherStep::PostSends => 2,
        GatherStep::Wait => 3,
        GatherStep::Unpack => 4,
    }
}

/// Their times, as those of all applications: what is not computing is the exchange.
pub(super) fn times(solve_s: f64, spent_s: [f64; PHASES]) -> Times {
    let compute_s = spent_s[PRE_COMM] + spent_s[POST_COMM];
    Times { solve_s, halo_s: spent_s.iter().sum::<f64>() - compute_s, compute_s }
}

/// Microseconds of each phase in a cycle, on average: over the ranks, by the backend that carried the exchange out. Collective.
pub(super) fn phases(
    trial: &Trial<'_>,
    (backend, cycles): (&str, u64),
    spent_s: [f64; PHASES],
) -> Result<Map<String, Value>, AppError> {
    if cycles == 0 {
        return Ok(Map::new());
    }
    let [pre_comm, post_recv, post_send, wait, unpack, post_comm] = spent_s;
    let posts = match backend {
        // Receives start with the sends.
        "standard" => vec![("post_recv_and_send", post_recv + post_send)],
        _ => vec![("post_recv", post_recv), ("post_send", post_send)],
    };
    let behind = [("wait_recv_and_send", wait), ("unpack", unpack), ("post_comm", post_comm)];
    let named = [("pre_comm", pre_comm)].into_iter().chain(posts).chain(behind);
    let over_ranks = |(name, seconds): (&str, f64)| {
        Ok((name.to_owned(), trial.over_ranks(1e6 * seconds / cycles as f64)?))
    };
    let phases = named.map(over_ranks).collect::<Result<Map<_, _>, AppError>>()?;
    Ok(Map::from_iter([("phases_us".to_owned(), Value::Object(phases))]))
}
