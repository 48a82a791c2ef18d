//! The parts of `streamhalo run`: how a grid is split over ranks, what they do, and what becomes
//! of their answers.

mod journal;
mod plan;
mod work;

pub(crate) use journal::{Journal, Kept, executor};
pub(crate) use plan::{Entry, plan};
pub(crate) use work::{RunReport, RunWork, StatesWanted, stream, world_options};
