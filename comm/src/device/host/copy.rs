//! Carrying out move tables on the host.

use crate::device::moves::{MoveTable, Nest};
use crate::element::{Element, ElementType, Op};

impl MoveTable {
    /// Carries out all moves. The caller is the executor of a stream: what the moves read has been
    /// written, and nobody else writes what they write, as ordered by the stream and its words.
    pub(crate) fn run(&self) {
        for nest in &self.nests {
            match nest.op {
                Op::Replace => nest.replace(),
                op => nest.reduce(op),
            }
        }
        self.observe();
    }
}

/// Above this a call of the library's copy pays off; below, sixteen bytes at a time.
const LIBRARY_COPY_BYTES: usize = 192;

impl Nest {
    fn replace(&self) {
        // Lengths that halos have: 1 to 4 elements of 1 to 8 bytes. A call with a run-time
        // length for each of them would take several times as long.
        match self.run_bytes {
            1 => self.replace_runs::<1>(),
            2 => self.replace_runs::<2>(),
            3 => self.replace_runs::<3>(),
            4 => self.replace_runs::<4>(),
            8 => self.replace_runs::<8>(),
            12 => self.replace_runs::<12>(),
            16 => self.replace_runs::<16>(),
            24 => self.replace_runs::<24>(),
            32 => self.replace_runs::<32>(),
            // SAFETY: `copy_chunks` is given runs that lie within their regions.
            16..=LIBRARY_COPY_BYTES => self.each_run(|source, destination, bytes| unsafe {
                copy_chunks(source, destination, bytes);
            }),
            // SAFETY: runs lie within their regions, as the table has checked.
            _ => self.each_run(|source, destination, bytes| unsafe {
                std::ptr::copy(source, destination, bytes);
            }),
        }
    }

    #[inline(always)]
    fn replace_runs<const BYTES: usize>(&self) {
        // Two at a time: they are the two ends of the same rows, that is, the same cache lines.
        let mut pairs = self.pairs.chunks_exact(2);
        for both in &mut pairs {
            let [(source_a, destination_a), (source_b, destination_b)] = [both[0], both[1]];
            self.each_offset(|source, destination| {
                // SAFETY: the table has checked that every run lies within its region.
                let (a, b) = unsafe { (load::<BYTES>(source_a, source), load::<BYTES>(source_b, source)) };
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
    fn each_run(&self, mut run: impl FnMut(*const u8, *mut u8, usize)) {
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

    fn reduce(&self, op: Op) {
        match self.element {
            ElementType::U8 => self.reduce_elements::<u8>(op),
            ElementType::I32 => self.reduce_elements::<i32>(op),
            ElementType::I64 => self.reduce_elements::<i64>(op),
            ElementType::F32 => self.reduce_elements::<f32>(op),
            ElementType::F64 => self.reduce_elements::<f64>(op),
        }
    }

    fn reduce_elements<T: Element>(&self, op: Op) {
        match op {
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
                let other = unsafe { source.add(i).read_unaligned() };
                // SAFETY: as above.
                let own = unsafe { destination.add(i).read_unaligned() };
                // SAFETY: as above.
                unsafe { destination.add(i).write_unaligned(combine(own, other)) };
            }
        });
    }
}

/// # Safety
/// `BYTES` bytes at `offset` from `first` must be readable.
#[inline(always)]
unsafe fn load<const BYTES: usize>(first: *const u8, offset: usize) -> [u8; BYTES] {
    // SAFETY: by the caller.
    unsafe { first.add(offset).cast::<[u8; BYTES]>().read_unaligned() }
}

/// # Safety
/// `BYTES` bytes at `offset` from `first` must be writable.
#[inline(always)]
unsafe fn store<const BYTES: usize>(first: *mut u8, offset: usize, run: [u8; BYTES]) {
    // SAFETY: by the caller.
    unsafe { first.add(offset).cast::<[u8; BYTES]>().write_unaligned(run) };
}

/// Copies sixteen bytes at a time; the last sixteen may overlap those before.
///
/// # Safety
/// `bytes`, at least 16, must be readable at `source` and writable at `destination`.
#[inline(always)]
unsafe fn copy_chunks(source: *const u8, destination: *mut u8, bytes: usize) {
    let mut at = 0;
    while at + 16 < bytes {
        // SAFETY: `at + 16` is within the run.
        let chunk = unsafe { load::<16>(source, at) };
        // SAFETY: as above.
        unsafe { store(destination, at, chunk) };
        at += 16;
    }
    // SAFETY: the run has at least sixteen bytes.
    let chunk = unsafe { load::<16>(source, bytes - 16) };
    // SAFETY: as above.
    unsafe { store(destination, bytes - 16, chunk) };
}
