//! What an exchange needs to know of an array, whatever its element type.

use crate::{Alternating, Array, Entity, Subdomain};
use streamhalo_comm::device::{Pitched, Stream};
use streamhalo_comm::fabric::Region;
use streamhalo_comm::{Element, ElementType, World};

/// A field as an exchange sees it.
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

/// Which ghosts kernels may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadableGhosts {
    /// All: nothing is filling any.
    All,
    /// Those along axes that the rank has to itself, beside its own entries: an exchange fills them as it
    /// begins, and messages of other ranks only others.
    Own,
    /// None.
    None,
}

/// An [`Array`] or an [`Alternating`] field.
pub trait Field<const D: usize> {
    /// What an exchange needs to know of it.
    fn info(&self) -> FieldInfo<'_, D>;
    /// Its memory, twice the same for a field of one generation, and which generation is current.
    fn generations(&self) -> ([&Region; 2], Option<usize>);
    /// Which ghosts of the current generation may be read.
    fn readable_ghosts(&self) -> ReadableGhosts;
    /// Called by an exchange, and by nobody else, who could let kernels read what peers write: which ghosts of the
    /// current generation may be read. Kernels get no others, and host copies that need ghosts need all.
    #[doc(hidden)]
    fn set_readable_ghosts(&self, readable: ReadableGhosts);
    /// Called by an exchange once, and by nobody else: peers may write the ghosts of the generation that is not in use
    /// at any time.
    #[doc(hidden)]
    fn set_written_by_peers(&self);
}

/// One field, or a tuple of up to six, to be exchanged together.
pub trait Fields<const D: usize> {
    /// Calls back with each field, in order.
    fn each(&self, visit: &mut dyn FnMut(&dyn Field<D>));
}

impl<T: Element, const D: usize> Fields<D> for Array<T, D> {
    fn each(&self, visit: &mut dyn FnMut(&dyn Field<D>)) {
        visit(self);
    }
}

impl<T: Element, const D: usize> Fields<D> for Alternating<T, D> {
    fn each(&self, visit: &mut dyn FnMut(&dyn Field<D>)) {
        visit(self);
    }
}

impl<F: Fields<D> + ?Sized, const D: usize> Fields<D> for &mut F {
    fn each(&self, visit: &mut dyn FnMut(&dyn Field<D>)) {
        (**self).each(visit);
    }
}

impl<F: Fields<D>, const D: usize> Fields<D> for Vec<F> {
    fn each(&self, visit: &mut dyn FnMut(&dyn Field<D>)) {
        self.iter().for_each(|field| field.each(visit));
    }
}

macro_rules! fields {
    ($($field:ident $index:tt),+) => {
        impl<$($field: Fields<DIMENSIONS>),+, const DIMENSIONS: usize> Fields<DIMENSIONS> for ($($field,)+) {
            fn each(&self, visit: &mut dyn FnMut(&dyn Field<DIMENSIONS>)) {
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
