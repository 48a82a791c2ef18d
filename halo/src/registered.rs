//! The fields of an exchange, as it knows them.

use streamhalo_comm::ElementType;
use streamhalo_comm::device::Pitched;
use streamhalo_comm::fabric::Region;
use streamhalo_grid::{Entity, Field, Generation, Ghosts, SentLayers};

/// A field as it was registered.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) entity: Entity,
    pub(crate) element: ElementType,
    pub(crate) rows: Pitched,
    generations: [(Region, Ghosts); 2],
    pub(crate) generation: Option<usize>,
    /// Of the gather, once its geometry is known.
    pub(crate) sent: SentLayers,
}

impl Registered {
    pub(crate) fn new<const D: usize>(field: &dyn Field<D>) -> Self {
        let (info, (generations, generation)) = (field.info(), field.generations());
        Self {
            entity: info.entity,
            element: info.element,
            rows: info.rows,
            generations: generations.map(|Generation { region, ghosts }| (region.clone(), ghosts.clone())),
            generation,
            sent: SentLayers::default(),
        }
    }

    pub(crate) fn element_bytes(&self) -> usize {
        self.element.bytes() * self.rows.extents().components
    }

    /// The generation that exchanges of a phase are about. The first exchange has phase 1; the
    /// generation then advances by `swaps` from one exchange to the next.
    pub(crate) fn generation_in(&self, phase: usize, swaps: usize) -> usize {
        let first = self.generation.unwrap_or(0);
        if phase == 1 { first } else { (first + swaps % 2) % 2 }
    }

    pub(crate) fn region(&self, phase: usize, swaps: usize) -> &Region {
        &self.generations[self.generation_in(phase, swaps)].0
    }

    pub(crate) fn ghosts(&self, phase: usize, swaps: usize) -> &Ghosts {
        &self.generations[self.generation_in(phase, swaps)].1
    }

    /// Of both generations.
    pub(crate) fn all_ghosts(&self) -> impl Iterator<Item = &Ghosts> {
        self.generations.iter().map(|(_, ghosts)| ghosts)
    }

    /// Whether these are its arrays.
    pub(crate) fn is_of(&self, arrays: [Generation<'_>; 2]) -> bool {
        self.generations.iter().zip(arrays).all(|((own, _), other)| own.is_same(other.region))
    }
}
