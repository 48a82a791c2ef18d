//! Halo exchange on streams.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod exchange;
mod legs;
mod pattern;
mod stream_halo;
mod tables;

pub use error::{HaloError, Result};
pub use pattern::Pattern;
pub use stream_halo::{InFlight, StreamHalo, StreamHaloBuilder};
pub use streamhalo_comm as comm;
pub use streamhalo_grid as grid;

pub use streamhalo_comm::device::{Device, Event, Rows, RowsMut, Stream, StreamKind, StreamOptions, Tile};
pub use streamhalo_comm::{Element, ElementType, Op, World, WorldOptions};
pub use streamhalo_grid::{Alternating, Array, Entity, GlobalGrid, IndexBox, LocalGrid, Partition};

/// What most applications need.
pub mod prelude {
    pub use crate::{
        Alternating, Array, Device, Element, Entity, GlobalGrid, HaloError, IndexBox, LocalGrid, Op, Pattern,
        Rows, RowsMut, Stream, StreamHalo, Tile, World,
    };
}
