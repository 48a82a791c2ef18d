//! A rank that tries every case in every way over the fabric that it was started for.
//!
//! `conformance_rank FABRIC [few | first | device WORDS... | primitives WORDS... | both WORDS... | routes WORDS...]` takes
//! its place among the others from the environment. Rank 0 writes a line for each cell of the table. With `few` the cases
//! that only differ in geometry are left out, and with `first` all but one. With `device` it is the backends with arrays on a
//! device, used as the words say (`set`), with `primitives` the primitives, and with `both` one after the other; with
//! `routes` all ranks write how messages of a device went (`try_routes`).

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::process::ExitCode;
use streamhalo::comm::Staging;
use streamhalo::{HaloError, StreamKind, World};
use streamhalo_tests::{
    Amount, Cell, set_ways, try_backend_cells, try_cells, try_primitive_cells, try_routes, watchdog,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [fabric] => run(fabric, |world, report| try_cells(world, Amount::All, report)),
        [fabric, "few"] => run(fabric, |world, report| try_cells(world, Amount::Few, report)),
        [fabric, "first"] => run(fabric, |world, report| try_cells(world, Amount::First, report)),
        [fabric, "device", words @ ..] => run(fabric, |world, report| {
            set(words, world)?;
            try_backend_cells(world, StreamKind::Device, report)
        }),
        [fabric, "both", words @ ..] => run(fabric, |world, report| {
            set(words, world)?;
            try_backend_cells(world, StreamKind::Device, &mut *report)?;
            try_primitive_cells(world, report)
        }),
        [fabric, "primitives", words @ ..] => run(fabric, |world, report| {
            set(words, world)?;
            try_primitive_cells(world, report)
        }),
        [fabric, "routes", words @ ..] => routes(fabric, words),
        other => {
            eprintln!(
                "usage: conformance_rank FABRIC [few | first | device WORDS... | primitives WORDS... | both WORDS... | routes WORDS...], not {other:?}"
            );
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// As the words say: those of `set_ways`, or `blocks`, by which messages are staged in blocks that need not be long.
fn set(words: &[&str], world: &World) -> Result<(), HaloError> {
    let (blocks, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "blocks");
    set_ways(&words, world.rank()).expect("words that say something");
    if !blocks.is_empty() {
        world.set_staging(Staging { blocks: 3, threshold_bytes: 256, ..Staging::default() })?;
    }
    Ok(())
}

fn routes(fabric: &str, words: &[&str]) -> Result<(), HaloError> {
    let world = World::over(fabric, watchdog())?;
    set(words, &world)?;
    try_routes(&world, |line| println!("{line}"))?;
    Ok(world.barrier()?)
}

/// The descriptors of memory files that are open.
fn memory_files() -> BTreeSet<String> {
    // Other systems have none.
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
    let is_memory = |entry: &DirEntry| {
        let leads_to = std::fs::read_link(entry.path()).unwrap_or_default();
        leads_to.to_string_lossy().contains("memfd:streamhalo")
    };
    open.flatten().filter(is_memory).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What a rank starts may outlive the job, and is not to keep its memory: the descriptors of memory files that it has opened
/// end with `exec`.
fn check_descriptors(opened: impl Iterator<Item = String>) {
    for number in opened {
        let said = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).expect("it is open");
        let flags = said.lines().find_map(|line| line.strip_prefix("flags:")).expect("the system says so");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("an octal number");
        assert!(flags & 0o2_000_000 != 0, "descriptor {number} is inherited by what this rank starts");
    }
}

fn run(
    fabric: &str,
    try_all: impl Fn(&World, &mut dyn FnMut(Cell)) -> Result<(), HaloError>,
) -> Result<(), HaloError> {
    let inherited = memory_files();
    let world = World::over(fabric, watchdog())?;
    check_descriptors(memory_files().into_iter().filter(|number| !inherited.contains(number)));
    let is_first = world.rank() == 0;
    try_all(&world, &mut |cell| {
        if is_first {
            println!("{cell}");
        }
    })?;
    world.barrier()?;
    Ok(())
}
