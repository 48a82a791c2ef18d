//! The four operations on tiles: DGEMM and DSYRK by `ndarray`, DTRSM and DPOTRF by `nalgebra`. (The product of views with
//! strides is not `nalgebra`'s, which writes behind the end of small ones in version 0.34.2.)
//!
//! Tiles are row-major; what `nalgebra` sees as a matrix of columns is then the transpose. Each operation is one
//! thread's, in an order that depends on nothing but the size of a tile: the same tiles give the same bits.

use nalgebra::{Cholesky, DMatrix, DMatrixView, DMatrixViewMut};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2};

/// Rows and columns of a tile of so many values.
fn side(tile: &[f64]) -> usize {
    tile.len().isqrt()
}

/// A(m,k) - L(m,n) L(k,n)ᵀ: DGEMM; where m is k it is DSYRK, of which this computes both halves.
pub(super) fn update(tile: &mut [f64], left: &[f64], right: &[f64]) {
    const SQUARE: &str = "a tile is a square";
    let shape = [side(tile); 2];
    let mut tile = ArrayViewMut2::from_shape(shape, tile).expect(SQUARE);
    let [left, right] = [left, right].map(|tile| ArrayView2::from_shape(shape, tile).expect(SQUARE));
    general_mat_mul(-1.0, &left, &right.t(), 1.0, &mut tile);
}

/// A(m,k) L(k,k)⁻ᵀ: DTRSM. With the transposes, L(k,k) X = A(m,k)ᵀ.
pub(super) fn solve(tile: &mut [f64], diagonal: &[f64]) {
    let side = side(tile);
    // The same memory seen by its columns.
    let upper = DMatrixView::from_slice(diagonal, side, side);
    if !upper.tr_solve_upper_triangular_mut(&mut DMatrixViewMut::from_slice(tile, side, side)) {
        tile.fill(f64::NAN);
    }
}

/// The factor of A(k,k), of which the lower half is looked at: DPOTRF. What is not positive definite becomes no
/// number: since all matrices here are, a wrong tile has come before, and the check says so. A rank that failed by
/// itself would say less.
pub(super) fn factor(tile: &mut [f64]) {
    let side = side(tile);
    match Cholesky::new(DMatrix::from_row_slice(side, side, tile)) {
        Some(factor) => {
            let factor = factor.unpack().transpose();
            tile.copy_from_slice(factor.as_slice());
        }
        None => tile.fill(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some numbers, the same each time.
    fn numbers(side: usize, from: usize) -> Vec<f64> {
        (0..side * side).map(|index| ((index * 37 + from * 11) % 23) as f64 / 7.0 - 1.5).collect()
    }

    fn assert_near(found: &[f64], right: impl Fn(usize, usize) -> f64, what: &str) {
        let side = side(found);
        for (index, value) in found.iter().enumerate() {
            let right = right(index / side, index % side);
            assert!(
                (value - right).abs() < 1e-12 * (1.0 + right.abs()),
                "{what}, {index}: {value}, not {right}"
            );
        }
    }

    #[test]
    fn operations_are_what_they_are_called() {
        for side in [1, 2, 5, 8, 33] {
            let [a, b, c] = [1, 2, 3].map(|from| numbers(side, from));
            let product = |a: &[f64], b: &[f64], row: usize, column: usize| {
                (0..side).map(|k| a[row * side + k] * b[column * side + k]).sum::<f64>()
            };
            let mut updated = a.clone();
            update(&mut updated, &b, &c);
            assert_near(
                &updated,
                |row, column| a[row * side + column] - product(&b, &c, row, column),
                "gemm",
            );

            // A lower triangle with a diagonal that is not small.
            let lower = |row: usize, column: usize| match row.cmp(&column) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 3.0 + row as f64,
                std::cmp::Ordering::Greater => b[row * side + column],
            };
            let diagonal: Vec<f64> =
                (0..side * side).map(|index| lower(index / side, index % side)).collect();
            let mut solved = a.clone();
            solve(&mut solved, &diagonal);
            assert_near(&a, |row, column| product(&solved, &diagonal, row, column), "trsm");

            let mut square: Vec<f64> = (0..side * side)
                .map(|index| product(&diagonal, &diagonal, index / side, index % side))
                .collect();
            // Only the lower half is looked at.
            square.iter_mut().enumerate().filter(|(i, _)| i / side < i % side).for_each(|(_, v)| *v = 99.0);
            factor(&mut square);
            assert_near(&square, lower, "potrf");
        }
    }

    #[test]
    fn what_is_not_positive_definite_becomes_no_number() {
        let mut tile = vec![1.0, 0.0, 0.0, -1.0];
        factor(&mut tile);
        assert!(tile.iter().all(|value| value.is_nan()));
        let mut tile = vec![1.0; 4];
        solve(&mut tile, &[1.0, 0.0, 1.0, 0.0]);
        assert!(tile.iter().all(|value| value.is_nan()));
    }
}
