//! Elements whose values can be written down and read back: for states, pictures and checkpoints.

use streamhalo::Element;

/// An element of a field that is looked at from outside.
pub(crate) trait Stored: Element {
    /// Bytes of one value.
    const BYTES: usize;

    /// The same number.
    fn to_f64(self) -> f64;

    /// The nearest value.
    fn from_f64(value: f64) -> Self;

    /// Adds its bytes, the lowest first.
    fn write(self, bytes: &mut Vec<u8>);

    /// The value of so many bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! stored {
    ($($element:ty)*) => {$(
        impl Stored for $element {
            const BYTES: usize = size_of::<$element>();

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn from_f64(value: f64) -> Self {
                value as $element
            }

            fn write(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("is as long as a value"))
            }
        }
    )*};
}

stored!(u8 f32 f64);
