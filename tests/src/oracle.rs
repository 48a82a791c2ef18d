//! Which value each entry of an array must have, found without the library's boxes.

use crate::random::mix;
use std::array::from_fn;
use std::cmp::Ordering;
use streamhalo::grid::Subdomain;
use streamhalo::{Element, Entity, Op, Pattern};

/// Elements as tests make them: floats are whole numbers, so that sums are exact.
pub trait Sample: Element + PartialOrd {
    /// What ghosts hold that nothing may touch; no value that [`value`] gives.
    const SENTINEL: Self;
    /// An element from random bits: what to fill arrays with.
    fn from_bits(bits: u64) -> Self;
    /// Its bits.
    fn bits(self) -> u64;
    /// The element that has those bits.
    fn of_bits(bits: u64) -> Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// What an operation must make of two elements.
    fn combined(self, op: Op, other: Self) -> Self {
        let first = match op {
            Op::Replace => return other,
            Op::Sum => return self.plus(other),
            Op::Min => Ordering::Less,
            Op::Max => Ordering::Greater,
            other => panic!("the suites do not know operation {other:?}"),
        };
        match self.partial_cmp(&other) {
            Some(order) => {
                if order == first || order == Ordering::Equal {
                    self
                } else {
                    other
                }
            }
            // A NaN has no order, not even with itself.
            None => {
                if self.partial_cmp(&self).is_none() {
                    other
                } else {
                    self
                }
            }
        }
    }
}

macro_rules! sample {
    ($($rust:ty, $sentinel:expr, |$bits:ident| $from:expr, |$a:ident, $b:ident| $sum:expr;)*) => {$(
        impl Sample for $rust {
            const SENTINEL: Self = $sentinel;
            fn from_bits($bits: u64) -> Self {
                $from
            }
            fn bits(self) -> u64 {
                let mut bits = [0; 8];
                bits[..size_of::<Self>()].copy_from_slice(&self.to_le_bytes());
                u64::from_le_bytes(bits)
            }
            fn of_bits(bits: u64) -> Self {
                let bytes = bits.to_le_bytes();
                Self::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $sum
            }
        }
    )*};
}

sample! {
    u8, u8::MAX, |bits| (bits % 251) as u8, |a, b| a.wrapping_add(b);
    i32, i32::MIN, |bits| (bits % (1 << 30)) as i32, |a, b| a.wrapping_add(b);
    i64, i64::MIN, |bits| (bits >> 2) as i64, |a, b| a.wrapping_add(b);
    f32, -1.0, |bits| (bits % (1 << 23)) as f32, |a, b| a + b;
    f64, -1.0, |bits| (bits % (1 << 50)) as f64, |a, b| a + b;
}

/// The value of an entry of field `field` in an epoch. Epochs, fields and components differ, so
/// that stale or misplaced data shows.
pub fn value<T: Sample>(field: usize, global: &[usize], component: usize, epoch: u32) -> T {
    value_at(key(global), field, component, epoch)
}

/// What stands for a global index in [`value_at`].
pub(crate) fn key(global: &[usize]) -> u64 {
    global.iter().fold(0, |bits, index| mix(bits ^ (*index as u64 + 1)))
}

/// As [`value`], for the key of an index.
pub(crate) fn value_at<T: Sample>(key: u64, field: usize, component: usize, epoch: u32) -> T {
    T::from_bits(mix(key ^ (u64::from(epoch) << 32) ^ ((field as u64) << 16) ^ component as u64))
}

/// The offsets of a pattern, in the order of their components.
pub fn offsets_of<const D: usize>(pattern: &Pattern) -> Vec<[i32; D]> {
    let mut all = vec![[0; D]];
    for axis in 0..D {
        let along = |offset: [i32; D], c| from_fn(|a| if a == axis { c } else { offset[a] });
        all = all.into_iter().flat_map(|offset| [-1, 0, 1].map(|c| along(offset, c))).collect();
    }
    let nonzero = |offset: &[i32; D]| offset.iter().filter(|c| **c != 0).count();
    let mut offsets: Vec<[i32; D]> = match pattern {
        Pattern::Faces => all.into_iter().filter(|offset| nonzero(offset) == 1).collect(),
        Pattern::All => all.into_iter().filter(|offset| nonzero(offset) > 0).collect(),
        Pattern::Offsets(given) => given.iter().map(|offset| from_fn(|axis| offset[axis])).collect(),
    };
    offsets.sort_unstable();
    offsets
}

/// Where the value of an entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<const D: usize> {
    /// The rank owns it.
    Owned {
        /// Its global index.
        global: [usize; D],
    },
    /// A ghost that a gather fills.
    Ghost {
        /// The global index of the entry that it is a copy of.
        global: [usize; D],
        /// On which side it lies.
        offset: [i32; D],
    },
    /// A ghost that no exchange may touch.
    Untouched,
}

/// What is the same for all entries along one axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Of the global indices, what the rank owns.
    owned: [i64; 2],
    /// Entries of the whole grid.
    all: i64,
    /// Layers in front of what the rank owns, filled or not.
    halo: i64,
    /// Whether there are neighbours below and above.
    has_neighbor: [bool; 2],
    /// How many layers are filled below and above.
    filled: [i64; 2],
}

/// What an exchange of `width` layers at `offsets` means for the array of one rank.
#[derive(Debug, Clone)]
pub struct Oracle<const D: usize> {
    subdomain: Subdomain<D>,
    entity: Entity,
    axes: [Axis; D],
    offsets: Vec<[i32; D]>,
    width: [usize; D],
}

impl<const D: usize> Oracle<D> {
    /// For the entries of `entity` on the rank of `subdomain`.
    pub fn new(subdomain: &Subdomain<D>, entity: Entity, pattern: &Pattern, width: [usize; D]) -> Self {
        Self::at(subdomain, entity, offsets_of(pattern), width)
    }

    fn at(subdomain: &Subdomain<D>, entity: Entity, offsets: Vec<[i32; D]>, width: [usize; D]) -> Self {
        let partition = subdomain.partition();
        let (grid, layout) = (partition.grid(), partition.layout());
        let (cells, parts) =
            (partition.owned_cells(subdomain.rank()), partition.coordinates(subdomain.rank()));
        let axes = from_fn(|axis| {
            let (periodic, node_like) = (grid.periodic()[axis], entity.is_node_like(axis));
            let last = parts[axis] + 1 == layout[axis];
            let boundary = usize::from(node_like && last && !periodic);
            // The node that the neighbour owns on the far side of this rank's last cell.
            let shared = usize::from(node_like && width[axis] > 0);
            Axis {
                owned: [cells.start[axis] as i64, (cells.end[axis] + boundary) as i64],
                all: grid.entity_extents(entity)[axis] as i64,
                halo: subdomain.halo_width()[axis] as i64,
                has_neighbor: [periodic || parts[axis] > 0, periodic || !last],
                filled: [width[axis] as i64, (width[axis] + shared) as i64],
            }
        });
        Self { subdomain: *subdomain, entity, axes, offsets, width }
    }

    /// The same for another rank.
    pub fn of_rank(&self, rank: usize) -> Self {
        let halo = self.subdomain.halo_width();
        let subdomain = self.subdomain.partition().subdomain(rank, halo).expect("the rank exists");
        Self::at(&subdomain, self.entity, self.offsets.clone(), self.width)
    }

    /// Entries on each axis, ghosts included.
    pub fn extents(&self) -> [usize; D] {
        self.subdomain.extents(self.entity)
    }

    /// All local indices, in row-major order.
    pub fn entries(&self) -> impl Iterator<Item = [usize; D]> + use<D> {
        streamhalo::IndexBox::new([0; D], self.extents()).indices()
    }

    /// What the entry at a local index is.
    pub fn origin(&self, local: [usize; D]) -> Origin<D> {
        let mut offset = [0; D];
        let mut global = [0; D];
        let mut filled = true;
        for (index, axis) in self.axes.iter().enumerate() {
            let [start, end] = axis.owned;
            let position = start + local[index] as i64 - axis.halo;
            if position < start {
                offset[index] = -1;
                filled &= start - position <= axis.filled[0] && axis.has_neighbor[0];
            } else if position >= end {
                offset[index] = 1;
                filled &= position - end < axis.filled[1] && axis.has_neighbor[1];
            }
            global[index] = position.rem_euclid(axis.all) as usize;
        }
        if offset == [0; D] {
            Origin::Owned { global }
        } else if filled && self.offsets.contains(&offset) {
            Origin::Ghost { global, offset }
        } else {
            Origin::Untouched
        }
    }
}
