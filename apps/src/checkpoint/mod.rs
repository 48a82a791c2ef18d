//! Checkpoints: the state of a run between two steps in one file, and going on from it.
//!
//! A file knows nothing of ranks: it has the whole grid, row-major, so that any number of them can go on from
//! it, in any layout and with any backend. All numbers have their lowest byte first.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the signature, which a transfer as text would change |
//! | 4 | the version of the format |
//! | 4 | the length of the text |
//! | 32 | the BLAKE3 checksum of the text |
//! | text | JSON: what is computed, how far it is, and a checksum for each block of the payload (`Head`) |
//! | payload | the values of all cells; begins at a multiple of 4 KiB, up to which the text has blanks |
//!
//! Ranks write their own cells into a file with a temporary name, which gets its own name once it is complete
//! and on the disk: whatever happens meanwhile, a file that has the name of a checkpoint is a whole one.

mod error;
mod folder;
mod head;
mod looker;
mod read;
mod runs;
mod settings;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use error::CheckpointError;
pub(crate) use folder::{FOLDER, prepare, resolve};
pub(crate) use looker::{Checkpoints, none_are_due};
pub(crate) use read::Checkpoint;

use head::Head;
