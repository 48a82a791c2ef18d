//! GPUs of AMD's, by HIP: the exchanges, primitives and kernels that those of CUDA are tested with. Left out, with the reason, where
//! there is none, and in builds without the feature `hip`.

#[path = "../cuda/exchanges.rs"]
mod exchanges;
#[path = "../cuda/kernels.rs"]
mod kernels;
#[path = "../cuda/periods.rs"]
mod periods;
#[path = "../cuda/primitives.rs"]
mod primitives;
#[path = "../cuda/processes.rs"]
mod processes;

use std::sync::MutexGuard;
use streamhalo::Device;
use streamhalo_tests::{alone, device_in_turn};

/// The kind of device, as processes are told.
const KIND: &str = "hip";

fn gpu() -> Option<(Device, MutexGuard<'static, ()>)> {
    device_in_turn(Device::hip)
}
