//! Devices, streams, fabrics and the backends that carry out an exchange: what is below a halo.
//!
//! Two ranks tell each other four numbers, ten times, with every step on a stream:
//!
//! ```
//! use std::sync::Arc;
//! use streamhalo_comm::backend::{Direct, ExchangeSpec, MessageSpec, Slot, match_exchange};
//! use streamhalo_comm::device::{Buffer, Device, Extents, Move, MoveTable};
//! use streamhalo_comm::fabric::{Place, phase};
//! use streamhalo_comm::{ElementType, Error, Op, World, WorldOptions};
//!
//! fn rank_main(world: World) -> Result<Vec<f64>, Error> {
//!     let stream = Device::host().stream(&world)?;
//!     let four = Extents { points: [1, 1, 4], components: 1 };
//!     let mut own = Buffer::<f64>::zeros(&world, &stream, four)?;
//!     own.view_mut(four.whole())?.fill(world.rank() as f64);
//!     let theirs = Buffer::<f64>::zeros(&world, &stream, four)?;
//!
//!     // What this rank sends is what it receives: one packed message to and from the other one.
//!     let message = MessageSpec {
//!         peer: 1 - world.rank(),
//!         tag: 0,
//!         elements: vec![(ElementType::F64, 4)],
//!         bytes: 32,
//!         run_bytes: 32,
//!         direct: Direct::Never,
//!         ghosts: Vec::new(),
//!     };
//!     let spec = ExchangeSpec { sends: vec![message.clone()], recvs: vec![message], last_epoch: 0 };
//!     let mut exchange = match_exchange(&world, &stream, "st-rsend", spec)?;
//!
//!     // The moves are built once, for the two phases that epochs alternate between.
//!     let row = |source: Place, destination: Place| Move {
//!         source,
//!         source_strides: [32, 32],
//!         destination,
//!         destination_strides: [32, 32],
//!         counts: [1, 1],
//!         run_bytes: 32,
//!         element: ElementType::F64,
//!         op: Op::Replace,
//!     };
//!     let table = |source, destination| MoveTable::new(&[vec![row(source, destination)]]).map(Arc::new);
//!     let pack = |phase| match exchange.send_slot(0, phase) {
//!         Slot::Packed(place) => table(own.place([0; 3])?, place), // memory of the other rank
//!         Slot::Ghosts(_) => unreachable!("the receiver has said `Direct::Never`"),
//!     };
//!     let unpack = |phase| {
//!         let arrived = exchange.recv_slot(0, phase).expect("packed messages are unpacked");
//!         table(arrived, theirs.place([0; 3])?)
//!     };
//!     let (packing, unpacking) = ([pack(0)?, pack(1)?], [unpack(0)?, unpack(1)?]);
//!     exchange.bind(vec![packing])?;
//!
//!     for _ in 0..10 {
//!         exchange.start_recvs(&stream)?;
//!         exchange.start_sends(&stream)?; // packs and sends, as soon as the receiver is ready
//!         exchange.wait(&stream)?;
//!         stream.enqueue_move(&unpacking[phase(exchange.epoch())])?;
//!     }
//!     theirs.copy_out(four.whole()) // waits for the stream
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let ranks = World::threads(2, WorldOptions::default(), rank_main)?;
//! assert_eq!(ranks, [Ok(vec![1.0; 4]), Ok(vec![0.0; 4])]);
//! # Ok(())
//! # }
//! ```
//!
//! What other interfaces call it, and what it is here:
//!
//! | concept | here |
//! |---|---|
//! | a communicator, with its barriers and gathers | [`World`] |
//! | a GPU stream or in-order queue | [`device::Stream`]: operations run in order; errors surface at `synchronize` |
//! | an event of a stream | [`device::Event`] |
//! | a CUDA graph, a command buffer | [`device::Period`]: captured once, replayed with one call |
//! | a kernel | a closure over a [`device::Tile`], enqueued by `Stream::launch`; or a [`device::KernelText`], for devices that compile it |
//! | device memory, and its registration with the network | [`device::Buffer`], in a [`fabric::Region`] with a key |
//! | a derived data type; pack and unpack kernels | [`device::Move`], compiled once to a [`device::MoveTable`] |
//! | persistent requests | [`backend::MessageSpec`], one for each peer and tag |
//! | matching them all (`MPI_Matchall` of the 2026 paper, section III-C) | [`backend::match_exchange`] |
//! | starting and waiting for them on a queue (`MPI_Enqueue_startall`, `MPI_Enqueue_waitall`) | [`backend::Exchange`] |
//! | the same, request by request: `MPI_Queue` and `MPI_Match` (2026), `MPIX_Queue` (2022) | [`queue`] |
//! | collectives on a queue (the future work of the 2026 paper) | [`collective::AllReduce`], [`collective::Barrier`] |
//! | two-sided messages and collectives of the host | [`Communicator`] |
//! | windows: notified access (2015), active target epochs (2023) | [`window::Window`] |
//! | a network, or a provider of it | [`fabric::Fabric`] |
//! | a triggered operation; who executes it | a send of an exchange; [`fabric::Executor`] |
//! | a trace of a stream, as profilers show it | [`timeline`] |
//! | a completion counter, a flag in memory | [`fabric::Word`], of which [`fabric::Role`] is the meaning |
//!
//! **A backend** is one way to carry out a matched exchange: what a receiver says before a payload may
//! come, where the payload goes, and how the receiver learns that it is there. [`backend::BACKENDS`] lists
//! them, and [`backend::AUTO`] is the fastest of them for an exchange. **A fabric** is what moves bytes between
//! ranks: [`fabric::FABRICS`] lists them. On `local`
//! and `shm` the memory of a rank is mapped by its peers, so that the executor of a stream stores payloads and
//! signals straight into it. On `mpi` and `ofi` a wire carries them: a progress thread, the host, or the network
//! interface by triggered operations ([`fabric::Executor`]). The backends are the same.
//!
//! **Failures.** A stream that fails skips what is left on it and raises the abort word of its world.
//! Every wait looks at that word, so that the other ranks get [`Error::PeerFailed`] instead of waiting;
//! and a wait that lasts longer than [`WorldOptions::timeout`] ends with [`Error::TimedOut`], which says
//! who waits for whom.
#![deny(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("StreamHalo needs Linux: memory files, futexes and what `/proc` tells");

pub mod backend;
mod boards;
pub mod collective;
mod communicator;
pub mod device;
mod element;
mod error;
pub mod fabric;
mod locks;
mod meeting;
mod named;
mod names;
mod pinning;
mod primitive;
pub mod queue;
mod room;
mod shares;
mod source;
pub mod timeline;
pub mod window;
mod world;

pub use communicator::{
    Communicator, PersistentRequest, Request, StagedAction, StagedStep, Staging, StagingMemory,
    StagingScheme, start_all, wait_all,
};
pub use element::{Element, ElementType, Op};
pub use error::{Error, Result};
#[doc(hidden)]
pub use names::nearest;
pub use pinning::Pinned;
pub use primitive::{By, PRIMITIVES, PrimitiveRow};
#[doc(hidden)]
pub use room::room_for;
pub use source::{Source, Status, Tag};
pub use world::{World, WorldOptions};
