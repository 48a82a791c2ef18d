//! Writing a checkpoint, all ranks together.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use streamhalo::World;

use super::Head;
use super::runs::{Runs, checksum};
use crate::app::Look;
use crate::occupied::{BEGINNINGS, unfinished};
use crate::report::sync_folder;
use crate::unwritten::{Failed, Unwritten, verdict};

/// Writes the field that a look shows as `name` in `folder`, and gives its path. Until it is complete, what had
/// that name keeps it. Collective; blocks until it is on the disk.
///
/// # Errors
///
/// On all ranks if it is one on any of them; then nothing is left of it.
pub(super) fn write(
    folder: &Path,
    name: &str,
    settings: &Map<String, Value>,
    look: &Look<'_>,
) -> Result<PathBuf, Failed> {
    let world = look.world();
    let place = folder.join(name);
    let head = Head::new(look.step, settings.clone(), look.carried.clone(), look.element, look.cells);
    let unfinished = folder.join(unfinished(name));
    verdict(world, on_leader(world, || create(folder, &unfinished, &head), &place))?;
    let written = fill(&unfinished, &place, head, look).and_then(|head| {
        let finished = on_leader(world, || finish(folder, &unfinished, &place, &head), &place);
        verdict(world, finished)
    });
    if written.is_err() && world.rank() == 0 {
        // The error that led here is the one to report.
        _ = fs::remove_file(&unfinished);
    }
    written.map(|_| place)
}

/// Has the values of all ranks written, and gives the head with their checksums. Collective.
fn fill(unfinished: &Path, place: &Path, mut head: Head, look: &Look<'_>) -> Result<Head, Failed> {
    let world = look.world();
    let payload_start = head.encode().len() as u64;
    let runs = Runs::new(payload_start, look.cells, look.own(), look.element.bytes());
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(unfinished)?;
        runs.write(&mut file, &look.bytes)?;
        file.sync_data()
    };
    let written = write().map_err(|error| match error.kind() {
        // What rank 0 has made and another rank does not find is on another machine.
        ErrorKind::NotFound if world.rank() > 0 => {
            let reason = "rank 0 has made it, and it is not there for this rank; checkpoints need a folder that all \
                          ranks share";
            Unwritten::because(unfinished, reason.to_owned())
        }
        _ => Unwritten::new(place, &error),
    });
    verdict(world, written)?;
    // A block can be of several ranks. What these have written is seen by all from here on, also over a network
    // file system: each has synchronised it, and the file is opened anew.
    let check = || -> io::Result<Vec<(usize, String)>> {
        let file = File::open(unfinished)?;
        let own = (world.rank()..head.blocks.len()).step_by(world.size());
        own.map(|index| {
            let (start, bytes) = head.block(index);
            Ok((index, checksum(&file, payload_start + start, bytes)?))
        })
        .collect()
    };
    let checked = verdict(world, check().map_err(|error| Unwritten::new(place, &error)))?;
    for (index, checksum) in checked.into_iter().flatten() {
        head.blocks[index] = checksum;
    }
    Ok(head)
}

/// Makes the file that the others open, as long as it will be.
fn create(folder: &Path, unfinished: &Path, head: &Head) -> io::Result<()> {
    let payload_bytes = head.payload_bytes().expect("all of it is in memory");
    fs::create_dir_all(folder)?;
    let made = BEGINNINGS.begin(|| File::create(unfinished))?;
    let made = made.set_len(head.encode().len() as u64 + payload_bytes);
    made.inspect_err(|_| _ = fs::remove_file(unfinished))
}

/// Completes the file, and gives it its name.
fn finish(folder: &Path, unfinished: &Path, place: &Path, head: &Head) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(unfinished)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&head.encode())?;
    file.sync_all()?;
    fs::rename(unfinished, place)?;
    // The name is on the disk only when the folder is.
    sync_folder(folder)
}

/// What rank 0 alone does for the file at `place`; the others have nothing to add.
fn on_leader<T: Default>(
    world: &World,
    part: impl FnOnce() -> io::Result<T>,
    place: &Path,
) -> Result<T, Unwritten> {
    let own = if world.rank() == 0 { part() } else { Ok(T::default()) };
    own.map_err(|error| Unwritten::new(place, &error))
}
