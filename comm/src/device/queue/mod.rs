//! Streams of devices with a memory of their own: what all vendors have in common.
//!
//! Each stream is an in-order queue of the device, fed by a thread. Moves are kernels that store into the
//! memory of peers; signals are kernels behind them, with release order at the scope of all devices, where the
//! device has such atomics, and else stores of the thread once the queue has come to rest. Waits are the thread's, or
//! kernels too ([`super::Waits`]): a kernel that waits occupies a compute unit, and four ranks on a device of two
//! would wait for kernels that cannot start. So there are fewer such kernels at a time than compute units, and
//! the thread waits where there would be more.
//!
//! Vendors give a [`Driver`]; nothing here knows of one.

mod arrival;
mod awaited;
mod bounce;
mod clock;
mod engine;
mod executor;
mod follow;
mod merged;
mod moves;
mod owed;
mod pause;
mod period;
mod pieces;
mod ready;
mod relay;
mod sends;
mod staging;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
mod times;
mod waits;

#[cfg(test)]
pub(crate) use engine::Engine;
pub(crate) use engine::Opened;

use super::text::KernelText;

/// The kernels that streams need themselves: see the text for what a prelude has to define for it.
pub(crate) static OWN_KERNELS: KernelText =
    KernelText { name: "streams", source: include_str!("kernels.h"), reach: [0; 3] };
