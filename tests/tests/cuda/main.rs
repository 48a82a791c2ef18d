//! GPUs of CUDA: exchanges, primitives and kernels, which must give what the host gives, and what goes wrong on a GPU. Left out, with
//! the reason, where there is none.

mod exchanges;
mod faults;
mod kernels;
mod periods;
mod primitives;
mod processes;

use std::sync::MutexGuard;
use streamhalo::Device;
use streamhalo_tests::{alone, device_in_turn};

/// The kind of device, as processes are told.
const KIND: &str = "cuda";

fn gpu() -> Option<(Device, MutexGuard<'static, ()>)> {
    device_in_turn(Device::cuda)
}
