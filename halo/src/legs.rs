//! The geometry of an exchange: which boxes go to which rank, and which are the rank's own.
//!
//! Axes on which a rank is its own neighbour are *folded* where the offsets are a full product over
//! that axis. A gather first copies the ghosts along them, and its messages then span these ghosts:
//! 18 boxes become 2 contiguous copies. A scatter sends first and folds afterwards, in reverse;
//! one that replaces is not folded, or else the last offset would not win.

use std::ops::Range;
use streamhalo_grid::{Entity, IndexBox, SentLayers, Subdomain};

/// The geometry of an exchange on one rank.
#[derive(Debug, Clone)]
pub(crate) struct Legs<const D: usize> {
    subdomain: Subdomain<D>,
    width: [usize; D],
    folded: [bool; D],
    /// What is left of the offsets when folded axes are left out.
    offsets: Vec<[i32; D]>,
}

impl<const D: usize> Legs<D> {
    pub(crate) fn new(subdomain: &Subdomain<D>, offsets: &[[i32; D]], width: [usize; D]) -> Self {
        let layout = subdomain.partition().layout();
        let periodic = subdomain.partition().grid().periodic();
        let mut folded = [false; D];
        for axis in 0..D {
            folded[axis] =
                layout[axis] == 1 && periodic[axis] && width[axis] > 0 && is_full_product(offsets, axis);
        }
        let offsets = offsets
            .iter()
            .copied()
            .filter(|offset| (0..D).all(|axis| !folded[axis] || offset[axis] == 0))
            .collect();
        Self { subdomain: *subdomain, width, folded, offsets }
    }

    /// The same without folds: a scatter that replaces, of which the last offset wins, cannot
    /// combine along one axis after the other.
    pub(crate) fn unfolded(subdomain: &Subdomain<D>, offsets: &[[i32; D]], width: [usize; D]) -> Self {
        Self { subdomain: *subdomain, width, folded: [false; D], offsets: offsets.to_vec() }
    }

    /// The same exchange as another rank sees it.
    pub(crate) fn of_rank(&self, subdomain: &Subdomain<D>) -> Self {
        Self { subdomain: *subdomain, ..self.clone() }
    }

    pub(crate) fn offsets(&self) -> &[[i32; D]] {
        &self.offsets
    }

    /// The rank whose owned entries fill this rank's ghosts at `offset`.
    pub(crate) fn source(&self, offset: [i32; D]) -> Option<usize> {
        self.subdomain.neighbor(offset)
    }

    /// The rank whose ghosts at `offset` are this rank's owned entries.
    pub(crate) fn target(&self, offset: [i32; D]) -> Option<usize> {
        self.subdomain.neighbor(offset.map(|component| -component))
    }

    /// The ghosts at `offset`, with the ghosts along folded axes.
    pub(crate) fn ghosts(&self, entity: Entity, offset: [i32; D]) -> IndexBox<D> {
        let ghosts = self.subdomain.recv_box(entity, offset, self.width);
        self.span_folded(entity, ghosts, 0..D)
    }

    /// The owned entries that are the ghosts at `offset` of the rank at the other side, with the
    /// ghosts along folded axes.
    pub(crate) fn owned(&self, entity: Entity, offset: [i32; D]) -> IndexBox<D> {
        let owned = self.subdomain.send_box(entity, offset.map(|component| -component), self.width);
        self.span_folded(entity, owned, 0..D)
    }

    /// Extends a box by the ghosts along the folded ones of these axes.
    fn span_folded(&self, entity: Entity, mut span: IndexBox<D>, axes: Range<usize>) -> IndexBox<D> {
        for axis in axes.filter(|axis| self.folded[*axis]) {
            span.start[axis] = self.subdomain.recv_box(entity, unit(axis, -1), self.width).start[axis];
            span.end[axis] = self.subdomain.recv_box(entity, unit(axis, 1), self.width).end[axis];
        }
        span
    }

    /// The copies that fold parts of the owned entries: stage by stage, each along one axis, as
    /// (owned, ghosts) pairs.
    ///
    /// From the slowest axis to the fastest: what one stage stores in long runs the next one loads
    /// in short ones. The other way round long loads would wait for several short stores each.
    pub(crate) fn folding(&self, entity: Entity, parts: &[IndexBox<D>]) -> Vec<Vec<[IndexBox<D>; 2]>> {
        let mut stages = Vec::new();
        for axis in (0..D).filter(|axis| self.folded[*axis]) {
            let mut stage = Vec::new();
            for side in [-1, 1] {
                let along = |mut range: IndexBox<D>, ends: IndexBox<D>| {
                    range.start[axis] = ends.start[axis];
                    range.end[axis] = ends.end[axis];
                    range
                };
                let ghosts = self.subdomain.recv_box(entity, unit(axis, side), self.width);
                let owned = self.subdomain.send_box(entity, unit(axis, -side), self.width);
                for part in parts {
                    // Slower axes have been folded already, faster ones will be.
                    let across = self.span_folded(entity, *part, 0..axis);
                    stage.push([along(across, owned), along(across, ghosts)]);
                }
            }
            stages.push(stage);
        }
        stages
    }

    /// The owned entries in two kinds of parts: those that messages need, and the rest.
    pub(crate) fn shell_and_rest(&self, entity: Entity) -> (Vec<IndexBox<D>>, IndexBox<D>) {
        let mut rest = self.subdomain.owned(entity);
        let mut shell = Vec::new();
        for axis in 0..D {
            for side in [-1, 1] {
                let mut slab = rest;
                let Some(edge) = self.edge(entity, axis, side, |_, _| true) else {
                    continue;
                };
                if side < 0 {
                    slab.end[axis] = edge.min(rest.end[axis]);
                    rest.start[axis] = slab.end[axis];
                } else {
                    slab.start[axis] = edge.max(rest.start[axis]);
                    rest.end[axis] = slab.start[axis];
                }
                if !slab.is_empty() {
                    shell.push(slab);
                }
            }
        }
        (shell, rest)
    }

    /// The layers of owned entries in which all lie that other ranks are sent.
    pub(crate) fn sent_layers(&self, entity: Entity) -> SentLayers {
        let (own, owned) = (self.subdomain.rank(), self.all_owned(entity));
        let mut layers = SentLayers::default();
        let mut rest = owned;
        for axis in 0..D {
            // What lies in the layers of earlier axes needs none here.
            let edge = |side| self.edge(entity, axis, side, |rank, sent| rank != own && sent.meets(&rest));
            let low = edge(-1).map_or(0, |edge| edge - owned.start[axis]);
            let high = edge(1).map_or(0, |edge| owned.end[axis] - edge);
            // Tiles of fewer axes lack the first ones.
            layers[3 - D + axis] = [low, high];
            rest.start[axis] += low;
            rest.end[axis] = (rest.end[axis] - high).max(rest.start[axis]);
        }
        layers
    }

    /// Where on a side of an axis what goes to such ranks, of such entries, ends, if anything does.
    fn edge(
        &self,
        entity: Entity,
        axis: usize,
        side: i32,
        counts: impl Fn(usize, &IndexBox<D>) -> bool,
    ) -> Option<usize> {
        // To the neighbours whose ghosts these are.
        let offsets = self.offsets.iter().filter(|offset| offset[axis] == -side);
        let sent = offsets.filter_map(|offset| Some((self.target(*offset)?, self.owned(entity, *offset))));
        let mut sent =
            sent.filter(|(rank, sent)| !sent.is_empty() && counts(*rank, sent)).map(|(_, sent)| sent);
        sent.next().map(|sent| if side < 0 { sent.end[axis] } else { sent.start[axis] })
    }

    /// All owned entries, in local indices.
    pub(crate) fn all_owned(&self, entity: Entity) -> IndexBox<D> {
        self.subdomain.owned(entity)
    }

    pub(crate) fn folds(&self, axis: usize) -> bool {
        self.folded[axis]
    }

    pub(crate) fn folds_any(&self) -> bool {
        self.folded.contains(&true)
    }
}

fn unit<const D: usize>(axis: usize, side: i32) -> [i32; D] {
    let mut offset = [0; D];
    offset[axis] = side;
    offset
}

/// Whether the offsets, with the rank itself, hold all three components on `axis` or none for every
/// choice of the others.
fn is_full_product<const D: usize>(offsets: &[[i32; D]], axis: usize) -> bool {
    let holds = |offset: [i32; D]| offset == [0; D] || offsets.contains(&offset);
    let with = |mut offset: [i32; D], component: i32| {
        offset[axis] = component;
        offset
    };
    std::iter::once([0; D])
        .chain(offsets.iter().copied())
        .all(|offset| (-1..=1).all(|component| holds(with(offset, component))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use streamhalo_grid::{GlobalGrid, Partition};

    #[test]
    fn folding_needs_a_full_product() {
        let faces = crate::Pattern::Faces.offsets::<2>().unwrap();
        let all = crate::Pattern::All.offsets::<2>().unwrap();
        assert!(!is_full_product(&faces, 1));
        assert!(is_full_product(&all, 1));
        assert!(is_full_product(&[[0, -1], [0, 1]], 1));
        assert!(!is_full_product(&[[0, -1], [0, 1]], 0));
    }

    #[test]
    fn folded_messages_are_two_boxes_that_span_the_other_axes() {
        let grid = GlobalGrid::new([8, 6, 5], [true; 3]).unwrap();
        let here = Partition::with_layout(&grid, [2, 1, 1], 2).unwrap().subdomain(0, [1; 3]).unwrap();
        let legs = Legs::new(&here, &crate::Pattern::All.offsets::<3>().unwrap(), [1; 3]);
        assert_eq!(legs.offsets(), [[-1, 0, 0], [1, 0, 0]]);
        assert_eq!(legs.ghosts(Entity::Cell, [-1, 0, 0]), IndexBox::new([0, 0, 0], [1, 8, 7]));
        let (shell, rest) = legs.shell_and_rest(Entity::Cell);
        assert_eq!(shell, [IndexBox::new([1, 1, 1], [2, 7, 6]), IndexBox::new([4, 1, 1], [5, 7, 6])]);
        assert_eq!(rest, IndexBox::new([2, 1, 1], [4, 7, 6]));
        assert_eq!(legs.sent_layers(Entity::Cell), [[1, 1], [0, 0], [0, 0]]);
        // The low ones fill a node more.
        assert_eq!(legs.sent_layers(Entity::Node), [[2, 1], [0, 0], [0, 0]]);
    }

    #[test]
    fn an_axis_of_the_rank_alone_has_no_layers_for_what_lies_in_those_of_another_one() {
        let grid = GlobalGrid::new([8, 6], [true; 2]).unwrap();
        let here = Partition::with_layout(&grid, [2, 1], 2).unwrap().subdomain(0, [1; 2]).unwrap();
        let legs = Legs::new(&here, &[[0, 1], [1, 0], [-1, -1]], [1; 2]);
        assert_eq!(legs.sent_layers(Entity::Cell), [[0, 0], [1, 1], [0, 0]]);
    }
}
