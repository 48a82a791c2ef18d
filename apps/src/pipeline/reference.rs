//! What the values must be, by a formula that knows no stencil.
//!
//! With *A(i, j) = A(i-1, j) + A(i, j-1) - A(i-1, j-1)* the difference of two neighbours in a row is that of the
//! two above them, and so *A(i, j) = A(i, 0) + A(0, j) - A(0, 0)*. The first column holds *i* and the first row
//! *j*, except for the corner that both share: 0 at first, and then less the last corner. In iteration *k*, from
//! 0, the last corner becomes *(m - 1) + (n - 1) + k (m + n - 2)*: the kernel's verification value,
//! *(k + 1) (m + n - 2)*.
//!
//! All of these are integers, and exact as long as they are below 2⁵³.

/// The value that the Parallel Research Kernels verify after this many iterations: that of the last corner.
pub(super) fn last_corner([rows, columns]: [usize; 2], iterations: u64) -> f64 {
    (iterations * (rows + columns - 2) as u64) as f64
}

/// The whole grid after this many iterations, at least one, row by row.
pub(super) fn rows([rows, columns]: [usize; 2], iterations: u64) -> impl Iterator<Item = Vec<f64>> {
    let before = last_corner([rows, columns], iterations - 1);
    let after = last_corner([rows, columns], iterations);
    (0..rows).map(move |i| {
        let value = |j: usize| match (i, j) {
            (0, 0) => -after,
            (0, j) => j as f64,
            (i, 0) => i as f64,
            (i, j) => (i + j) as f64 + before,
        };
        (0..columns).map(value).collect()
    })
}

/// Iterations whose values an `f64` holds exactly.
pub(super) fn most_iterations([rows, columns]: [usize; 2]) -> u64 {
    const EXACT: u64 = 1 << 53;
    (EXACT / (rows as u64).saturating_add(columns as u64)).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel as it is written down, on one array.
    fn play([m, n]: [usize; 2], iterations: u64) -> Vec<Vec<f64>> {
        let mut a = vec![vec![0.0; n]; m];
        (0..n).for_each(|j| a[0][j] = j as f64);
        (0..m).for_each(|i| a[i][0] = i as f64);
        for _ in 0..iterations {
            for i in 1..m {
                for j in 1..n {
                    a[i][j] = a[i - 1][j] + a[i][j - 1] - a[i - 1][j - 1];
                }
            }
            a[0][0] = -a[m - 1][n - 1];
        }
        a
    }

    #[test]
    fn the_formula_is_the_stencil() {
        for shape in [[2, 2], [5, 3], [3, 7]] {
            for iterations in 1..5 {
                let played = play(shape, iterations);
                assert_eq!(rows(shape, iterations).collect::<Vec<_>>(), played, "{shape:?} {iterations}");
                let corner = played[shape[0] - 1][shape[1] - 1];
                assert_eq!(corner, last_corner(shape, iterations));
            }
        }
    }
}
