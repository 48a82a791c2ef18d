//! The geometry of structured grids that are split over ranks: which entries a rank owns, which
//! ghosts surround them, and which owned entries of which neighbour fill these ghosts.
//!
//! Four ranks share a field of 6 × 8 cells, periodic in x only, with a halo one cell wide:
//!
//! ```
//! use streamhalo_grid::{Entity, GlobalGrid, IndexBox, Partition};
//!
//! # fn main() -> Result<(), streamhalo_grid::GridError> {
//! let grid = GlobalGrid::new([6, 8], [false, true])?; // [y, x]: x is fastest in memory
//! let partition = Partition::automatic(&grid, 4)?;
//! assert_eq!(partition.layout(), [2, 2]);
//! assert_eq!(partition.owned_cells(3), IndexBox::new([3, 4], [6, 8]));
//!
//! let here = partition.subdomain(0, [1, 1])?;
//! assert_eq!(here.extents(Entity::Cell), [1 + 3 + 1, 1 + 4 + 1]);
//! assert_eq!(here.owned(Entity::Cell), IndexBox::new([1, 1], [4, 5]));
//!
//! // The ghosts to the left of rank 0 come, once round, from the last column of rank 1 ...
//! let left = [0, -1];
//! assert_eq!(here.neighbor(left), Some(1));
//! let ghosts = here.recv_box(Entity::Cell, left, [1, 1]);
//! assert_eq!(ghosts, IndexBox::new([1, 0], [4, 1]));
//! assert_eq!(here.to_global(Entity::Cell, ghosts.start), Some([0, 7]));
//!
//! // ... which is what rank 1 sends towards its right.
//! let there = partition.subdomain(1, [1, 1])?;
//! let sent = there.send_box(Entity::Cell, [0, 1], [1, 1]);
//! assert_eq!(there.to_global(Entity::Cell, sent.start), Some([0, 7]));
//! assert_eq!(sent.extents(), ghosts.extents());
//!
//! // Nobody is above rank 0: these ghosts are the application's boundary condition.
//! assert_eq!(here.neighbor([-1, 0]), None);
//! assert_eq!(here.to_global(Entity::Cell, [0, 1]), None);
//! # Ok(())
//! # }
//! ```
//!
//! | type | what it is |
//! |---|---|
//! | [`GlobalGrid`] | how many cells there are on each axis, and which axes are periodic |
//! | [`Partition`] | how the cells are split into one box per rank |
//! | [`Subdomain`] | one rank's box with its ghosts: local extents, send and receive boxes |
//! | [`Entity`] | what a value belongs to: a cell, a node, a face or an edge |
//! | [`IndexBox`] | a box of indices |
//! | [`Side`] | either side of it along an axis |
//! | [`LocalGrid`] | a subdomain in a world: what arrays are made on |
//! | [`Array`] | a field's values on one rank, ghosts included |
//! | [`Alternating`] | two generations of a field |
//! | [`Boundary`] | what ghosts beyond a boundary of the grid are made of |
//! | [`Reduction`] | a sum, minimum or maximum over a field of all ranks, on a stream, and dot products |
//!
//! **Axes.** Axis 0 is the slowest in memory and the last axis (x) the fastest, in every array of
//! extents, widths, offsets, coordinates and indices. All of these count entries (cells, nodes,
//! faces or edges), not bytes and not lengths. There are 1, 2 or 3 axes; any other number does not
//! compile.
//!
//! **Node-like axes.** A node sits on the low corner of the cell with the same index, a face on the
//! low side of its cell, on the axis it is normal to. An entity that two ranks share belongs to the
//! rank of the cell on its high side; at a non-periodic high boundary, where no such cell exists, to
//! the last rank. On such an axis a rank therefore has one layer of ghosts more on the high side,
//! and its local array holds all nodes of all its cells, ghost cells included.
//!
//! **Nothing of the geometry communicates.** Every rank computes the same answers from the same
//! arguments, and every check that can fail is made for all ranks at once, so that it fails on all
//! or on none. Data lives in an [`Array`], or in an [`Alternating`] pair of them, on the
//! [`LocalGrid`] that a rank of a world gets from [`GlobalGrid::partition`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// Whose views arrays lend to the host: who names their types needs the version that they are of.
pub use ndarray;

mod alternating;
mod array;
mod blocks;
mod boundary;
mod collected;
mod entity;
mod error;
mod exchange_boxes;
mod field;
mod ghosts;
mod global_grid;
mod index_box;
mod layout;
mod levels;
mod local_grid;
mod partition;
mod reducible;
mod reduction;
mod subdomain;

pub use alternating::Alternating;
pub use array::Array;
pub use boundary::{Boundary, Mirrored};
pub use entity::Entity;
pub use error::GridError;
pub use field::{Field, FieldInfo, Fields};
#[doc(hidden)]
pub use field::{Generation, Sealed};
#[doc(hidden)]
pub use ghosts::{Ghosts, ReadableGhosts, SentLayers};
pub use global_grid::GlobalGrid;
pub use index_box::{IndexBox, Indices, Side};
pub use local_grid::{Decomposition, LocalGrid, PerAxis};
pub use partition::Partition;
pub use reducible::Reducible;
pub use reduction::Reduction;
pub use subdomain::Subdomain;
