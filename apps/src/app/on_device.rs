//! Kernels of applications on a device, for tests: what it computes must be what the host does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use streamhalo::comm::Error;
use streamhalo::{Device, MemoryMode, Stream, StreamOptions, World};

use super::Application;
use super::played::{play_on, reference};

/// A device of each kind for each place where its arrays may be. What there is not is named as left out, with the reason.
fn devices() -> Vec<Device> {
    let there = |what: String, found: Result<Device, Error>| match found {
        Ok(device) => Some(device),
        Err(Error::DeviceUnavailable { reason, .. }) => {
            println!("skipped: {what}: {reason}");
            None
        }
        Err(error) => panic!("there is a device, but {error}"),
    };
    let mut devices = Vec::new();
    for kind in Device::KINDS.into_iter().filter(|kind| *kind != "host") {
        let opened = Device::open(kind, "");
        let Some(device) = there(format!("kernels of applications on `{kind}`"), opened) else { continue };
        for mode in [MemoryMode::Shared, MemoryMode::Separate] {
            let what = format!("kernels of applications on `{kind}` in {} memory", mode.name());
            devices.extend(there(what, device.clone().with_memory(mode)));
        }
    }
    devices
}

/// Tests take turns on devices: what one compiles may have to wait for kernels of another that wait for other ranks.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream of the host, and one of each device, which no other test uses meanwhile.
pub(crate) fn streams_in_turn(world: &World) -> (MutexGuard<'static, ()>, Stream, Vec<Stream>) {
    let turn = turn();
    let stream = |device: &Device| device.stream(world).expect("a stream");
    (turn, stream(&Device::host()), devices().iter().map(stream).collect())
}

/// Runs on the host and on each device, where the answer must be the same to the last bit, and right.
pub(crate) fn agrees_with_the_host(application: &dyn Application, layout: [usize; 3], backend: &str) {
    let play =
        |device: &Device| play_on(device, StreamOptions::default(), application, &layout, backend).answer;
    let expected = play(&Device::host());
    let reference = reference(application);
    assert_eq!(application.difference(&expected, &reference), None);
    let _turn = turn();
    for device in devices() {
        let found = play(&device);
        let differs = application.difference(&found, &expected);
        assert!(found == expected, "{layout:?}, {backend}, {}: {differs:?}", device.name());
    }
}
