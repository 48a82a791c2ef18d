//! Kernels: closures over tiles of arrays.

use crate::device::operation::{HostKernel, Operation};
use crate::device::pitched::Pitched;
use crate::device::section::Intent;
use crate::device::shown::copy_of;
use crate::device::stream::{Stream, StreamKind};
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::Region;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A box of points, half open, slowest axis first; the last axis (x) is contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// First point on each axis.
    pub start: [usize; 3],
    /// One past the last point on each axis.
    pub end: [usize; 3],
}

impl Tile {
    /// Points along each axis; 0 where the end is not past the start.
    pub fn extents(self) -> [usize; 3] {
        std::array::from_fn(|axis| self.end[axis].saturating_sub(self.start[axis]))
    }

    /// Points in all.
    pub fn points(self) -> usize {
        self.extents().into_iter().product()
    }

    /// Whether every point lies in `other`. An empty tile lies everywhere.
    pub fn is_within(self, other: Tile) -> bool {
        self.points() == 0
            || (0..3).all(|axis| self.start[axis] >= other.start[axis] && self.end[axis] <= other.end[axis])
    }

    /// The two outer indices of every row, in order.
    pub fn rows(self) -> impl Iterator<Item = (usize, usize)> {
        (self.start[0]..self.end[0]).flat_map(move |i| (self.start[1]..self.end[1]).map(move |j| (i, j)))
    }

    /// At most `parts` tiles that make up this one, cut along the slowest axis that is long enough.
    fn split(self, parts: usize) -> impl Iterator<Item = Tile> {
        let extents = self.extents();
        let axis = if extents[0] >= parts { 0 } else { 1 };
        let length = extents[axis];
        let parts = parts.min(length).max(1);
        (0..parts).map(move |part| {
            let mut tile = self;
            tile.start[axis] = self.start[axis] + part * length / parts;
            tile.end[axis] = self.start[axis] + (part + 1) * length / parts;
            tile
        })
    }
}

/// Read access to some points of an array, to be given to a kernel.
#[derive(Debug, Clone)]
pub struct Reader<'a, T> {
    region: Region,
    rows: Pitched,
    stream: u64,
    bounds: Tile,
    array: PhantomData<&'a T>,
}

/// Write access to some points of an array, to be given to a kernel.
#[derive(Debug)]
pub struct Writer<'a, T> {
    region: Region,
    rows: Pitched,
    stream: u64,
    bounds: Tile,
    array: PhantomData<&'a mut T>,
}

impl<T> Reader<'_, T> {
    pub(crate) fn new(region: Region, rows: Pitched, stream: u64, bounds: Tile) -> Self {
        Self { region, rows, stream, bounds, array: PhantomData }
    }
}

impl<T> Writer<'_, T> {
    pub(crate) fn new(region: Region, rows: Pitched, stream: u64, bounds: Tile) -> Self {
        Self { region, rows, stream, bounds, array: PhantomData }
    }
}

/// An array as a kernel reads it: row by row.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    base: *const T,
    rows: Pitched,
    bounds: Tile,
    lifetime: PhantomData<&'a T>,
}

impl<'a, T: Element> Rows<'a, T> {
    /// The points `x` of the row at `i` on axis 0 and `j` on axis 1, all in local indices: the
    /// components of each point next to each other. Two-dimensional arrays have `i = 0`.
    ///
    /// # Panics
    /// If the points are not in the array, or are ghosts that an exchange may be filling: an
    /// error of the stream, which names the kernel.
    #[inline(always)]
    pub fn span(&self, i: usize, j: usize, x: Range<usize>) -> &'a [T] {
        let [span] = self.spans(i, j, x);
        span
    }

    /// The points `x` of as many rows as the array has, one behind the other along axis 1 from `j` on: each as
    /// [`Rows::span`] gives it, and looked up together, for kernels that compute several rows side by side.
    ///
    /// # Panics
    /// As [`Rows::span`], if any of the points may not be read.
    #[inline(always)]
    pub fn spans<const N: usize>(&self, i: usize, j: usize, x: Range<usize>) -> [&'a [T]; N] {
        let Tile { start, end } = self.bounds;
        assert!(
            start[0] <= i
                && i < end[0]
                && start[1] <= j
                && j < end[1]
                && N <= end[1] - j
                && start[2] <= x.start
                && x.start <= x.end
                && x.end <= end[2],
            "points {x:?} of {N} row(s) from ({i}, {j}) on are not all in {}: they are outside of the array, or ghosts that have not been exchanged",
            self.bounds
        );
        let components = self.rows.extents().components;
        std::array::from_fn(|row| {
            // SAFETY: the points lie within the array by the assertion, since the bounds do.
            let first = unsafe { self.base.add(self.rows.offset([i, j + row, x.start])) };
            // SAFETY: as above; the launch has checked that the kernel does not write the array, the
            // stream orders other kernels, and peers write only ghosts, outside of the bounds then.
            unsafe { std::slice::from_raw_parts(first, (x.end - x.start) * components) }
        })
    }

    /// All points of a row that may be read, ghosts included where they may.
    #[inline(always)]
    pub fn row(&self, i: usize, j: usize) -> &'a [T] {
        self.span(i, j, self.bounds.start[2]..self.bounds.end[2])
    }
}

/// The part of an array that a kernel writes: row by row, within its tile.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    base: *mut T,
    rows: Pitched,
    tile: Tile,
    lifetime: PhantomData<&'a mut T>,
}

impl<T: Element> RowsMut<'_, T> {
    /// The part within the tile of the row at `i` on axis 0 and `j` on axis 1 of local indices:
    /// the tile's points along x, the components of each next to each other.
    ///
    /// # Panics
    /// If the row is not in the tile: an error of the stream, which names the kernel.
    #[inline(always)]
    pub fn row(&mut self, i: usize, j: usize) -> &mut [T] {
        let tile = self.tile;
        assert!(
            (tile.start[0]..tile.end[0]).contains(&i) && (tile.start[1]..tile.end[1]).contains(&j),
            "row ({i}, {j}) is not in the tile {tile:?}"
        );
        // SAFETY: the row is in the tile by the assertion, and `&mut self` lends one at a time.
        unsafe { row_of_tile(self.base, self.rows, tile, i, j) }
    }

    /// The parts within the tile of as many rows as the array has, one behind the other along axis 1 from `j` on.
    /// Each is as [`RowsMut::row`] gives it.
    ///
    /// # Panics
    /// As [`RowsMut::row`], if any of the rows is not in the tile.
    #[inline(always)]
    pub fn rows_from<const N: usize>(&mut self, i: usize, j: usize) -> [&mut [T]; N] {
        let tile = self.tile;
        let is_within = (tile.start[1]..=tile.end[1]).contains(&j) && N <= tile.end[1] - j;
        assert!(
            (tile.start[0]..tile.end[0]).contains(&i) && is_within,
            "{N} rows from ({i}, {j}) on are not in the tile {tile:?}"
        );
        // SAFETY: the rows are in the tile by the assertion, each is another one, and `&mut self` is borrowed for as
        // long as any of them lives.
        std::array::from_fn(|row| unsafe { row_of_tile(self.base, self.rows, tile, i, j + row) })
    }

    /// The parts within the tile of all its rows, in order, for kernels that write several rows
    /// side by side. Each is as [`RowsMut::row`] gives it.
    #[inline(always)]
    pub fn rows(&mut self) -> impl Iterator<Item = &mut [T]> {
        let (base, rows, tile) = (self.base, self.rows, self.tile);
        // SAFETY: the rows are those of the tile, each is lent once, and `&mut self` is borrowed for
        // as long as any of them lives.
        tile.rows().map(move |(i, j)| unsafe { row_of_tile(base, rows, tile, i, j) })
    }
}

/// The part of a row that lies in a tile.
///
/// # Safety
/// `base` is the memory of an array of such `rows` of which the caller may write the points of `tile`;
/// (`i`, `j`) is a row of the tile; and nothing else has access to that part of it during `'a`.
#[inline(always)]
unsafe fn row_of_tile<'a, T>(base: *mut T, rows: Pitched, tile: Tile, i: usize, j: usize) -> &'a mut [T] {
    // SAFETY: the row's part lies within the array, since the tile does.
    let first = unsafe { base.add(rows.offset([i, j, tile.start[2]])) };
    // SAFETY: as above; tiles of one launch do not overlap, and the caller lends the row once.
    unsafe {
        std::slice::from_raw_parts_mut(first, (tile.end[2] - tile.start[2]) * rows.extents().components)
    }
}

// SAFETY: shared read access to plain elements.
unsafe impl<T: Element> Send for Rows<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Rows<'_, T> {}
// SAFETY: exclusive access to elements of its own tile.
unsafe impl<T: Element> Send for RowsMut<'_, T> {}

mod sealed {
    pub trait Sealed {}
}

/// The memory behind an argument, and what may be done with it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Memory<'a> {
    pub(crate) region: &'a Region,
    pub(crate) rows: Pitched,
    pub(crate) element: ElementType,
    pub(crate) stream: u64,
    pub(crate) bounds: Tile,
    pub(crate) intent: Intent,
}

/// Something that a kernel can be given: a [`Reader`] or a [`Writer`].
///
/// It borrows its array until the launch, so that no view of the array is alive when the kernel
/// comes to run: every view synchronises the stream first.
pub trait Argument: sealed::Sealed + Send + Sync {
    /// The same without the borrow: what the stream keeps.
    type Detached: Argument + 'static;
    /// What the kernel sees of it.
    type View<'a>
    where
        Self: 'a;
    #[doc(hidden)]
    fn detach(self) -> Self::Detached;
    #[doc(hidden)]
    fn show(&mut self, copy: Region);
    #[doc(hidden)]
    fn memory(&self) -> Memory<'_>;
    #[doc(hidden)]
    fn view<'a>(&'a self, tile: Tile) -> Self::View<'a>;
}

impl<T> sealed::Sealed for Reader<'_, T> {}
impl<T> sealed::Sealed for Writer<'_, T> {}

impl<T: Element> Argument for Reader<'_, T> {
    type Detached = Reader<'static, T>;
    type View<'a>
        = Rows<'a, T>
    where
        Self: 'a;

    fn detach(self) -> Reader<'static, T> {
        Reader::new(self.region, self.rows, self.stream, self.bounds)
    }

    fn show(&mut self, copy: Region) {
        self.region = copy;
    }

    fn memory(&self) -> Memory<'_> {
        let Self { region, rows, stream, bounds, .. } = self;
        let (element, intent) = (T::TYPE, Intent::Read);
        Memory { region, rows: *rows, element, stream: *stream, bounds: *bounds, intent }
    }

    fn view<'a>(&'a self, _tile: Tile) -> Self::View<'a> {
        Rows {
            base: self.region.base().cast_const().cast(),
            rows: self.rows,
            bounds: self.bounds,
            lifetime: PhantomData,
        }
    }
}

impl<T: Element> Argument for Writer<'_, T> {
    type Detached = Writer<'static, T>;
    type View<'a>
        = RowsMut<'a, T>
    where
        Self: 'a;

    fn detach(self) -> Writer<'static, T> {
        Writer::new(self.region, self.rows, self.stream, self.bounds)
    }

    fn show(&mut self, copy: Region) {
        self.region = copy;
    }

    fn memory(&self) -> Memory<'_> {
        let Self { region, rows, stream, bounds, .. } = self;
        let (element, intent) = (T::TYPE, Intent::Write);
        Memory { region, rows: *rows, element, stream: *stream, bounds: *bounds, intent }
    }

    fn view<'a>(&'a self, tile: Tile) -> Self::View<'a> {
        RowsMut { base: self.region.base().cast(), rows: self.rows, tile, lifetime: PhantomData }
    }
}

/// The arguments of a kernel: a tuple of up to six.
pub trait Arguments: sealed::Sealed + Send + Sync {
    /// The same without the borrows: what the stream keeps.
    type Detached: Arguments + 'static;
    /// What the kernel sees of them.
    type Views<'a>
    where
        Self: 'a;
    #[doc(hidden)]
    fn detach(self) -> Self::Detached;
    #[doc(hidden)]
    fn show(&mut self, copies: &mut dyn Iterator<Item = Region>);
    #[doc(hidden)]
    fn memories(&self) -> impl Iterator<Item = Memory<'_>>;
    #[doc(hidden)]
    fn views(&self, tile: Tile) -> Self::Views<'_>;
}

macro_rules! arguments {
    ($($argument:ident $index:tt),+) => {
        impl<$($argument: Argument),+> sealed::Sealed for ($($argument,)+) {}
        impl<$($argument: Argument),+> Arguments for ($($argument,)+) {
            type Detached = ($($argument::Detached,)+);
            type Views<'a>
                = ($($argument::View<'a>,)+)
            where
                Self: 'a;
            fn detach(self) -> Self::Detached {
                ($(self.$index.detach(),)+)
            }
            fn show(&mut self, copies: &mut dyn Iterator<Item = Region>) {
                $(self.$index.show(copies.next().expect("one for each argument"));)+
            }
            fn memories(&self) -> impl Iterator<Item = Memory<'_>> {
                [$(self.$index.memory()),+].into_iter()
            }
            fn views(&self, tile: Tile) -> Self::Views<'_> {
                ($(self.$index.view(tile),)+)
            }
        }
    };
}

arguments!(A 0);
arguments!(A 0, B 1);
arguments!(A 0, B 1, C 2);
arguments!(A 0, B 1, C 2, D 3);
arguments!(A 0, B 1, C 2, D 3, E 4);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5);

impl Stream {
    /// Enqueues a kernel over the points of `tile`. The body is called once for each part of the
    /// tile, from the stream's threads; parts do not overlap. Does not block on a threaded stream.
    ///
    /// A panic of the body is an error of the stream, which names the kernel.
    ///
    /// # Errors
    /// At once, with nothing enqueued: if an array belongs to another stream, is given both to
    /// read and to write, or `tile` leaves what a writer may write; [`Error::NoDeviceKernel`] on a stream of
    /// another device than the host, which takes [`Stream::launch_either`].
    pub fn launch<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        if self.kind() == StreamKind::Device {
            return Err(Error::NoDeviceKernel {
                kernel: kernel.to_string(),
                device: self.device_name().into(),
            });
        }
        self.launch_on_host(kernel, tile, arguments, body)
    }

    /// Enqueues a kernel of the host whose arguments have been checked.
    pub(crate) fn enqueue_closure<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        let mut arguments = arguments.detach();
        let mut written = Vec::new();
        if !self.host_reaches() {
            let mut copies = Vec::new();
            for memory in arguments.memories() {
                let is_written = memory.intent == Intent::Write;
                let copy = self.bring(&memory, if is_written { tile } else { memory.bounds })?;
                let copy = copy.unwrap_or_else(|| memory.region.clone());
                if is_written {
                    written.push(copy_of(&memory, tile, &copy, memory.region)?);
                }
                copies.push(copy);
            }
            arguments.show(&mut copies.into_iter());
        }
        let threads = self.threads().cloned();
        let rank = self.status().context.rank;
        let name = kernel.to_string();
        let failed = name.clone();
        let run = move || {
            let run_all = || match &threads {
                None => body(tile, arguments.views(tile)),
                Some(pool) => pool.scope(|scope| {
                    for part in tile.split(pool.current_num_threads()) {
                        let (body, arguments) = (&body, &arguments);
                        scope.spawn(move |_| body(part, arguments.views(part)));
                    }
                }),
            };
            // The kernel's arguments are not looked at again after a panic.
            catch_unwind(AssertUnwindSafe(run_all)).map_err(|panic| Error::KernelPanicked {
                kernel: failed.clone(),
                rank,
                message: panic_message(&*panic),
            })
        };
        self.put(Operation::Kernel(Arc::new(HostKernel { name, run })));
        written.iter().for_each(|back| self.enqueue_move(back));
        Ok(())
    }

    pub(crate) fn check_arguments<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: &A,
    ) -> Result<()> {
        for (index, Memory { region, stream, bounds, intent, .. }) in arguments.memories().enumerate() {
            if stream != self.id() {
                return Err(Error::WrongStream {
                    what: "an argument of a kernel",
                    owner: stream,
                    used: self.id(),
                });
            }
            if intent == Intent::Read {
                continue;
            }
            if !tile.is_within(bounds) {
                return Err(Error::TileOutOfBounds {
                    kernel: kernel.to_string(),
                    tile: Box::new(tile),
                    bounds: Box::new(bounds),
                });
            }
            let others = arguments.memories().enumerate().filter(|(other, _)| *other != index);
            if others.map(|(_, other)| other.region).any(|other| other.is_same(region)) {
                return Err(Error::AliasedArguments { kernel: kernel.to_string() });
            }
        }
        Ok(())
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.start, self.end)
    }
}
