//! Fields with two generations, of which a step reads one and writes the other.

use crate::field::{Generation, Sealed};
use crate::{Array, Entity, Field, FieldInfo, GridError, LocalGrid};
use streamhalo_comm::Element;
use streamhalo_comm::device::{HostState, Reader, Stream, Writer};

/// Two generations of one field. A step exchanges the current one, computes the next one from it,
/// and swaps.
///
/// An exchange that knows both generations can let peers write straight into the ghosts of the
/// one that is not in use. Then the ghosts of a generation may only be read after it has been
/// exchanged, and kernels write owned entries only, and ghosts beyond boundaries of the grid; the accessors see to that.
/// They do not see which ghosts an exchange has filled: corners without the pattern that has them, and layers beyond its
/// width, hold what they held in that generation.
///
/// The owned entries of the next generation hold what they held two swaps ago until a kernel writes them, and it may read
/// them by the view that it writes them by: so two generations are enough where u(t + 1) is made of u(t) and of the same
/// entry of u(t - 1). Both are filled first, with a swap in between: before an exchange of them is made, or back in the
/// generation that it was made for.
///
/// ```
/// use streamhalo_comm::World;
/// use streamhalo_comm::device::{Device, Rows, RowsMut, Tile};
/// use streamhalo_grid::{Alternating, Entity, GlobalGrid, GridError};
///
/// /// A wave on a string that is held at both ends: u(t + 1, x) = u(t, x - 1) + u(t, x + 1) - u(t - 1, x).
/// fn wave(tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)) {
///     let around = now.span(0, 0, tile.start[2] - 1..tile.end[2] + 1);
///     for (u, near) in next.row(0, 0).iter_mut().zip(around.windows(3)) {
///         *u = near[0] + near[2] - *u;
///     }
/// }
///
/// # fn main() -> Result<(), GridError> {
/// let world = World::alone()?;
/// let stream = Device::host().stream(&world)?;
/// let grid = GlobalGrid::new([6], [false])?.partition(&world)?.local(1)?;
/// let mut u = Alternating::<i64, 1>::zeros(&grid, Entity::Cell, &stream)?;
/// u.now_mut().fill(|[x], _| i64::from(x == 1))?; // u(-1)
/// u.swap();
/// u.now_mut().fill(|[x], _| i64::from(x == 2))?; // u(0)
/// for _ in 0..7 {
///     stream.launch("wave", grid.owned(Entity::Cell).tile(), u.now_and_next()?, wave)?;
///     u.swap();
/// }
/// // It has come back from the end, upside down.
/// assert_eq!(u.now().owned()?.iter().copied().collect::<Vec<_>>(), [0, 0, 0, -1, 0, 0]);
/// assert_eq!(u.previous().owned()?.iter().copied().collect::<Vec<_>>(), [0, 0, 0, 0, -1, 0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Alternating<T, const D: usize> {
    generations: [Array<T, D>; 2],
    current: HostState,
}

impl<T: Element, const D: usize> Alternating<T, D> {
    /// A field of zeros with one component.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn zeros(grid: &LocalGrid<D>, entity: Entity, stream: &Stream) -> Result<Self, GridError> {
        Self::with_components(grid, entity, 1, stream)
    }

    /// A field of zeros with several components at each entry.
    ///
    /// # Errors
    /// As [`Array::with_components`].
    pub fn with_components(
        grid: &LocalGrid<D>,
        entity: Entity,
        components: usize,
        stream: &Stream,
    ) -> Result<Self, GridError> {
        let array = || Array::with_components(grid, entity, components, stream);
        let current = HostState::new("which generation of a field is current", 0);
        Ok(Self { generations: [array()?, array()?], current })
    }

    fn index(&self) -> usize {
        // Of either stream, if safe code has made it a field of arrays of two: captures of both depend on it.
        let [current, _] = self.generations.each_ref().map(|array| self.current.get(array.stream()));
        current as usize
    }

    /// The current generation.
    pub fn now(&self) -> &Array<T, D> {
        &self.generations[self.index()]
    }

    /// The current generation, to write.
    pub fn now_mut(&mut self) -> &mut Array<T, D> {
        let index = self.index();
        &mut self.generations[index]
    }

    /// The other generation: the one that was current before the last swap, as long as nothing has been written over it.
    pub fn previous(&self) -> &Array<T, D> {
        &self.generations[1 - self.index()]
    }

    /// For a kernel: read access to the current generation and write access to the next one, whose owned entries hold the
    /// generation before this one until they are written. Does not block.
    ///
    /// # Errors
    /// As [`Array::reader`].
    #[inline(always)]
    pub fn now_and_next(&mut self) -> Result<(Reader<'_, T>, Writer<'_, T>), GridError> {
        let index = self.index();
        let [first, second] = &mut self.generations;
        let (now, next) = if index == 0 { (first, second) } else { (second, first) };
        Ok((now.reader()?, next.writer()?))
    }

    /// Sets every entry of both generations, ghosts included, from its local index and component: for boundary conditions that
    /// do not change, which each of the two needs. As [`Array::fill_with_ghosts`] otherwise, of this generation first.
    ///
    /// # Errors
    /// As [`Array::fill_with_ghosts`].
    pub fn fill_with_ghosts(
        &mut self,
        mut value: impl FnMut([usize; D], usize) -> T,
    ) -> Result<(), GridError> {
        let index = self.index();
        self.generations[index].fill_with_ghosts(&mut value)?;
        self.generations[1 - index].fill_with_ghosts(value)
    }

    /// Makes the next generation the current one. Costs nothing; ordered with what is enqueued. Where peers may fill
    /// ghosts ahead (see [`Alternating`]), those of neither generation may be read until the next exchange.
    pub fn swap(&mut self) {
        let next = 1 - self.index() as u32;
        self.current.set(self.generations[0].stream(), next);
        // No exchange comes to a generation but by a swap of the field that has both: so this is where peers come to the other.
        if self.generations.iter().any(Array::is_filled_ahead) {
            self.generations.iter().for_each(Array::spoil_ghosts);
        }
    }
}

impl<T: Element, const D: usize> Field<D> for Alternating<T, D> {
    fn info(&self) -> FieldInfo<'_, D> {
        self.generations[0].info()
    }
}

impl<T: Element, const D: usize> Sealed<D> for Alternating<T, D> {
    fn generations(&self) -> ([Generation<'_>; 2], Option<usize>) {
        ([self.generations[0].generation(), self.generations[1].generation()], Some(self.index()))
    }

    fn is_whole(&self) -> bool {
        let [first, second] = self.generations.each_ref().map(|array| array.info());
        first.entity == second.entity
            && first.rows == second.rows
            && first.subdomain == second.subdomain
            && first.stream.id() == second.stream.id()
            && first.world.has_ranks_of(second.world)
    }
}
