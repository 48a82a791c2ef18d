//! What GPUs of CUDA and of HIP have in common.

mod chunks;
mod handles;
mod launch;
mod processes;
mod running;

pub(super) use chunks::{ALIGNMENT, Chunks, size_class};
use handles::pages_of;
pub(super) use handles::{Handle, Imports};
pub(super) use launch::{BLOCK, Grid, ONE_BLOCK, Packed};
pub(super) use processes::{HANDLE_BYTES, Opener, import, register};
pub(super) use running::{Running, launches_block};
