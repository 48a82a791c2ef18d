//! Measurements that `streamhalo bench` and the benches of the workspace share.

mod answers;
mod bandwidth;
pub(crate) mod collectives;
pub(crate) mod copies;
pub mod figure;
pub mod halo;
pub mod kernels;
mod latency;
pub(crate) mod loggp;
pub mod micro;
pub(crate) mod moves;
mod overlap;
mod pingpong;
pub(crate) mod primitive;
pub(crate) mod staging;
pub mod streams;
mod subject;
pub(crate) mod throttle;
mod turns;
mod units;
pub mod what;

use crate::error::AppError;
use crate::interrupt::Interrupt;
use crate::ranks::{Work, carry_out};

/// Has `ranks` ranks over `fabric` do a measurement, and gives what rank 0 reports. Blocks.
///
/// # Errors
///
/// The error of the rank that failed first, or that there is no such fabric here.
pub fn measure<W: Work>(fabric: &str, ranks: usize, measurement: W) -> Result<W::Report, AppError> {
    let mut outcome = None;
    carry_out(fabric, ranks, measurement, &Interrupt::watch()?, &mut |report| outcome = Some(report))?;
    outcome.ok_or_else(|| AppError::Rank { rank: 0, message: "it reported nothing".to_owned() })
}
