//! Kernels of the host: closures over tiles of arrays.

use super::rows::{Rows, RowsMut};
use crate::device::operation::{HostKernel, Operation};
use crate::device::panics::caught;
use crate::device::pitched::Pitched;
use crate::device::section::Intent;
use crate::device::shown::copy_of;
use crate::device::tile::Tile;
use crate::device::uses::BufferUses;
use crate::device::{Stream, StreamKind};
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::Region;
use sealed::Token;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// What a kernel has to know of an array.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) region: Region,
    pub(crate) rows: Pitched,
    pub(crate) stream: u64,
    pub(crate) uses: Arc<BufferUses>,
}

/// Points of an array that a kernel is given: of the array's own, or kept by a stream. Small, since a launch hands it on
/// several times.
#[derive(Debug, Clone)]
pub(crate) struct Points<'a> {
    pub(crate) array: Cow<'a, Arc<Whole>>,
    pub(crate) bounds: Tile,
    /// The capture that it was made in, which knows what the bounds depend on.
    pub(crate) capture: u64,
}

/// Read access to some points of an array, to be given to a kernel.
#[derive(Debug, Clone)]
pub struct Reader<'a, T> {
    points: Points<'a>,
    array: PhantomData<&'a T>,
}

/// Write access to some points of an array, to be given to a kernel.
#[derive(Debug)]
pub struct Writer<'a, T> {
    points: Points<'a>,
    array: PhantomData<&'a mut T>,
}

impl Points<'_> {
    /// The same without the borrow.
    fn detach(&self) -> Points<'static> {
        Points { array: Cow::Owned(Arc::clone(&self.array)), ..*self }
    }

    /// The same points of a copy.
    fn show(&mut self, copy: Region) {
        self.array = Cow::Owned(Arc::new(Whole { region: copy, ..Whole::clone(&self.array) }));
    }

    /// The memory behind them.
    pub(crate) fn memory(&self, element: ElementType, intent: Intent) -> Memory<'_> {
        Memory { array: &self.array, bounds: &self.bounds, capture: self.capture, element, intent }
    }
}

impl<'a, T> Reader<'a, T> {
    pub(crate) fn new(points: Points<'a>) -> Self {
        Self { points, array: PhantomData }
    }
}

impl<'a, T> Writer<'a, T> {
    pub(crate) fn new(points: Points<'a>) -> Self {
        Self { points, array: PhantomData }
    }
}

mod sealed {
    pub trait Sealed {}

    /// What only this crate has: who makes a view, or lets go of the borrow, has to see to what the borrow stood for.
    #[derive(Debug, Clone, Copy)]
    pub struct Token;
}

/// The memory behind an argument, and what may be done with it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    pub(crate) array: &'a Whole,
    pub(crate) bounds: &'a Tile,
    pub(crate) capture: u64,
    pub(crate) element: ElementType,
    pub(crate) intent: Intent,
}

impl Memory<'_> {
    /// The points that a kernel over `tile` may touch.
    fn touched(&self, tile: Tile) -> Tile {
        if self.intent == Intent::Write { tile } else { *self.bounds }
    }

    /// The bytes from the first of those points to behind the last.
    fn bytes(&self, points: Tile) -> Range<usize> {
        self.array.rows.bytes(points, self.element.bytes())
    }
}

/// Something that a kernel can be given: a [`Reader`] or a [`Writer`].
///
/// It borrows its array until the launch, so that no view of the array is alive when the kernel
/// comes to run: every view synchronises the stream first.
pub trait Argument: sealed::Sealed + Send + Sync {
    /// The argument without the borrow: what the stream keeps.
    type Detached: Argument<Detached = Self::Detached> + 'static;
    /// What the kernel sees of it.
    type View<'a>
    where
        Self: 'a;
    #[doc(hidden)]
    fn detach(&self, token: Token) -> Self::Detached;
    #[doc(hidden)]
    fn show(&mut self, copy: Region, token: Token);
    #[doc(hidden)]
    fn memory(&self) -> Memory<'_>;
    #[doc(hidden)]
    fn view<'a>(&'a self, tile: Tile, token: Token) -> <Self::Detached as Argument>::View<'a>;
}

impl<T> sealed::Sealed for Reader<'_, T> {}
impl<T> sealed::Sealed for Writer<'_, T> {}

impl<T: Element> Argument for Reader<'_, T> {
    type Detached = Reader<'static, T>;
    type View<'a>
        = Rows<'a, T>
    where
        Self: 'a;

    fn detach(&self, _: Token) -> Reader<'static, T> {
        Reader::new(self.points.detach())
    }

    fn show(&mut self, copy: Region, _: Token) {
        self.points.show(copy);
    }

    fn memory(&self) -> Memory<'_> {
        self.points.memory(T::TYPE, Intent::Read)
    }

    fn view<'a>(&'a self, _tile: Tile, _: Token) -> Rows<'a, T> {
        let Whole { region, rows, .. } = &**self.points.array;
        // SAFETY: the bounds lie within the array; the launch has checked that the kernel writes none of these, the stream
        // orders other kernels, and peers write only ghosts, outside of the bounds then.
        unsafe { Rows::new(region.base().cast_const().cast(), *rows, self.points.bounds) }
    }
}

impl<T: Element> Argument for Writer<'_, T> {
    type Detached = Writer<'static, T>;
    type View<'a>
        = RowsMut<'a, T>
    where
        Self: 'a;

    fn detach(&self, _: Token) -> Writer<'static, T> {
        Writer::new(self.points.detach())
    }

    fn show(&mut self, copy: Region, _: Token) {
        self.points.show(copy);
    }

    fn memory(&self) -> Memory<'_> {
        self.points.memory(T::TYPE, Intent::Write)
    }

    fn view<'a>(&'a self, tile: Tile, _: Token) -> RowsMut<'a, T> {
        let Whole { region, rows, .. } = &**self.points.array;
        // SAFETY: the launch has checked that the tile lies within what may be written; its parts do not overlap, and no
        // other argument has points of what may be.
        unsafe { RowsMut::new(region.base().cast(), *rows, tile) }
    }
}

/// The arguments of a kernel: a tuple of up to twelve.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot be given `{Self}`",
    note = "it is given a tuple of one to twelve `Reader`s and `Writer`s: `(array.reader()?,)` is one of one; what belongs \
            together may be components of one array, and what does not may be several launches"
)]
pub trait Arguments: sealed::Sealed + Send + Sync {
    /// The arguments without the borrows: what the stream keeps.
    type Detached: Arguments<Detached = Self::Detached> + 'static;
    /// What the kernel sees of them.
    type Views<'a>
    where
        Self: 'a;
    #[doc(hidden)]
    fn detach(&self, token: Token) -> Self::Detached;
    #[doc(hidden)]
    fn show(&mut self, copies: &mut dyn Iterator<Item = Region>, token: Token);
    /// How many there are.
    #[doc(hidden)]
    const COUNT: usize;
    #[doc(hidden)]
    fn memory(&self, index: usize) -> Memory<'_>;
    // One by one: an array of them would be written and read again.
    #[doc(hidden)]
    #[inline(always)]
    fn memories(&self) -> impl Iterator<Item = Memory<'_>> {
        (0..Self::COUNT).map(|index| self.memory(index))
    }
    #[doc(hidden)]
    fn views(&self, tile: Tile, token: Token) -> <Self::Detached as Arguments>::Views<'_>;
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
            fn detach(&self, token: Token) -> Self::Detached {
                ($(self.$index.detach(token),)+)
            }
            fn show(&mut self, copies: &mut dyn Iterator<Item = Region>, token: Token) {
                $(self.$index.show(copies.next().expect("one for each argument"), token);)+
            }
            const COUNT: usize = [$($index),+].len();
            #[inline(always)]
            fn memory(&self, index: usize) -> Memory<'_> {
                match index {
                    $($index => self.$index.memory(),)+
                    _ => unreachable!("there are {} arguments", Self::COUNT),
                }
            }
            fn views(&self, tile: Tile, token: Token) -> <Self::Detached as Arguments>::Views<'_> {
                ($(self.$index.view(tile, token),)+)
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
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
arguments!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

impl Stream {
    /// Enqueues a kernel over the points of `tile`, which are local indices of each array: of grids with different halo
    /// widths one index is not one place. The body is called once for each part of the
    /// tile, from the stream's threads; parts do not overlap. A tile without points is nothing to do, here as on a device.
    /// Blocks only on an inline stream, which runs it, and where a threaded one has to
    /// [make room](StreamKind::Threaded).
    ///
    /// A panic of the body is an error of the stream, which names the kernel.
    ///
    /// # Errors
    /// At once, with nothing enqueued: if an array belongs to another stream, the same points of one are given both to
    /// read and to write, or `tile` leaves what a writer may write; [`Error::NoDeviceKernel`] on a stream of
    /// another device than the host, which takes [`Stream::launch_either`].
    #[inline]
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
        self.enqueue_closure(kernel, tile, &arguments, body)
    }

    /// Enqueues a kernel that the host runs, with arguments that stay where they are: each time that they are handed on by
    /// value costs a short launch a good part of its time.
    #[inline]
    pub(crate) fn enqueue_closure<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: &A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.check_arguments(kernel, tile, arguments)?;
        if tile.points() == 0 {
            return Ok(());
        }
        let rank = self.status().context.rank;
        if self.is_plain_inline() {
            // Here and now: nothing of it has to be kept.
            let ran = self.while_running(|| run(self.threads(), (kernel, rank), tile, arguments, &body));
            if let Err(error) = ran {
                self.status().fail(error);
            }
            return Ok(());
        }

        self.enqueue_detached(kernel, tile, arguments.detach(Token), body)
    }

    /// Enqueues such a kernel for later.
    fn enqueue_detached<A: Arguments<Detached = A> + 'static>(
        &self,
        kernel: &str,
        tile: Tile,
        mut arguments: A,
        body: impl Fn(Tile, A::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        let mut written = Vec::new();
        if !self.host_reaches() {
            let mut copies = Vec::new();
            for memory in arguments.memories() {
                let region = &memory.array.region;
                let shown = memory.touched(tile);
                // Of all of it: kernels count from where the array's memory begins.
                let copy = self.bring(&memory, shown, 0..region.bytes())?;
                let copy = copy.unwrap_or_else(|| region.into());
                if memory.intent == Intent::Write {
                    written.push(copy_of(&memory, tile, &copy, &region.into())?);
                }
                copies.push(copy.region);
            }
            arguments.show(&mut copies.into_iter(), Token);
        }
        self.note_kernel(tile, arguments.memories());
        let rank = self.status().context.rank;
        let threads = self.threads().cloned();
        let name = kernel.to_string();
        let failed = name.clone();
        let run = move || run(threads.as_ref(), (&failed, rank), tile, &arguments, &body);
        self.put(Operation::Kernel(Arc::new(HostKernel { name, run })));
        written.iter().for_each(|back| self.put_move(back));
        Ok(())
    }

    /// Notes what the kernel that is put on it next does with arrays.
    pub(crate) fn note_kernel<'a>(&self, tile: Tile, memories: impl Iterator<Item = Memory<'a>>) {
        for memory in memories {
            let points = memory.touched(tile);
            if points.points() > 0 {
                self.note_use(&memory.array.uses, memory.bytes(points), memory.intent);
            }
        }
    }

    pub(crate) fn check_arguments<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: &A,
    ) -> Result<()> {
        let current = self.capture_number();
        for (index, memory) in arguments.memories().enumerate() {
            let Memory { array: Whole { region, rows, stream, uses }, bounds, capture, intent, .. } = memory;
            if *stream != self.id() {
                return Err(Error::WrongStream {
                    what: "an argument of a kernel",
                    owner: *stream,
                    used: self.id(),
                });
            }
            if capture != current {
                return Err(self.made_elsewhere(kernel));
            }
            if uses.has_holds() && memory.touched(tile).points() > 0 {
                // What has begun since the argument was made.
                let bytes = memory.bytes(memory.touched(tile));
                uses.check(&bytes, intent, "a kernel on an array", |held| !held.is_ahead)?;
            }
            if intent == Intent::Read {
                continue;
            }
            if !tile.is_within(*bounds) {
                return Err(Error::TileOutOfBounds {
                    kernel: kernel.to_string(),
                    argument: index,
                    array: Box::new(rows.extents().whole()),
                    tile: Box::new(tile),
                    bounds: Box::new(*bounds),
                });
            }
            // Other points of the same array are as another array.
            let mut others = arguments.memories().enumerate().filter(|(other, _)| *other != index);
            if others.any(|(_, other)| other.array.region.is_same(region) && other.bounds.meets(*bounds)) {
                return Err(Error::AliasedArguments { kernel: kernel.to_string() });
            }
        }
        Ok(())
    }
}

/// Computes a tile, with the stream's threads if it has any.
fn run<A: Arguments>(
    threads: Option<&Arc<rayon::ThreadPool>>,
    (kernel, rank): (&str, usize),
    tile: Tile,
    arguments: &A,
    body: &(impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Sync),
) -> Result<()> {
    let run_all = || match threads {
        None => body(tile, arguments.views(tile, Token)),
        Some(pool) => pool.scope(|scope| {
            for part in tile.split(pool.current_num_threads()) {
                scope.spawn(move |_| body(part, arguments.views(part, Token)));
            }
        }),
    };
    let panicked = |message| Error::KernelPanicked { kernel: kernel.to_string(), rank, message };
    caught(run_all).map_err(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents};
    use crate::world::World;

    /// A launch of few points takes as long as handing on what it is given.
    #[test]
    fn arguments_are_small() {
        assert!(size_of::<Reader<'_, f64>>() <= 72, "{}", size_of::<Reader<'_, f64>>());
        assert!(size_of::<Memory<'_>>() <= 32, "{}", size_of::<Memory<'_>>());
    }

    /// Borrows keep callers from it, but where an array is lent twice ([`Buffer::reader_and_writer`]).
    #[test]
    fn points_that_are_written_are_of_no_other_argument() {
        let world = World::alone().expect("a world of one rank");
        let stream = Device::host().stream(&world).expect("a stream");
        let line = Extents { points: [1, 1, 8], components: 1 };
        let whole = line.whole();
        let mut field = Buffer::<f64>::zeros(&world, &stream, line).expect("there is memory");
        let aliased = |result| assert_eq!(result, Err(Error::AliasedArguments { kernel: "it".into() }));
        let read = field.reader(whole).expect("is within").detach(Token);
        let written = field.writer(whole).expect("is within").detach(Token);
        aliased(stream.launch("it", whole, (read, written), |_, _| panic!("it was refused")));
        let [first, second] = [(), ()].map(|()| field.writer(whole).expect("is within").detach(Token));
        aliased(stream.launch("it", whole, (first, second), |_, _| panic!("it was refused")));
    }
}
