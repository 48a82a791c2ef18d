//! Kernels as source text, for devices that compile them at run time.

use super::host::kernel::{Arguments, Tile};
use super::operation::Operation;
use super::stream::{Stream, StreamKind};
use super::{Extents, Intent};
use crate::error::{Error, Result};
use crate::fabric::Region;

/// A kernel as source text.
///
/// One text serves every vendor: it is written in C with these macros, which each vendor's folder defines in a
/// prelude of its own. A kernel computes one point of the launch's tile:
///
/// | macro | meaning |
/// |---|---|
/// | `KERNEL(name)(TILE, ...)` | begins the kernel; `TILE` is its first parameter |
/// | `READS(type, array)`, `WRITES(type, array)` | a parameter for each array, in the order of the launch |
/// | `POINT(i, j, k)` | declares the indices of the thread's point, slowest axis first, and ends threads that have none |
/// | `AT(array, i, j, k)` | the first component of an array's point, to be read or assigned |
/// | `u8`, `i32`, `i64`, `f32`, `f64` | the element types; `f64` only where the device has it |
///
/// Products and sums are not contracted, so that a kernel gives the bits that the host gives.
#[derive(Debug)]
pub struct KernelText {
    /// The name after `KERNEL`.
    pub name: &'static str,
    /// The source.
    pub source: &'static str,
    /// How far from its own point it reads, along each axis.
    pub reach: [usize; 3],
}

/// A kernel text with what it is launched over and with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) text: &'static KernelText,
    pub(crate) tile: Tile,
    pub(crate) arrays: Vec<(Region, Extents)>,
}

impl Stream {
    /// Enqueues a kernel over the points of `tile` that is there in two forms: as a closure, which host streams
    /// run as [`Stream::launch`] does, and as a text, which the streams of other devices run. Does not block,
    /// except that a text is compiled the first time; both must compute the same bits.
    ///
    /// # Errors
    /// At once, with nothing enqueued: as [`Stream::launch`]; and on a device [`Error::KernelDidNotCompile`],
    /// or that the text would read points that may not be read now.
    pub fn launch_either<A: Arguments>(
        &self,
        text: &'static KernelText,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        let Some(accelerator) = self.accelerator() else {
            return self.launch(text.name, tile, arguments, body);
        };
        self.check_arguments(text.name, tile, &arguments)?;
        if tile.points() == 0 {
            return Ok(());
        }
        let read = arguments.memories().filter(|memory| memory.intent == Intent::Read);
        for memory in read {
            let whole = Tile {
                // A point before the first would be a huge number: outside of any bounds.
                start: std::array::from_fn(|axis| tile.start[axis].wrapping_sub(text.reach[axis])),
                end: std::array::from_fn(|axis| tile.end[axis] + text.reach[axis]),
            };
            let fits = (0..3).all(|axis| {
                tile.start[axis] >= memory.bounds.start[axis] + text.reach[axis]
                    && whole.end[axis] <= memory.bounds.end[axis]
            });
            if !fits {
                let (tile, bounds) = (Box::new(whole), Box::new(memory.bounds));
                return Err(Error::ReadOutOfBounds { kernel: text.name, tile, bounds });
            }
        }
        accelerator.compile(text)?;
        let arrays = arguments.memories().map(|memory| (memory.region.clone(), memory.extents)).collect();
        self.put(Operation::Launch(Box::new(Launch { text, tile, arrays })));
        Ok(())
    }

    /// Enqueues a kernel that the host runs wherever the arrays live, one thread after the other: for checks
    /// and for what is done rarely. On a host stream it is [`Stream::launch`]; the streams of other devices come
    /// to rest first, and their memory is one that the host can address.
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn launch_on_host<A: Arguments>(
        &self,
        kernel: &str,
        tile: Tile,
        arguments: A,
        body: impl Fn(Tile, <A::Detached as Arguments>::Views<'_>) + Send + Sync + 'static,
    ) -> Result<()> {
        self.check_arguments(kernel, tile, &arguments)?;
        self.enqueue_closure(kernel, tile, arguments, body);
        Ok(())
    }

    /// Whether its operations run on the host.
    pub fn is_on_host(&self) -> bool {
        self.kind() != StreamKind::Device
    }
}
