//! Typed memory that lives where its stream lives.

use super::host::kernel::{Points, Reader, Whole, Writer};
use super::lent::Lent;
use super::pitched::Pitched;
use super::section::{Access, Hold, Intent};
use super::shown::{Shown, copy_of};
use super::stream::Stream;
use super::tile::Tile;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::fabric::{Place, Region};
use crate::room::room_for;
use crate::world::World;
use ndarray::{ArrayView4, ArrayViewMut4, ShapeBuilder};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The shape of a buffer, slowest axis first: up to three axes (fewer are filled up with leading
/// ones) of points, each with a number of components that lie next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Extents {
    /// Points along each axis, slowest first.
    pub points: [usize; 3],
    /// Elements at each point.
    pub components: usize,
}

impl Extents {
    /// Elements in all, or `None` if there are more than can be addressed.
    pub fn elements(self) -> Option<usize> {
        self.points.into_iter().try_fold(self.components, usize::checked_mul)
    }

    /// The whole box.
    pub fn whole(self) -> Tile {
        Tile { start: [0; 3], end: self.points }
    }
}

/// An array of elements in memory that peers can address, bound to the stream that works on it.
///
/// Peers write into it only where and when an exchange allows it: to ghosts, never to what a rank
/// owns. So what is lent to the host as a view is what the rank owns, and what includes ghosts is
/// copied.
#[derive(Debug)]
pub struct Buffer<T> {
    whole: Arc<Whole>,
    stream: Stream,
    access: Rc<Access>,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// A zeroed buffer: of [`Extents`], whose rows have nothing in between, or of [`Pitched`] ones.
    ///
    /// # Errors
    /// If there is not that much memory, or the stream's device does not compute with such elements.
    pub fn zeros(world: &World, stream: &Stream, rows: impl Into<Pitched>) -> Result<Self> {
        let rows = rows.into();
        let bytes = rows.elements().and_then(|elements| elements.checked_mul(size_of::<T>()));
        let bytes = bytes.ok_or_else(|| Error::OutOfMemory {
            bytes: usize::MAX,
            kind: "host",
            reason: format!("{:?} of {} are more than can be addressed", rows.extents(), T::TYPE),
        })?;
        stream.check_world(world, "a buffer")?;
        stream.check_element(T::TYPE)?;
        let region = stream.allocate(world, bytes)?;
        let access = Rc::new(Access::new(stream, &region));
        let whole = Arc::new(Whole { region, rows, stream: stream.id(), uses: access.uses().clone() });
        Ok(Self { whole, stream: stream.clone(), access, element: PhantomData })
    }

    /// Its shape.
    pub fn extents(&self) -> Extents {
        self.whole.rows.extents()
    }

    /// Its shape, and where its rows lie in its memory.
    pub fn pitched(&self) -> Pitched {
        self.whole.rows
    }

    /// Its memory.
    pub fn region(&self) -> &Region {
        &self.whole.region
    }

    /// The stream that works on it.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn access(&self) -> &Rc<Access> {
        &self.access
    }

    /// The place of a point's first component; `point` is `[axis 0, axis 1, axis 2]`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if it lies behind the end of the array.
    pub fn place(&self, point: [usize; 3]) -> Result<Place> {
        self.place_in((&self.whole.region, 0), point)
    }

    /// Of a point in memory that begins so many bytes into the array's.
    fn place_in(&self, (region, first): (&Region, usize), point: [usize; 3]) -> Result<Place> {
        let start = self.bytes(Tile { start: point, end: point }).start;
        region.place(start - first, 0, "a point of an array")
    }

    /// Read access for a kernel, to the points of `bounds`.
    ///
    /// # Errors
    /// If `bounds` leaves the array.
    #[inline(always)]
    pub fn reader(&self, bounds: Tile) -> Result<Reader<'_, T>> {
        self.check(bounds, Intent::Read)?;
        Ok(Reader::new(self.points(bounds)))
    }

    /// Write access for a kernel, to the points of `bounds`.
    ///
    /// # Errors
    /// If `bounds` leaves the array.
    #[inline(always)]
    pub fn writer(&mut self, bounds: Tile) -> Result<Writer<'_, T>> {
        self.check(bounds, Intent::Write)?;
        Ok(Writer::new(self.points(bounds)))
    }

    /// Both for one kernel, which reads the points of `read` and writes those of `written`. It cannot be launched where some
    /// are in both.
    ///
    /// # Errors
    /// If one of them leaves the array.
    pub fn reader_and_writer(&mut self, read: Tile, written: Tile) -> Result<(Reader<'_, T>, Writer<'_, T>)> {
        self.check(read, Intent::Read)?;
        self.check(written, Intent::Write)?;
        Ok((Reader::new(self.points(read)), Writer::new(self.points(written))))
    }

    /// Synchronises the stream and lends the points of `bounds` to the host, as
    /// `[axis 0, axis 1, axis 2, component]`. `bounds` must hold no ghosts that peers may write.
    ///
    /// # Errors
    /// The stream's error, or that `bounds` leaves the array; [`Error::NotOnHost`] where the stream is on another
    /// device, whose memory is not lent: see [`Buffer::with_host`].
    pub fn view(&self, bounds: Tile) -> Result<Lent<ArrayView4<'_, T>>> {
        self.check_on_host("a view of an array")?;
        let hold = self.hold(bounds, Intent::Read)?;
        self.stream.synchronize()?;
        Ok(Lent::new(self.mapped((&self.whole.region, 0), bounds)?, hold))
    }

    /// As [`Buffer::view`], to write.
    ///
    /// # Errors
    /// As [`Buffer::view`].
    pub fn view_mut(&mut self, bounds: Tile) -> Result<Lent<ArrayViewMut4<'_, T>>> {
        self.check_on_host("a view of an array")?;
        let hold = self.hold(bounds, Intent::Write)?;
        self.stream.synchronize()?;
        Ok(Lent::new(self.mapped_mut((&self.whole.region, 0), bounds)?, hold))
    }

    /// Synchronises the stream, brings the points of `bounds` to the host and hands them to `read` as
    /// [`Buffer::view`] would, wherever they live.
    ///
    /// # Errors
    /// The stream's error, or that `bounds` leaves the array; [`Error::OutOfMemory`] for a copy.
    pub fn with_host<R>(&self, bounds: Tile, read: impl FnOnce(ArrayView4<'_, T>) -> R) -> Result<R> {
        let _hold = self.hold(bounds, Intent::Read)?;
        let shown = self.bring(bounds, Intent::Read)?;
        Ok(read(self.mapped((&shown.region, shown.first), bounds)?))
    }

    /// As [`Buffer::with_host`], and brings what `write` has made of the points back to where they live.
    ///
    /// # Errors
    /// As [`Buffer::with_host`].
    pub fn with_host_mut<R>(
        &mut self,
        bounds: Tile,
        write: impl FnOnce(ArrayViewMut4<'_, T>) -> R,
    ) -> Result<R> {
        let _hold = self.hold(bounds, Intent::Write)?;
        let shown = self.bring(bounds, Intent::Write)?;
        let result = write(self.mapped_mut((&shown.region, shown.first), bounds)?);
        if !shown.region.is_same(&self.whole.region) {
            let points = self.points(bounds);
            let memory = points.memory(T::TYPE, Intent::Write);
            self.stream.put_move(&copy_of(&memory, bounds, &shown, &(&self.whole.region).into())?);
            self.access.leave(self.bytes(bounds), Intent::Write);
        }
        Ok(result)
    }

    pub(crate) fn check_on_host(&self, what: &'static str) -> Result<()> {
        if self.stream.is_on_host() {
            return Ok(());
        }
        Err(Error::NotOnHost { what, device: self.stream.device_name().into() })
    }

    /// The memory in which the host finds those points, when the stream has come to rest: the array's, or a copy from the
    /// first to the last of them.
    fn bring(&self, bounds: Tile, intent: Intent) -> Result<Shown> {
        let part = if bounds.points() == 0 { 0..0 } else { self.bytes(bounds) };
        let copy = self.stream.bring(&self.points(bounds).memory(T::TYPE, intent), bounds, part)?;
        self.stream.synchronize()?;
        Ok(copy.unwrap_or_else(|| (&self.whole.region).into()))
    }

    #[inline(always)]
    fn points(&self, bounds: Tile) -> Points<'_> {
        Points { array: Cow::Borrowed(&self.whole), bounds, capture: self.stream.capture_number() }
    }

    /// Points that the caller has checked, of the array or a copy of it, with nothing on the stream.
    fn mapped<'a>(&'a self, memory: (&'a Region, usize), bounds: Tile) -> Result<ArrayView4<'a, T>> {
        let (pointer, shape, strides) = self.lend(memory, bounds)?;
        // SAFETY: shape and strides stay within the region by `check`; any bits are an element;
        // the stream has come to rest, can only get new work on this array through `&mut self`
        // or a reader, what else begins is refused while the caller's hold lives, and peers keep to ghosts.
        Ok(unsafe { ArrayView4::from_shape_ptr(shape.strides(strides), pointer) })
    }

    fn mapped_mut<'a>(&'a self, memory: (&'a Region, usize), bounds: Tile) -> Result<ArrayViewMut4<'a, T>> {
        let (pointer, shape, strides) = self.lend(memory, bounds)?;
        // SAFETY: as in `mapped`, and the caller's `&mut self` excludes other views.
        Ok(unsafe { ArrayViewMut4::from_shape_ptr(shape.strides(strides), pointer) })
    }

    /// Synchronises the stream and copies the points of `bounds` out, in row-major order with the
    /// components next to each other. What peers may be writing meanwhile is undefined.
    ///
    /// # Errors
    /// As [`Buffer::view`].
    pub fn copy_out(&self, bounds: Tile) -> Result<Vec<T>> {
        self.check(bounds, Intent::Read)?;
        if bounds.points() == 0 {
            return self.stream.synchronize().map(|()| Vec::new());
        }
        self.access.check(&self.bytes(bounds), Intent::Read, "a copy of an array")?;
        let shown = self.bring(bounds, Intent::Read)?;
        let [_, _, row_elements] = bounds.extents();
        let row_elements = row_elements * self.extents().components;
        let elements = bounds.points() * self.extents().components;
        let mut out = room_for(elements, "a copy of a buffer")?;
        for (i, j) in bounds.rows() {
            let row = self.place_in((&shown.region, shown.first), [i, j, bounds.start[2]])?;
            let first = row.pointer().cast::<T>();
            for k in 0..row_elements {
                // SAFETY: within the region by `check`; any bits are an element.
                let element = unsafe { first.add(k) };
                // SAFETY: as above; the read is not of a reference, which a peer could invalidate.
                out.push(unsafe { element.read() });
            }
        }
        Ok(out)
    }

    fn lend(&self, memory: (&Region, usize), bounds: Tile) -> Result<(*mut T, ndarray::Ix4, ndarray::Ix4)> {
        let Extents { points, components } = self.extents();
        // A box without points lies everywhere, and may be of any size.
        let lengths = bounds.extents();
        let [nz, ny, nx] = std::array::from_fn(|axis| lengths[axis].min(points[axis]));
        let [sz, sy, sx] = self.whole.rows.strides();
        let pointer = match bounds.points() {
            0 => std::ptr::NonNull::dangling().as_ptr(),
            _ => self.place_in(memory, bounds.start)?.pointer().cast(),
        };
        Ok((pointer, ndarray::Dim([nz, ny, nx, components]), ndarray::Dim([sz, sy, sx, 1])))
    }

    fn bytes(&self, bounds: Tile) -> Range<usize> {
        self.whole.rows.bytes(bounds, size_of::<T>())
    }

    /// Keeps others from the points of a view.
    fn hold(&self, bounds: Tile, intent: Intent) -> Result<Option<Hold>> {
        self.check(bounds, intent)?;
        if bounds.points() == 0 {
            return Ok(None);
        }
        self.access.lend(self.bytes(bounds), intent).map(Some)
    }

    // Every launch does this for each of its arrays. In line, the box stays in registers: one that goes through memory is
    // read before it has come there, which waits for all that kernels have stored before.
    #[inline(always)]
    fn check(&self, bounds: Tile, intent: Intent) -> Result<()> {
        if !bounds.is_within(self.extents().whole()) {
            return Err(self.out_of_bounds(bounds));
        }
        const WHAT: &str = "a view of, or a kernel on, an array";
        self.stream.refuse_within_replay(WHAT)?;
        if !self.whole.uses.has_holds() || bounds.points() == 0 {
            return Ok(());
        }
        self.access.check_for_kernel(&self.bytes(bounds), intent, WHAT)
    }

    #[cold]
    fn out_of_bounds(&self, bounds: Tile) -> Error {
        let Range { start, end } = self.bytes(bounds);
        let region_bytes = self.whole.region.bytes();
        Error::OutOfBounds { what: "a box of an array", start, end, region_bytes }
    }
}
