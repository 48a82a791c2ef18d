//! Stores that go around the caches, for kernels on arrays that no cache holds.
//!
//! An ordinary store reads the line that it changes, although a kernel overwrites all of it: 24 bytes move for a cell of
//! 8 that is read and written once, 16 with stores that go around. They pay only for what would have left the caches
//! before it is read again, so a kernel asks [`exceeds_caches`] first; and only for lines that are written whole, so
//! that rows have to begin with a line, as those of [`Pitched`](crate::device::Pitched) arrays do.

use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::element::Element;

/// What a machine is taken to have that does not say how large its caches are.
const USUAL_BYTES: usize = 32 << 20;

/// Whether so many bytes, read and written again and again, do not fit into the largest cache of this machine.
///
/// The size is what the system says of the first core, and read once.
pub fn exceeds_caches(bytes: usize) -> bool {
    static LARGEST_BYTES: OnceLock<usize> = OnceLock::new();
    bytes
        > *LARGEST_BYTES.get_or_init(|| {
            let caches =
                std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
            let sizes = caches.filter_map(|cache| std::fs::read_to_string(cache.path().join("size")).ok());
            sizes.filter_map(|size| bytes_of(size.trim())).max().unwrap_or(USUAL_BYTES)
        })
}

/// As the system writes the sizes of caches: `32768K`.
fn bytes_of(size: &str) -> Option<usize> {
    let digits = size.trim_end_matches(['K', 'M', 'G']);
    let unit = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// The right to store past the caches, which [`past_caches`] lends.
#[derive(Debug, Clone, Copy)]
pub struct PastCaches<'a> {
    /// Stays on the thread that has stored, and within the call.
    lent: PhantomData<(&'a (), *const ())>,
}

/// Lets `body` store past the caches; when it returns, or panics, all that it has stored comes before whatever this
/// thread stores next, as other stores do.
pub fn past_caches<R>(body: impl FnOnce(PastCaches<'_>) -> R) -> R {
    let _fence = Fence;
    body(PastCaches { lent: PhantomData })
}

/// Puts stores that went around the caches before those that follow.
struct Fence;

impl Drop for Fence {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: an instruction that every such processor has.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

impl PastCaches<'_> {
    /// Stores values, as many as a vector of the processor's has, past the caches if their place begins on a multiple of
    /// their size, and as usual elsewhere. On other processors than x86-64 all are stored as usual.
    ///
    /// # Panics
    /// If there are not as many values as places.
    #[inline(always)]
    pub fn store<T: Element>(self, values: &[T], places: &mut [T]) {
        assert!(values.len() == places.len(), "{} values for {} places", values.len(), places.len());
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            let bytes = size_of_val(values);
            if bytes.is_multiple_of(16) && places.as_ptr().addr().is_multiple_of(bytes.max(16)) {
                let (from, to) = (values.as_ptr().cast::<__m128i>(), places.as_mut_ptr().cast::<__m128i>());
                for part in 0..bytes / 16 {
                    // SAFETY: within the values; any bits are such a vector, and it need not be aligned.
                    let vector = unsafe { _mm_loadu_si128(from.wrapping_add(part)) };
                    // SAFETY: within the places, which are as many and begin on a multiple of 16 bytes; the fence of
                    // `past_caches` puts it before what is stored next, and this thread's own loads see it.
                    unsafe { _mm_stream_si128(to.wrapping_add(part), vector) };
                }
                return;
            }
        }
        places.copy_from_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_wherever_their_places_begin() {
        let numbers: Vec<f64> = (0..100).map(f64::from).collect();
        let bytes: Vec<u8> = (0..=255).collect();
        past_caches(|stores| {
            for start in 0..9 {
                for cells in [0, 1, 2, 4, 7, 8, 16, 32, 64] {
                    let mut found = vec![-1.0; 100];
                    stores.store(&numbers[1..1 + cells], &mut found[start..start + cells]);
                    let expected = |index: usize| match index.checked_sub(start) {
                        Some(place) if place < cells => numbers[1 + place],
                        _ => -1.0,
                    };
                    assert!((0..100).all(|index| found[index] == expected(index)), "{start}, {cells}");
                    let mut found = [9; 256];
                    stores.store(&bytes[3..3 + cells], &mut found[start..start + cells]);
                    assert_eq!(found[start..start + cells], bytes[3..3 + cells]);
                    assert!(found[start + cells..].iter().all(|byte| *byte == 9));
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "3 values for 4 places")]
    fn other_numbers_of_places_are_refused() {
        past_caches(|stores| stores.store(&[1_u8; 3], &mut [0; 4]));
    }

    #[test]
    fn sizes_as_the_system_writes_them() {
        assert_eq!(["32K", "1024K", "32M", "7"].map(bytes_of), [32 << 10, 1 << 20, 32 << 20, 7].map(Some));
        assert_eq!(["", "K", "3T"].map(bytes_of), [None; 3]);
        assert!(exceeds_caches(usize::MAX) && !exceeds_caches(1));
    }
}
