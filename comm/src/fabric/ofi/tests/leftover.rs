//! What a rank that was killed has left in the system.

use super::*;
use crate::fabric::ofi::provider::{Provider, providers};
use std::fs::OpenOptions;
use std::io::Write;

/// The provider `shm` names memory by the process, and finds that the owner of what a former one with that number has
/// left is alive: it is the process that asks.
#[test]
fn memory_of_a_former_process_of_the_same_number_is_in_nobodys_way() {
    let is_usable = |one: &Provider| one.name == "shm" && one.unusable.is_none();
    if !providers().is_ok_and(|known| known.iter().any(is_usable)) {
        println!("skipped: no libfabric, or none with a usable provider `shm`");
        return;
    }
    let options = EndpointOptions { provider: Some("shm".into()), ..EndpointOptions::default() };
    let first = Endpoint::open(&options).expect("the provider is there");
    let name = String::from_utf8(first.address()).expect("a name is text");
    let name = name.trim_end_matches('\0').strip_prefix("fi_shm://").expect("a name of such memory");
    let region = std::fs::read(format!("/dev/shm/{name}")).expect("its memory has that name");
    let process = std::process::id();
    // Other tests of this process may have some of these names.
    let numbers = (0..4).flat_map(|domain| (0..4).map(move |endpoint| (domain, endpoint)));
    let mut left = Vec::new();
    for (domain, endpoint) in numbers {
        let path = format!("/dev/shm/{process}:{domain}:{endpoint}");
        if let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&path) {
            file.write_all(&region[..region.len().min(1 << 16)]).expect("there is memory");
            left.push(path);
        }
    }
    let second = Endpoint::open(&options);
    left.iter().for_each(|path| drop(std::fs::remove_file(path)));
    assert_ne!(second.expect("nothing is in its way").address(), first.address());
}
