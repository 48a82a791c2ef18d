//! The values of a field on one rank.

use crate::field::{Generation, Sealed};
use crate::{
    Entity, Field, FieldInfo, Ghosts, GridError, IndexBox, LocalGrid, ReadableGhosts, Side, Subdomain,
};
use ndarray::{ArrayD, ArrayViewD, ArrayViewMutD, IxDyn};
use streamhalo_comm::device::{Buffer, Extents, Lent, Pitched, Reader, Stream, Tile, Writer, of_dimensions};
use streamhalo_comm::{Element, ElementType};

impl<const D: usize> Subdomain<D> {
    /// Where a field's values lie in the memory of an [`Array`] on this rank. Every rank knows it of every other: peers
    /// write into each other's ghosts. Where rows are long their owned entries begin with a line of the caches.
    ///
    /// # Panics
    ///
    /// Where `entity` names an axis that the grid does not have.
    pub fn rows(&self, entity: Entity, components: usize, element: ElementType) -> Pitched {
        let mut points = [1; 3];
        points[3 - D..].copy_from_slice(&self.extents(entity));
        let owned = self.owned(entity).start[D - 1];
        Pitched::aligned(Extents { points, components }, element.bytes(), owned)
    }
}

/// What kernels may touch of an array, by what exchanges do with its ghosts. Every launch asks for one of them.
#[derive(Debug)]
struct Tiles {
    /// The owned entries, with the ghosts beside them beyond boundaries of the grid, which no exchange fills.
    undisturbed: Tile,
    /// The same with the ghosts along axes that the rank has to itself.
    with_own: Tile,
    whole: Tile,
}

impl Tiles {
    fn of<const D: usize>(grid: &LocalGrid<D>, entity: Entity) -> Self {
        let whole = IndexBox::new([0; D], grid.extents(entity));
        let mut undisturbed = grid.owned(entity);
        for axis in 0..D {
            let beyond = |side| grid.beyond(entity, axis, side);
            let start = beyond(Side::Low).map(|ghosts| ghosts.start[axis]);
            let end = beyond(Side::High).map(|ghosts| ghosts.end[axis]);
            undisturbed.start[axis] = start.unwrap_or(undisturbed.start[axis]);
            undisturbed.end[axis] = end.unwrap_or(undisturbed.end[axis]);
        }
        let mut with_own = undisturbed;
        for (axis, ranks) in grid.subdomain().partition().layout().into_iter().enumerate() {
            if ranks == 1 {
                (with_own.start[axis], with_own.end[axis]) = (whole.start[axis], whole.end[axis]);
            }
        }
        Self { undisturbed: undisturbed.tile(), with_own: with_own.tile(), whole: whole.tile() }
    }
}

/// A field's values on one rank, ghosts included: row-major `[axis 0, .., x]`, the components of
/// an entry next to each other, and rows as [`Subdomain::rows`] has them. It lives where its stream lives; host access waits for the stream.
#[derive(Debug)]
pub struct Array<T, const D: usize> {
    grid: LocalGrid<D>,
    entity: Entity,
    buffer: Buffer<T>,
    ghosts: Ghosts,
    /// Apart, so that an array is small.
    tiles: Box<Tiles>,
}

impl<T: Element, const D: usize> Array<T, D> {
    /// An array of zeros with one component.
    ///
    /// # Errors
    /// If `entity` does not exist on the grid, or there is not enough memory.
    pub fn zeros(grid: &LocalGrid<D>, entity: Entity, stream: &Stream) -> Result<Self, GridError> {
        Self::with_components(grid, entity, 1, stream)
    }

    /// An array of zeros with several components at each entry.
    ///
    /// # Errors
    /// If `entity` does not exist on the grid, `components` is 0, or there is not enough memory.
    pub fn with_components(
        grid: &LocalGrid<D>,
        entity: Entity,
        components: usize,
        stream: &Stream,
    ) -> Result<Self, GridError> {
        entity.check(D)?;
        if components == 0 {
            return Err(GridError::NoComponents { entity });
        }
        let rows = grid.subdomain().rows(entity, components, T::TYPE);
        let buffer = Buffer::zeros(grid.world(), stream, rows)?;
        let tiles = Box::new(Tiles::of(grid, entity));
        Ok(Self { grid: grid.clone(), entity, buffer, ghosts: Ghosts::new(), tiles })
    }

    /// The grid that it is on.
    pub fn grid(&self) -> &LocalGrid<D> {
        &self.grid
    }

    /// Where its values sit.
    pub fn entity(&self) -> Entity {
        self.entity
    }

    /// Elements at each entry.
    pub fn components(&self) -> usize {
        self.buffer.extents().components
    }

    /// The owned entries, in local indices.
    pub fn owned_box(&self) -> IndexBox<D> {
        self.grid.owned(self.entity)
    }

    /// What may be read at the moment: all, or without the ghosts that an exchange may be filling.
    #[inline]
    fn readable(&self) -> Tile {
        match self.ghosts.readable(self.stream()) {
            ReadableGhosts::All => self.tiles.whole,
            ReadableGhosts::Own => self.tiles.with_own,
            ReadableGhosts::None => self.tiles.undisturbed,
        }
    }

    /// Read access for a kernel: to all entries, or to less while an exchange may be filling the ghosts.
    /// Between `begin_gather` and `finish` that is the owned entries, with the ghosts beside them along
    /// axes that the rank has to itself; in the generation of an alternating field that has not been
    /// exchanged yet it is the owned ones; either with the ghosts beside them beyond a boundary of the grid that is not
    /// periodic. Does not block.
    ///
    /// # Errors
    /// None that an array of this type can cause; kept for those of the communication layer.
    #[inline(always)]
    pub fn reader(&self) -> Result<Reader<'_, T>, GridError> {
        Ok(self.buffer.reader(self.readable())?)
    }

    /// Write access for a kernel: to all entries, or where peers may be filling ghosts to the owned ones, with the ghosts
    /// beside them beyond boundaries of the grid; for all of those see [`Array::boundary_writer`]. Between `begin_gather` and
    /// `finish` it is to a box of those that other ranks are not sent: without the layers on each side in which sent ones
    /// lie. Does not block.
    ///
    /// # Errors
    /// As [`Array::reader`].
    #[inline(always)]
    pub fn writer(&mut self) -> Result<Writer<'_, T>, GridError> {
        let bounds = match self.ghosts.in_flight(self.stream()) {
            0 if self.ghosts.are_writable(self.stream()) => self.tiles.whole,
            0 => self.tiles.undisturbed,
            exchange => self.unsent(exchange),
        };
        Ok(self.buffer.writer(bounds)?)
    }

    /// What kernels may write while an exchange is in flight.
    fn unsent(&self, exchange: u32) -> Tile {
        let Tile { mut start, mut end } = self.tiles.undisturbed;
        match self.ghosts.sent(exchange) {
            Some(sent) => {
                for (axis, [low, high]) in sent.into_iter().enumerate() {
                    start[axis] += low;
                    end[axis] = (end[axis] - high).max(start[axis]);
                }
            }
            // It may be anything.
            None => end = start,
        }
        Tile { start, end }
    }

    /// Write access for a kernel to the ghosts beyond a boundary of the grid, [`Subdomain::beyond`], with the corners: for
    /// boundary conditions that change with time. Nobody else writes those at any time. Does not block.
    ///
    /// # Errors
    /// [`GridError::NoBoundary`] where a neighbour is: on some ranks, and not on others.
    ///
    /// # Panics
    /// Where there is no such axis.
    #[track_caller]
    pub fn boundary_writer(&mut self, axis: usize, side: Side) -> Result<Writer<'_, T>, GridError> {
        let [_, beyond] = self.at_boundary(axis, side).ok_or(GridError::NoBoundary { axis, side })?;
        Ok(self.buffer.writer(beyond)?)
    }

    /// For a boundary condition that is made of the field's own interior, such as one without a flux or a mirror: for one
    /// kernel, read access to what [`Array::reader`] gives but the ghosts beyond that boundary, and write access to those, as
    /// [`Array::boundary_writer`] gives it. Where several axes have boundaries one is done after the other, and the corners
    /// come with the later ones. Does not block.
    ///
    /// Corners beside another rank are made of ghosts that an exchange fills: so this follows a gather of all
    /// neighbours or, where it was begun, its `finish`. What is computed between the two must not read what is beyond a boundary
    /// then: it is the owned entries [without a layer](crate::IndexBox::shrink) on each side, as in `examples/heat.rs` of
    /// `streamhalo`. Or launch over the part of [`Subdomain::beyond`] that has owned entries beside it before, and over all of it
    /// afterwards.
    ///
    /// ```
    /// use streamhalo_comm::World;
    /// use streamhalo_comm::device::{Device, Rows, RowsMut, Tile};
    /// use streamhalo_grid::{Array, Entity, GlobalGrid, GridError, Side};
    ///
    /// # fn main() -> Result<(), GridError> {
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let grid = GlobalGrid::new([4], [false])?.partition(&world)?.local(1)?;
    /// let mut heat = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
    /// heat.fill(|[x], _| (x + 1) as f64)?;
    /// for side in [Side::Low, Side::High] {
    ///     let Some(beyond) = grid.beyond(Entity::Cell, 0, side) else { continue }; // a neighbour is there
    ///     stream.launch(
    ///         "no flux",
    ///         beyond.tile(),
    ///         heat.inside_and_boundary(0, side)?,
    ///         move |tile: Tile, (inside, mut ghosts): (Rows<'_, f64>, RowsMut<'_, f64>)| {
    ///             let next = if side == Side::Low { tile.end[2] } else { tile.start[2] - 1 };
    ///             ghosts.row(0, 0).fill(inside.span(0, 0, next..next + 1)[0]);
    ///         },
    ///     )?;
    /// }
    /// assert_eq!(heat.copy_with_ghosts()?.as_slice(), Some(&[1.0, 1.0, 2.0, 3.0, 4.0, 4.0][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Array::boundary_writer`].
    ///
    /// # Panics
    /// Where there is no such axis.
    #[track_caller]
    pub fn inside_and_boundary(
        &mut self,
        axis: usize,
        side: Side,
    ) -> Result<(Reader<'_, T>, Writer<'_, T>), GridError> {
        let [inside, beyond] = self.at_boundary(axis, side).ok_or(GridError::NoBoundary { axis, side })?;
        self.reader_and_writer(inside, beyond)
    }

    /// What may be read at the moment but the ghosts beyond a boundary, and those; `None` where a neighbour is.
    #[track_caller]
    pub(crate) fn at_boundary(&self, axis: usize, side: Side) -> Option<[Tile; 2]> {
        assert!(axis < D, "there is no axis {axis} on a grid with {D} axes");
        let beyond = self.grid.beyond(self.entity, axis, side)?.tile();
        let mut inside = self.readable();
        match (side, 3 - D + axis) {
            (Side::Low, axis) => inside.start[axis] = inside.start[axis].max(beyond.end[axis]),
            (Side::High, axis) => inside.end[axis] = inside.end[axis].min(beyond.start[axis]),
        }
        Some([inside, beyond])
    }

    /// Both for one kernel.
    pub(crate) fn reader_and_writer(
        &mut self,
        read: Tile,
        written: Tile,
    ) -> Result<(Reader<'_, T>, Writer<'_, T>), GridError> {
        Ok(self.buffer.reader_and_writer(read, written)?)
    }

    /// Lends the owned entries to the host: shape `[axis 0, .., x]`, with the component as a last
    /// axis where there are several. Blocks until the stream has come to rest.
    ///
    /// # Errors
    /// The stream's, if it has failed; that the array lives on a device, of which nothing is lent:
    /// [`Array::with_owned`] serves both.
    pub fn owned(&self) -> Result<Lent<ArrayViewD<'_, T>>, GridError> {
        let view = self.buffer.view(self.owned_box().tile())?;
        Ok(view.of_dimensions(D))
    }

    /// As [`Array::owned`], to write.
    ///
    /// # Errors
    /// As [`Array::owned`]; [`GridError::OwnedInFlight`] while an exchange may still be sending them.
    pub fn owned_mut(&mut self) -> Result<Lent<ArrayViewMutD<'_, T>>, GridError> {
        self.check_owned("owned_mut")?;
        let bounds = self.owned_box().tile();
        let view = self.buffer.view_mut(bounds)?;
        Ok(view.of_dimensions(D))
    }

    /// Brings the owned entries to the host, wherever they live, and hands them to `read` in the shape of
    /// [`Array::owned`]. Blocks until the stream has come to rest.
    ///
    /// # Errors
    /// The stream's, if it has failed.
    pub fn with_owned<R>(&self, read: impl FnOnce(ArrayViewD<'_, T>) -> R) -> Result<R, GridError> {
        let bounds = self.owned_box().tile();
        Ok(self.buffer.with_host(bounds, |view| read(of_dimensions(view, D)))?)
    }

    /// As [`Array::with_owned`], and brings what `write` has made of them back to where they live.
    ///
    /// # Errors
    /// As [`Array::with_owned`]; [`GridError::OwnedInFlight`] while an exchange may still be sending them.
    pub fn with_owned_mut<R>(
        &mut self,
        write: impl FnOnce(ArrayViewMutD<'_, T>) -> R,
    ) -> Result<R, GridError> {
        self.check_owned("with_owned_mut")?;
        let bounds = self.owned_box().tile();
        Ok(self.buffer.with_host_mut(bounds, |view| write(of_dimensions(view, D)))?)
    }

    /// Sets every owned entry from its global index, slowest axis first, and component. Blocks until
    /// the stream has come to rest.
    ///
    /// # Errors
    /// As [`Array::with_owned_mut`].
    pub fn fill(&mut self, mut value: impl FnMut([usize; D], usize) -> T) -> Result<(), GridError> {
        self.check_owned("fill")?;
        let (local, global) = (self.owned_box(), self.grid.owned_global(self.entity));
        let components = self.components();
        self.set_each(local.tile(), components, global.indices(), &mut value)
    }

    /// Sets every entry, ghosts included, from its local index and component: for boundary
    /// conditions and tests. Of an alternating field this is for both generations, one by one or by
    /// [`Alternating::fill_with_ghosts`](crate::Alternating::fill_with_ghosts), before an exchange of it is made;
    /// afterwards kernels write the ghosts beyond boundaries. Blocks until the stream has come to rest.
    ///
    /// # Errors
    /// [`GridError::GhostsInFlight`] if peers may be writing the ghosts at the moment; the stream's,
    /// if it has failed.
    pub fn fill_with_ghosts(
        &mut self,
        mut value: impl FnMut([usize; D], usize) -> T,
    ) -> Result<(), GridError> {
        self.check_ghosts("fill_with_ghosts")?;
        let whole = IndexBox::new([0; D], self.grid.extents(self.entity));
        let components = self.components();
        self.set_each(self.tiles.whole, components, whole.indices(), &mut value)
    }

    /// Sets the entries of a box, which have those indices in order.
    fn set_each(
        &mut self,
        part: Tile,
        components: usize,
        indices: impl Iterator<Item = [usize; D]>,
        value: &mut impl FnMut([usize; D], usize) -> T,
    ) -> Result<(), GridError> {
        Ok(self.buffer.with_host_mut(part, |mut view| {
            for (slot, index) in view.exact_chunks_mut([1, 1, 1, components]).into_iter().zip(indices) {
                for (component, element) in slot.into_iter().enumerate() {
                    *element = value(index, component);
                }
            }
        })?)
    }

    /// Copies all entries, ghosts included, to the host: shape `[axis 0, .., x]`, with the
    /// component as a last axis where there are several. Blocks until the stream has come to rest.
    ///
    /// # Errors
    /// [`GridError::GhostsInFlight`] if an exchange may be filling the ghosts at the moment; the
    /// stream's, if it has failed.
    pub fn copy_with_ghosts(&self) -> Result<ArrayD<T>, GridError> {
        self.check_ghosts("copy_with_ghosts")?;
        let elements = self.buffer.copy_out(self.tiles.whole)?;
        let mut shape = self.grid.extents(self.entity).to_vec();
        if self.components() > 1 {
            shape.push(self.components());
        }
        Ok(ArrayD::from_shape_vec(IxDyn(&shape), elements).expect("the shape is that of what was copied"))
    }

    /// The owned entries as [`Array::owned`] orders them. Blocks as that does.
    pub(crate) fn copy_owned(&self) -> Result<Vec<T>, GridError> {
        Ok(self.buffer.copy_out(self.owned_box().tile())?)
    }

    /// Read access for a kernel to the owned entries, which no exchange writes: whatever is done with the ghosts.
    pub(crate) fn reader_of_owned(&self) -> Result<Reader<'_, T>, GridError> {
        Ok(self.buffer.reader(self.owned_box().tile())?)
    }

    /// The elements from the beginning of its memory to the first owned one.
    pub(crate) fn first_owned(&self) -> usize {
        self.buffer.pitched().offset(self.owned_box().tile().start)
    }

    /// What it is of, as ranks compare it.
    pub(crate) fn described(&self) -> String {
        let partition = self.grid.subdomain().partition();
        let (cells, periodic) = (partition.grid().cells(), partition.grid().periodic());
        let blocks = Some(partition.block_cells()).filter(|block_cells| *block_cells != [1; D]);
        format!(
            "{} component(s) of {} per {} of {cells:?} cells (periodic: {periodic:?}) in layout {:?}{}",
            self.components(),
            T::TYPE,
            self.entity,
            partition.layout(),
            blocks.map_or_else(String::new, |block_cells| format!(" of blocks of {block_cells:?} cells"))
        )
    }

    fn check_ghosts(&self, call: &'static str) -> Result<(), GridError> {
        match self.ghosts.readable(self.stream()) {
            ReadableGhosts::All => Ok(()),
            ReadableGhosts::Own | ReadableGhosts::None => {
                // Where the exchange has failed nothing else would help.
                self.stream().check()?;
                Err(GridError::GhostsInFlight { call })
            }
        }
    }

    /// A send whose receiver is not ready reads what it sends when that is: on the stream's thread, or in any wait of this
    /// one, but not in turn with the host's views.
    fn check_owned(&self, call: &'static str) -> Result<(), GridError> {
        if self.ghosts.in_flight(self.stream()) == 0 {
            return Ok(());
        }
        self.stream().check()?;
        Err(GridError::OwnedInFlight { call })
    }

    /// The stream that works on it.
    pub(crate) fn stream(&self) -> &Stream {
        self.buffer.stream()
    }

    pub(crate) fn is_filled_ahead(&self) -> bool {
        self.ghosts.filled_ahead(self.stream()) != 0
    }

    pub(crate) fn spoil_ghosts(&self) {
        self.ghosts.spoil(self.stream());
    }

    pub(crate) fn generation(&self) -> Generation<'_> {
        Generation { region: self.buffer.region(), ghosts: &self.ghosts }
    }
}

impl<T: Element, const D: usize> Field<D> for Array<T, D> {
    fn info(&self) -> FieldInfo<'_, D> {
        FieldInfo {
            entity: self.entity,
            element: T::TYPE,
            rows: self.buffer.pitched(),
            subdomain: self.grid.subdomain(),
            world: self.grid.world(),
            stream: self.buffer.stream(),
        }
    }
}

impl<T: Element, const D: usize> Sealed<D> for Array<T, D> {
    fn generations(&self) -> ([Generation<'_>; 2], Option<usize>) {
        ([self.generation(), self.generation()], None)
    }

    fn is_whole(&self) -> bool {
        true
    }
}
