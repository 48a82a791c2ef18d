//! Norms of the residual over all ranks, without the host: each is enqueued like the steps between them.
//!
//! Each row's sum of squares is taken from its first cell to its last, a rank adds its rows in order, and an
//! allreduce on the stream adds the ranks in an order of its own: one value at a layout, the same bits on every
//! rank, whatever the backend, the fabric and the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::prelude::Alternating;
use streamhalo::{Op, Stream, Tile};

use super::kernel::{Rule, Shape, evaluate};
use crate::app::Trial;
use crate::app::values::Real;
use crate::error::AppError;

/// One value.
const ONE: Extents = Extents { points: [1; 3], components: 1 };
/// The first and the last of the norms.
const ENDS: Extents = Extents { points: [1, 1, 2], components: 1 };

/// Computes norms over the owned cells of the ranks.
pub(super) struct Norm<T> {
    rule: Rule<T>,
    shape: Arc<Shape<T>>,
    tile: Tile,
    /// The sum of each row of the tile: bits of an `f64`.
    rows: Arc<[AtomicU64]>,
    /// The sum of this rank, and then of all.
    sum: Buffer<f64>,
    allreduce: AllReduce,
    /// Of the first norm and of the last one.
    kept: Buffer<f64>,
    /// How many have been enqueued.
    enqueued: u64,
    /// The ends of those that were taken before a restart.
    before: Vec<f64>,
}

impl<T: Real> Norm<T> {
    /// The norm of what the rule gives at the cells of `tile`. Collective; blocks.
    pub(super) fn new(
        trial: &Trial<'_>,
        rule: Rule<T>,
        shape: Arc<Shape<T>>,
        tile: Tile,
    ) -> Result<Self, AppError> {
        let Trial { world, stream, backend, .. } = *trial;
        let rows = tile.rows().map(|_| AtomicU64::new(0)).collect();
        let (sum, kept) = (Buffer::zeros(world, stream, ONE)?, Buffer::zeros(world, stream, ENDS)?);
        let section = sum.section(0..1)?;
        let allreduce = AllReduce::with_backend(world, stream, backend, (&section, &section), Op::Sum)?;
        Ok(Self { rule, shape, tile, rows, sum, allreduce, kept, enqueued: 0, before: Vec::new() })
    }

    /// Enqueues the norm of the current generation, whose ghosts have been exchanged. Every rank enqueues as
    /// many. Does not block, except on an inline stream and with `standard`.
    pub(super) fn enqueue(&mut self, stream: &Stream, field: &Alternating<T, 3>) -> Result<(), AppError> {
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
        // Its end is what makes the relaxed stores of the threads of the kernel before it visible here.
        let rows = self.rows.clone();
        stream.launch(
            "sum of rows",
            ONE.whole(),
            (self.sum.writer(ONE.whole())?,),
            move |_, (mut sum,)| {
                sum.row(0, 0)[0] = rows.iter().map(|row| f64::from_bits(row.load(Ordering::Relaxed))).sum();
            },
        )?;
        self.allreduce.enqueue()?;
        let mut slot = ENDS.whole();
        slot.start[2] = usize::from(self.enqueued > 0);
        slot.end[2] = slot.start[2] + 1;
        let (sum, kept) = (self.sum.reader(ONE.whole())?, self.kept.writer(ENDS.whole())?);
        stream.launch("kept norm", slot, (sum, kept), |_, (sum, mut kept)| {
            kept.row(0, 0)[0] = sum.row(0, 0)[0];
        })?;
        self.enqueued += 1;
        Ok(())
    }

    /// Goes on from norms that were taken before, of which the first and the last are known.
    pub(super) fn go_on_from(&mut self, before: Vec<f64>) {
        self.before = before;
    }

    /// Norms of which the first and the last one are those of all, as far as there are any. Waits for the stream.
    pub(super) fn ends(&self) -> Result<Vec<f64>, AppError> {
        let mut ends = self.kept.copy_out(ENDS.whole())?;
        ends.truncate(self.enqueued.min(2) as usize);
        Ok(self.before.iter().copied().chain(ends.into_iter().map(f64::sqrt)).collect())
    }
}
