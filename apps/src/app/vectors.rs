//! Vectors of elements, and what stands beside them.

#[cfg(test)]
use fearless_simd::Level;
use fearless_simd::{Simd, prelude::*};
use streamhalo::Element;

/// Bytes of a line of the caches.
pub(crate) const LINE_BYTES: usize = 64;

/// An element of which vectors can be computed.
pub trait Vectors: Element {
    /// As many of them as an instruction set computes at once.
    type Vector<S: Simd>: SimdBase<S, Element = Self>;
}

impl Vectors for u8 {
    type Vector<S: Simd> = S::u8s;
}

impl Vectors for f32 {
    type Vector<S: Simd> = S::f32s;
}

impl Vectors for f64 {
    type Vector<S: Simd> = S::f64s;
}

/// What is one element to the left of `own`, whose neighbour there is the last of `before`.
///
/// Vectors of two blocks of 128 bits, and bytes, are moved by whole blocks first, then within blocks: processors do both faster
/// than they cut such vectors anywhere, and the first is the same to the right of `before`.
// Only what lands inside the function that `dispatch!` makes for an instruction set is compiled for it.
#[inline(always)]
pub(crate) fn one_to_the_left<S: Simd, V: SimdBase<S>>(before: V, own: V) -> V {
    match (V::LEN, size_of::<V::Element>()) {
        (2, _) => before.slide::<1>(own),
        (4, 8) => before.slide::<2>(own).slide_within_blocks::<1>(own),
        (4, _) => before.slide::<3>(own),
        (8, 4) => before.slide::<4>(own).slide_within_blocks::<3>(own),
        (8, _) => before.slide::<7>(own),
        (16, _) => before.slide::<15>(own),
        (32, _) => before.slide::<16>(own).slide_within_blocks::<15>(own),
        (64, _) => before.slide::<48>(own).slide_within_blocks::<15>(own),
        _ => unreachable!("vectors have 2 to 64 elements"),
    }
}

/// What is one element to the right of `own`, whose neighbour there is the first of `behind`. As [`one_to_the_left`].
#[inline(always)]
pub(crate) fn one_to_the_right<S: Simd, V: SimdBase<S>>(own: V, behind: V) -> V {
    match (V::LEN, size_of::<V::Element>()) {
        (4, 8) => own.slide_within_blocks::<1>(own.slide::<2>(behind)),
        (8, 4) => own.slide_within_blocks::<1>(own.slide::<4>(behind)),
        (32 | 64, _) => own.slide_within_blocks::<1>(own.slide::<16>(behind)),
        _ => own.slide::<1>(behind),
    }
}

/// The elements of a vector.
#[inline(always)]
pub(crate) fn array<S: Simd, V: SimdBase<S>, const L: usize>(vector: V) -> [V::Element; L] {
    *vector.as_slice().first_chunk().expect("vectors have L elements")
}

/// Every instruction set that this machine can run kernels with.
#[cfg(test)]
pub(crate) fn levels() -> Vec<Level> {
    #[cfg(target_arch = "x86_64")]
    {
        let level = Level::new();
        let narrower = [
            level.as_sse2().map(Level::Sse2),
            level.as_sse4_2().map(Level::Sse4_2),
            level.as_avx2().map(Level::Avx2),
            level.as_avx512().map(Level::Avx512),
        ];
        narrower.into_iter().flatten().collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    vec![Level::new()]
}
