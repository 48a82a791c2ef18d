//! Memory of a device: fresh, used again, and of other processes.

use super::signals::kernels_use_words;
use super::{copy, fill, on_device, pinned, shown};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, MemoryKind};
use crate::error::Error;
use crate::fabric::{Fabric, LocalFabric};

pub(in crate::device) fn memory_is_zeroed_and_copied<D: Driver>(driver: &D) {
    let mut queue = driver.open_queue(None).expect("a queue");
    for bytes in [1, 64, 1000, 3 << 20] {
        let (start, end) = (pinned(driver, bytes), pinned(driver, bytes));
        let [first, second] = [0, 1].map(|_| on_device(driver, bytes));
        for memory in [&start, &end, &first, &second] {
            assert!((memory.base().as_ptr() as usize).is_multiple_of(64) && memory.bytes() == bytes);
        }
        let pattern: Vec<u8> = (0..bytes).map(|index| (index * 31 % 251) as u8).collect();
        fill(&start, &pattern);
        copy(&mut queue, &first, &end);
        queue.finish().expect("nothing fails");
        assert_eq!(shown::<u8>(&end), vec![0; bytes]);
        copy(&mut queue, &start, &first);
        copy(&mut queue, &first, &second);
        copy(&mut queue, &second, &end);
        queue.finish().expect("nothing fails");
        assert!(shown::<u8>(&end) == pattern, "{bytes} bytes");
    }
}

pub(in crate::device) fn memory_is_used_again_without_what_was_in_it<D: Driver>(driver: &D) {
    let mut queue = driver.open_queue(None).expect("a queue");
    for kind in [MemoryKind::Device, MemoryKind::Pinned] {
        let end = pinned(driver, 4096);
        for _ in 0..4 {
            let memory = driver.allocate(4096, kind).expect("memory");
            copy(&mut queue, &memory, &end);
            queue.finish().expect("nothing fails");
            assert_eq!(shown::<u8>(&end), vec![0; 4096], "{kind:?}");
            fill(&end, &[7_u8; 4096]);
            copy(&mut queue, &end, &memory);
            queue.finish().expect("nothing fails");
        }
    }
}

/// Whether other processes can reach its memory.
fn is_shared<D: Driver>(driver: &D) -> bool {
    match driver.identity() {
        Ok(identity) => {
            assert_eq!(driver.identity(), Ok(identity.clone()), "always the same");
            assert_eq!(driver.reaches(&identity), Ok(()), "its own");
            assert!(driver.reaches("another device").is_err());
            true
        }
        Err(reason) => {
            println!("skipped: memory of {} between processes: {reason}", driver.name());
            false
        }
    }
}

pub(in crate::device) fn memory_of_the_host_is_registered<D: Driver>(driver: &D) {
    if !is_shared(driver) {
        return;
    }
    let fabric = LocalFabric::ends(1).expect("memory").remove(0);
    let (region, bytes) = (fabric.allocate(3 * 4096).expect("memory"), 3 * 4096);
    let registered = driver.register(&region).expect("memory of the host");
    assert_eq!((registered.base().as_ptr(), registered.bytes()), (region.base(), bytes));
    assert!(registered.host_reaches() && registered.kernels_reach() && registered.device() == driver.id());
    let mut queue = driver.open_queue(None).expect("a queue");
    let (memory, pattern) = (on_device(driver, bytes), vec![5_u8; bytes]);
    fill(&registered, &pattern);
    copy(&mut queue, &registered, &memory);
    queue.finish().expect("nothing fails");
    fill(&registered, &vec![0_u8; bytes]);
    copy(&mut queue, &memory, &registered);
    queue.finish().expect("nothing fails");
    assert_eq!(region.read_bytes(0, bytes), Ok(pattern));
    fill(&registered, &vec![0_u8; bytes]);
    kernels_use_words(driver, &mut queue, registered);
}

pub(in crate::device) fn memory_is_exported_and_imported<D: Driver>(driver: &D) {
    if !is_shared(driver) {
        return;
    }
    let mut queue = driver.open_queue(None).expect("a queue");
    let exportable = |bytes| driver.allocate(bytes, MemoryKind::Exportable).expect("memory");
    for bytes in [1, 64, 5000, 9 << 20] {
        // Others before it and behind it, which must stay what they are.
        let [before, memory, behind] = [bytes, bytes, 64].map(exportable);
        let (end, start) = (pinned(driver, bytes), pinned(driver, bytes));
        let pattern: Vec<u8> = (0..bytes).map(|index| (index * 37 % 251) as u8).collect();
        fill(&start, &pattern);
        // One allocation exported twice, and each handle imported twice.
        let handles = [0, 1].map(|_| driver.export(&memory).expect("a handle"));
        let imports: Vec<DeviceMemory> =
            [0, 0, 1, 1].iter().map(|which| driver.import(&handles[*which]).expect("it is there")).collect();
        for imported in &imports {
            assert!(
                imported.bytes() == bytes && imported.device() == driver.id() && imported.kernels_reach()
            );
            copy(&mut queue, imported, &end);
            queue.finish().expect("nothing fails");
            assert_eq!(shown::<u8>(&end), vec![0; bytes], "{bytes} bytes");
        }
        copy(&mut queue, &start, &imports[3]);
        for seen in [&imports[0], &memory] {
            copy(&mut queue, seen, &end);
            queue.finish().expect("nothing fails");
            assert!(shown::<u8>(&end) == pattern, "{bytes} bytes");
        }
        drop(imports);
        copy(&mut queue, &memory, &end);
        queue.finish().expect("nothing fails");
        assert!(shown::<u8>(&end) == pattern, "it outlives what was imported");
        for other in [&before, &behind] {
            copy(&mut queue, other, &end);
            queue.finish().expect("nothing fails");
            assert!(shown::<u8>(&end)[..bytes.min(other.bytes())].iter().all(|byte| *byte == 0));
        }
    }
    let refused = driver.import(b"no handle").expect_err("it is none");
    assert!(matches!(refused, Error::DeviceUnavailable { .. }), "{refused}");
}
