//! Halo exchange on streams: every step of it (posting receives, packing, sending, waiting,
//! unpacking) is enqueued behind the kernels that it depends on, so that the host never stands
//! between a kernel and the wire. How it is carried out is a word that is chosen at run time; the
//! answer is bit for bit the same whichever word it is.
//!
//! Two ranks cool a hot spot on a ring of twelve cells:
//!
//! ```
//! use streamhalo::prelude::*;
//! use streamhalo::WorldOptions;
//!
//! /// What a rank does, whatever the number of ranks is: three steps, and the whole ring at the end.
//! fn cool(world: World) -> Result<Vec<f64>, HaloError> {
//!     let stream = Device::host().stream(&world)?;
//!     let grid = GlobalGrid::new([12], [true])?.partition(&world)?.local(1)?;
//!     let mut heat = Alternating::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
//!     heat.now_mut().fill(|[x], _| if x == 0 { 64.0 } else { 0.0 })?;
//!     let mut halo = StreamHalo::new(&world, &stream, "st-rsend", Pattern::Faces, 1, &mut heat)?;
//!     for _ in 0..3 {
//!         halo.enqueue_gather(&mut heat)?;
//!         stream.launch("cool", grid.owned(Entity::Cell).tile(), heat.now_and_next()?, step)?;
//!         heat.swap();
//!     }
//!     stream.synchronize()?; // a threaded stream that has room makes the host wait nowhere else
//!     let owned: Vec<f64> = heat.now().owned()?.iter().copied().collect();
//!     Ok(world.all_gather(&owned)?.concat())
//! }
//!
//! /// u(x) becomes (u(x - 1) + 2 u(x) + u(x + 1)) / 4. Of three axes a line has the last.
//! fn step(tile: Tile, (now, mut next): (Rows<'_, f64>, RowsMut<'_, f64>)) {
//!     let around = now.span(0, 0, tile.start[2] - 1..tile.end[2] + 1);
//!     for (cell, near) in next.row(0, 0).iter_mut().zip(around.windows(3)) {
//!         *cell = (near[0] + 2.0 * near[1] + near[2]) / 4.0;
//!     }
//! }
//!
//! # fn main() -> Result<(), HaloError> {
//! for ring in World::threads(2, WorldOptions::default(), cool)? {
//!     assert_eq!(ring?, [20.0, 15.0, 6.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 6.0, 15.0]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! With [`World::from_env`] in the place of `World::threads` the same `cool` runs alone, or as the
//! ranks that `streamhalo launch -n N PROGRAM` starts; `examples/life.rs` is such a program, and `examples/heat.rs` one with
//! walls that computes while messages are on their way.
//!
//! | type | what it is |
//! |---|---|
//! | [`World`] | the ranks that work together, and what they set up together |
//! | [`Device`], [`Stream`] | what runs work, and in which order |
//! | [`GlobalGrid`], [`Decomposition`] of a [`Partition`], [`LocalGrid`] with its [`Subdomain`] | the cells, how they are split, and a rank's part with its ghosts |
//! | [`Entity`], [`IndexBox`], [`Side`], [`Tile`] | what a value belongs to, boxes of indices, and their sides |
//! | [`Array`] | a field's values on a rank, ghosts included |
//! | [`Alternating`] | two generations of a field, of which a step reads one and writes the other |
//! | [`Rows`], [`RowsMut`] | arrays as a kernel sees them |
//! | [`Fields`] | what is exchanged together: a field, a tuple, array or vector of fields, or a type of an application |
//! | [`Pattern`] | which neighbours take part in an exchange |
//! | [`StreamHalo`] | a matched exchange: `gather` fills ghosts from their owners, `scatter` combines ghosts with what their owners have |
//! | [`InFlight`] | a gather that was begun and not finished, to compute meanwhile |
//! | [`GatherStep`] | the parts of a gather, to time them one by one |
//! | [`Boundary`] | what ghosts beyond a boundary of the grid are made of: a value, what is nearest, or a mirror image |
//! | [`Reduction`] | a sum, minimum or maximum over a field of all ranks, or a dot product of two, on a stream |
//! | [`Buffer`], [`Extents`], [`AllReduce`] | arrays that belong to no grid, and sums and the like of them over all ranks, on a stream |
//! | [`Communicator`] | the same of numbers that the host has ([`allreduce`](Communicator::allreduce)), and messages |
//! | [`HaloError`] | everything that can go wrong, with the data that a reader of the message needs |
//!
//! **Order.** What is enqueued on a stream runs in order. `enqueue_*` refuses at once what is wrong with the call; the
//! first error of what was enqueued surfaces at [`Stream::synchronize`], with the operation that caused it (with
//! `standard`, which waits for the stream, at the call).
//! Bare verbs ([`StreamHalo::gather`], [`StreamHalo::scatter`]) wait. On an *inline* stream, which is
//! the default, operations run as they are enqueued, and so the wait of an exchange blocks its
//! caller; on a *threaded* one it does not, and enqueueing waits only for room, once 4096 operations are on it. All ranks
//! enqueue the exchanges of a stream in the same order, and on inline streams those of all their streams; only
//! [`StreamHalo::begin_gather`] waits for no other rank, so that gathers may be begun in any order, as long as network
//! interfaces have room and no earlier gather was left unfinished.
//!
//! **Axes.** Axis 0 is the slowest in memory and the last axis (x) the fastest, everywhere. Kernels
//! see three axes: fields of fewer have leading axes of one point.
//!
//! **Ghosts.** Between [`StreamHalo::begin_gather`] and [`InFlight::finish`] those that other ranks fill, and in a
//! generation of an [`Alternating`] field that has not been exchanged yet all ghosts, are undefined, and kernels cannot
//! read them. The latter is so where an exchange is of alternating fields alone, without a scatter, that are swapped once
//! between two exchanges; of others ghosts that have not been exchanged hold what they held. Ghosts beyond a boundary
//! that is not periodic are never touched: what they hold is the application's boundary condition, which may be made at any
//! time, mirrors once a gather has filled what they read: by [`Array::enqueue_boundary`], or by kernels of the application's
//! ([`Array::boundary_writer`] and, from what is within, [`Array::inside_and_boundary`]).
//!
//! **Set-up is collective.** All ranks make the same calls in the same order; a call fails on all of
//! them or on none, and says on all of them which rank's request was wrong. After set-up an exchange
//! allocates nothing.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod builder;
mod error;
mod exchange;
mod in_flight;
mod legs;
mod pattern;
mod registered;
mod stream_halo;
mod tables;

pub use builder::StreamHaloBuilder;
pub use error::{HaloError, Result};
pub use exchange::GatherStep;
pub use in_flight::InFlight;
pub use pattern::Pattern;
pub use stream_halo::StreamHalo;
pub use streamhalo_comm as comm;
pub use streamhalo_grid as grid;
pub use streamhalo_grid::ndarray;

pub use streamhalo_comm::collective::AllReduce;
pub use streamhalo_comm::device::{
    Buffer, Device, Event, Extents, KernelText, MemoryMode, Peers, Period, Rows, RowsMut, Signals, Stream,
    StreamKind, StreamOptions, Tile, Waits, Wires,
};
pub use streamhalo_comm::{Communicator, Element, ElementType, Op, World, WorldOptions};
pub use streamhalo_grid::{
    Alternating, Array, Boundary, Decomposition, Entity, Fields, GlobalGrid, GridError, IndexBox, LocalGrid,
    Mirrored, Partition, PerAxis, Reducible, Reduction, Side, Subdomain,
};

/// What most applications need.
pub mod prelude {
    pub use crate::{
        Alternating, Array, Boundary, Device, Element, Entity, GlobalGrid, HaloError, IndexBox, LocalGrid,
        Op, Pattern, Rows, RowsMut, Side, Stream, StreamHalo, Tile, World,
    };
}
