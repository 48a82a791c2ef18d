//! The norm of the residual over all ranks.
//!
//! Each row's sum of squares is taken from its first cell to its last, a rank adds its rows in order, and the
//! ranks are added in order: one value at a layout, whatever the backend, the fabric and the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use streamhalo::prelude::Alternating;
use streamhalo::{Stream, Tile, World};

use super::kernel::{Rule, Shape, evaluate};
use crate::app::values::Real;
use crate::error::AppError;

/// Computes norms over the owned cells of the ranks.
pub(super) struct Norm<T> {
    rule: Rule<T>,
    shape: Arc<Shape<T>>,
    tile: Tile,
    /// The sum of each row of the tile: bits of an `f64`.
    rows: Arc<[AtomicU64]>,
}

impl<T: Real> Norm<T> {
    /// The norm of what the rule gives at the cells of `tile`.
    pub(super) fn new(rule: Rule<T>, shape: Arc<Shape<T>>, tile: Tile) -> Self {
        let rows = tile.rows().map(|_| AtomicU64::new(0)).collect();
        Self { rule, shape, tile, rows }
    }

    /// The norm of the current generation, whose ghosts have been exchanged. Collective; waits.
    pub(super) fn of(
        &self,
        world: &World,
        stream: &Stream,
        field: &Alternating<T, 3>,
    ) -> Result<f64, AppError> {
        let (rule, shape, rows) = (self.rule, self.shape.clone(), self.rows.clone());
        let [first_z, first_y, _] = self.tile.start;
        let height = self.tile.end[1] - first_y;
        stream.launch("residual", self.tile, (field.now().reader()?,), move |tile, (now,)| {
            for (z, y) in tile.rows() {
                rows[(z - first_z) * height + y - first_y].store(0, Ordering::Relaxed);
            }
            evaluate(&rule, &shape, tile, now, |(z, y), values| {
                let row = &rows[(z - first_z) * height + y - first_y];
                let sum = f64::from_bits(row.load(Ordering::Relaxed));
                let sum = values.iter().fold(sum, |sum, value| sum + value.to_f64() * value.to_f64());
                row.store(sum.to_bits(), Ordering::Relaxed);
            });
        })?;
        // Its end is what makes the relaxed stores of the kernel's threads visible here.
        stream.synchronize()?;
        let own = self.rows.iter().map(|row| f64::from_bits(row.load(Ordering::Relaxed))).sum();
        Ok(sum_over_ranks(world, own)?.sqrt())
    }
}

/// The one place where ranks are added up. An allreduce that is enqueued on the stream takes its place as it
/// is: the norm is not looked at before the steps that follow have been enqueued.
fn sum_over_ranks(world: &World, own: f64) -> Result<f64, AppError> {
    Ok(world.all_gather(&own)?.into_iter().sum())
}
