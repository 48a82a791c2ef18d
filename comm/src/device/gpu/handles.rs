//! Memory of a GPU between processes: what they tell each other of it, and what this one has opened.
//!
//! Vendors give a handle for what they have allocated, of which an array may be a part. The process that has allocated it
//! cannot open it, and another one should do so once.

use crate::fabric::Region;
use crate::locks::lock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// The pages that a region is on, where they begin and how many bytes they have: what drivers register.
pub(in crate::device) fn pages_of(region: &Region) -> (usize, usize) {
    const PAGE: usize = 4096;
    let first = region.base() as usize;
    let start = first / PAGE * PAGE;
    (start, (first + region.bytes()).next_multiple_of(PAGE) - start)
}

/// Tells a process from others that it has memory in common with: in containers several may have one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    number: u32,
    random: u64,
}

impl Process {
    /// This one.
    fn own() -> Self {
        static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        Self { number: std::process::id(), random: *RANDOM }
    }
}

/// What a process tells others of some memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::device) struct Handle {
    process: Process,
    /// Where that process has it.
    address: u64,
    /// From the beginning of what the vendor's handle is of.
    offset: u64,
    /// How long it is.
    pub(in crate::device) bytes: u64,
    /// The vendor's handle.
    pub(in crate::device) vendor: Vec<u8>,
}

impl Handle {
    /// Of memory of this process, in an allocation that begins at `start`.
    pub(in crate::device) fn of(address: usize, bytes: usize, start: usize, vendor: Vec<u8>) -> Self {
        let (process, address, offset) = (Process::own(), address as u64, (address - start) as u64);
        Self { process, address, offset, bytes: bytes as u64, vendor }
    }

    pub(in crate::device) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers can be written")
    }

    /// # Errors
    /// That the bytes are none.
    pub(in crate::device) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes).map_err(|error| format!("not a handle of memory: {error}"))
    }

    /// Where the memory is, if it is this process's own.
    pub(in crate::device) fn own(&self) -> Option<usize> {
        (self.process == Process::own()).then_some(self.address as usize)
    }
}

/// What this process has opened of others: each handle once, at an address, for as long as anybody uses it.
#[derive(Debug, Default)]
pub(in crate::device) struct Imports(Mutex<HashMap<Vec<u8>, (usize, usize)>>);

impl Imports {
    fn opened(&self) -> MutexGuard<'_, HashMap<Vec<u8>, (usize, usize)>> {
        lock(&self.0)
    }

    /// Where the memory of a handle is, which `open` opens if nobody has it open.
    ///
    /// # Errors
    /// Those of `open`.
    pub(in crate::device) fn open<E>(
        &self,
        handle: &Handle,
        open: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        // Held while it is opened or closed: a vendor's handle is not opened while it is being closed.
        let mut opened = self.opened();
        let (start, users) = match opened.get(&handle.vendor) {
            Some(known) => *known,
            None => (open()?, 0),
        };
        opened.insert(handle.vendor.clone(), (start, users + 1));
        Ok(start + handle.offset as usize)
    }

    /// Nobody uses what one call has opened any more; the last one closes it.
    pub(in crate::device) fn close(&self, handle: &Handle, close: impl FnOnce(usize)) {
        let mut opened = self.opened();
        match opened.remove(&handle.vendor) {
            Some((start, 1)) => close(start),
            Some((start, users)) => {
                opened.insert(handle.vendor.clone(), (start, users - 1));
            }
            None => unreachable!("closed as often as opened"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(offset: usize, vendor: &[u8]) -> Handle {
        let process = Process { number: 0, ..Process::own() };
        Handle { process, ..Handle::of(0x10_000 + offset, 64, 0x10_000, vendor.to_vec()) }
    }

    #[test]
    fn each_handle_is_opened_once_and_closed_by_the_last() {
        let imports = Imports::default();
        let (first, second, other) = (handle(0, b"one"), handle(4096, b"one"), handle(64, b"other"));
        let opened = imports.open(&first, || Ok::<_, ()>(0x70_000));
        assert_eq!(opened, Ok(0x70_000));
        let again = || -> Result<usize, ()> { panic!("it is open") };
        assert_eq!(imports.open(&second, again), Ok(0x71_000), "as far from the start as it was there");
        assert_eq!(imports.open(&first, again), Ok(0x70_000));
        assert_eq!(imports.open(&other, || Ok::<_, ()>(0x90_000)), Ok(0x90_040));
        let none = |_| panic!("it is still used");
        imports.close(&first, none);
        imports.close(&second, none);
        let mut closed = Vec::new();
        imports.close(&first, |start| closed.push(start));
        imports.close(&other, |start| closed.push(start));
        assert_eq!(closed, [0x70_000, 0x90_000]);
        assert_eq!(imports.open(&first, || Err("gone")), Err("gone"));
        assert_eq!(imports.open(&first, || Ok::<_, ()>(0x20_000)), Ok(0x20_000), "a failure opens nothing");
    }

    #[test]
    fn handles_are_told_in_bytes_and_know_their_process() {
        let own = Handle::of(0x10_040, 640, 0x10_000, vec![7; 64]);
        assert_eq!(Handle::from_bytes(&own.to_bytes()), Ok(own.clone()));
        assert_eq!((own.own(), handle(64, b"").own()), (Some(0x10_040), None));
        let process = Process { random: !own.process.random, ..own.process };
        let of_its_number = Handle { process, ..own };
        assert_eq!(of_its_number.own(), None, "another process, which has the same number elsewhere");
        assert!(Handle::from_bytes(b"").is_err_and(|error| error.contains("not a handle")));
    }
}
