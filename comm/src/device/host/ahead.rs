//! Lines of memory that kernels of the host ask for before they need them.
//!
//! Processors do this by themselves for what is read in order. Where a kernel reads and writes many rows side by side,
//! each a stream that is new to the processor, it knows better: it computes what is there while the rest is on its way.

/// Asks for the line `bytes` behind an element, while the processor does something else. It changes nothing that a
/// program can see, whatever is there; on other processors than x86-64 it does nothing.
///
/// For what is needed soon: the line comes to the first-level cache.
#[inline(always)]
pub fn ask_for_line<T>(element: &T, bytes: usize) {
    ask::<0, T>(element, bytes);
}

/// The same for what is needed rows later: the line comes to the second-level cache, since the first-level one would drop it
/// before that, or what is in use meanwhile.
#[inline(always)]
pub fn ask_for_later_line<T>(element: &T, bytes: usize) {
    ask::<1, T>(element, bytes);
}

#[inline(always)]
fn ask<const LEVEL: usize, T>(element: &T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let line = std::ptr::from_ref(element).wrapping_byte_add(bytes).cast();
        match LEVEL {
            // SAFETY: an instruction that never faults, whatever the address is.
            0 => unsafe { _mm_prefetch::<_MM_HINT_T0>(line) },
            // SAFETY: as above.
            _ => unsafe { _mm_prefetch::<_MM_HINT_T1>(line) },
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (element, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_be_asked_for_wherever_it_is() {
        let element = 1.5_f64;
        for bytes in [0, 64, 1 << 40, usize::MAX] {
            ask_for_line(&element, bytes);
            ask_for_later_line(&element, bytes);
        }
        assert_eq!(element, 1.5);
    }
}
