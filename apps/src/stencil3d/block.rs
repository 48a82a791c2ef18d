//! What one rank computes on: the cells, their exchange, and the tiles of each step.

use std::rc::Rc;

use streamhalo::Stream;
use streamhalo::comm::device::StoreWay;
use streamhalo::prelude::{Alternating, Entity, LocalGrid, Pattern, StreamHalo, Tile};

use super::device::Factors;
use super::driver::Stencil3d;
use super::kernel::Rule;
use super::norm::Norm;
use crate::app::values::Real;
use crate::app::{Replays, Trial, inner_of};
use crate::error::AppError;

/// Of the widest vectors that any processor computes with.
const WIDEST_VECTOR_BYTES: usize = 64;

/// What one rank computes on.
pub(super) struct Block<'a, T> {
    pub(super) stencil: &'a Stencil3d<T>,
    pub(super) stream: &'a Stream,
    pub(super) grid: LocalGrid<3>,
    pub(super) cells: Alternating<T, 3>,
    pub(super) halo: StreamHalo,
    pub(super) factors: Rc<Factors<T>>,
    pub(super) store_way: StoreWay,
    pub(super) rule: Rule<T>,
    /// Steps since the last exchange: at 0 it is due.
    pub(super) since_exchange: usize,
    /// What each of them computes.
    pub(super) tiles: Vec<Tile>,
    /// The first of them in two parts: what needs no ghosts, and the rest.
    pub(super) inner: Tile,
    pub(super) outer: Vec<Tile>,
    /// The norms of the residual, if any are taken.
    pub(super) norm: Option<Norm<T>>,
    pub(super) replays: Replays,
}

impl<'a, T: Real> Block<'a, T> {
    /// The first generation, and the exchange.
    pub(super) fn new(stencil: &'a Stencil3d<T>, trial: &Trial<'a>) -> Result<Self, AppError> {
        let grid = trial.local_grid(&stencil.grid, stencil.halo_width)?;
        let mut cells = Alternating::zeros(&grid, Entity::Cell, trial.stream)?;
        // Both generations, so that the system hands out their pages before the clock runs.
        cells.now_mut().with_owned_mut(|mut owned| owned.fill(T::default()))?;
        cells.swap();
        cells.now_mut().fill(|cell, _| stencil.problem.initial(cell))?;
        // Steps that compute ghosts need those at edges and corners, whatever the stencil.
        let needed =
            if stencil.is_full() || stencil.exchange_every > 1 { Pattern::All } else { Pattern::Faces };
        let halo = StreamHalo::builder(trial.world, trial.stream)
            .backend(trial.backend)
            .pattern(stencil.pattern.clone().unwrap_or(needed))
            .swaps_per_exchange(stencil.exchange_every)
            .build(stencil.halo_width, &mut cells)?;
        let layers = (0..stencil.exchange_every).rev();
        let boxes: Vec<_> = layers.map(|layers| grid.outer(Entity::Cell, layers)).collect();
        let inner = inner_of(&grid, &halo, WIDEST_VECTOR_BYTES / size_of::<T>());
        Ok(Self {
            factors: Rc::new(Factors::new(trial.world, trial.stream, stencil.problem.shape_of(&grid))?),
            rule: Rule {
                is_full: stencil.is_full(),
                weights: stencil.problem.step_weights(),
                source: T::default(),
            },
            store_way: StoreWay::new::<T>(boxes[0].tile()),
            since_exchange: 0,
            tiles: boxes.iter().map(|cells| cells.tile()).collect(),
            inner: inner.tile(),
            outer: boxes[0].without(inner).into_iter().map(|part| part.tile()).collect(),
            grid,
            cells,
            halo,
            stencil,
            stream: trial.stream,
            norm: None,
            replays: Replays::new(stencil.replay, stencil.exchange_every),
        })
    }

    /// What computes the norms of the residual, if any are taken. Collective.
    pub(super) fn residual(&self, trial: &Trial<'_>) -> Result<Option<Norm<T>>, AppError> {
        let Stencil3d { settings, problem, .. } = self.stencil;
        if settings.residual_every == 0 {
            return Ok(None);
        }
        let (weights, source) = (problem.residual_weights(), problem.residual_source());
        let owned = self.grid.owned(Entity::Cell).tile();
        Norm::new(trial, Rule { weights, source, ..self.rule }, self.factors.clone(), owned).map(Some)
    }

    /// The norms so far, of which the first and the last one are those of all. Waits for the stream.
    pub(super) fn norms(&self) -> Result<Vec<f64>, AppError> {
        self.norm.as_ref().map_or(Ok(Vec::new()), Norm::ends)
    }
}
