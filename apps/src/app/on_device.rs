//! Kernels of applications on a device, for tests: what it computes must be what the host does.

use streamhalo::comm::Error;
use streamhalo::{Device, MemoryMode, Stream, World};

/// A stream of the host, and one of a device for each place where its arrays may be. Those of the device are left out,
/// with the reason, where there is none.
pub(crate) fn streams(world: &World) -> (Stream, Vec<Stream>) {
    let stream = |device: Device| device.stream(world).expect("a stream");
    let others = match Device::opencl("") {
        Ok(device) => {
            let modes = [MemoryMode::Shared, MemoryMode::Separate].into_iter();
            modes.map(|mode| stream(device.clone().with_memory(mode).expect("it has such memory"))).collect()
        }
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: kernels on a device of OpenCL: {reason}");
            Vec::new()
        }
        Err(error) => panic!("there is a device, but {error}"),
    };
    (stream(Device::host()), others)
}
