//! What GPUs of CUDA and of HIP have in common.

mod launch;
mod pinned;
mod running;

pub(super) use launch::{Grid, Packed};
pub(super) use pinned::{ALIGNMENT, Pinned, size_class};
pub(super) use running::Running;
