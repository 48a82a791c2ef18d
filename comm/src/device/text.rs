//! Kernels as source text, for devices that compile them at run time.

use super::accelerator::Accelerator;
use super::host::kernel::{Arguments, Memory};
use super::operation::Operation;
use super::stream::Stream;
use super::stream_kind::StreamKind;
use super::tile::Tile;
use super::{Intent, Pitched};
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::{Region, bytes_of};
use std::cell::RefCell;
use std::sync::Arc;

/// A kernel as source text.
///
/// One text serves every vendor: it is written in C with these macros, which each vendor's folder defines in a
/// prelude of its own. Each thread of a kernel computes one point of the launch's tile, or a block of them:
///
/// | macro | meaning |
/// |---|---|
/// | `KERNEL(name)(TILE, ...)` | begins the kernel; `TILE` is its first parameter: a structure `tile` of `start` and `end` |
/// | `READS(type, array)`, `WRITES(type, array)` | a parameter for each array, in the order of the launch, with where its points are: `array_rows.first` elements behind the beginning of its memory, `array_rows.strides[axis]` from one to the next along an axis, the slowest first. The memory has `array_rows.elements` |
/// | `TABLE(type, array)` | as `READS`, of an array that is read anywhere, whatever the tile: all of it must be readable |
/// | `PART(type, array)` | as `TABLE`, where a part of the array is enough: numbers tell the kernel which, and nobody checks that it keeps to that, `reach` least of all |
/// | `SCALAR(type, name)` | a parameter for each number of the launch, in its order, behind the arrays |
/// | `POINT(i, j, k)` | declares the indices of the thread's point, slowest axis first, and ends threads that have none |
/// | `BLOCK(i, j, k, rows, columns)` | in its place: declares the indices of the first of that many points, in numbers. A row has one block more than fills it, so that blocks can be moved back to boundaries of words. Points outside of the tile are the kernel's to leave out |
/// | `AT(array, i, j, k)` | the first component of an array's point, to be read or assigned |
/// | `FUNCTION`, `ARRAY` | before the type of a function of the text's own; before the type that a pointer to an array's elements points to |
/// | `u8`, `i32`, `i64`, `f32`, `f64` | the element types; `f64` only where the device has it, and `HAS_F64` is defined |
/// | `u32`, `u64`, `u128` | words, the last a structure of two, `x` and `y`, that is loaded and stored at once. The memory of an array begins on a multiple of 64 bytes, and what it ends in can be read to a multiple of 16 |
///
/// A whole kernel, which gives each point of a line twice its own value and that of its neighbour before it
/// ([`Stream::launch_either`] launches it, beside the closure that computes the same):
///
/// ```c
/// KERNEL(blend)(TILE, READS(i64, now), WRITES(i64, next)) {
///     POINT(i, j, k);
///     AT(next, i, j, k) = 2 * AT(now, i, j, k) + AT(now, i, j, k - 1);
/// }
/// ```
///
/// A line such as `typedef f32 real;` lets one text have several types. Products and sums are not contracted, so that a kernel
/// gives the bits that the host gives; one that is to be rounded once with a sum is written `fma(a, b, c)`, of either type, as
/// `mul_add` is on the host. Names are no words of OpenCL C or CUDA C++ (`half` is one), nor functions of theirs (`mix`).
#[derive(Debug)]
pub struct KernelText {
    /// The name after `KERNEL`; a source may have several.
    pub name: &'static str,
    /// The source.
    pub source: &'static str,
    /// How far from its own point it reads, along each axis. Where it reads the array that it writes, as the mirror at a
    /// boundary does, it reads in the direction of what it was given to read, and only along the axis on which that lies
    /// beside: two layers that are mirrored along y have `[0, 3, 0]`. Other arrays it then reads as far as they have points.
    /// It loads no words with points of both.
    pub reach: [usize; 3],
}

/// A number that a kernel is given at its launch: any [`Element`] becomes one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalar {
    element: ElementType,
    /// Its bytes, of which the element has as many as it has.
    bytes: [u8; 8],
}

impl Scalar {
    /// Its type.
    pub fn element_type(&self) -> ElementType {
        self.element
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.element.bytes()]
    }
}

impl<T: Element> From<T> for Scalar {
    fn from(value: T) -> Self {
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(bytes_of(&[value]));
        Self { element: T::TYPE, bytes }
    }
}

impl KernelText {
    /// What the text has behind the kernel's name, up to the next kernel.
    fn own(&self) -> &str {
        let rest = self.source.split_once(&format!("KERNEL({})", self.name)).map_or("", |(_, rest)| rest);
        rest.split_once("KERNEL(").map_or(rest, |(own, _)| own)
    }

    /// The parameters behind `TILE`, as the text has them: the macro and the type.
    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let rest = self.own();
        let list = rest.split_once('{').map_or(rest, |(list, _)| list);
        let list = list.trim_start().strip_prefix('(').unwrap_or(list);
        // `TILE, READS(u8, now), ...`: the last word before each parenthesis, and the first in it.
        list.split(')').filter_map(|part| {
            let (before, inside) = part.split_once('(')?;
            let element = inside.split(',').next()?.trim();
            Some((before.rsplit(',').next()?.trim(), self.meaning(element)))
        })
    }

    /// What a name stands for that the text has for one of the element types, as in `typedef f32 real;`.
    fn meaning<'a>(&'a self, name: &'a str) -> &'a str {
        let named = self.source.lines().find_map(|line| {
            let (element, own) = line.strip_prefix("typedef ")?.strip_suffix(';')?.split_once(' ')?;
            (own == name).then_some(element)
        });
        named.unwrap_or(name)
    }

    /// The threads that compute a tile, fastest axis first.
    ///
    /// # Errors
    /// What is wrong with its `BLOCK`.
    fn threads(&self, tile: Tile) -> std::result::Result<[usize; 3], String> {
        let [planes, rows, columns] = tile.extents();
        let own = self.own();
        let is_word = |at: usize| !own[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some((at, _)) = own.match_indices("BLOCK(").find(|(at, _)| is_word(*at)) else {
            return Ok([columns, rows, planes]);
        };
        let rest = &own[at + "BLOCK(".len()..];
        let inside = rest.split_once(')').map_or(rest, |(inside, _)| inside);
        let numbers = inside.split(',').skip(3).map(|number| number.trim().parse::<usize>());
        match numbers.collect::<Vec<_>>()[..] {
            [Ok(high @ 1..), Ok(wide @ 1..)] => Ok([columns.div_ceil(wide) + 1, rows.div_ceil(high), planes]),
            _ => Err(format!(
                "`BLOCK({inside})` is not of the names of three indices and of two numbers, the rows and columns of \
                 a block"
            )),
        }
    }

    /// Makes that check the first time that it is launched by this thread, until it succeeds.
    fn check_once(&'static self, check: impl FnOnce() -> Result<()>) -> Result<()> {
        thread_local!(static KNOWN: RefCell<Vec<*const KernelText>> = const { RefCell::new(Vec::new()) });
        let own = std::ptr::from_ref(self);
        if KNOWN.with_borrow(|known| known.contains(&own)) {
            return Ok(());
        }
        check()?;
        KNOWN.with_borrow_mut(|known| known.push(own));
        Ok(())
    }

    /// Whether it has parameters for those arrays and numbers.
    ///
    /// # Errors
    /// [`Error::KernelArguments`].
    fn check<'a>(&self, arrays: impl Iterator<Item = Memory<'a>>, scalars: &[Scalar]) -> Result<()> {
        let given = arrays.map(|memory| {
            let name = if memory.intent == Intent::Read { "READS" } else { "WRITES" };
            format!("{name}({})", memory.element)
        });
        let given: Vec<String> =
            given.chain(scalars.iter().map(|scalar| format!("SCALAR({})", scalar.element))).collect();
        // Those are read, as other arrays are.
        let alike = |name| if [TABLE, PART].contains(&name) { "READS" } else { name };
        let expected: Vec<String> =
            self.parameters().map(|(name, element)| format!("{}({element})", alike(name))).collect();
        if given == expected {
            return Ok(());
        }
        let (expected, given) = (expected.join(", "), given.join(", "));
        Err(Error::KernelArguments { kernel: self.name, expected, given })
    }

    /// Whether it is given what it reads around the points of a tile.
    ///
    /// # Errors
    /// [`Error::ReadOutOfBounds`].
    fn check_reach<A: Arguments>(&self, tile: Tile, arguments: &A) -> Result<()> {
        let is_of_a_boundary = arguments
            .memories()
            .any(|memory| memory.intent == Intent::Read && is_written(arguments, &memory));
        for (argument, (memory, (name, _))) in arguments.memories().zip(self.parameters()).enumerate() {
            let readable = match (memory.intent, name) {
                (Intent::Write, _) | (Intent::Read, PART) => continue,
                (Intent::Read, TABLE) => memory.array.rows.extents().whole(),
                (Intent::Read, _) if is_written(arguments, &memory) => {
                    reached_elsewhere(tile, self.reach, *memory.bounds)
                }
                (Intent::Read, _) if is_of_a_boundary => {
                    within(reached(tile, self.reach), memory.array.rows.extents().whole())
                }
                (Intent::Read, _) => reached(tile, self.reach),
            };
            let is_readable = (0..3).all(|axis| {
                memory.bounds.start[axis] <= readable.start[axis]
                    && readable.start[axis] <= readable.end[axis]
                    && readable.end[axis] <= memory.bounds.end[axis]
            });
            if !is_readable {
                return Err(Error::ReadOutOfBounds {
                    kernel: self.name,
                    argument,
                    array: Box::new(memory.array.rows.extents().whole()),
                    tile: Box::new(readable),
                    bounds: Box::new(*memory.bounds),
                });
            }
        }
        Ok(())
    }
}

/// What is read anywhere, and what is read within what may be.
const TABLE: &str = "TABLE";
const PART: &str = "PART";

/// Whether a kernel writes other points of the array that it reads.
fn is_written<A: Arguments>(arguments: &A, read: &Memory<'_>) -> bool {
    arguments
        .memories()
        .any(|other| other.intent == Intent::Write && other.array.region.is_same(&read.array.region))
}

/// What a kernel reads around the points of a tile.
fn reached(tile: Tile, reach: [usize; 3]) -> Tile {
    Tile {
        // A point before the first would be a huge number: behind the end.
        start: std::array::from_fn(|axis| tile.start[axis].wrapping_sub(reach[axis])),
        end: std::array::from_fn(|axis| tile.end[axis].saturating_add(reach[axis])),
    }
}

/// The same of one that reads the array that it writes, within `bounds`: along the axes on which its tile lies beside those,
/// it reads towards them.
fn reached_elsewhere(tile: Tile, reach: [usize; 3], bounds: Tile) -> Tile {
    let mut reached = reached(tile, reach);
    for axis in 0..3 {
        if tile.end[axis] <= bounds.start[axis] {
            reached.start[axis] = bounds.start[axis];
        } else if bounds.end[axis] <= tile.start[axis] {
            reached.end[axis] = bounds.end[axis];
        }
    }
    reached
}

/// As much of it as an array has, beside whose boundary a kernel looks up what it needs at its own points.
fn within(reached: Tile, array: Tile) -> Tile {
    Tile {
        // As in `reached`: a point before the first would be a huge number.
        start: std::array::from_fn(|axis| match reached.start[axis] {
            start if start < array.end[axis] => start,
            _ => 0,
        }),
        end: std::array::from_fn(|axis| reached.end[axis].min(array.end[axis])),
    }
}

/// A kernel text with what it is launched over and with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) text: &'static KernelText,
    pub(crate) tile: Tile,
    /// Fastest axis first.
    pub(crate) threads: [usize; 3],
    pub(crate) arrays: Vec<(Region, Pitched)>,
    pub(crate) scalars: Vec<Scalar>,
}

impl Stream {
    /// Compiles a text for the device that the stream lives on, as the first launch does otherwise; on the host there is
    /// nothing to do. Blocks.
    ///
    /// An application does this with all its texts before its ranks exchange anything. To load a kernel, a driver may let
    /// the device come to rest, and kernels that wait for other ranks do not end before those can go on.
    ///
    /// # Errors
    /// [`Error::KernelDidNotCompile`]; [`Error::DeviceUnavailable`] if the device does not compute with what the text is
    /// of, or has no compiler.
    pub fn compile(&self, text: &'static KernelText) -> Result<()> {
        let Some(accelerator) = self.accelerator() else { return Ok(()) };
        if text.parameters().any(|(_, element)| element == ElementType::F64.name()) {
            accelerator.check_element(ElementType::F64)?;
        }
        accelerator.compile(text)
    }

    /// Enqueues a kernel over the points of `tile` that is there in two forms: as a closure, which host streams
    /// run as [`Stream::launch`] does, and as a text, which the streams of other devices run. Does not block,
    /// except that a text is compiled the first time unless [`Stream::compile`] has; both must compute the same bits. On the
    /// host a thread's first launch of a text is checked against its parameters and its reach, as all of them are on a device.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents, KernelText, Rows, RowsMut, Tile};
    /// use streamhalo_comm::{Error, World};
    ///
    /// static BLEND: KernelText = KernelText {
    ///     name: "blend",
    ///     source: "KERNEL(blend)(TILE, READS(i64, now), WRITES(i64, next)) {
    ///         POINT(i, j, k);
    ///         AT(next, i, j, k) = 2 * AT(now, i, j, k) + AT(now, i, j, k - 1);
    ///     }",
    ///     reach: [0, 0, 1],
    /// };
    ///
    /// fn blend(tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    ///     for (i, j) in tile.rows() {
    ///         let pairs = now.span(i, j, tile.start[2] - 1..tile.end[2]).windows(2);
    ///         next.row(i, j).iter_mut().zip(pairs).for_each(|(next, pair)| *next = 2 * pair[1] + pair[0]);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?; // or that of `Device::of_rank(&world, "cuda", "")?`
    /// stream.compile(&BLEND)?; // all texts, before ranks exchange anything
    /// let line = Extents { points: [1, 1, 6], components: 1 };
    /// let mut now = Buffer::<i64>::zeros(&world, &stream, line)?;
    /// let mut next = Buffer::<i64>::zeros(&world, &stream, line)?;
    /// stream.launch_on_host("count", line.whole(), (now.writer(line.whole())?,), |tile, (mut now,)| {
    ///     now.row(0, 0).iter_mut().zip(tile.start[2]..).for_each(|(cell, x)| *cell = x as i64);
    /// })?;
    /// let inner = Tile { start: [0, 0, 1], end: [1, 1, 5] }; // the text reaches for one point on both sides
    /// stream.launch_either(&BLEND, inner, (now.reader(line.whole())?, next.writer(inner)?), blend)?;
    /// assert_eq!(next.copy_out(line.whole())?, [0, 2, 5, 8, 11, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At once, with nothing enqueued: as [`Stream::launch`]; [`Error::KernelDidNotCompile`],
    /// [`Error::KernelArguments`], or that the text would read points that may not be read now.
    #[inline]
    pub fn launch_either<A: Arguments>(
        &self,
        text: &'static KernelText,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.launch_either_with(text, tile, arguments, &[], body)
    }

    /// As [`Stream::launch_either`], of a text with numbers. The closure holds its own.
    ///
    /// # Errors
    /// As [`Stream::launch_either`].
    #[inline]
    pub fn launch_either_with<A: Arguments>(
        &self,
        text: &'static KernelText,
        tile: Tile,
        arguments: A,
        scalars: &[Scalar],
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        match self.accelerator() {
            None => {
                if tile.points() > 0 {
                    text.check_once(|| {
                        self.check_arguments(text.name, tile, &arguments)?;
                        text.check(arguments.memories(), scalars)?;
                        text.check_reach(tile, &arguments)
                    })?;
                }
                self.enqueue_closure(text.name, tile, &arguments, body)
            }
            Some(accelerator) => self.launch_text(accelerator, text, tile, &arguments, scalars),
        }
    }

    fn launch_text<A: Arguments>(
        &self,
        accelerator: &Arc<dyn Accelerator>,
        text: &'static KernelText,
        tile: Tile,
        arguments: &A,
        scalars: &[Scalar],
    ) -> Result<()> {
        self.check_arguments(text.name, tile, arguments)?;
        text.check(arguments.memories(), scalars)?;
        scalars.iter().try_for_each(|scalar| accelerator.check_element(scalar.element))?;
        if tile.points() == 0 {
            return Ok(());
        }
        text.check_reach(tile, arguments)?;
        let threads = text.threads(tile).map_err(|log| {
            let device = accelerator.name().into();
            Error::KernelDidNotCompile { kernel: text.name.into(), device, log }
        })?;
        accelerator.compile(text)?;
        let arrays =
            arguments.memories().map(|Memory { array, .. }| (array.region.clone(), array.rows)).collect();
        self.note_kernel(tile, arguments.memories());
        self.put(Operation::Launch(Arc::new(Launch {
            text,
            tile,
            threads,
            arrays,
            scalars: scalars.to_vec(),
        })));
        Ok(())
    }

    /// Enqueues a kernel that the host runs wherever the arrays live, one thread after the other: for checks
    /// and for what is done rarely. On a host stream it is [`Stream::launch`]; the streams of other devices come
    /// to rest first, and where the host does not address their memory they copy what a reader may read, and the
    /// tile of a writer, there and back.
    ///
    /// # Errors
    /// As [`Stream::launch`]; [`Error::OutOfMemory`].
    #[inline]
    pub fn launch_on_host<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.enqueue_closure(kernel, tile, &arguments, body)
    }

    /// Whether its operations run on the host.
    pub fn is_on_host(&self) -> bool {
        self.kind() != StreamKind::Device
    }
}
