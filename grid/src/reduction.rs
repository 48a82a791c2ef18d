//! Sums, minima and maxima of what all ranks own of a field, on a stream.
//!
//! A rank combines its entries in an order that the host's vectors and a device's threads can both follow, and that the shape
//! of its part alone decides. The part is cut into blocks of some rows or, where rows are long, of a piece of one. Of each
//! row of a block every 32nd entry goes to the same number, so that a block has 32; then runs of blocks are combined, the
//! runs, and the 32. An allreduce combines the ranks, in an order of its own.

use crate::{Array, Entity, GridError, Partition, Reducible};
use std::marker::PhantomData;
use std::ops::Range;
use streamhalo_comm::collective::AllReduce;
use streamhalo_comm::device::{Buffer, Extents, Rows, RowsMut, Scalar, Section, Stream, Tile};
use streamhalo_comm::{Element, Error, Op, World};

#[cfg(test)]
mod tests;

/// Numbers that are combined side by side, for each component.
const LANES: usize = 32;
/// About as many entries has a block: so many are a piece of a row.
const BLOCK_ENTRIES: usize = 2048;

/// One number, for each component, of the entries that all ranks own of a field: their sum, the smallest or the largest; or
/// that of the products of two fields, entry by entry, which are dot products and squares of norms. Matched once, and
/// enqueued as often as needed: the numbers that a Krylov solver, a test of convergence or a time step needs, without the host.
///
/// Each entry of the grid counts once, also one that several ranks have, and ghosts do not count. Of integers
/// ([`Reducible`]) numbers are `i64`, in which sums and products wrap as with [`Op::Sum`] elsewhere; of floats they are
/// `f64`, in which the products of `f32` are exact. Minima and maxima ignore a NaN unless there is nothing else, and a sum
/// with one is a NaN.
///
/// The order in which entries are combined depends on the layout of the ranks alone: the bits are the same with any number of
/// threads, on any device, with any backend and fabric, and on every rank; but for those of a NaN, and for which of the two
/// zeros is the smaller or the larger where ranks have both. Another layout may round a sum differently.
///
/// ```
/// use streamhalo_comm::device::{Device, Rows, RowsMut, Tile};
/// use streamhalo_comm::{Op, World, WorldOptions};
/// use streamhalo_grid::{Array, Entity, GlobalGrid, GridError, Reduction};
///
/// /// Divides a field by its norm, which it gives.
/// fn rank_main(world: World) -> Result<f64, GridError> {
///     let stream = Device::host().stream(&world)?;
///     let grid = GlobalGrid::new([4, 6], [false, true])?.partition(&world)?.local(1)?;
///     let mut field = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
///     field.fill(|[y, x], _| if y == x { 6.0 } else { 0.0 })?;
///     let mut square = Reduction::new(&field, Op::Sum)?;
///     square.enqueue_product(&field, &field)?;
///     let norm = square.values()?[0].sqrt(); // the host waits; what follows on the stream need not
///     let result = square.result();
///     let arguments = (result.reader(result.extents().whole())?, field.writer()?);
///     let divide = |_: Tile, (square, mut field): (Rows<'_, f64>, RowsMut<'_, f64>)| {
///         let norm = square.row(0, 0)[0].sqrt();
///         field.rows().flatten().for_each(|entry| *entry /= norm);
///     };
///     stream.launch("divide", grid.owned(Entity::Cell).tile(), arguments, divide)?;
///     square.enqueue_product(&field, &field)?;
///     assert_eq!(square.values()?, [1.0]);
///     Ok(norm)
/// }
///
/// # fn main() -> Result<(), GridError> {
/// assert_eq!(World::threads(2, WorldOptions::default(), rank_main)?, [Ok(12.0), Ok(12.0)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reduction<T: Reducible, const D: usize> {
    stream: Stream,
    partition: Partition<D>,
    entity: Entity,
    /// What it reduces, for messages.
    expected: String,
    op: Op,
    cut: Cut,
    /// The numbers of each block, then of each run of blocks, then of all: `[1, of what there is, lane and component]`.
    blocks: Buffer<T::Total>,
    runs: Buffer<T::Total>,
    lanes: Buffer<T::Total>,
    /// That of this rank, and then of all.
    result: Buffer<T::Total>,
    allreduce: AllReduce,
    element: PhantomData<T>,
}

impl<T: Reducible, const D: usize> Reduction<T, D> {
    /// Matches a reduction of `array` and of all that are like it, by [`Op::Sum`], [`Op::Min`] or [`Op::Max`]. Nothing is
    /// reduced yet. Collective; blocks, also until the stream's device has compiled the kernels.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], the same on every rank, if the operation is another one, if a rank asks for something else
    /// than rank 0, has no memory or a device that does not compute with such numbers; else as [`AllReduce::new`].
    pub fn new(array: &Array<T, D>, op: Op) -> Result<Self, GridError> {
        Self::matched(array, op, |world, stream, result| AllReduce::new(world, stream, result, result, op))
    }

    /// As [`Reduction::new`], with messages that another [backend](streamhalo_comm::backend::BACKENDS) carries. With
    /// `standard` the host waits in each [`enqueue`](Reduction::enqueue).
    ///
    /// # Errors
    /// As [`Reduction::new`].
    pub fn with_backend(array: &Array<T, D>, backend: &str, op: Op) -> Result<Self, GridError> {
        Self::matched(array, op, |world, stream, result| {
            AllReduce::with_backend(world, stream, backend, (result, result), op)
        })
    }

    fn matched(
        array: &Array<T, D>,
        op: Op,
        allreduce: impl FnOnce(&World, &Stream, &Section) -> Result<AllReduce, Error>,
    ) -> Result<Self, GridError> {
        const CALL: &str = "Reduction::new";
        let (world, stream) = (array.grid().world(), array.stream());
        let cut = Cut::of(array.owned_box().tile().extents(), array.components());
        let prepared = match op {
            Op::Sum | Op::Min | Op::Max => {
                prepare::<T>(world, stream, &cut).map_err(|error| error.to_string())
            }
            _ => Err(format!(
                "a field is not reduced by {op:?}, which keeps one of two values: use Sum, Min or Max"
            )),
        };
        let own = prepared.as_ref().map(|_| format!("the {op:?} of {}", array.described()));
        let told: Vec<String> = world.agree(CALL, own)?;
        if let Some(rank) = told.iter().position(|other| *other != told[0]) {
            let reason = format!("it asked for {}, and rank 0 for {}", told[rank], told[0]);
            return Err(Error::CollectiveFailed { call: CALL, rank, reason }.into());
        }
        let [blocks, runs, lanes, result] = prepared.expect("ranks have agreed that nothing has failed");
        let allreduce = allreduce(world, stream, &result.section(0..array.components())?)?;
        Ok(Self {
            stream: stream.clone(),
            partition: *array.grid().subdomain().partition(),
            entity: array.entity(),
            expected: on_stream(array),
            op,
            cut,
            blocks,
            runs,
            lanes,
            result,
            allreduce,
            element: PhantomData,
        })
    }

    /// Enqueues the reduction of a field as it is when the stream comes to it. An exchange of it may be in flight. The grid's
    /// halo may be as wide as it likes. All ranks enqueue it equally often, and in the same order among the exchanges and
    /// collectives of their world. Does not block, except that an inline stream carries it out at once and another one may
    /// first have to make room.
    ///
    /// # Errors
    /// [`GridError::OtherArray`] if the array differs from what the reduction was made for in its grid, layout, entity,
    /// components or stream; as [`Stream::launch`](streamhalo_comm::device::Stream::launch) and [`AllReduce::enqueue`]. Nothing
    /// has been sent then, and it may be called again. What fails later surfaces at `synchronize`.
    pub fn enqueue(&mut self, array: &Array<T, D>) -> Result<(), GridError> {
        self.enqueue_of([array, array], false)
    }

    /// As [`Reduction::enqueue`], of the products of two fields, entry by entry and component by component: with [`Op::Sum`]
    /// their dot product, and the square of the norm of one that is given twice.
    ///
    /// # Errors
    /// As [`Reduction::enqueue`].
    pub fn enqueue_product(&mut self, a: &Array<T, D>, b: &Array<T, D>) -> Result<(), GridError> {
        self.enqueue_of([a, b], true)
    }

    /// What the reduction that was enqueued last has given, by component; zeros before the first. Blocks until the stream has
    /// come to rest.
    ///
    /// # Errors
    /// The stream's, if it has failed.
    pub fn values(&self) -> Result<Vec<T::Total>, GridError> {
        Ok(self.result.copy_out(self.result.extents().whole())?)
    }

    /// The same on the stream, for kernels that follow: its points are `[1, 1, components]`, with one component each.
    pub fn result(&self) -> &Buffer<T::Total> {
        &self.result
    }

    fn enqueue_of(&mut self, arrays: [&Array<T, D>; 2], is_product: bool) -> Result<(), GridError> {
        arrays.into_iter().try_for_each(|array| self.check(array))?;
        self.enqueue_blocks(arrays, is_product)?;
        let Self { stream, op, blocks, runs, lanes, result, .. } = self;
        enqueue_rows(stream, *op, blocks, runs)?;
        enqueue_rows(stream, *op, runs, lanes)?;
        enqueue_rows(stream, *op, lanes, result)?;
        Ok(self.allreduce.enqueue()?)
    }

    fn check(&self, array: &Array<T, D>) -> Result<(), GridError> {
        let is_alike = *array.grid().subdomain().partition() == self.partition
            && array.entity() == self.entity
            && array.components() == self.result.extents().points[2]
            && array.stream().id() == self.stream.id();
        if is_alike {
            return Ok(());
        }
        Err(GridError::OtherArray { expected: self.expected.clone(), found: on_stream(array) })
    }

    /// Enqueues the numbers of each block.
    fn enqueue_blocks(&mut self, [a, b]: [&Array<T, D>; 2], is_product: bool) -> Result<(), GridError> {
        let (op, cut, identity) = (self.op, self.cut, T::identity(self.op));
        let starts = [a, b].map(|array| array.owned_box().tile().start);
        let [first_of_a, first_of_b] = [a, b].map(|array| array.first_owned() as i64);
        let [all_rows, rows, elements, strip, piece, width] =
            cut.in_elements().map(|number| Scalar::from(number as i64));
        let scalars = [
            number_of(op).into(),
            identity.into(),
            i32::from(is_product).into(),
            first_of_a.into(),
            first_of_b.into(),
            all_rows,
            rows,
            elements,
            strip,
            piece,
            width,
        ];
        let tile = self.blocks.extents().whole();
        let arguments = (a.reader_of_owned()?, b.reader_of_owned()?, self.blocks.writer(tile)?);
        let body =
            move |tile: Tile, (a, b, mut blocks): (Rows<'_, T>, Rows<'_, T>, RowsMut<'_, T::Total>)| {
                for (i, block) in tile.rows() {
                    let numbers = blocks.row(i, block);
                    numbers.fill(identity);
                    let [rows, columns] = cut.block(block);
                    for [plane, row] in rows.map(|row| cut.place(row)) {
                        let [a, b] = [(a, starts[0]), (b, starts[1])].map(|(array, [z, y, x])| {
                            array.span(z + plane, y + row, x + columns.start..x + columns.end)
                        });
                        match is_product {
                            true => combine_row(op, numbers, [a, b], T::product),
                            false => combine_row(op, numbers, [a, a], |entry, _| entry.total()),
                        }
                    }
                }
            };
        let [text, _] = T::texts();
        Ok(self.stream.launch_either_with(text, tile, arguments, &scalars, body)?)
    }
}

/// How a rank's part is cut into blocks: its rows, whatever planes they are of, into strips, and those where rows are long into
/// pieces.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Points of the part along each axis.
    extents: [usize; 3],
    components: usize,
    /// Rows of a block.
    strip: usize,
}

impl Cut {
    fn of(extents: [usize; 3], components: usize) -> Self {
        Self { extents, components, strip: (BLOCK_ENTRIES / extents[2]).max(1) }
    }

    fn rows(&self) -> usize {
        self.extents[0] * self.extents[1]
    }

    /// The pieces of a strip.
    fn pieces(&self) -> usize {
        self.extents[2].div_ceil(BLOCK_ENTRIES)
    }

    fn blocks(&self) -> usize {
        self.rows().div_ceil(self.strip) * self.pieces()
    }

    /// The rows of a block, and its columns, both counted from those of the part.
    fn block(&self, block: usize) -> [Range<usize>; 2] {
        let (first, start) = (block / self.pieces() * self.strip, block % self.pieces() * BLOCK_ENTRIES);
        [first..self.rows().min(first + self.strip), start..self.extents[2].min(start + BLOCK_ENTRIES)]
    }

    /// Where a row is: its plane, and the row of it.
    fn place(&self, row: usize) -> [usize; 2] {
        [row / self.extents[1], row % self.extents[1]]
    }

    /// Numbers of a block.
    fn width(&self) -> usize {
        LANES * self.components
    }

    /// What the text is told: the rows of all planes, those of one, and the elements of a row; the rows of a block, and the
    /// elements of one; and every how many-th of those goes to the same number.
    fn in_elements(&self) -> [usize; 6] {
        let [_, rows, columns] = self.extents;
        let elements = |entries: usize| entries * self.components;
        [self.rows(), rows, elements(columns), self.strip, elements(BLOCK_ENTRIES), self.width()]
    }
}

/// What the operation needs on a stream: room for the numbers of blocks, of runs of them, of all, and for the result.
fn prepare<T: Reducible>(world: &World, stream: &Stream, cut: &Cut) -> Result<[Buffer<T::Total>; 4], Error> {
    let numbers = |rows, width| {
        Buffer::<T::Total>::zeros(world, stream, Extents { points: [1, rows, width], components: 1 })
    };
    let blocks = cut.blocks();
    let buffers = [
        numbers(blocks, cut.width())?,
        numbers(blocks.div_ceil(blocks.isqrt()), cut.width())?,
        numbers(1, cut.width())?,
        numbers(1, cut.components)?,
    ];
    // Before ranks wait for each other on the device.
    stream.compile(&T::texts()[0])?;
    stream.compile(&T::Total::texts()[1])?;
    Ok(buffers)
}

/// Enqueues the combination of rows of numbers: of as many, one behind the other, for each row of `to`, and of all that there are.
fn enqueue_rows<N: Reducible<Total = N> + PartialOrd>(
    stream: &Stream,
    op: Op,
    from: &Buffer<N>,
    to: &mut Buffer<N>,
) -> Result<(), Error> {
    let [_, from_rows, length] = from.extents().points;
    let [_, to_rows, width] = to.extents().points;
    let rows = from_rows * length / width;
    let (count, identity) = (rows.div_ceil(to_rows), N::identity(op));
    let [all, of_each, wide] = [rows, count, width].map(|number| Scalar::from(number as i64));
    let scalars = [number_of(op).into(), identity.into(), all, of_each, wide];
    let tile = to.extents().whole();
    let arguments = (from.reader(from.extents().whole())?, to.writer(tile)?);
    let body = move |tile: Tile, (from, mut to): (Rows<'_, N>, RowsMut<'_, N>)| {
        for (i, j) in tile.rows() {
            let numbers = to.row(i, j);
            numbers.fill(identity);
            for first in (j * count..rows.min((j + 1) * count)).map(|row| row * width) {
                let read = from.span(i, first / length, first % length..first % length + width);
                combine_row(op, numbers, [read, read], |number, _| number);
            }
        }
    };
    let [_, text] = N::texts();
    stream.launch_either_with(text, tile, arguments, &scalars, body)
}

/// Combines the numbers of lanes with what comes of the elements of a row.
#[inline(always)]
fn combine_row<T: Copy, N: Element + PartialOrd>(
    op: Op,
    numbers: &mut [N],
    [a, b]: [&[T]; 2],
    value: impl Fn(T, T) -> N,
) {
    // Of equal numbers the first: the zeros of both signs are, and devices know no better.
    let is_number = |number: N| number.partial_cmp(&number).is_some();
    let chosen = |own: N, other: N, is_beyond: bool| if is_number(own) && !is_beyond { own } else { other };
    match op {
        Op::Min => combine_with(numbers, a, b, |own, a, b| {
            let other = value(a, b);
            chosen(own, other, other < own)
        }),
        Op::Max => combine_with(numbers, a, b, |own, a, b| {
            let other = value(a, b);
            chosen(own, other, other > own)
        }),
        _ => combine_with(numbers, a, b, |own, a, b| N::combine(Op::Sum, own, value(a, b))),
    }
}

#[inline(always)]
fn combine_with<T: Copy, N: Copy>(numbers: &mut [N], mut a: &[T], mut b: &[T], with: impl Fn(N, T, T) -> N) {
    // Of one component: so many numbers stay in registers from one run of entries to the next.
    if let Ok(numbers) = <&mut [N; LANES]>::try_from(&mut *numbers) {
        let (runs_of_a, rest_of_a) = a.as_chunks::<LANES>();
        let (runs_of_b, rest_of_b) = b.as_chunks::<LANES>();
        let mut own = *numbers;
        for (a, b) in runs_of_a.iter().zip(runs_of_b) {
            own = std::array::from_fn(|lane| with(own[lane], a[lane], b[lane]));
        }
        *numbers = own;
        (a, b) = (rest_of_a, rest_of_b);
    }
    let lanes = numbers.len();
    for (a, b) in a.chunks(lanes).zip(b.chunks(lanes)) {
        for ((number, a), b) in numbers.iter_mut().zip(a).zip(b) {
            *number = with(*number, *a, *b);
        }
    }
}

/// An operation, as the texts have it.
fn number_of(op: Op) -> i32 {
    match op {
        Op::Min => 1,
        Op::Max => 2,
        _ => 0,
    }
}

fn on_stream<T: Element, const D: usize>(array: &Array<T, D>) -> String {
    format!("{} on stream {}", array.described(), array.stream().id())
}
