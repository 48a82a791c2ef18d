//! The element types that arrays and exchanges carry.

use crate::named::named;
use std::fmt;

/// The type of an array's elements, as ranks tell it to each other at matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

named!(ElementType { U8 = "u8", I32 = "i32", I64 = "i64", F32 = "f32", F64 = "f64" });

impl ElementType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::U8 => 1,
            ElementType::I32 | ElementType::F32 => 4,
            ElementType::I64 | ElementType::F64 => 8,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that arrays can hold. Sealed: any bit pattern is a value of each of them, which is
/// what makes zeroed and exchanged memory valid.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    /// The type as data.
    const TYPE: ElementType;
    /// `own` and `other` combined: integer sums wrap, `min` and `max` of floats ignore NaN.
    fn combine(op: Op, own: Self, other: Self) -> Self;
}

/// How a move treats what is at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Op {
    /// The source replaces the destination.
    Replace,
    /// The sum; integers wrap.
    Sum,
    /// The smaller; a NaN is ignored.
    Min,
    /// The larger; a NaN is ignored.
    Max,
}

/// An expression in which a name stands for the Rust type of an element type.
macro_rules! with_type {
    ($element:expr, $name:ident => $expression:expr) => {
        with_type!($element, $name => $expression, U8 u8, I32 i32, I64 i64, F32 f32, F64 f64)
    };
    ($element:expr, $name:ident => $expression:expr, $($variant:ident $rust:ty),*) => {
        match $element {
            $($crate::element::ElementType::$variant => {
                type $name = $rust;
                $expression
            })*
        }
    };
}
pub(crate) use with_type;

macro_rules! element {
    ($($rust:ty, $variant:ident, |$a:ident, $b:ident| $sum:expr;)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
            #[inline(always)]
            fn combine(op: Op, $a: Self, $b: Self) -> Self {
                match op {
                    Op::Replace => $b,
                    Op::Sum => $sum,
                    // Inherent for floats (NaN ignored), `Ord` for integers.
                    Op::Min => $a.min($b),
                    Op::Max => $a.max($b),
                }
            }
        }
    )*};
}

element! {
    u8, U8, |a, b| a.wrapping_add(b);
    i32, I32, |a, b| a.wrapping_add(b);
    i64, I64, |a, b| a.wrapping_add(b);
    f32, F32, |a, b| a + b;
    f64, F64, |a, b| a + b;
}
