//! Several devices that are alike, of which ranks take one each: PoCL shows the host's cores as often as it is told.

use super::choice;
use super::tests::TURNS;
use crate::device::Device;
use crate::error::Error;
use crate::locks::lock;
use crate::world::{World, WorldOptions};
use std::process::Command;
use std::sync::Arc;

/// What PoCL reads as it is loaded: a process of its own is needed.
const VARIABLE: &str = "POCL_DEVICES";

#[test]
fn ranks_take_devices_that_are_alike_in_turn() {
    let found = choice::found().unwrap_or_default();
    // Its name begins with what its driver is called there.
    let Some(pocl) = found.iter().find(|one| one.platform == choice::POCL) else {
        return println!("skipped: several devices of OpenCL: there is no PoCL that would show them");
    };
    let driver = pocl.name.split('-').next().expect("there is a first part");
    let _turn = lock(&TURNS);
    let status = Command::new(std::env::current_exe().expect("it has a file"))
        .args(["--exact", "device::opencl::several::of_two_devices", "--ignored", "--nocapture"])
        .env(VARIABLE, [driver, driver].join(" "))
        .status();
    assert!(status.expect("it starts").success());
}

#[test]
#[ignore = "run by the test above, with two devices"]
fn of_two_devices() {
    let alike = choice::found().expect("there are some");
    let both: Vec<String> = (0..alike.len())
        .filter(|one| alike[*one].platform == choice::POCL)
        .map(|one| one.to_string())
        .collect();
    assert_eq!(both.len(), 2, "{alike:?}");
    let is = |device: &Device, number: &String| {
        let other = Device::opencl(number).expect("it can be used");
        Arc::ptr_eq(device.accelerator.as_ref().expect("one"), other.accelerator.as_ref().expect("one"))
    };
    let taken = |select: &str| {
        let of_ranks = World::threads(3, WorldOptions::default(), |world| {
            let device = Device::of_rank(&world, "opencl", select)?;
            let number = both.iter().position(|number| is(&device, number)).expect("one of both");
            Ok::<_, Error>((number, device.shared_out().to_vec()))
        });
        let of_ranks: Result<Vec<_>, _> = of_ranks.expect("threads can be started").into_iter().collect();
        of_ranks.expect("all have one")
    };
    let (first, second) = ((0, both.clone()), (1, both.clone()));
    assert_eq!(taken(choice::POCL), [first.clone(), second, first]);
    // One that is named is the one for all, and nothing is said of a choice.
    assert_eq!(taken(&both[1]), vec![(1, Vec::new()); 3]);
}

#[test]
fn a_rank_without_a_device_is_named_on_all_of_them() {
    let of_ranks = World::threads(2, WorldOptions::default(), |world| {
        let kind = if world.rank() == 1 { "opencl" } else { "host" };
        Device::of_rank(&world, kind, "nobody's").map(|_| ())
    });
    for of_rank in of_ranks.expect("threads can be started") {
        let error = of_rank.expect_err("rank 1 has none");
        assert!(matches!(error, Error::CollectiveFailed { rank: 1, .. }), "{error}");
    }
}

#[test]
fn a_kind_that_there_is_not_is_refused_with_those_that_there_are() {
    let error = Device::open("gpu", "").expect_err("there is none").to_string();
    assert!(error.contains("host, opencl, cuda, hip"), "{error}");
}
