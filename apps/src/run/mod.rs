//! The parts of `streamhalo run`: how a grid is split over ranks, what they do, and what becomes
//! of their answers.

mod banner;
mod device;
mod executors;
mod journal;
mod measured;
mod plan;
mod timeline;
mod work;

pub(crate) use banner::{Banner, Uses, in_short};
pub(crate) use device::{device, no_memory_operations};
pub(crate) use executors::{executors_of, executors_of_all, executors_or};
pub(crate) use journal::{Journal, Kept};
pub(crate) use measured::MeasuredFile;
pub(crate) use plan::{Entry, Part, check_ranks, check_ranks_here, plan};
pub(crate) use timeline::TimelineWanted;
pub(crate) use work::{RunReport, RunWork, StatesWanted, stream, trial_name, world_options};
