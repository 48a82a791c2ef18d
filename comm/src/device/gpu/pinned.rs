//! Memory of the host that is locked for a device, kept for those that come later: locking pages and unlocking them may
//! come to a rest of the whole device, and kernels may wait on it for the rank that asks.

use std::collections::HashMap;

/// What memory begins on a multiple of.
pub(in crate::device) const ALIGNMENT: usize = 64;
/// The least that is locked at a time: enough for the words and tables of most programs.
const CHUNK_BYTES: usize = 8 << 20;

/// The host's memory that is locked and that the GPU addresses as the host does: what is free of it, by size.
#[derive(Debug, Default)]
pub(in crate::device) struct Pinned {
    free: HashMap<usize, Vec<usize>>,
    /// What is left of the last chunk.
    rest: std::ops::Range<usize>,
}

impl Pinned {
    /// Memory of that size, which is one of [`size_class`].
    ///
    /// # Errors
    /// That of `lock`, which gives an address of that many bytes.
    pub(in crate::device) fn take<E>(
        &mut self,
        size: usize,
        lock: impl FnOnce(usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(address);
        }
        if size >= CHUNK_BYTES {
            return lock(size);
        }
        if self.rest.len() < size {
            let address = lock(CHUNK_BYTES)?;
            // What is left of the chunk before is lost: less than one that was asked for.
            self.rest = address..address + CHUNK_BYTES;
        }
        let address = self.rest.start;
        self.rest.start += size;
        Ok(address)
    }

    pub(in crate::device) fn give_back(&mut self, size: usize, address: usize) {
        self.free.entry(size).or_default().push(address);
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
    fn locked_memory_is_used_again_and_never_given_out_twice() {
        let mut pinned = Pinned::default();
        let mut locked = Vec::new();
        let mut lock = |size: usize| -> Result<usize, ()> {
            let start = (locked.len() + 1) << 32;
            locked.push(start..start + size);
            Ok(start)
        };
        let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
        for round in 0..2000_usize {
            let size = size_class(1 + (round * 7919) % (3 * CHUNK_BYTES / 2));
            let address = pinned.take(size, &mut lock).expect("there is enough");
            assert!(address.is_multiple_of(ALIGNMENT));
            let own = address..address + size;
            assert!(taken.iter().all(|other| other.end <= own.start || own.end <= other.start), "{own:?}");
            taken.push(own);
            if round % 3 != 0 {
                let freed = taken.swap_remove(round % taken.len());
                pinned.give_back(freed.len(), freed.start);
            }
        }
        for own in &taken {
            assert!(locked.iter().any(|chunk| chunk.start <= own.start && own.end <= chunk.end), "{own:?}");
        }
        let so_far = locked.len();
        let freed = taken.pop().expect("some are left");
        pinned.give_back(freed.len(), freed.start);
        let none = |_| -> Result<usize, &str> { Err("not again") };
        assert_eq!((pinned.take(freed.len(), none), so_far > 1), (Ok(freed.start), true));
    }
}
