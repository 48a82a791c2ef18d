//! What an exchange needs to know of an array, whatever its element type.

use crate::{Alternating, Array, Entity, Ghosts, Subdomain};
use streamhalo_comm::device::{Pitched, Stream};
use streamhalo_comm::fabric::Region;
use streamhalo_comm::{Element, ElementType, World};

/// An array as an exchange sees it.
#[derive(Debug)]
pub struct FieldInfo<'a, const D: usize> {
    /// Where its values sit.
    pub entity: Entity,
    /// Type of its elements.
    pub element: ElementType,
    /// Shape, ghosts included, and where its rows lie in memory: as [`Subdomain::rows`] has it.
    pub rows: Pitched,
    /// The rank's part of the grid.
    pub subdomain: &'a Subdomain<D>,
    /// The world that the grid is split for.
    pub world: &'a World,
    /// The stream that works on it.
    pub stream: &'a Stream,
}

/// What exchanges alone may have of an array: whoever writes there has to know what its kernels, and peers, are at.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Generation<'a> {
    pub region: &'a Region,
    pub ghosts: &'a Ghosts,
}

/// An [`Array`] or an [`Alternating`] field. Others would have to be made with what is hidden here and public for the crate of
/// exchanges alone, outside of what is promised: that kernels read nothing that peers write is no more so then.
pub trait Field<const D: usize>: Sealed<D> {
    /// What an exchange needs to know of it.
    fn info(&self) -> FieldInfo<'_, D>;
}

/// For exchanges, which see to it that nobody reads what peers write.
#[doc(hidden)]
pub trait Sealed<const D: usize> {
    /// Its arrays, twice the same for a field of one generation, and which of them is current if there are two.
    fn generations(&self) -> ([Generation<'_>; 2], Option<usize>);
    /// Whether its arrays are of one shape, on one grid and stream: safe code can exchange them for others.
    fn is_whole(&self) -> bool;
}

/// What is exchanged together: a field, a tuple of up to six of them, an array, slice or vector, a `&mut` of any of these, these
/// within each other, and types of an application that call back with the same fields in the same order at each call.
///
/// ```
/// use streamhalo_comm::World;
/// use streamhalo_comm::device::Device;
/// use streamhalo_grid::{Array, Entity, Fields, GlobalGrid, GridError};
///
/// # fn main() -> Result<(), GridError> {
/// let world = World::alone()?;
/// let stream = Device::host().stream(&world)?;
/// let grid = GlobalGrid::new([4, 6], [true, false])?.partition(&world)?.local(1)?;
/// let pressure = Array::<f32, 2>::zeros(&grid, Entity::Cell, &stream)?;
/// let on_faces = |axis| Array::<f64, 2>::zeros(&grid, Entity::Face(axis), &stream);
/// let velocity = [on_faces(0)?, on_faces(1)?];
///
/// let mut entities = Vec::new();
/// (pressure, velocity).each(&mut |field| entities.push(field.info().entity));
/// assert_eq!(entities, [Entity::Cell, Entity::Face(0), Entity::Face(1)]);
/// # Ok(())
/// # }
/// ```
pub trait Fields<const D: usize> {
    /// Calls back with each field, in order: for writing, since peers write the ghosts. Also called as an exchange that was
    /// begun is dropped.
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>));
}

impl<T: Element, const D: usize> Fields<D> for Array<T, D> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        visit(self);
    }
}

impl<T: Element, const D: usize> Fields<D> for Alternating<T, D> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        visit(self);
    }
}

impl<F: Fields<D> + ?Sized, const D: usize> Fields<D> for &mut F {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        (**self).each(visit);
    }
}

impl<F: Fields<D>, const D: usize> Fields<D> for [F] {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        self.iter_mut().for_each(|field| field.each(visit));
    }
}

impl<F: Fields<D>, const N: usize, const D: usize> Fields<D> for [F; N] {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        self.as_mut_slice().each(visit);
    }
}

impl<F: Fields<D>, const D: usize> Fields<D> for Vec<F> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        self.as_mut_slice().each(visit);
    }
}

macro_rules! fields {
    ($($field:ident $index:tt),+) => {
        impl<$($field: Fields<DIMENSIONS>),+, const DIMENSIONS: usize> Fields<DIMENSIONS> for ($($field,)+) {
            fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<DIMENSIONS>)) {
                $(self.$index.each(visit);)+
            }
        }
    };
}

fields!(A 0);
fields!(A 0, B 1);
fields!(A 0, B 1, C 2);
fields!(A 0, B 1, C 2, E 3);
fields!(A 0, B 1, C 2, E 3, F 4);
fields!(A 0, B 1, C 2, E 3, F 4, G 5);
