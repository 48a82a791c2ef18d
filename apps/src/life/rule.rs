//! The rule of Life on cells that are bits, whatever the order in which these stand.

use fearless_simd::Simd;

/// Of a vector of words, bit by bit: how many live of the cell itself and those beside it.
#[derive(Clone, Copy)]
pub(super) struct Sums<S: Simd> {
    pub(super) ones: S::u64s,
    pub(super) twos: S::u64s,
}

/// What rows leave to those below: of a vector of words, the sums of the last row but one and of the last one, and its cells.
#[derive(Clone, Copy)]
pub(super) struct Known<S: Simd> {
    pub(super) above: Sums<S>,
    pub(super) here: Sums<S>,
    pub(super) cells: S::u64s,
}

impl<S: Simd> Sums<S> {
    /// From the cells to the left, these, and those to the right.
    // Everything here is `inline(always)`: only code that lands inside the function that `dispatch!` makes for an
    // instruction set is compiled for it.
    #[inline(always)]
    pub(super) fn of([left, here, right]: [S::u64s; 3]) -> Self {
        let (ones, twos) = added::<S>(left, right, here);
        Self { ones, twos }
    }
}

/// Which cells live next.
#[inline(always)]
pub(super) fn alive_next<S: Simd>(
    above: Sums<S>,
    (here, cells): (Sums<S>, S::u64s),
    below: Sums<S>,
) -> S::u64s {
    let (ones, carried) = added::<S>(above.ones, here.ones, below.ones);
    // How often two live, 0 to 4 times: whether it is odd, and whether it is 2 or 3.
    let (odd_rows, two_rows) = added::<S>(above.twos, here.twos, below.twos);
    let odd = odd_rows ^ carried;
    let many = two_rows ^ (odd_rows & carried);
    // Of three, one and once two; of four, twice two and no more.
    (ones ^ many) & (odd ^ many) & (cells | !many)
}

/// Bits that an odd number of them have, and bits that two or three have.
#[inline(always)]
fn added<S: Simd>(one: S::u64s, two: S::u64s, three: S::u64s) -> (S::u64s, S::u64s) {
    let differ = one ^ two;
    (differ ^ three, (differ & (one ^ three)) ^ one)
}
