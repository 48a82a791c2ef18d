//! Copies between memory that peers can address and memory that is this rank's alone.

use super::region::Place;
use crate::element::Element;
use crate::error::Result;

/// The bytes of elements.
pub(crate) fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding, so that all their bytes are initialised, and the
    // slice is borrowed for as long as its bytes.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to be written.
pub(crate) fn bytes_of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bits are a value of an element type.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// As many elements as fit, to be written; what they are is whatever the words say.
pub(crate) fn elements_of_mut<T: Element>(words: &mut [u64]) -> &mut [T] {
    const { assert!(align_of::<T>() <= align_of::<u64>()) };
    let elements = size_of_val(words) / size_of::<T>();
    // SAFETY: the words hold that many elements and are aligned for them, any bits are a value of both, and the
    // slice is borrowed for as long as the elements.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), elements) }
}

impl Place {
    /// Copies bytes to this place from another, which may be the same memory. Whoever calls it knows that
    /// nobody writes the source and nobody else uses the destination. Of no bytes either may be where the host reaches none,
    /// as with all of these.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if either has not that many bytes.
    pub(crate) fn copy_from(&self, source: &Place, bytes: usize) -> Result<()> {
        source.check(bytes, "a message")?;
        self.check(bytes, "a message")?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: both hold `bytes` bytes by `check`, in regions that the places keep mapped.
        unsafe { std::ptr::copy(source.pointer(), self.pointer(), bytes) };
        Ok(())
    }

    /// Copies bytes to this place. Nobody else may use it meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if there is no room for them.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.check(bytes.len(), "a message")?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: in bounds by `check`; no reference to memory of a region exists, so that the slice is
        // not in it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes from this place. Nobody may write it meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::OutOfBounds`] if there are not that many.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.check(bytes.len(), "a message")?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: in bounds by `check`; the slice is the caller's alone.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}
