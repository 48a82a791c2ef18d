//! Whether memory of a job lives as long as anyone has mapped it, and no longer.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::os::linux::fs::MetadataExt;
use streamhalo::StreamKind;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::fabric::{Region, shm};
use streamhalo::{Stream, World};
use streamhalo_tests::stream_of;

const MIB: usize = 1 << 20;
const LARGE: usize = 64 * MIB;

/// Memory of the job, in MiB.
fn job_mib() -> Result<usize, Box<dyn Error>> {
    let descriptor = std::env::var(shm::SEGMENT_VARIABLE)?;
    let file = std::fs::metadata(format!("/proc/self/fd/{descriptor}"))?;
    // Blocks of 512 bytes, whatever the file system says of its own.
    Ok(file.st_blocks() as usize * 512 / MIB)
}

/// The same on every rank, between two barriers.
fn settled_mib(world: &World) -> Result<usize, Box<dyn Error>> {
    world.barrier()?;
    let mib = job_mib()?;
    world.barrier()?;
    Ok(mib)
}

fn expect(what: &str, found: usize, allowed: std::ops::RangeInclusive<usize>) -> Result<(), Box<dyn Error>> {
    if allowed.contains(&found) {
        Ok(())
    } else {
        Err(format!("{what}: {found} MiB, not {allowed:?}").into())
    }
}

/// The region that rank 0 owns, on all ranks.
fn shared(world: &World, own: Option<Region>) -> Result<Region, Box<dyn Error>> {
    let told = world.all_gather(&own.as_ref().map(|region| (region.key(), region.bytes())))?;
    let (key, bytes) = told[0].ok_or("rank 0 owns the region")?;
    let region = match own {
        Some(region) => region,
        None => world.fabric().map(0, key, bytes)?,
    };
    // The owner keeps it until all have it.
    world.barrier()?;
    Ok(region)
}

/// Large regions one after the other, let go by the owner first, by its peers first, or never
/// mapped: the job has one of them at a time.
pub(crate) fn comes_back(world: &World) -> Result<(), Box<dyn Error>> {
    let before = settled_mib(world)?;
    for round in 0..12 {
        let own = if world.rank() == 0 { Some(world.fabric().allocate(LARGE)?) } else { None };
        if round % 3 == 2 {
            expect("while the owner has it", settled_mib(world)?, before + 64..=before + 66)?;
            drop(own);
        } else {
            let region = shared(world, own)?;
            expect("while all have it", settled_mib(world)?, before + 64..=before + 66)?;
            let first = (world.rank() == 0) == (round % 3 == 0);
            let rest = if first { None } else { Some(region) };
            expect("while some have it", settled_mib(world)?, before + 64..=before + 66)?;
            drop(rest);
        }
        expect("after all have let go", settled_mib(world)?, before..=before + 2)?;
    }
    println!("rank {}: memory comes back", world.rank());
    Ok(())
}

/// A peer reads what the owner has written and let go of, and what is allocated next is zero.
pub(crate) fn is_kept(world: &World) -> Result<(), Box<dyn Error>> {
    let stream = stream_of(world, StreamKind::Inline)?;
    let extents = Extents { points: [1, 1, 4 * MIB], components: 1 };
    let mut own = Buffer::<u8>::zeros(world, &stream, extents)?;
    if world.rank() == 0 {
        own.view_mut(extents.whole())?.fill(7);
    }
    let is_owner = world.rank() == 0;
    let region = shared(world, is_owner.then(|| own.region().clone()))?;
    let theirs = if is_owner {
        drop((own, region));
        None
    } else {
        Some((own, region))
    };
    world.barrier()?;
    // Takes the place of what was given back, if anything was.
    let next = Buffer::<u8>::zeros(world, &stream, extents)?;
    if let Some((mut own, region)) = theirs {
        copy(&stream, &region, &own)?;
        let view = own.view_mut(extents.whole())?;
        if let Some((index, found)) = view.iter().enumerate().find(|(_, value)| **value != 7) {
            return Err(format!("byte {index} of a region that its owner let go is {found}").into());
        }
    }
    if next.view(extents.whole())?.iter().any(|value| *value != 0) {
        return Err("a new region is not zeroed".into());
    }
    world.barrier()?;
    println!("rank {}: memory is kept", world.rank());
    Ok(())
}

/// Regions that are not there, or too large for any machine, are errors, after which the job goes on.
pub(crate) fn is_refused(world: &World) -> Result<(), Box<dyn Error>> {
    let own = if world.rank() == 0 { Some(world.fabric().allocate(3 * MIB)?) } else { None };
    let region = shared(world, own)?;
    let (key, bytes) = (region.key(), region.bytes());
    let refused = |key: u64, bytes: usize| match world.fabric().map(0, key, bytes) {
        Err(error) if error.to_string().contains("rank 0 has no region with key") => Ok(()),
        other => Err(format!("mapping {bytes} bytes at {key} gave {other:?}")),
    };
    for (key, bytes) in [
        (key, bytes - 1),
        (key, bytes + 1),
        (key, usize::MAX),
        (key + 4096, bytes),
        (key + 1, bytes),
        (0, 64),
        (1 << 40, 64),
        (u64::MAX - 4095, 64),
    ] {
        refused(key, bytes)?;
    }
    drop(region);
    world.barrier()?;
    refused(key, bytes)?;
    for bytes in [1 << 46, usize::MAX - 8191, usize::MAX] {
        match world.fabric().allocate(bytes) {
            Err(error) if error.to_string().contains("use fewer cells or ranks") => {}
            other => return Err(format!("{bytes} bytes gave {other:?}").into()),
        }
    }
    drop(world.fabric().allocate(MIB)?);
    world.barrier()?;
    println!("rank {}: memory is refused", world.rank());
    Ok(())
}

/// A rank that cannot address what it asks for has an error, and keeps none of it.
pub(crate) fn is_given_back(world: &World) -> Result<(), Box<dyn Error>> {
    let before = job_mib()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let addressed = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let addressed = addressed.ok_or("the kernel says how much it addresses")?.parse::<usize>()? * 1024;
    let limit = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some((addressed + LARGE / 2) as u64), ..limit })?;
    let refused = [(); 3].map(|()| world.fabric().allocate(LARGE));
    setrlimit(Resource::As, limit)?;
    for refused in refused {
        match refused {
            Err(error) if error.to_string().contains("mapping it failed") => {}
            other => return Err(format!("{LARGE} bytes gave {other:?}").into()),
        }
    }
    expect("after mapping has failed", job_mib()?, before..=before + 2)?;
    drop(world.fabric().allocate(LARGE)?);
    Ok(())
}

/// Copies all bytes of a peer's region.
fn copy(stream: &Stream, region: &Region, own: &Buffer<u8>) -> Result<(), Box<dyn Error>> {
    let one = Move::of_bytes(
        region.place(0, region.bytes(), "the peer's region")?,
        own.place([0; 3])?,
        region.bytes(),
    );
    stream.enqueue_move(&std::sync::Arc::new(MoveTable::new(&[vec![one]])?))?;
    Ok(stream.synchronize()?)
}
