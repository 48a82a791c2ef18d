//! Fields of floating-point values in three dimensions: what ranks report about them, and how they are
//! compared with a reference.

use std::ops::{Add, Mul};

use fearless_simd::{Simd, SimdFloat, SimdFloatElement, f32x4, f32x8, f64x2, f64x4};
use streamhalo::comm::Error;
use streamhalo::{Array, Entity, LocalGrid};

use super::{Stored, Trial, Vectors, mix};
use crate::error::AppError;

/// `f32` or `f64`.
pub(crate) trait Real:
    Stored + Vectors + SimdFloatElement + Default + Add<Output = Self> + Mul<Output = Self>
{
    /// As many of them as an instruction set computes at once.
    type Widest<S: Simd>: SimdFloat<S, Element = Self>;

    /// As many as 32 bytes hold: half of the widest vectors that any processor has.
    type Half<S: Simd>: SimdFloat<S, Element = Self>;

    /// As many as 16 bytes hold: the narrowest vectors of any processor.
    type Block<S: Simd>: SimdFloat<S, Element = Self>;

    /// `self * factor + added`, rounded once.
    fn mul_add(self, factor: Self, added: Self) -> Self;

    /// Its bits.
    fn bits(self) -> u64;
}

macro_rules! real {
    ($real:ident, $widest:ident, $half:ident, $block:ident) => {
        impl Real for $real {
            type Widest<S: Simd> = S::$widest;
            type Half<S: Simd> = $half<S>;
            type Block<S: Simd> = $block<S>;

            fn mul_add(self, factor: Self, added: Self) -> Self {
                $real::mul_add(self, factor, added)
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    };
}

real!(f32, f32s, f32x8, f32x4);
real!(f64, f64s, f64x4, f64x2);

/// As many zeros as the product of these, if the host has memory for them.
///
/// # Errors
///
/// [`Error::OutOfMemory`].
pub(crate) fn zeros(factors: [usize; 2]) -> Result<Vec<f64>, Error> {
    let [rows, columns] = factors;
    let count = rows.saturating_mul(columns);
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::OutOfMemory {
        bytes: count.saturating_mul(size_of::<f64>()),
        kind: "host",
        reason: "use fewer cells, or more ranks".into(),
    })?;
    values.resize(count, 0.0);
    Ok(values)
}

/// The part of a checksum that a row is: a hash of place and bits for each value, added up modulo 2⁶⁴,
/// so that it does not matter which rank has which. `start` is the global index of its first value.
pub(crate) fn checksum_of_row<T: Real>(start: [usize; 3], row: &[T]) -> u64 {
    let [z, y, x] = start.map(|index| index as u64);
    let key = mix(mix(z) ^ y);
    let hash = |(index, value): (u64, &T)| mix(mix(key ^ index) ^ value.bits());
    (x..).zip(row).map(hash).fold(0, u64::wrapping_add)
}

/// The checksum of a whole grid, row-major.
pub(crate) fn checksum_of_whole<T: Real>([_, height, width]: [usize; 3], values: &[T]) -> u64 {
    let rows = values.chunks_exact(width).enumerate();
    rows.map(|(row, values)| checksum_of_row([row / height, row % height, 0], values))
        .fold(0, u64::wrapping_add)
}

/// A checksum as answers show it.
pub(crate) fn shown(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// This rank's part of the checksum of a field of cells. Waits for the stream.
pub(crate) fn checksum_of_owned<T: Real>(array: &Array<T, 3>) -> Result<u64, AppError> {
    let [first_z, first_y, first_x] = array.grid().owned_global(Entity::Cell).start;
    Ok(array.with_owned(|owned| {
        let height = owned.shape()[1];
        let rows = owned.rows().into_iter().map(|row| row.to_slice().expect("rows are contiguous"));
        let of_row = |(row, values)| {
            checksum_of_row([first_z + row / height, first_y + row % height, first_x], values)
        };
        rows.enumerate().map(of_row).fold(0, u64::wrapping_add)
    })?)
}

/// The field of the whole grid on rank 0, row-major, as bytes; the others get nothing. Collective; waits
/// for the stream.
pub(crate) fn whole_state<T: Real>(
    trial: &Trial<'_>,
    array: &Array<T, 3>,
) -> Result<Option<Vec<u8>>, AppError> {
    let mut own = Vec::with_capacity(array.owned_box().len() * T::BYTES);
    array.with_owned(|owned| owned.iter().for_each(|value| value.write(&mut own)))?;
    whole_of::<T>(trial, array.grid(), &own)
}

/// As [`whole_state`], of values for the cells that this rank owns, row-major, as bytes. Collective.
pub(crate) fn whole_of<T: Real>(
    trial: &Trial<'_>,
    grid: &LocalGrid<3>,
    own: &[u8],
) -> Result<Option<Vec<u8>>, AppError> {
    let partition = grid.subdomain().partition();
    let [depth, height, width] = partition.grid().cells();
    trial.whole(own, |parts| {
        let mut state = vec![0; depth * height * width * T::BYTES];
        for (rank, part) in parts.iter().enumerate() {
            let owned = partition.owned_cells(rank);
            let [_, rows, columns] = owned.extents();
            for (row, bytes) in part.chunks_exact(columns * T::BYTES).enumerate() {
                let (z, y) = (owned.start[0] + row / rows, owned.start[1] + row % rows);
                let start = ((z * height + y) * width + owned.start[2]) * T::BYTES;
                state[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
        state
    })
}

/// A whole field as [`whole_state`] gives it.
pub(crate) fn encode<T: Real>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * T::BYTES);
    values.iter().for_each(|value| value.write(&mut bytes));
    bytes
}

/// The values of a field as [`encode`] gives it.
pub(crate) fn decode<T: Real>(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(T::BYTES).map(|bytes| T::read(bytes).to_f64())
}

/// Which values of a whole grid are further from the right ones than is allowed at their index, as a
/// sentence. What is no number is never right.
pub(crate) fn difference(
    [depth, height, width]: [usize; 3],
    found: impl Iterator<Item = f64>,
    right: impl Iterator<Item = f64>,
    allowed: impl Fn(usize) -> f64,
) -> Option<String> {
    let (mut compared, mut wrong, mut first) = (0, 0, None);
    for (index, (found, right)) in found.zip(right).enumerate() {
        let error = (found - right).abs();
        if error.is_nan() || error > allowed(index) {
            wrong += 1;
            first.get_or_insert((index, found, right));
        }
        compared += 1;
    }
    let values = depth * height * width;
    if compared != values {
        return Some(format!("there are {compared} of {values} values"));
    }
    let (index, found, right) = first?;
    let [z, y, x] = [index / (height * width), index / width % height, index % width];
    Some(format!("{wrong} of {values} values differ, the first at [{z}, {y}, {x}]: {found:e}, not {right:e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_says_how_much_and_what_to_do() {
        let bytes = 8_000_000_000_000_000_usize;
        assert_eq!(zeros([2, 3]).expect("there is room"), [0.0; 6]);
        for (factors, bytes) in [([bytes / 8, 1], bytes), ([usize::MAX, 2], usize::MAX)] {
            let error = zeros(factors).expect_err("no machine has as much").to_string();
            let expected = format!(
                "{bytes} bytes of host memory could not be allocated: use fewer cells, or more ranks"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn checksums_see_place_and_bits() {
        let whole = checksum_of_whole([2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let parts = [([0, 0, 0], [1.0, 2.0]), ([1, 1, 0], [7.0, 8.0]), ([0, 1, 0], [3.0, 4.0])];
        let parts = parts.map(|(start, row)| checksum_of_row(start, &row)).into_iter();
        let rest = checksum_of_row([1, 0, 1], &[6.0]).wrapping_add(checksum_of_row([1, 0, 0], &[5.0]));
        assert_eq!(parts.fold(rest, u64::wrapping_add), whole);
        for (other, values) in [("swapped", [2.0, 1.0]), ("negative", [-1.0, 2.0])] {
            assert_ne!(
                checksum_of_row([0, 0, 0], &values),
                checksum_of_row([0, 0, 0], &[1.0, 2.0]),
                "{other}"
            );
        }
        assert_ne!(checksum_of_row([0, 0, 0], &[0.0]), checksum_of_row([0, 0, 0], &[-0.0]));
    }

    #[test]
    fn differences_are_told_with_their_place() {
        let told = |found: [f64; 4], allowed: f64| {
            let right = [1.0, 2.0, 3.0, 4.0];
            difference([2, 1, 2], found.into_iter(), right.into_iter(), |_| allowed)
        };
        assert_eq!(told([1.0, 2.0, 3.0, 4.0], 0.0), None);
        assert_eq!(told([1.0, 2.0, 3.5, 4.0], 0.5), None);
        let said = told([1.0, 2.0, 3.5, 5.0], 0.25).expect("differs");
        assert_eq!(said, "2 of 4 values differ, the first at [1, 0, 0]: 3.5e0, not 3e0");
        assert!(told([f64::NAN, 2.0, 3.0, 4.0], f64::INFINITY).is_some());
        let short = difference([2, 1, 2], [1.0].into_iter(), [1.0].into_iter(), |_| 0.0);
        assert_eq!(short.as_deref(), Some("there are 1 of 4 values"));
    }

    #[test]
    fn states_survive_encoding() {
        let values = [0.0, -1.5, f64::MAX];
        assert_eq!(decode::<f64>(&encode(&values)).collect::<Vec<_>>(), values);
    }
}
