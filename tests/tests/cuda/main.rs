//! GPUs of CUDA: exchanges and kernels, which must give what the host gives, and what goes wrong on a GPU. Left out, with
//! the reason, where there is none.

mod exchanges;
mod faults;
mod kernels;

use std::sync::{Mutex, MutexGuard, PoisonError};
use streamhalo::{Device, Stream, StreamKind, World};
use streamhalo_tests::{other_device, stream_of, use_cuda};

/// The GPU, and that no other test of this process uses it: the hardware has few queues for streams that wait. `None`
/// where there is none.
fn gpu() -> Option<(Device, MutexGuard<'static, ()>)> {
    static TURNS: Mutex<()> = Mutex::new(());
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    use_cuda();
    Some((other_device()?, turn))
}

/// A world of one rank, and a stream of the GPU and of the host.
fn alone() -> (World, [Stream; 2]) {
    let world = World::alone().expect("a world of one rank");
    let of = |kind| stream_of(&world, kind).expect("a stream");
    let streams = [of(StreamKind::Device), of(StreamKind::Inline)];
    (world, streams)
}
