//! Accumulating: reductions into memory that several ranks reduce into at the same time.
//!
//! Each element is combined atomically, by an instruction of the processor or by trying again until no other
//! rank came in between. So no lock can be left taken by a rank that fails, nobody waits for a rank that
//! is off its core, and the same works on every device that can reach the memory.

use crate::device::moves::Nest;
use crate::element::{Element, Op, with_type};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// An element as memory that several ranks change.
trait Shared: Element {
    /// Combines `other` into the element at `own`.
    ///
    /// # Safety
    /// `own` must be aligned, and readable and writable for as long as the call takes. Others may change the
    /// element meanwhile, if they do so through this function.
    unsafe fn accumulate(own: *mut Self, op: Op, other: Self);
}

macro_rules! shared_integers {
    ($($rust:ty, $atomic:ty;)*) => {$(
        impl Shared for $rust {
            #[inline(always)]
            unsafe fn accumulate(own: *mut Self, op: Op, other: Self) {
                // SAFETY: by the caller.
                let own = unsafe { <$atomic>::from_ptr(own) };
                // The words that end the epoch order what was accumulated.
                match op {
                    Op::Replace => own.store(other, Ordering::Relaxed),
                    Op::Sum => {
                        own.fetch_add(other, Ordering::Relaxed);
                    }
                    Op::Min => {
                        own.fetch_min(other, Ordering::Relaxed);
                    }
                    Op::Max => {
                        own.fetch_max(other, Ordering::Relaxed);
                    }
                }
            }
        }
    )*};
}

macro_rules! shared_floats {
    ($($rust:ty, $atomic:ty, $bits:ty;)*) => {$(
        impl Shared for $rust {
            #[inline(always)]
            unsafe fn accumulate(own: *mut Self, op: Op, other: Self) {
                // SAFETY: by the caller; the bits of a float are an integer of its size.
                let own = unsafe { <$atomic>::from_ptr(own.cast::<$bits>()) };
                let combined =
                    |bits: $bits| Some(<$rust>::combine(op, <$rust>::from_bits(bits), other).to_bits());
                let _ = own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, combined);
            }
        }
    )*};
}

shared_integers! {
    u8, AtomicU8;
    i32, AtomicI32;
    i64, AtomicI64;
}

shared_floats! {
    f32, AtomicU32, u32;
    f64, AtomicU64, u64;
}

/// The code that accumulates a nest.
pub(crate) fn accumulator(nest: &Nest) -> fn(&Nest) {
    with_type!(nest.element, T => Nest::accumulate::<T>)
}

impl Nest {
    fn accumulate<T: Shared>(&self) {
        self.each_run(|source, destination, bytes| {
            let (source, destination) = (source.cast::<T>(), destination.cast::<T>());
            for i in 0..bytes / size_of::<T>() {
                // SAFETY: the element lies within the run, which lies within its region; any bits are a value
                // of an element type.
                let other = unsafe { source.wrapping_add(i).read_unaligned() };
                // SAFETY: within its region as well, and aligned, as the table has checked. Whoever reduces
                // into the same memory in this epoch does so atomically too.
                unsafe { T::accumulate(destination.wrapping_add(i), self.op, other) };
            }
        });
    }
}
