//! Everything that can be wrong with a grid, its partition or its halo.

use crate::{Entity, Side};
use std::fmt;

/// What is wrong with a grid, its partition or its halo.
///
/// Every variant holds what was asked and what was found; its message adds what to do. Arrays hold
/// one entry per axis, slowest axis first. Errors of the geometry depend only on arguments that all ranks share, so
/// that all ranks get them or none does. [`GridError::RankOutOfRange`], [`GridError::NoBoundary`],
/// [`GridError::GhostsInFlight`], [`GridError::OwnedInFlight`], [`GridError::OtherArray`] and
/// [`GridError::Communication`] are of one rank.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// An axis was given no cells.
    #[error("axis {axis} has 0 cells (of {cells:?}): give every axis at least 1")]
    ZeroCells {
        /// The axis without cells.
        axis: usize,
        /// The cells asked for on each axis.
        cells: Vec<usize>,
    },

    /// A grid, or a subdomain with its ghosts, has more entries than can be counted safely.
    #[error(
        "{extents:?} cells, or nodes at their corners, ghosts included, are more than {limit} in all: use fewer cells or a narrower halo"
    )]
    TooManyEntries {
        /// The nodes, ghosts included, that there would be on each axis.
        extents: Vec<usize>,
        /// The largest number of entries.
        limit: usize,
    },

    /// Ghosts beyond a boundary were asked for where there is none.
    #[error(
        "there is no boundary on the {} side of axis {axis} of this rank's part: a neighbour is there, as on both sides where an axis \
         is periodic, and fills the ghosts; skip the side, for which `LocalGrid::beyond` is `None`",
        if *.side == Side::Low { "low" } else { "high" }
    )]
    NoBoundary {
        /// The axis.
        axis: usize,
        /// The side of this rank's part.
        side: Side,
    },

    /// Neither one boundary condition for all components of an array, nor one for each.
    #[error(
        "{given} boundary conditions were given for {components} component(s): give one for all, or one for each"
    )]
    Conditions {
        /// How many were given.
        given: usize,
        /// The components of the array.
        components: usize,
    },

    /// A mirror image at a boundary would have more layers than there are to be mirrored.
    #[error(
        "a mirror image of {layers} layers on axis {axis}, which has {cells} cell(s): use a halo of at most {cells}, \
         `Boundary::Nearest` or `Boundary::Value`"
    )]
    ThinMirror {
        /// The axis.
        axis: usize,
        /// The layers of ghosts.
        layers: usize,
        /// The cells of the grid on that axis.
        cells: usize,
    },

    /// A face or an edge names an axis that the grid does not have.
    #[error(
        "there is no {entity} on a grid with {dimensions} axes: axis must be below {dimensions}, not {axis}"
    )]
    EntityAxis {
        /// The entity asked for.
        entity: Entity,
        /// The axis it names.
        axis: usize,
        /// The number of axes of the grid.
        dimensions: usize,
    },

    /// A grid was to be refined or coarsened by 0.
    #[error("axis {axis} has the factor 0 (of {factors:?}): use at least 1, which leaves an axis as it is")]
    ZeroFactor {
        /// The axis with the factor 0.
        axis: usize,
        /// The factors asked for on each axis.
        factors: Vec<usize>,
    },

    /// A grid was to be coarsened by a factor that does not divide its cells.
    #[error(
        "the {cells} cells of axis {axis} cannot be coarsened by {factor}, of which they are no multiple: make the coarsest grid first and refine it (`Decomposition::refined`)"
    )]
    CellsNoMultiple {
        /// The axis.
        axis: usize,
        /// The cells of the grid on this axis.
        cells: usize,
        /// The factor asked for on this axis.
        factor: usize,
    },

    /// A grid was to be coarsened where ranks meet inside of a coarse cell.
    #[error(
        "axis {axis} cannot be coarsened by {factor} in layout {layout:?}: ranks meet at cell {cut}, which is no multiple of it; partition the coarsest grid and refine it (`Decomposition::refined`){}",
        .fitting.as_ref().map_or_else(String::new, |fitting| format!(", or use layout {fitting:?} (by `partition_as`)"))
    )]
    CutNoMultiple {
        /// The axis.
        axis: usize,
        /// The cell at which the part of a rank begins there.
        cut: usize,
        /// The factor asked for on this axis.
        factor: usize,
        /// The layout of the ranks.
        layout: Vec<usize>,
        /// The layout of least surface in which the grid can be coarsened so, if there is one.
        fitting: Option<Vec<usize>>,
    },

    /// A grid was to be split over no ranks.
    #[error("a grid cannot be split over 0 ranks: give at least 1")]
    ZeroRanks,

    /// No layout gives every one of the ranks at least one cell on every axis.
    #[error(
        "{cells:?} cells cannot be split over {ranks} ranks with at least one cell each on every axis: use {}",
        usable_rank_counts(*.below, *.above)
    )]
    NoLayout {
        /// The number of ranks asked for.
        ranks: usize,
        /// The cells of the grid on each axis.
        cells: Vec<usize>,
        /// The largest number of ranks below `ranks` that works.
        below: usize,
        /// The smallest number of ranks above `ranks` that works, if there is one.
        above: Option<usize>,
    },

    /// A layout has no parts on an axis, or more parts than the axis has cells.
    #[error(
        "layout {layout:?} splits the {cells} cells of axis {axis} into {parts} parts: use 1 to {cells} parts there"
    )]
    LayoutAxis {
        /// The axis that cannot be split so.
        axis: usize,
        /// The parts asked for on this axis.
        parts: usize,
        /// The cells of the grid on this axis.
        cells: usize,
        /// The whole layout.
        layout: Vec<usize>,
    },

    /// A layout does not have as many parts as there are ranks.
    #[error(
        "layout {layout:?} makes {product} subdomains for {ranks} ranks: the product of its factors must be {ranks}"
    )]
    LayoutProduct {
        /// The layout asked for.
        layout: Vec<usize>,
        /// The number of subdomains that it makes.
        product: usize,
        /// The number of ranks there are.
        ranks: usize,
    },

    /// A rank was asked for that the partition does not have.
    #[error("there is no rank {rank} among {ranks} ranks: use 0 to {}", .ranks - 1)]
    RankOutOfRange {
        /// The rank asked for.
        rank: usize,
        /// The number of ranks there are.
        ranks: usize,
    },

    /// The thinnest subdomain on an axis has fewer cells than the halo is wide, so that ghosts would
    /// come from beyond the direct neighbour.
    #[error(
        "a halo width of {halo_width} on axis {axis} is more than the {thinnest_cells} cells of the thinnest subdomain of layout {layout:?}: use a halo width of at most {thinnest_cells}, or {}",
        .fitting.as_ref().map_or_else(|| thicker_parts(*.axis, .layout), |fitting| format!("layout {fitting:?} (by `partition_as`)"))
    )]
    SubdomainTooThin {
        /// The axis on which the subdomain is too thin.
        axis: usize,
        /// The cells of the thinnest subdomain on this axis.
        thinnest_cells: usize,
        /// The halo width asked for on this axis.
        halo_width: usize,
        /// The layout of the ranks.
        layout: Vec<usize>,
        /// The layout of least surface that the halo fits, where a [`Decomposition`](crate::Decomposition) has looked
        /// for one and there is one.
        fitting: Option<Vec<usize>>,
    },

    /// More layers were to be exchanged than there are ghosts.
    #[error(
        "an exchange of {width} layers on axis {axis} is wider than the halo, which has {halo_width}: exchange at most {halo_width}, or make the subdomain with a wider halo"
    )]
    ExchangeTooWide {
        /// The axis on which the exchange is too wide.
        axis: usize,
        /// The layers asked for on this axis.
        width: usize,
        /// The halo width of the subdomain on this axis.
        halo_width: usize,
    },

    /// A rank owns fewer node-like entries than its neighbour's ghosts need (one more than the
    /// exchange is wide), so that the rest would come from beyond the direct neighbour.
    #[error(
        "an exchange of {width} layers ({entity}) on axis {axis} takes {needed} owned entries from each rank, but the thinnest subdomain of layout {layout:?} owns {thinnest}: exchange fewer layers, or use {}",
        thicker_parts(*.axis, .layout)
    )]
    TooFewOwned {
        /// The entity to be exchanged.
        entity: Entity,
        /// The axis on which too few entries are owned.
        axis: usize,
        /// The exchange width asked for on this axis.
        width: usize,
        /// The entries that the thinnest of the ranks which must fill such ghosts owns.
        thinnest: usize,
        /// The entries that it would have to own.
        needed: usize,
        /// The layout of the ranks.
        layout: Vec<usize>,
    },

    /// An array was asked for without components.
    #[error("an array of {entity} values needs at least one component, 0 were asked for")]
    NoComponents {
        /// Where the values would sit.
        entity: Entity,
    },

    /// Ghosts were asked for while an exchange may be filling them.
    #[error("`{call}` needs the ghosts, but an exchange may be filling them: finish it, or exchange first")]
    GhostsInFlight {
        /// The call.
        call: &'static str,
    },

    /// Owned entries were to be changed by the host while an exchange may still be sending them.
    #[error(
        "`{call}` would change what an exchange that has begun may still be sending: finish it first, or change what it does not send by a kernel"
    )]
    OwnedInFlight {
        /// The call.
        call: &'static str,
    },

    /// A reduction was given an array that it was not made for.
    #[error(
        "a reduction was given {found}; it was made for {expected}: give it arrays like that one, or make another `Reduction`"
    )]
    OtherArray {
        /// What it was made for.
        expected: String,
        /// What was given.
        found: String,
    },

    /// The communication layer failed: no memory, or a stream that has failed.
    #[error(transparent)]
    Communication(#[from] streamhalo_comm::Error),
}

/// The message, which `main` and `unwrap` print so.
impl fmt::Debug for GridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What makes the parts on an axis thicker: one part cannot be fewer.
fn thicker_parts(axis: usize, layout: &[usize]) -> String {
    match layout.get(axis) {
        Some(1) => format!("more cells on axis {axis}"),
        _ => format!("fewer parts on axis {axis} (by `partition_as` or fewer ranks) or more cells there"),
    }
}

fn usable_rank_counts(below: usize, above: Option<usize>) -> String {
    match above {
        Some(above) => format!("{below} or {above} ranks"),
        None => format!("at most {below} ranks"),
    }
}
