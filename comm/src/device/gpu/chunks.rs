//! Memory that comes in chunks and is kept for those that come later: the host's that is locked for a device, and the
//! device's that other processes open. The driver's calls for either may come to a rest of the whole device, and kernels
//! may wait on it for the rank that asks.

use crate::locks::lock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

/// What memory begins on a multiple of.
pub(in crate::device) const ALIGNMENT: usize = 64;
/// The least that is asked for at a time: enough for the words and tables of most programs.
const CHUNK_BYTES: usize = 8 << 20;

/// What is free of such memory.
#[derive(Debug, Default)]
pub(in crate::device) struct Chunks(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    by_size: HashMap<usize, Vec<usize>>,
    /// What is left of the last chunk.
    rest: Range<usize>,
}

impl Free {
    fn take(&mut self, size: usize) -> Option<usize> {
        if let Some(address) = self.by_size.get_mut(&size).and_then(Vec::pop) {
            return Some(address);
        }
        let Range { start, end } = self.rest;
        let is_enough = size < CHUNK_BYTES && end - start >= size;
        is_enough.then(|| self.rest = start + size..end).map(|()| start)
    }
}

impl Chunks {
    /// Memory of that size, which is one of [`size_class`].
    ///
    /// # Errors
    /// That of `more`, which gives an address of that many bytes. It may wait for the device, and with it for other ranks,
    /// and keeps nobody from what is free meanwhile.
    pub(in crate::device) fn take<E>(
        &self,
        size: usize,
        more: impl FnOnce(usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some(address) = lock(&self.0).take(size) {
            return Ok(address);
        }
        if size >= CHUNK_BYTES {
            return more(size);
        }
        let address = more(CHUNK_BYTES)?;
        // What is left of the chunk before is lost: less than one that was asked for, unless two have come at once.
        lock(&self.0).rest = address + size..address + CHUNK_BYTES;
        Ok(address)
    }

    pub(in crate::device) fn give_back(&self, size: usize, address: usize) {
        lock(&self.0).by_size.entry(size).or_default().push(address);
    }
}

/// What an allocation takes up, so that it fits others later.
pub(in crate::device) fn size_class(bytes: usize) -> usize {
    if bytes > CHUNK_BYTES / 2 {
        bytes.next_multiple_of(CHUNK_BYTES)
    } else {
        bytes.max(ALIGNMENT).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_given_out_twice() {
        let chunks = Chunks::default();
        let mut locked = Vec::new();
        let mut lock = |size: usize| -> Result<usize, ()> {
            let start = (locked.len() + 1) << 32;
            locked.push(start..start + size);
            Ok(start)
        };
        let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
        for round in 0..2000_usize {
            let size = size_class(1 + (round * 7919) % (3 * CHUNK_BYTES / 2));
            let address = chunks.take(size, &mut lock).expect("there is enough");
            assert!(address.is_multiple_of(ALIGNMENT));
            let own = address..address + size;
            assert!(taken.iter().all(|other| other.end <= own.start || own.end <= other.start), "{own:?}");
            taken.push(own);
            if round % 3 != 0 {
                let freed = taken.swap_remove(round % taken.len());
                chunks.give_back(freed.len(), freed.start);
            }
        }
        for own in &taken {
            assert!(locked.iter().any(|chunk| chunk.start <= own.start && own.end <= chunk.end), "{own:?}");
        }
        let so_far = locked.len();
        let freed = taken.pop().expect("some are left");
        chunks.give_back(freed.len(), freed.start);
        let none = |_| -> Result<usize, &str> { Err("not again") };
        assert_eq!((chunks.take(freed.len(), none), so_far > 1), (Ok(freed.start), true));
    }
}
