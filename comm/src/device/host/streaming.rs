//! Stores that go around the caches, for kernels on arrays that no cache holds.
//!
//! An ordinary store reads the line that it changes, although a kernel overwrites all of it: 24 bytes move for a cell of
//! 8 that is read and written once, 16 with stores that go around. They pay only for what would have left the caches
//! before it is read again, so a kernel asks a [`StoreWay`](crate::device::StoreWay) first; and only for lines that are
//! written whole, so that rows have to begin with a line, as those of [`Pitched`](crate::device::Pitched) arrays do.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
use std::cell::Cell;

use crate::element::Element;

/// The right to store past the caches, which [`past_caches`] lends.
#[derive(Debug, Clone, Copy)]
pub struct PastCaches<'a> {
    /// Whether a row was handed out. It stays on the thread that stores, and within the call.
    is_used: &'a Cell<bool>,
}

/// Lets `body` store past the caches; when it returns, or panics, all that it has stored comes before whatever this
/// thread stores next, as other stores do. Before that `body` must tell no other thread of the places.
pub fn past_caches<R>(body: impl FnOnce(PastCaches<'_>) -> R) -> R {
    let fence = Fence(Cell::new(false));
    body(PastCaches { is_used: &fence.0 })
}

/// Puts stores that went around the caches before those that follow, if there may have been any: small launches would pay
/// for it.
struct Fence(Cell<bool>);

impl Drop for Fence {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.0.get() {
            // SAFETY: an instruction that every such processor has.
            unsafe {
                std::arch::x86_64::_mm_sfence();
            }
        }
    }
}

impl<'a> PastCaches<'a> {
    /// The places of a row, for vectors of so many elements that go past the caches.
    ///
    /// # Errors
    ///
    /// Hands the places back where vectors are stored as usual: the row does not begin on a multiple of their size, or the
    /// processor has no such stores of that size. Only x86-64 with AVX has them, for vectors of 32 bytes and multiples: it
    /// has paid with all of those that have been measured.
    #[inline(always)]
    pub fn row<'r, T: Element>(
        self,
        places: &'r mut [T],
        elements: usize,
    ) -> Result<PastRow<'r, T>, &'r mut [T]>
    where
        'a: 'r,
    {
        self.rows([places], elements).map(|[row]| row).map_err(|[places]| places)
    }

    /// The same of several rows, which are computed together.
    ///
    /// # Errors
    ///
    /// As of one row, and all of them where one is stored to as usual.
    #[inline(always)]
    pub fn rows<'r, T: Element, const N: usize>(
        self,
        places: [&'r mut [T]; N],
        elements: usize,
    ) -> Result<[PastRow<'r, T>; N], [&'r mut [T]; N]>
    where
        'a: 'r,
    {
        let bytes = elements * size_of::<T>();
        let begins_a_vector = |row: &&mut [T]| row.as_ptr().addr().is_multiple_of(bytes);
        if bytes != 0 && places.iter().all(begins_a_vector) && has_stores_of(bytes) {
            self.is_used.set(true);
            Ok(places.map(|places| PastRow { places, elements, _lent: self }))
        } else {
            Err(places)
        }
    }
}

/// Whether the processor stores vectors of that size past the caches.
#[inline(always)]
fn has_stores_of(bytes: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        bytes.is_multiple_of(size_of::<__m256i>()) && std::arch::is_x86_feature_detected!("avx")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = bytes;
        false
    }
}

/// A row that begins with a vector which the processor can store past the caches.
#[derive(Debug)]
pub struct PastRow<'r, T> {
    places: &'r mut [T],
    /// Of a vector.
    elements: usize,
    _lent: PastCaches<'r>,
}

impl<T: Element> PastRow<'_, T> {
    /// Stores whole vectors past the caches, to the places from the `first`-th on.
    ///
    /// # Panics
    ///
    /// If they are not whole vectors, do not begin where one of the row does, or the row has no such places.
    #[inline(always)]
    pub fn store(&mut self, first: usize, values: &[T]) {
        let elements = self.elements;
        if !first.is_multiple_of(elements) || !values.len().is_multiple_of(elements) {
            no_whole_vectors(elements, first, values.len());
        }
        let places = &mut self.places[first..first + values.len()];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // Half a line at a time. By quarters a Zen 3 and a Zen 4 take up to 1.6 times as long, as more of what is on
            // its way out has addresses that end as those of what is read next; by whole lines a Zen 5 an eighth.
            let count = size_of_val(values) / size_of::<__m256i>();
            let (from, to) = (values.as_ptr().cast::<__m256i>(), places.as_mut_ptr().cast::<__m256i>());
            for part in 0..count {
                // SAFETY: within the values, whose bytes may be any and need not be aligned; `PastCaches::rows` has asked
                // whether the processor has AVX.
                let vector = unsafe { _mm256_loadu_si256(from.wrapping_add(part)) };
                // SAFETY: within the places, which are as long, and aligned as it has looked and by the check above.
                // The intrinsic asks for a fence before the places are used otherwise: `past_caches` has it for other
                // threads, and this one's own loads and stores, which come in its order, need none.
                unsafe { _mm256_stream_si256(to.wrapping_add(part), vector) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        places.copy_from_slice(values);
    }

    /// Stores the last elements of the row: vectors past the caches, and through them what does not fill one more. They should
    /// not have been stored before: a store through the caches to a line that is still on its way past them waits until it
    /// has left, and brings it back.
    ///
    /// # Panics
    ///
    /// If the first one is not where a vector of the row begins, or there are more than the row has places.
    #[inline(always)]
    pub fn store_end(&mut self, values: &[T]) {
        let whole = values.len() - values.len() % self.elements;
        let first = self.places.len() - values.len();
        self.store(first, &values[..whole]);
        self.places[first + whole..].copy_from_slice(&values[whole..]);
    }

    /// All places of the row.
    #[inline(always)]
    pub fn places(&self) -> &[T] {
        self.places
    }

    /// The same, to be stored to as usual.
    #[inline(always)]
    pub fn places_mut(&mut self) -> &mut [T] {
        self.places
    }
}

// Out of the way: arguments of a message lie in memory, where kernels would put them for each vector.
#[cold]
#[inline(never)]
fn no_whole_vectors(elements: usize, first: usize, count: usize) -> ! {
    panic!("vectors of {elements} elements are stored whole, not {count} from {first} on");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores the vectors of rows of `cells` elements that begin at each place of a line, and with the next one, and says
    /// how many rows took them past the caches.
    fn store_rows<T: Element + From<u8> + PartialEq>(elements: usize, cells: usize) -> usize {
        let values: Vec<T> = (0..cells as u8).map(T::from).collect();
        let (line, before, mut past) = (64 / size_of::<T>(), T::from(255), 0);
        past_caches(|stores| {
            for start in 0..=line {
                let mut found = vec![before; 2 * line + cells + 1];
                let start = start + found.as_ptr().align_offset(64);
                if let Ok(mut row) = stores.row(&mut found[start..start + cells], elements) {
                    let rest = cells - cells % elements;
                    // One vector, then all others at once.
                    let (one, others) = values[..rest].split_at(elements.min(rest));
                    row.store(0, one);
                    row.store(one.len(), others);
                    row.store_end(&values[rest..]);
                    assert!(row.places() == values);
                    // Anew, from its first vector on, from one in the middle, and behind the last.
                    for vectors in [0, cells / elements / 2, cells / elements] {
                        let end = &values[vectors * elements..];
                        row.places_mut().fill(before);
                        row.store_end(end);
                        let (kept, stored) = row.places().split_at(cells - end.len());
                        assert!(stored == end && kept.iter().all(|one| *one == before));
                    }
                    assert!(found[..start].iter().chain(&found[start + cells..]).all(|one| *one == before));
                    past += 1;
                }
            }
        });
        past
    }

    #[test]
    fn rows_go_past_the_caches_together_or_not_at_all() {
        past_caches(|stores| {
            let mut memory = [0_u8; 256];
            let start = memory.as_ptr().align_offset(64);
            let (one, two) = memory[start..].split_at_mut(64);
            assert_eq!(stores.rows([&mut *one, &mut *two], 32).is_ok(), has_stores_of(32));
            let rows = stores.rows([one, &mut two[1..]], 32).expect_err("the second begins no vector");
            assert_eq!(rows.map(|row| row.len())[0], 64);
        });
    }

    #[test]
    fn vectors_arrive_in_rows_that_begin_on_a_multiple_of_them() {
        for cells in [0, 1, 15, 16, 17, 64, 100] {
            for (bytes, past) in [
                (16, store_rows::<f64>(2, cells)),
                (32, store_rows::<f64>(4, cells)),
                (64, store_rows::<f64>(8, cells)),
                (16, store_rows::<f32>(4, cells)),
                (32, store_rows::<f32>(8, cells)),
                (64, store_rows::<f32>(16, cells)),
                (32, store_rows::<u8>(32, cells)),
                (3, store_rows::<u8>(3, cells)),
            ] {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                let expected = match bytes {
                    64 => 2,
                    32 if std::arch::is_x86_feature_detected!("avx") => 3,
                    _ => 0,
                };
                #[cfg(not(all(target_arch = "x86_64", not(miri))))]
                let expected = 0;
                assert_eq!(past, expected, "{cells} cells, vectors of {bytes} bytes");
            }
        }
    }

    /// Stores a line to a row of so many bytes, from its `first` one on.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn store_line(bytes: usize, first: usize) {
        let mut memory = [0_u8; 192];
        let start = memory.as_ptr().align_offset(64);
        past_caches(|stores| {
            let mut row = stores.row(&mut memory[start..start + bytes], 64).expect("it begins a vector");
            row.store(first, &[1; 64]);
        });
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    #[should_panic(expected = "range end index 128 out of range for slice of length 65")]
    fn a_vector_that_a_row_does_not_have_is_refused() {
        store_line(65, 64);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    #[should_panic(expected = "vectors of 64 elements are stored whole, not 64 from 32 on")]
    fn what_is_no_vector_of_the_row_is_refused() {
        store_line(128, 32);
    }
}
