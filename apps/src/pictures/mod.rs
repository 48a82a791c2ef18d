//! Pictures of a field while a run goes on: for ParaView, whole and by rank, and as images.

mod image;
mod mosaic;
mod snapshots;
#[cfg(test)]
mod tests;
mod vti;

pub(crate) use mosaic::Mosaic;
pub(crate) use snapshots::{FOLDER, Snapshots, check_place};
