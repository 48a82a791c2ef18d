//! Stores that go around the caches, and lines that are asked for ahead: for kernels on arrays that no cache holds.
//!
//! An ordinary store reads the line that it changes, although a kernel overwrites all of it: 24 bytes move for a cell of
//! 8 that is read and written once, 16 with stores that go around. They pay only for what would have left the caches
//! before it is read again, so a kernel asks [`exceeds_caches`] first. Their lines must be written whole, one behind the
//! other, so that rows are computed next to the processor and written from there by [`PastCaches::write`].

use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::element::Element;

/// Bytes of a line of the caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

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

/// Asks for the line `bytes` behind an element, for the second-level cache, while the processor does something else.
/// Changes nothing that a program can see, whatever is there.
#[inline(always)]
pub fn expect_to_read<T>(element: &T, bytes: usize) {
    let line = std::ptr::from_ref(element).wrapping_byte_add(bytes);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: an instruction that never faults, whatever the address is.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// The right to store past the caches, which [`past_caches`] lends.
#[derive(Debug)]
pub struct PastCaches {
    /// Stays on the thread that has stored.
    thread: PhantomData<*const ()>,
}

/// Lets `body` store past the caches; when it returns, or panics, all that it has stored comes before whatever this
/// thread stores next, as other stores do.
pub fn past_caches<R>(body: impl FnOnce(&mut PastCaches) -> R) -> R {
    body(&mut PastCaches { thread: PhantomData })
}

impl PastCaches {
    /// Copies a row past the caches: its whole lines, and what is before and behind them as usual.
    ///
    /// # Panics
    /// If the rows differ in length.
    pub fn write<T: Element>(&mut self, from: &[T], to: &mut [T]) {
        assert_eq!(from.len(), to.len(), "a row is written where it has room");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let per_line = LINE_BYTES / size_of::<T>();
            let head = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
            let lines = (to.len() - head) / per_line;
            let tail = head + lines * per_line;
            to[..head].copy_from_slice(&from[..head]);
            store_lines(&from[head..tail], &mut to[head..tail]);
            to[tail..].copy_from_slice(&from[tail..]);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        to.copy_from_slice(from);
    }
}

impl Drop for PastCaches {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: an instruction that every such processor has.
        #[allow(unused_unsafe)]
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies whole lines, of which the first begins where `to` does.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store_lines<T: Element>(from: &[T], to: &mut [T]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    assert!(from.len() == to.len() && (to.is_empty() || to.as_ptr().addr().is_multiple_of(LINE_BYTES)));
    let (source, destination) = (from.as_ptr().cast::<__m128i>(), to.as_mut_ptr().cast::<__m128i>());
    for part in 0..size_of_val(from) / size_of::<__m128i>() {
        // SAFETY: within the row; any bits are such a vector, and it need not be aligned.
        let vector = unsafe { _mm_loadu_si128(source.wrapping_add(part)) };
        // SAFETY: within the row, which is as long and begins a line; `past_caches` orders it before what is stored
        // next, and this thread's own loads see it.
        unsafe { _mm_stream_si128(destination.wrapping_add(part), vector) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_arrive_wherever_they_begin_and_end() {
        let numbers: Vec<f64> = (0..100).map(f64::from).collect();
        let bytes: Vec<u8> = (0..=255).collect();
        past_caches(|stores| {
            for start in 0..9 {
                for cells in [0, 1, 2, 7, 8, 9, 16, 63, 64, 65, 80] {
                    let mut found = vec![-1.0; 100];
                    stores.write(&numbers[1..1 + cells], &mut found[start..start + cells]);
                    let expected = |index: usize| match index.checked_sub(start) {
                        Some(place) if place < cells => numbers[1 + place],
                        _ => -1.0,
                    };
                    assert!((0..100).all(|index| found[index] == expected(index)), "{start}, {cells}");
                    let mut found = [9; 256];
                    stores.write(&bytes[3..3 + cells], &mut found[start..start + cells]);
                    assert_eq!(found[start..start + cells], bytes[3..3 + cells]);
                    assert!(found[start + cells..].iter().all(|byte| *byte == 9));
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "a row is written where it has room")]
    fn rows_of_other_lengths_are_refused() {
        past_caches(|stores| stores.write(&[1_u8; 3], &mut [0; 4]));
    }

    #[test]
    fn sizes_as_the_system_writes_them() {
        assert_eq!(["32K", "1024K", "32M", "7"].map(bytes_of), [32 << 10, 1 << 20, 32 << 20, 7].map(Some));
        assert_eq!(["", "K", "3T"].map(bytes_of), [None; 3]);
        assert!(exceeds_caches(usize::MAX) && !exceeds_caches(1));
    }
}
