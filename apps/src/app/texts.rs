//! Kernels as texts, for devices that compile them, and the tables that such kernels read.

use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, Reader};
use streamhalo::{Element, ElementType, KernelText, Stream, World};

use super::values::Real;

/// The texts of a kernel that computes with `real`, for `f32` and for `f64`: a file behind what it is told.
macro_rules! real_texts {
    ($name:literal, $reach:expr, $told:expr, $file:literal) => {
        [
            streamhalo::KernelText {
                name: $name,
                source: concat!("typedef f32 real;\n", $told, include_str!($file)),
                reach: $reach,
            },
            streamhalo::KernelText {
                name: $name,
                source: concat!("typedef f64 real;\n", $told, include_str!($file)),
                reach: $reach,
            },
        ]
    };
}
pub(crate) use real_texts;

/// The one of `real_texts!` that computes with `T`.
pub(crate) fn of_real<T: Real>(texts: &'static [KernelText; 2]) -> &'static KernelText {
    &texts[usize::from(T::TYPE == ElementType::F64)]
}

/// Values for the indices along each axis, slowest first, where kernels of a stream's device find them.
#[derive(Debug)]
pub(crate) struct Tables<T>([Buffer<T>; 3]);

impl<T: Element> Tables<T> {
    /// Blocks until the device has them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(world: &World, stream: &Stream, [z, y, x]: [&[T]; 3]) -> Result<Self, Error> {
        let table = |values: &[T]| {
            let extents = Extents { points: [1, 1, values.len()], components: 1 };
            let mut table = Buffer::zeros(world, stream, extents)?;
            table.with_host_mut(extents.whole(), |mut all| {
                all.iter_mut().zip(values).for_each(|(entry, value)| *entry = *value);
            })?;
            Ok(table)
        };
        Ok(Self([table(z)?, table(y)?, table(x)?]))
    }

    /// Arguments for a kernel.
    ///
    /// # Errors
    ///
    /// None that tables could cause.
    pub(crate) fn readers(&self) -> Result<[Reader<'_, T>; 3], Error> {
        let Self([z, y, x]) = self;
        Ok([z.reader(z.extents().whole())?, y.reader(y.extents().whole())?, x.reader(x.extents().whole())?])
    }
}
