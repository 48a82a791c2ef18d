//! What GPUs of CUDA and of HIP have in common.

mod chunks;
mod handles;
mod launch;
mod running;

pub(super) use chunks::{ALIGNMENT, Chunks, size_class};
pub(super) use handles::{Handle, Imports, pages_of};
pub(super) use launch::{BLOCK, Grid, Packed};
pub(super) use running::Running;
