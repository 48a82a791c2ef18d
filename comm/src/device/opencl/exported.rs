//! Memory that kernels of several processes address: memory files, which a process that has been told of one opens
//! through `/proc`, as the same user may.
//!
//! They have no name, so that nothing of them is left behind: the memory is gone when nobody maps it any more.

use crate::device::accelerator::{DeviceMemory, Reach};
use crate::error::{Error, Result};
use crate::fabric::claims::OF_THIS_PROCESS;
use crate::fabric::shm::{Mapping, reserve, whole_pages};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

/// A memory file, as this process has it.
#[derive(Debug)]
pub(super) struct ExportedMemory {
    file: OwnedFd,
    mapping: Mapping,
    bytes: usize,
}

/// What another process opens it by.
#[derive(Debug, Serialize, Deserialize)]
struct Handle {
    process: u32,
    descriptor: i32,
    bytes: usize,
    /// Tells it from another file that has the number later.
    file: u64,
}

/// Why there is none on this system, if so.
pub(super) fn unusable() -> Option<String> {
    None
}

impl ExportedMemory {
    /// Zeroed memory.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let failed =
            |error: rustix::io::Errno| Error::System { call: "memfd_create", reason: error.to_string() };
        let file = rustix::fs::memfd_create(c"streamhalo-device", MemfdFlags::CLOEXEC).map_err(failed)?;
        let size = whole_pages(bytes.max(1));
        reserve(&file, 0, size, &OF_THIS_PROCESS)?;
        let mapping = Mapping::new(&file, 0, size)?;
        Ok(Self { file, mapping, bytes })
    }

    /// What a process of this machine opens it by, for as long as `self` lives.
    pub(super) fn handle(&self) -> Vec<u8> {
        let stat = rustix::fs::fstat(&self.file).expect("the file is open");
        let (process, descriptor) = (std::process::id(), self.file.as_raw_fd());
        let handle = Handle { process, descriptor, bytes: self.bytes, file: stat.st_ino };
        postcard::to_stdvec(&handle).expect("numbers can be written")
    }

    /// The memory of a handle.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) fn open(handle: &[u8]) -> std::result::Result<Self, String> {
        let handle: Handle =
            postcard::from_bytes(handle).map_err(|error| format!("not a handle: {error}"))?;
        let Handle { process, descriptor, bytes, file: number } = handle;
        let refused = |reason: &str| {
            format!(
                "memory of process {process} cannot be mapped ({reason}); `device.peers = \"staged\"` does without"
            )
        };
        let file = File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}"));
        let file = OwnedFd::from(file.map_err(|error| refused(&error.to_string()))?);
        let stat = rustix::fs::fstat(&file).map_err(|error| refused(&error.to_string()))?;
        let size = whole_pages(bytes.max(1));
        if stat.st_ino != number || stat.st_size as usize != size {
            return Err(refused("it has freed it"));
        }
        let mapping = Mapping::new(&file, 0, size).map_err(|error| refused(&error.to_string()))?;
        Ok(Self { file, mapping, bytes })
    }

    /// The mapping as memory of a device whose kernels address all memory of the host.
    pub(super) fn of_device(self, device: u64, reach: Reach) -> DeviceMemory {
        let (base, bytes) = (self.mapping.start(), self.bytes);
        // SAFETY: mapped as long as `self` lives, on a page's boundary, and with at least so many bytes.
        unsafe { DeviceMemory::new(base, bytes, device, reach, Box::new(self)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_what_is_no_more_are_refused() {
        let memory = ExportedMemory::new(5000).expect("memory");
        let handle: Handle = postcard::from_bytes(&memory.handle()).expect("its own");
        let open = |handle: &Handle| {
            let bytes = postcard::to_stdvec(handle).expect("numbers can be written");
            ExportedMemory::open(&bytes).map(|memory| memory.bytes)
        };
        assert_eq!(open(&handle), Ok(5000));
        let Handle { process, descriptor, bytes, file } = handle;
        let refused = |handle| open(&handle).expect_err("it is none");
        // A number that another file has now, and a file of another size.
        let said = refused(Handle { process, descriptor, bytes, file: file + 1 });
        assert!(said.contains("it has freed it") && said.contains("`device.peers = \"staged\"`"), "{said}");
        assert!(refused(Handle { process, descriptor, bytes: 1 << 20, file }).contains("it has freed it"));
        drop(memory);
        let said = refused(Handle { process, descriptor, bytes, file });
        assert!(said.contains("No such file") || said.contains("it has freed it"), "{said}");
        let mut ended = std::process::Command::new("true").spawn().expect("a process");
        ended.wait().expect("it ends");
        let said = refused(Handle { process: ended.id(), descriptor, bytes, file });
        assert!(said.contains(&format!("memory of process {}", ended.id())), "{said}");
        assert!(ExportedMemory::open(b"").is_err_and(|error| error.contains("not a handle")));
    }
}
