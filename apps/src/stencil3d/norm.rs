//! Norms of the residual over all ranks, without the host: each is enqueued like the steps between them.
//!
//! Squares are added up in an order that the host's vectors and a device's threads can both follow: of each strip of
//! rows every 32nd cell, so that a strip has 32 sums; then the strips of each plane, the planes, and the 32. An allreduce
//! on the stream adds the ranks in an order of its own: one value at a layout, the same bits on every rank, whatever
//! the backend, the fabric, the device and the threads.

use std::rc::Rc;

use streamhalo::comm::Error;
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents, Scalar};
use streamhalo::prelude::Alternating;
use streamhalo::{Op, Rows, RowsMut, Stream, Tile};

use super::device::{FOLD, Factors, residual_text};
use super::kernel::{PIECE, Rule, evaluate};
use crate::app::Trial;
use crate::app::values::Real;
use crate::error::AppError;

/// Sums that are taken side by side.
const LANES: usize = 32;
/// Rows whose squares go into the same sums.
const STRIP: usize = 8;

/// Computes norms over the owned cells of the ranks.
pub(super) struct Norm<T> {
    rule: Rule<T>,
    factors: Rc<Factors<T>>,
    tile: Tile,
    /// The sums of each strip, then of each plane, then of all: `[plane, strip, lane]` of what there is.
    strips: Buffer<f64>,
    planes: Buffer<f64>,
    lanes: Buffer<f64>,
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
        factors: Rc<Factors<T>>,
        tile: Tile,
    ) -> Result<Self, AppError> {
        let Trial { world, stream, backend, .. } = *trial;
        let numbers = |points: [usize; 3]| Buffer::zeros(world, stream, Extents { points, components: 1 });
        let [planes, rows, _] = tile.extents();
        let (sum, kept) = (numbers([1, 1, 1])?, numbers([1, 1, 2])?);
        let section = sum.section(0..1)?;
        Ok(Self {
            rule,
            factors,
            tile,
            strips: numbers([planes, rows.div_ceil(STRIP), LANES])?,
            planes: numbers([1, planes, LANES])?,
            lanes: numbers([1, 1, LANES])?,
            allreduce: AllReduce::with_backend(world, stream, backend, (&section, &section), Op::Sum)?,
            sum,
            kept,
            enqueued: 0,
            before: Vec::new(),
        })
    }

    /// Enqueues the norm of the current generation, whose ghosts have been exchanged. Every rank enqueues as
    /// many. Does not block, except on an inline stream and with `standard`.
    pub(super) fn enqueue(&mut self, stream: &Stream, field: &Alternating<T, 3>) -> Result<(), AppError> {
        self.enqueue_squares(stream, field)?;
        let [planes, strips, _] = self.strips.extents().points;
        let whole = |buffer: &Buffer<f64>| buffer.extents().whole();
        let tiles = [whole(&self.planes), whole(&self.lanes), whole(&self.sum)];
        enqueue_fold(stream, &self.strips, &mut self.planes, tiles[0], [strips, LANES])?;
        enqueue_fold(stream, &self.planes, &mut self.lanes, tiles[1], [planes, LANES])?;
        enqueue_fold(stream, &self.lanes, &mut self.sum, tiles[2], [LANES, 1])?;
        self.allreduce.enqueue()?;
        let mut slot = whole(&self.kept);
        slot.start[2] = usize::from(self.enqueued > 0);
        slot.end[2] = slot.start[2] + 1;
        enqueue_fold(stream, &self.sum, &mut self.kept, slot, [1, 1])?;
        self.enqueued += 1;
        Ok(())
    }

    /// Enqueues the sums of each strip.
    fn enqueue_squares(&mut self, stream: &Stream, field: &Alternating<T, 3>) -> Result<(), AppError> {
        let Self { rule, factors, tile, strips, .. } = self;
        let (rule, cells, shape) = (*rule, *tile, factors.shape.clone());
        let [first_z, first_y, first_x] = cells.start;
        let [_, rows, columns] = cells.extents();
        let numbers = [first_z, first_y, first_x, rows, columns, STRIP, LANES];
        let numbers = numbers.map(|number| Scalar::from(number as i64));
        let scalars: Vec<Scalar> = rule.scalars().into_iter().chain(numbers).collect();
        let [along_z, along_y, along_x] = factors.readers()?;
        let whole = strips.extents().whole();
        let arguments = (field.now().reader()?, along_z, along_y, along_x, strips.writer(whole)?);
        let text = residual_text::<T>(rule.is_full);
        stream.launch_either_with(
            text,
            whole,
            arguments,
            &scalars,
            move |tile, (now, _, _, _, mut sums)| {
                for (plane, strip) in tile.rows() {
                    let sums = sums.row(plane, strip);
                    sums.fill(0.0);
                    let z = first_z + plane;
                    for y in (first_y + STRIP * strip..cells.end[1]).take(STRIP) {
                        let row = Tile { start: [z, y, first_x], end: [z + 1, y + 1, cells.end[2]] };
                        evaluate(&rule, &shape, row, now, |values| add_squares(values, sums));
                    }
                }
            },
        )?;
        Ok(())
    }

    /// Goes on from norms that were taken before, of which the first and the last are known.
    pub(super) fn go_on_from(&mut self, before: Vec<f64>) {
        self.before = before;
    }

    /// Norms of which the first and the last one are those of all, as far as there are any. Waits for the stream.
    pub(super) fn ends(&self) -> Result<Vec<f64>, AppError> {
        let mut ends = self.kept.copy_out(self.kept.extents().whole())?;
        ends.truncate(self.enqueued.min(2) as usize);
        Ok(self.before.iter().copied().chain(ends.into_iter().map(f64::sqrt)).collect())
    }
}

/// Adds the squares of a piece of a row to the sums of its lanes. Pieces have whole numbers of lanes, but the last.
fn add_squares<T: Real>(values: &[T], sums: &mut [f64]) {
    const { assert!(PIECE.is_multiple_of(LANES)) };
    for values in values.chunks(LANES) {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value.to_f64() * value.to_f64();
        }
    }
}

/// Enqueues sums of `count` rows of `width` numbers each, which lie one behind the other in `from`: `tile` of `to`.
fn enqueue_fold(
    stream: &Stream,
    from: &Buffer<f64>,
    to: &mut Buffer<f64>,
    tile: Tile,
    [count, width]: [usize; 2],
) -> Result<(), Error> {
    let [_, rows, length] = from.extents().points;
    let scalars = [count, width].map(|number| Scalar::from(number as i64));
    let arguments = (from.reader(from.extents().whole())?, to.writer(tile)?);
    let body = move |tile: Tile, (from, mut to): (Rows<'_, f64>, RowsMut<'_, f64>)| {
        for (i, j) in tile.rows() {
            let sums = to.row(i, j);
            sums.fill(0.0);
            for first in (j * count..(j + 1) * count).map(|row| row * width) {
                let (row, column) = (first / length, first % length);
                let read = from.span(row / rows, row % rows, column..column + width);
                sums.iter_mut().zip(read).for_each(|(sum, number)| *sum += number);
            }
        }
    };
    stream.launch_either_with(&FOLD, tile, arguments, &scalars, body)
}
