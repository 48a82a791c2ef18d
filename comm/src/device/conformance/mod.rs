//! What every driver does, as tests that take it: `driver_tests!` makes them of a function that opens a device, or
//! says why there is none.

mod kernels;
mod memory;
mod signals;

pub(super) use kernels::{kernels_compute_each_point_once, what_is_wrong_is_refused};
pub(super) use memory::{
    memory_is_exported_and_imported, memory_is_used_again_without_what_was_in_it,
    memory_is_zeroed_and_copied, memory_of_the_host_is_registered,
};
pub(super) use signals::{
    a_send_tells_what_was_to_be_told_before, commands_of_a_queue_run_in_order,
    copies_apart_do_not_wait_for_kernels, every_queue_can_wait_at_once, graphs_repeat_what_was_recorded,
    kernels_of_two_queues_tell_each_other, queues_store_and_wait_for_words_themselves,
    what_has_arrived_is_moved_behind_the_wait, what_has_arrived_is_passed_on,
};

use super::accelerator::DeviceMemory;
use super::driver::{CommandQueue, Driver, MemoryKind};

/// Tests of the driver that a function opens. `None` leaves them out; the function prints why.
macro_rules! driver_tests {
    ($open:path) => {
        $crate::device::conformance::driver_tests!($open;
            memory_is_zeroed_and_copied, memory_is_used_again_without_what_was_in_it, kernels_compute_each_point_once,
            commands_of_a_queue_run_in_order, kernels_of_two_queues_tell_each_other, every_queue_can_wait_at_once,
            queues_store_and_wait_for_words_themselves, graphs_repeat_what_was_recorded, what_is_wrong_is_refused,
            memory_of_the_host_is_registered, memory_is_exported_and_imported, copies_apart_do_not_wait_for_kernels,
            what_has_arrived_is_moved_behind_the_wait, a_send_tells_what_was_to_be_told_before, what_has_arrived_is_passed_on);
    };
    ($open:path; $($name:ident),*) => {
        $(#[test]
        fn $name() {
            if let Some(driver) = $open() {
                $crate::device::conformance::$name(&driver);
            }
        })*
    };
}
pub(super) use driver_tests;

fn pinned<D: Driver>(driver: &D, bytes: usize) -> DeviceMemory {
    driver.allocate(bytes, MemoryKind::Pinned).expect("memory of the host")
}

fn on_device<D: Driver>(driver: &D, bytes: usize) -> DeviceMemory {
    driver.allocate(bytes, MemoryKind::Device).expect("memory")
}

/// The whole of some memory of the host, which the device does not use at the time.
fn shown<T: Copy>(memory: &DeviceMemory) -> Vec<T> {
    let first = memory.base().as_ptr().cast::<T>();
    // SAFETY: memory of the host, as long as that, in which any bits are a value of the types that tests use.
    unsafe { std::slice::from_raw_parts(first, memory.bytes() / size_of::<T>()) }.to_vec()
}

fn fill<T: Copy>(memory: &DeviceMemory, values: &[T]) {
    assert!(size_of_val(values) <= memory.bytes());
    // SAFETY: memory of the host that is as long, which nobody else uses at the time.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), memory.base().as_ptr().cast(), values.len()) };
}

fn copy<Q: CommandQueue>(queue: &mut Q, from: &DeviceMemory, to: &DeviceMemory) {
    let bytes = from.bytes().min(to.bytes());
    // SAFETY: both are as long, and the tests keep them until the queue has come to rest.
    unsafe { queue.copy(from.base().as_ptr(), to.base().as_ptr(), bytes) }.expect("a copy");
}
