//! Carrying out move tables on the host.

use crate::device::moves::{MoveTable, Nest};
use crate::element::{Element, Op, with_type};

impl MoveTable {
    /// Carries out all moves. The caller is the executor of a stream: what the moves read has been
    /// written, and nobody else writes what they write, as ordered by the stream and its words.
    #[inline]
    pub(crate) fn run(&self) {
        assert!(self.host_reaches, "{self:?} is of memory that the host does not address");
        for nest in &self.nests {
            (nest.run)(nest);
        }
        self.observe();
    }
}

/// The code for a nest. Lengths that halos have (1 to 4 elements of 1 to 8 bytes) get code of their
/// own, as a call with a run-time length for each would take several times as long; runs of some
/// cache lines go in two to four overlapping pieces, and longer ones to the library's copy.
pub(crate) fn runner(nest: &Nest) -> fn(&Nest) {
    #[cfg(target_arch = "x86_64")]
    if nest.op == Op::Replace && is_x86_feature_detected!("avx") {
        match nest.run_bytes {
            // SAFETY: the instructions are there, as was just asked.
            32 => return |nest| unsafe { nest.replace_runs_avx::<32>() },
            // SAFETY: as above.
            64 => return |nest| unsafe { nest.replace_runs_avx::<64>() },
            // SAFETY: as above.
            33..=63 => return |nest| unsafe { nest.replace_ends_avx::<32>() },
            // SAFETY: as above.
            65..=128 => return |nest| unsafe { nest.replace_ends_avx::<64>() },
            _ => {}
        }
    }
    match (nest.op, nest.run_bytes) {
        (Op::Sum | Op::Min | Op::Max, _) => Nest::reduce,
        (Op::Replace, 1) => Nest::replace_runs::<1>,
        (Op::Replace, 2) => Nest::replace_runs::<2>,
        (Op::Replace, 3) => Nest::replace_runs::<3>,
        (Op::Replace, 4) => Nest::replace_runs::<4>,
        (Op::Replace, 8) => Nest::replace_runs::<8>,
        (Op::Replace, 12) => Nest::replace_runs::<12>,
        (Op::Replace, 16) => Nest::replace_runs::<16>,
        (Op::Replace, 24) => Nest::replace_runs::<24>,
        (Op::Replace, 32) => Nest::replace_runs::<32>,
        (Op::Replace, 64) => Nest::replace_runs::<64>,
        (Op::Replace, 16..=31) => Nest::replace_ends::<16>,
        (Op::Replace, 33..=63) => Nest::replace_ends::<32>,
        (Op::Replace, 65..=128) => Nest::replace_ends::<64>,
        (Op::Replace, _) => Nest::replace_long,
    }
}

impl Nest {
    #[inline(always)]
    fn replace_runs<const BYTES: usize>(&self) {
        // Two at a time: they are likely the two ends of the same rows, that is, the same cache
        // lines.
        let mut pairs = self.pairs.chunks_exact(2);
        for both in &mut pairs {
            let [(source_a, destination_a), (source_b, destination_b)] = [both[0], both[1]];
            self.each_offset(|source, destination| {
                // SAFETY: the table has checked that every run lies within its region.
                let a = unsafe { load::<BYTES>(source_a, source) };
                // SAFETY: as above.
                let b = unsafe { load::<BYTES>(source_b, source) };
                // SAFETY: as above.
                unsafe { store(destination_a, destination, a) };
                // SAFETY: as above.
                unsafe { store(destination_b, destination, b) };
            });
        }
        for (first_source, first_destination) in pairs.remainder() {
            self.each_offset(|source, destination| {
                // SAFETY: the table has checked that every run lies within its region.
                let run = unsafe { load::<BYTES>(*first_source, source) };
                // SAFETY: as above.
                unsafe { store(*first_destination, destination, run) };
            });
        }
    }

    /// As `replace_runs`, in registers twice as long.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx")]
    fn replace_runs_avx<const BYTES: usize>(&self) {
        self.replace_runs::<BYTES>();
    }

    /// As `replace_ends`, in registers twice as long.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx")]
    fn replace_ends_avx<const BYTES: usize>(&self) {
        self.replace_ends::<BYTES>();
    }

    /// Runs of `BYTES` to twice as many: the first and the last `BYTES`, which may overlap.
    #[inline(always)]
    fn replace_ends<const BYTES: usize>(&self) {
        self.each_run(|source, destination, bytes| {
            // SAFETY: the run has at least `BYTES` bytes and lies within its region.
            let head = unsafe { load::<BYTES>(source, 0) };
            // SAFETY: as above.
            let tail = unsafe { load::<BYTES>(source, bytes - BYTES) };
            // SAFETY: as above.
            unsafe { store(destination, 0, head) };
            // SAFETY: as above.
            unsafe { store(destination, bytes - BYTES, tail) };
        });
    }

    fn replace_long(&self) {
        self.each_run(|source, destination, bytes| {
            // SAFETY: runs lie within their regions, as the table has checked.
            unsafe { std::ptr::copy(source, destination, bytes) };
        });
    }

    /// Calls back with the offset of every run in source and destination.
    #[inline(always)]
    fn each_offset(&self, mut run: impl FnMut(usize, usize)) {
        let [outer, inner] = self.counts;
        for i in 0..outer {
            let mut source = i * self.source_strides[0];
            let mut destination = i * self.destination_strides[0];
            for _ in 0..inner {
                run(source, destination);
                source += self.source_strides[1];
                destination += self.destination_strides[1];
            }
        }
    }

    /// Calls back with every run of every move.
    #[inline(always)]
    pub(super) fn each_run(&self, mut run: impl FnMut(*const u8, *mut u8, usize)) {
        for (first_source, first_destination) in &self.pairs {
            self.each_offset(|source, destination| {
                // Wrapping arithmetic only forms the address; the table has checked the bounds.
                run(
                    first_source.wrapping_add(source),
                    first_destination.wrapping_add(destination),
                    self.run_bytes,
                );
            });
        }
    }

    fn reduce(&self) {
        with_type!(self.element, T => self.reduce_elements::<T>())
    }

    fn reduce_elements<T: Element>(&self) {
        match self.op {
            Op::Replace => self.reduce_with::<T>(|own, other| T::combine(Op::Replace, own, other)),
            Op::Sum => self.reduce_with::<T>(|own, other| T::combine(Op::Sum, own, other)),
            Op::Min => self.reduce_with::<T>(|own, other| T::combine(Op::Min, own, other)),
            Op::Max => self.reduce_with::<T>(|own, other| T::combine(Op::Max, own, other)),
        }
    }

    #[inline(always)]
    fn reduce_with<T: Element>(&self, combine: impl Fn(T, T) -> T) {
        self.each_run(|source, destination, bytes| {
            let (source, destination) = (source.cast::<T>(), destination.cast::<T>());
            for i in 0..bytes / size_of::<T>() {
                // SAFETY: the element lies within the run, which lies within its region; any bits
                // are a value of an element type.
                let other = unsafe { source.wrapping_add(i).read_unaligned() };
                // SAFETY: as above.
                let own = unsafe { destination.wrapping_add(i).read_unaligned() };
                // SAFETY: as above.
                unsafe { destination.wrapping_add(i).write_unaligned(combine(own, other)) };
            }
        });
    }
}

/// # Safety
/// `BYTES` bytes at `offset` from `first` must be readable.
#[inline(always)]
unsafe fn load<const BYTES: usize>(first: *const u8, offset: usize) -> [u8; BYTES] {
    // SAFETY: by the caller.
    unsafe { first.wrapping_add(offset).cast::<[u8; BYTES]>().read_unaligned() }
}

/// # Safety
/// `BYTES` bytes at `offset` from `first` must be writable.
#[inline(always)]
unsafe fn store<const BYTES: usize>(first: *mut u8, offset: usize, run: [u8; BYTES]) {
    // SAFETY: by the caller.
    unsafe { first.wrapping_add(offset).cast::<[u8; BYTES]>().write_unaligned(run) };
}
