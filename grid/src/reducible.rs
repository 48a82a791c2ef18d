//! What fields of each element type are reduced to.

use streamhalo_comm::device::KernelText;
use streamhalo_comm::{Element, Op};

/// An element of fields that [`Reduction`](crate::Reduction) takes: all of them are, and none that an application could add.
pub trait Reducible: Element {
    /// What becomes of them: `i64` of integers and `f64` of floats, which have all values of the narrower types.
    type Total: Reducible<Total = Self::Total> + PartialOrd;

    #[doc(hidden)]
    fn total(self) -> Self::Total;

    /// The product; integers wrap.
    #[doc(hidden)]
    fn product(self, other: Self) -> Self::Total;

    /// What an operation gives of nothing. Of smaller and larger floats it is a NaN, which those ignore: so that of NaNs alone
    /// it is one.
    #[doc(hidden)]
    fn identity(op: Op) -> Self::Total;

    /// The kernels, for devices: of blocks of entries, and of rows of numbers.
    #[doc(hidden)]
    fn texts() -> &'static [KernelText; 2];
}

/// Of each type: of what it becomes the least and the greatest number, how that is multiplied, and what wraps for devices.
macro_rules! reducible {
    ($($rust:ident, $total:ident, [$least:expr, $greatest:expr], $times:expr, $wrapped:ident;)*) => {$(
        impl Reducible for $rust {
            type Total = $total;

            #[inline(always)]
            fn total(self) -> $total {
                $total::from(self)
            }

            #[inline(always)]
            fn product(self, other: Self) -> $total {
                $times(self.total(), other.total())
            }

            fn identity(op: Op) -> $total {
                match op {
                    Op::Min => $greatest,
                    Op::Max => $least,
                    _ => $total::default(),
                }
            }

            fn texts() -> &'static [KernelText; 2] {
                const SOURCE: &str = concat!(
                    "typedef ", stringify!($rust), " entry;\n",
                    "typedef ", stringify!($total), " total;\n",
                    "typedef ", stringify!($wrapped), " wrapped;\n",
                    include_str!("reduction.cl")
                );
                static TEXTS: [KernelText; 2] = [
                    KernelText { name: "reduce_blocks", source: SOURCE, reach: [0; 3] },
                    KernelText { name: "reduce_rows", source: SOURCE, reach: [0; 3] },
                ];
                &TEXTS
            }
        }
    )*};
}

reducible! {
    u8, i64, [i64::MIN, i64::MAX], i64::wrapping_mul, u64;
    i32, i64, [i64::MIN, i64::MAX], i64::wrapping_mul, u64;
    i64, i64, [i64::MIN, i64::MAX], i64::wrapping_mul, u64;
    f32, f64, [f64::NAN, f64::NAN], std::ops::Mul::mul, f64;
    f64, f64, [f64::NAN, f64::NAN], std::ops::Mul::mul, f64;
}
