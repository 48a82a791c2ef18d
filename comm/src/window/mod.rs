//! Windows: memory of every rank that the other ranks access.
//!
//! Notified access, by the names of its paper (Belli and Hoefler 2015, section III-B):
//!
//! | there | here |
//! |---|---|
//! | `MPI_Win_allocate`, `MPI_Win_create`, `MPI_Win_free` | [`Window::allocate`], [`Window::over`], dropping it |
//! | `MPI_Put_notify`, `MPI_Get_notify` | [`Window::put_notify`], [`Window::get_notify`] |
//! | the notified accumulate, fetch-and-op, compare-and-swap | [`Window::accumulate_notify`], [`Window::fetch_and_op_notify`], [`Window::compare_and_swap_notify`] |
//! | `MPI_Notify_init` with `MPI_ANY_SOURCE`, `MPI_ANY_TAG` | [`Window::notify_init`] with [`Source`](crate::Source), [`Tag`](crate::Tag) |
//! | `MPI_Start`, `MPI_Test`, `MPI_Wait`, `MPI_Request_free` | [`NotifyRequest::start`], [`NotifyRequest::test`], [`NotifyRequest::wait`], [`NotifyRequest::free`] |
//! | `MPI_Status` of a notification | [`Notification`] |
//! | `MPI_Win_flush` | [`Window::flush`] |
//! | probe semantics | [`Window::probe`] |
//! | accesses without a notification: `MPI_Put`, `MPI_Get`, `MPI_Accumulate`, `MPI_Fetch_and_op`, `MPI_Compare_and_swap` | [`Window::put_values`], [`Window::get_values`], [`Window::accumulate_values`], [`Window::fetch_and_op`], [`Window::compare_and_swap`] |
//! | `MPI_Win_flush_all`, `MPI_Win_fence` | [`Window::flush_all`], and [`World::barrier`] behind it |
//! | the notified get-accumulate, of several elements | none: [`Window::fetch_and_op_notify`] takes one |
//! | requests for notified accesses, as `MPI_Rput` and `MPI_Rget` have them | none: what is put may be written again at once |
//! | an `MPI_Get_notify` that returns before the data are here | none: [`Window::get_notify`] blocks until they are |
//!
//! Notifications of one rank come in the order of its accesses. Those of several ranks come in any order, even where one has
//! waited for the other before its access: a request that takes any source may match the later one first.
//!
//! Active target epochs, by the host and on streams (Namashivayam et al. 2023, section 4.4):
//!
//! | there | here |
//! |---|---|
//! | `MPI_Win_create` | [`Window::active`] |
//! | a group | [`Group`] |
//! | `MPI_Win_post`, `MPIX_Win_post_stream` | [`Window::post`], [`Window::post_stream`] |
//! | `MPI_Win_start`, with `MPIX_MODE_STREAM` | [`Window::start`] with a [`Mode`] |
//! | `MPI_Put`, `MPI_Get`, `MPI_Accumulate` | [`Window::put`], [`Window::get`], [`Window::accumulate`] |
//! | `MPI_Win_complete`, `MPIX_Win_complete_stream` | [`Window::complete`], [`Window::complete_stream`] |
//! | `MPI_Win_wait`, `MPIX_Win_wait_stream`, `MPI_Win_test` | [`Window::wait`], [`Window::wait_stream`], [`Window::test`] |
//! | throttling (section 5.2) | [`ActiveOptions`], [`Throttling`](crate::fabric::Throttling) |
//! | merged kernels for signals (section 5.4) | one signal to all ranks of a group that have come to the same epoch |
//!
//! # Memory of devices
//!
//! A rank's part, and the sections of its accesses, may be on a device, whatever those of other ranks are. Accesses and
//! fabrics then deal with a copy in the host's memory, on every fabric alike:
//!
//! | | when the device's memory is copied to the host | when the copy goes to the device |
//! |---|---|---|
//! | the part, in active target epochs | [`Window::post`], [`Window::post_stream`] | [`Window::wait`], [`Window::test`] that says so, [`Window::wait_stream`] |
//! | the section of a put or an accumulate | [`Window::complete`], [`Window::complete_stream`] | |
//! | the section of a get | | [`Window::complete`], [`Window::complete_stream`] |
//! | the part, in notified access | as the window is made | as it and its requests are dropped |
//!
//! Copies go on the stream of the section's buffer, in order with its kernels. Calls on a stream enqueue them, so that the
//! host waits for nothing, and the stream's thread does the rest: it moves what is put, and combines what is
//! accumulated, on the host, and posts and waits for signals. Calls of the host wait for the stream. A part is copied
//! whole, however little of it is accessed: make the window of what is exchanged, not of the field.

mod access;
mod account;
mod active;
mod epoch;
mod far;
mod group;
mod host;
mod notified;
mod notify;
mod signals;
mod silent;
mod streamed;

pub use active::{ActiveOptions, Mode};
pub use group::Group;
pub use notified::{Notification, NotifyRequest};

use crate::device::{Buffer, Extents, Intent, Mirror, Section, Stream};
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
use crate::fabric::{Memory, bytes_of, bytes_of_mut};
use crate::world::World;
use notified::Notified;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// What a rank has left that has let go of its end, for the text of an error.
const WINDOW: &str = "a window that this rank still uses";

/// Memory of every rank of a world, of one element type, that the other ranks access.
///
/// Offsets count elements from the beginning of the target's part; the parts of the ranks may differ in size,
/// and some may be empty. A window belongs to the thread of its rank; clones are the same window.
///
/// Peers may access a rank's part at any time. So it is never lent out as a slice: the rank that has it copies
/// with [`Window::read`] and [`Window::write`]. What is on a device is staged: see [the module](self#memory-of-devices).
///
/// A rank drops its end by itself, and its memory is its own again then: dropping blocks while a peer is in the middle
/// of a long put or get of its, and later accesses fail with [`Error::PeerFailed`] and do nothing. What is to arrive has
/// to be waited for before.
#[derive(Clone)]
pub struct Window {
    inner: Rc<Inner>,
}

/// What the clones of a window share.
pub(crate) struct Inner {
    pub(crate) world: World,
    pub(crate) element: ElementType,
    /// This rank's part.
    pub(crate) own: Mirror,
    pub(crate) memory: Memory,
    /// By rank.
    pub(crate) targets: Vec<Target>,
    /// Its active target epochs, if peers access it in these only.
    active: Option<RefCell<active::Active>>,
    /// Its notified accesses, if peers may access this rank's part at any time.
    notified: Option<Rc<Notified>>,
}

/// A rank's part of a window.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) elements: usize,
    /// Where it is, if it is mapped here and not empty.
    pub(crate) memory: Option<Memory>,
}

/// A rank's part of the window, as it tells the others of it.
#[derive(serde::Serialize, serde::Deserialize)]
struct RankPart {
    element: ElementType,
    elements: usize,
    key: u64,
    region_bytes: usize,
    offset: usize,
}

impl Window {
    /// A window over fresh memory, zeroed: `elements` on this rank, maybe another number on others. `stream` is
    /// the stream that it belongs to. Collective over `world`; blocks. `MPI_Win_allocate`.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<f64>(&world, &stream, 10 * world.rank())?;
    ///     let mut values = vec![1.0; window.elements(world.rank())];
    ///     window.read(0, &mut values)?;
    ///     Ok::<_, Error>((window.elements(1), values.iter().sum::<f64>()))
    /// })?;
    /// assert_eq!(ranks, [Ok((10, 0.0)), Ok((10, 0.0))]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], on all ranks, if one has no memory for it or has another element type.
    pub fn allocate<T: Element>(world: &World, stream: &Stream, elements: usize) -> Result<Self> {
        let extents = Extents { points: [1, 1, elements], components: 1 };
        let own = Buffer::<T>::zeros(world, stream, extents).and_then(|buffer| buffer.section(0..elements));
        Self::create(world, "Window::allocate", own, true)
    }

    /// A window over memory that is there: this rank's part is `section`, which may be empty. Until the window and
    /// its requests are dropped everything else that uses that memory is refused with [`Error::InUse`], since peers may
    /// access it at any time. Of a section on a device they access a copy on the host, which goes to the device, by its
    /// stream, when the last of them is dropped. Collective over `world`; blocks. `MPI_Win_create`.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::window::Window;
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let line = Extents { points: [1, 1, 8], components: 1 };
    ///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     // Peers reach the upper half, and this rank uses the lower one as ever.
    ///     let window = Window::over(&world, &cells.section(4..8)?)?;
    ///     assert!(matches!(cells.copy_out(line.whole()), Err(Error::InUse { .. })));
    ///     drop(window);
    ///     Ok::<_, Error>(cells.copy_out(line.whole())?.len())
    /// })?;
    /// assert_eq!(ranks, [Ok(8), Ok(8)]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], on all ranks, if the section of one is in use, overlaps another window, or
    /// has another element type.
    pub fn over(world: &World, section: &Section) -> Result<Self> {
        Self::create(world, "Window::over", Ok(section.clone()), true)
    }

    /// A window over each rank's own part, or the same error on all. With `held` peers may access it at any
    /// time; otherwise whoever lets them holds it meanwhile. Collective; blocks.
    pub(crate) fn create(
        world: &World,
        call: &'static str,
        own: Result<Section>,
        held: bool,
    ) -> Result<Self> {
        let fabric = world.fabric();
        let own = own.and_then(|own| {
            own.stream().check_world(world, "a window")?;
            let hold = if held { Some(own.hold(Intent::Write, "a window")?) } else { None };
            let own = Mirror::new(world, &own)?;
            if held {
                own.bring_down()?;
            }
            Ok((own, hold))
        });
        let told = own.as_ref().map(|(own, _)| RankPart {
            element: own.section().element_type(),
            elements: own.section().elements(),
            key: own.place().region().key(),
            region_bytes: own.place().region().bytes(),
            offset: own.place().offset(),
        });
        let told = world.agree(call, told)?;
        let (own, hold) = own?;
        let element = told[0].element;
        if let Some(rank) = told.iter().position(|told| told.element != element) {
            let reason = format!(
                "its part has elements of type {}, that of rank 0 has {element}; a window has one type",
                told[rank].element
            );
            return Err(Error::CollectiveFailed { call, rank, reason });
        }
        let targets = told.iter().enumerate().map(|(rank, told)| {
            let bytes = told.elements * element.bytes();
            let memory = if rank == world.rank() {
                Some(Memory::new(own.place(), bytes)?)
            } else if bytes == 0 || !fabric.is_mapped(rank) {
                None
            } else {
                let region = fabric.map(rank, told.key, told.region_bytes)?;
                Some(Memory::new(&region.place(told.offset, bytes, "a part of a window")?, bytes)?)
            };
            Ok(Target { elements: told.elements, memory })
        });
        let targets = targets.collect::<Result<Vec<_>>>();
        world.agree(call, targets.as_ref().map(|_| ()))?;
        let memory = Memory::new(own.place(), own.section().bytes())?;
        let lend = |hold| Notified::connect(world, element, &memory, (&own, hold));
        let notified = hold.map(lend).transpose()?;
        let (world, targets) = (world.clone(), targets?);
        let inner = Inner { world, element, own, memory, targets, notified, active: None };
        Ok(Self { inner: Rc::new(inner) })
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.inner.world.rank()
    }

    /// How many ranks have a part of it.
    pub fn size(&self) -> usize {
        self.inner.targets.len()
    }

    /// The type of its elements.
    pub fn element_type(&self) -> ElementType {
        self.inner.element
    }

    /// The elements in that rank's part.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn elements(&self, rank: usize) -> usize {
        self.inner.targets[rank].elements
    }

    /// Copies elements out of this rank's part, from `offset` on. What peers write there meanwhile is undefined. Takes
    /// what has come over a wire before, so that a loop that reads until something is there ends; where memory is
    /// mapped, accumulates and the like are taken by [`Window::probe`], requests, and whatever blocks. Does not block,
    /// unless something is still on the part's stream that writes it, or the part is on a device and the window for
    /// active target epochs: then it waits for the stream.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`] and [`Error::OutOfBounds`], which counts bytes; [`Error::InUse`] while the host looks at
    /// the part's array in a view; the stream's; what the wire says.
    pub fn read<T: Element>(&self, offset: usize, values: &mut [T]) -> Result<()> {
        let start = self.byte_offset::<T>(offset)?;
        let what = "reading one's part of a window";
        self.inner.notified.as_ref().map_or(Ok(()), |notified| notified.take_far())?;
        self.inner.own.section().check_views(span(start, values), Intent::Read, what)?;
        self.inner.refresh()?;
        self.inner.memory.read(start, bytes_of_mut(values), what)
    }

    /// Copies elements into this rank's part, as [`Window::read`].
    ///
    /// # Errors
    /// As [`Window::read`].
    pub fn write<T: Element>(&self, offset: usize, values: &[T]) -> Result<()> {
        let start = self.byte_offset::<T>(offset)?;
        let what = "writing one's part of a window";
        self.inner.own.section().check_views(span(start, values), Intent::Write, what)?;
        self.inner.refresh()?;
        self.inner.memory.write(start, bytes_of(values), what)?;
        if self.inner.is_apart() { self.inner.own.bring_up() } else { Ok(()) }
    }

    /// The bytes before an element, if the window has elements of that type.
    #[inline]
    pub(crate) fn byte_offset<T: Element>(&self, offset: usize) -> Result<usize> {
        if self.inner.element != T::TYPE {
            return Err(self.wrong_type(T::TYPE));
        }
        // What cannot be counted is not in the window either.
        Ok(offset.saturating_mul(size_of::<T>()))
    }

    #[cold]
    fn wrong_type(&self, asked: ElementType) -> Error {
        Error::ElementMismatch { what: "a window", asked, found: self.inner.element }
    }
}

/// The bytes of values from one on.
fn span<T>(start: usize, values: &[T]) -> Range<usize> {
    start..start.saturating_add(size_of_val(values))
}

impl Inner {
    /// Whether the part of this rank is on a device, and its copy on the host not what peers access now.
    fn is_apart(&self) -> bool {
        self.own.is_copy() && self.active.as_ref().is_some_and(|active| !active.borrow().is_exposed())
    }

    /// Has the host find in its part what is there.
    fn refresh(&self) -> Result<()> {
        if self.is_apart() {
            return self.own.bring_down();
        }
        // The copy that peers access may still be on its way down.
        let by_stream = |active: &RefCell<active::Active>| active.borrow().is_exposed_by_stream();
        if self.active.as_ref().is_some_and(by_stream) { self.own.settle() } else { Ok(()) }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { element, targets, .. } = self.inner();
        let elements: Vec<usize> = targets.iter().map(|target| target.elements).collect();
        write!(f, "Window(rank {}, {elements:?} of {element})", self.rank())
    }
}
