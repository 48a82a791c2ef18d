//! Kernels of applications on a device, for tests: what it computes must be what the host does.

use streamhalo::comm::Error;
use streamhalo::{Device, MemoryMode, Stream, World, WorldOptions};

use super::{Answer, Application, Between, Trial};
use crate::ranks::on_threads;

/// A device for each place where its arrays may be. None, with the reason, where there is no device.
fn devices() -> Vec<Device> {
    match Device::opencl("") {
        Ok(device) => {
            let modes = [MemoryMode::Shared, MemoryMode::Separate].into_iter();
            modes.map(|mode| device.clone().with_memory(mode).expect("it has such memory")).collect()
        }
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: kernels on a device of OpenCL: {reason}");
            Vec::new()
        }
        Err(error) => panic!("there is a device, but {error}"),
    }
}

/// A stream of the host, and one of each device.
pub(crate) fn streams(world: &World) -> (Stream, Vec<Stream>) {
    let stream = |device: &Device| device.stream(world).expect("a stream");
    (stream(&Device::host()), devices().iter().map(stream).collect())
}

/// Runs on the host and on each device, where the answer must be the same to the last bit, and right.
pub(crate) fn agrees_with_the_host(application: &dyn Application, layout: [usize; 3], backend: &str) {
    let ranks = layout.into_iter().product();
    let play = |device: &Device| {
        let answers = on_threads(ranks, WorldOptions::default(), |world| {
            let (stream, between) = (device.stream(world)?, Between::default());
            let layout = &layout;
            let trial = Trial { world, stream: &stream, backend, layout, wants_state: true, between };
            Ok(application.run_trial(&trial)?.answer)
        });
        answers.expect("nothing fails").swap_remove(0)
    };
    let expected: Answer = play(&Device::host());
    let reference = application.reference(&|| Ok(())).expect("nobody stops it");
    assert_eq!(application.difference(&expected, &reference), None);
    for device in devices() {
        let found = play(&device);
        let differs = application.difference(&found, &expected);
        assert!(found == expected, "{layout:?}, {backend}, {}: {differs:?}", device.name());
    }
}
