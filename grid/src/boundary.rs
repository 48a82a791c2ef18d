//! Ghosts beyond boundaries of the grid, made by a condition.

use crate::{Array, GridError, Side};
use std::ops::Range;
use streamhalo_comm::Element;
use streamhalo_comm::device::{KernelText, Rows, RowsMut, Scalar, Stream, Tile};

/// What ghosts beyond a boundary of the grid are made of, by [`Array::enqueue_boundary`].
///
/// Cells lie beside the boundary, and what is node-like along the axis has an entry on it, which is owned. Two layers of
/// ghosts at the low end of `a b c ..` become:
///
/// | condition | beside cells | beside nodes | as where |
/// |---|---|---|---|
/// | `Value(v)` | `v v` | `v v` | something flows in |
/// | `Nearest` | `a a` | `a a` | it flows out |
/// | `Even` | `b a` | `c b` | there is no gradient: insulated, or a plane of symmetry |
/// | `Odd(v)` | `2v-b 2v-a` | `2v-c 2v-b` | the field is `v` on a wall; a node on it is to hold that |
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Boundary<T> {
    /// This value, in all layers.
    Value(T),
    /// The entry that is nearest.
    Nearest,
    /// The mirror image of what is within.
    Even,
    /// The mirror image, reflected about this value. An entry on the boundary stays what it is. Integers wrap.
    Odd(T),
}

/// An element of fields that boundary conditions are made of: all of them are, and none that an application could add.
pub trait Mirrored: Element {
    /// As far from `about`, on its other side.
    #[doc(hidden)]
    fn reflected(self, about: Self) -> Self;

    /// The kernel, for devices.
    #[doc(hidden)]
    fn text() -> &'static KernelText;
}

/// Of each type: what it is computed with on devices, and how on the host.
macro_rules! mirrored {
    ($($rust:ident, $wrapped:ident, $reflected:expr;)*) => {$(
        impl Mirrored for $rust {
            #[inline(always)]
            fn reflected(self, about: Self) -> Self {
                $reflected(self, about)
            }

            fn text() -> &'static KernelText {
                const SOURCE: &str = concat!(
                    "typedef ", stringify!($rust), " entry;\n",
                    "typedef ", stringify!($wrapped), " wrapped;\n",
                    include_str!("boundary.cl")
                );
                static TEXT: KernelText = KernelText { name: "boundary", source: SOURCE, reach: [0; 3] };
                &TEXT
            }
        }
    )*};
}

mirrored! {
    u8, u32, |entry: u8, about: u8| about.wrapping_add(about).wrapping_sub(entry);
    i32, u32, |entry: i32, about: i32| about.wrapping_add(about).wrapping_sub(entry);
    i64, u64, |entry: i64, about: i64| about.wrapping_add(about).wrapping_sub(entry);
    f32, f32, |entry: f32, about: f32| about + about - entry;
    f64, f64, |entry: f64, about: f64| about + about - entry;
}

impl<T: Mirrored, const D: usize> Array<T, D> {
    /// Enqueues the making of the ghosts beyond the boundary on one side of an axis, of all layers and with the corners. Where
    /// a neighbour is, be it this rank itself, it does nothing, so that all ranks call it alike. `conditions` holds one for
    /// all components, or one for each: a velocity that slips along a wall is odd in the component across it, and even in the
    /// others. Does not block, except that a device compiles the kernel the first time unless [`Boundary::compile`] has.
    ///
    /// Several axes are done one after the other: the corners come with the later ones. Those beside another rank are made of
    /// ghosts that an exchange fills, so this follows a gather, and of all neighbours where corners are read. While an exchange
    /// is in flight, or in a generation of an [`Alternating`](crate::Alternating) field before its exchange, what would be made
    /// of ghosts that it fills is left out, and the rest can be computed with: call it once more behind `finish`. Conditions
    /// that change with the place are kernels of the application's ([`Array::boundary_writer`],
    /// [`Array::inside_and_boundary`]).
    ///
    /// ```
    /// use streamhalo_comm::World;
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_grid::{Array, Boundary, Entity, GlobalGrid, GridError, Side};
    ///
    /// # fn main() -> Result<(), GridError> {
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?; // or that of a GPU
    /// let grid = GlobalGrid::new([4], [false])?.partition(&world)?.local(2)?;
    /// let mut heat = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
    /// heat.fill(|[x], _| (x + 1) as f64)?;
    /// heat.enqueue_boundary(0, Side::Low, &[Boundary::Even])?; // insulated
    /// heat.enqueue_boundary(0, Side::High, &[Boundary::Odd(5.0)])?; // kept at 5
    /// assert_eq!(heat.copy_with_ghosts()?.as_slice(), Some(&[2.0, 1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same on all ranks, with nothing enqueued: [`GridError::Conditions`] for another number of them,
    /// [`GridError::ThinMirror`] where a mirror image would have more layers than there are cells. As
    /// [`Stream::launch_either`](streamhalo_comm::device::Stream::launch_either).
    ///
    /// # Panics
    /// Where there is no such axis.
    #[track_caller]
    pub fn enqueue_boundary(
        &mut self,
        axis: usize,
        side: Side,
        conditions: &[Boundary<T>],
    ) -> Result<(), GridError> {
        assert!(axis < D, "there is no axis {axis} on a grid with {D} axes");
        let components = self.components();
        if ![1, components].contains(&conditions.len()) {
            return Err(GridError::Conditions { given: conditions.len(), components });
        }
        let is_mirror = |condition: &Boundary<T>| matches!(condition, Boundary::Even | Boundary::Odd(_));
        if conditions.iter().any(is_mirror) {
            self.check_mirror(axis)?;
        }
        let mut first = 0;
        for alike in conditions.chunk_by(Boundary::is_alike) {
            let end = if conditions.len() == 1 { components } else { first + alike.len() };
            self.enqueue_condition(axis, side, alike[0], first..end)?;
            first = end;
        }
        Ok(())
    }

    /// Where an axis is split what is missing comes from a neighbour.
    fn check_mirror(&self, axis: usize) -> Result<(), GridError> {
        let partition = self.grid().subdomain().partition();
        let (layers, cells) = (self.grid().halo_width()[axis], partition.grid().cells()[axis]);
        if partition.has_neighbors(axis) || layers <= cells {
            return Ok(());
        }
        Err(GridError::ThinMirror { axis, layers, cells })
    }

    /// Enqueues it for some components.
    fn enqueue_condition(
        &mut self,
        axis: usize,
        side: Side,
        condition: Boundary<T>,
        part: Range<usize>,
    ) -> Result<(), GridError> {
        let Some([inside, mut beyond]) = self.at_boundary(axis, side) else { return Ok(()) };
        let components = self.components();
        let is_node_like = self.entity().is_node_like(axis);
        let source = Source::new(self.owned_box().tile(), 3 - D + axis, side, is_node_like, condition);
        if !matches!(condition, Boundary::Value(_)) {
            source.keep_to(inside, &mut beyond);
        }
        if beyond.points() == 0 {
            return Ok(());
        }
        // As the text has them.
        let number = match condition {
            Boundary::Value(_) => 0,
            Boundary::Nearest | Boundary::Even => 1,
            Boundary::Odd(_) => 2,
        };
        let scalars = [
            Scalar::from(number),
            condition.value().into(),
            (source.axis as i32).into(),
            (source.sum as i64).into(),
            (source.factor as i64).into(),
            (part.start as i64).into(),
            (part.end as i64).into(),
        ];
        let body = move |tile: Tile, (inside, mut ghosts): (Rows<'_, T>, RowsMut<'_, T>)| {
            for (i, j) in tile.rows() {
                let row = ghosts.row(i, j);
                let [z, y, _] = source.of([i, j, 0]);
                let (first, end) = (tile.start[2], tile.end[2]);
                match (condition, source.axis) {
                    (Boundary::Value(value), _) => {
                        row.chunks_exact_mut(components).for_each(|ghost| ghost[part.clone()].fill(value));
                    }
                    // Of a row, what is mirrored lies in the other direction.
                    (_, 2) => (first..end).zip(row.chunks_exact_mut(components)).for_each(|(k, ghost)| {
                        let [_, _, x] = source.of([i, j, k]);
                        condition.make(ghost, inside.span(i, j, x..x + 1), components, &part);
                    }),
                    _ => condition.make(row, inside.span(z, y, first..end), components, &part),
                }
            }
        };
        let stream = self.stream().clone();
        let arguments = self.reader_and_writer(inside, beyond)?;
        Ok(stream.launch_either_with(T::text(), beyond, arguments, &scalars, body)?)
    }
}

impl<T: Mirrored> Boundary<T> {
    /// Compiles the kernel of [`Array::enqueue_boundary`] for the device of a stream, as the first call does otherwise. An
    /// application does so before its ranks exchange anything, as with texts of its own
    /// ([`Stream::compile`]). Blocks.
    ///
    /// # Errors
    /// As [`Stream::compile`].
    pub fn compile(stream: &Stream) -> Result<(), GridError> {
        Ok(stream.compile(T::text())?)
    }

    fn value(&self) -> T {
        match self {
            Self::Value(value) | Self::Odd(value) => *value,
            Self::Nearest | Self::Even => T::default(),
        }
    }

    /// To the bit: zeros of either sign are equal, and differ.
    fn is_alike(&self, other: &Self) -> bool {
        let is_of_kind = std::mem::discriminant(self) == std::mem::discriminant(other);
        is_of_kind && Scalar::from(self.value()) == Scalar::from(other.value())
    }

    /// Makes some of the components of ghosts of those of as many entries.
    fn make(self, ghosts: &mut [T], entries: &[T], components: usize, part: &Range<usize>) {
        let each = |(ghost, entry): (&mut T, &T)| {
            *ghost = if let Self::Odd(about) = self { entry.reflected(about) } else { *entry };
        };
        if part.len() == components {
            return ghosts.iter_mut().zip(entries).for_each(each);
        }
        for (ghost, entry) in ghosts.chunks_exact_mut(components).zip(entries.chunks_exact(components)) {
            ghost[part.clone()].iter_mut().zip(&entry[part.clone()]).for_each(each);
        }
    }
}

/// Which entry a ghost is made of: that whose index along an axis of the array's three is `sum - factor * index`.
#[derive(Debug, Clone, Copy)]
struct Source {
    axis: usize,
    sum: isize,
    factor: isize,
}

impl Source {
    fn new<T>(owned: Tile, axis: usize, side: Side, is_node_like: bool, condition: Boundary<T>) -> Self {
        let (nearest, beside) = match side {
            Side::Low => (owned.start[axis] as isize, -1),
            Side::High => (owned.end[axis] as isize - 1, 1),
        };
        match condition {
            Boundary::Value(_) | Boundary::Nearest => Self { axis, sum: nearest, factor: 0 },
            // The mirror is at the entry itself, or between it and the first ghost.
            Boundary::Even | Boundary::Odd(_) => {
                Self { axis, sum: 2 * nearest + if is_node_like { 0 } else { beside }, factor: 1 }
            }
        }
    }

    #[inline(always)]
    fn of(&self, mut ghost: [usize; 3]) -> [usize; 3] {
        ghost[self.axis] = (self.sum - self.factor * ghost[self.axis] as isize) as usize;
        ghost
    }

    /// Leaves out the ghosts whose entries are not inside.
    fn keep_to(&self, inside: Tile, ghosts: &mut Tile) {
        for axis in 0..3 {
            let (mut start, mut end) = (inside.start[axis], inside.end[axis]);
            if axis == self.axis {
                if self.factor == 0 {
                    continue; // what is nearest is owned
                }
                let at = |mirrored: usize| (self.sum - mirrored as isize).max(0) as usize;
                (start, end) = (at(end - 1), at(start) + 1);
            }
            ghosts.start[axis] = ghosts.start[axis].max(start);
            ghosts.end[axis] = ghosts.end[axis].min(end).max(ghosts.start[axis]);
        }
    }
}
