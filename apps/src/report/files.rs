//! Replacing the files of a results folder together, at the end of a run.
//!
//! Every new file is complete and on the disk under a temporary name before the first is
//! renamed; a rename that fails undoes those before it. So a run that fails leaves the
//! results of the run before it as they were. (A crash of the machine between two renames can
//! leave new and old side by side; `results.json` goes first, and `report` makes the rest.)

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::AppError;
use crate::occupied::{finished, remove_such, unfinished};

/// A file to be put into the results folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its name in the folder.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl OutputFile {
    /// A file with a name and a content.
    pub fn new(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), content: content.into() }
    }
}

/// The file by which a folder is tried.
const PROBE: &str = "probe";

/// What follows the name of a file that is being replaced in the second name of the one before.
const EARLIER: &str = ".earlier";

/// The file in whose replacement one of that name is left behind.
pub(crate) fn left_in_replacing(file: &str) -> Option<&str> {
    let name = finished(file)?;
    Some(name.strip_suffix(EARLIER).unwrap_or(name))
}

/// Removes what was left behind where a process that replaced some of the files was killed, before this one replaces any.
///
/// # Errors
///
/// [`AppError::NotWritable`] where something of it cannot be removed.
pub(super) fn remove_left_behind(dir: &Path, names: &[String]) -> Result<(), AppError> {
    let is_ours = |name: &str| name == PROBE || names.iter().any(|one| one == name);
    let removed = remove_such(dir, |name, _| left_in_replacing(name).is_some_and(is_ours));
    removed.map_err(|source| AppError::NotWritable { dir: dir.to_owned(), source })
}

/// Makes the folder and tries to write into it, so that a run of an hour does not end in
/// an error that its first second could have told.
///
/// # Errors
///
/// [`AppError::NotWritable`] with what the system said.
pub fn check_writable(dir: &Path) -> Result<(), AppError> {
    let probe = dir.join(unfinished(PROBE));
    let tried = fs::create_dir_all(dir).and_then(|()| File::create(&probe)).and_then(|_| {
        match fs::remove_file(&probe) {
            // Another process has tried the folder at the same time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    });
    tried.map_err(|source| AppError::NotWritable { dir: dir.to_owned(), source })
}

/// Replaces the files of a folder: all of them, or none.
///
/// # Errors
///
/// [`AppError::NotWritable`] where the folder cannot be made or written to,
/// [`AppError::Replace`] with the file that cannot be replaced.
pub fn replace_files(dir: &Path, files: &[OutputFile]) -> Result<(), AppError> {
    check_writable(dir)?;
    let mut pending: Vec<Pending> = Vec::with_capacity(files.len());
    for file in files {
        // Dropped on the way out by an error, a pending file undoes itself.
        pending.push(Pending::write(dir, file)?);
    }
    for file in &mut pending {
        file.put_in_place()?;
    }
    // The names are on the disk only when the folder is.
    sync_folder(dir).map_err(|source| AppError::Replace { path: dir.to_owned(), source })?;
    pending.iter_mut().for_each(Pending::keep);
    Ok(())
}

/// Has the names in a folder on the disk, where the file system does that.
///
/// # Errors
///
/// What the system says of a folder that it does so for.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    where_offered(File::open(folder)?.sync_all())
}

/// Some file systems synchronise files only, each with another error for a folder.
fn where_offered(synced: io::Result<()>) -> io::Result<()> {
    const NOT_OFFERED: [Errno; 3] = [Errno::INVAL, Errno::NOTSUP, Errno::BADF];
    match synced {
        Err(error) if NOT_OFFERED.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) => {
            Ok(())
        }
        synced => synced,
    }
}

/// Removes those files of a folder that are there.
///
/// # Errors
///
/// [`AppError::NotRemoved`] with the file that cannot be removed.
pub(super) fn remove_files(dir: &Path, names: impl Iterator<Item = String>) -> Result<(), AppError> {
    for name in names {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(AppError::NotRemoved { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// A new file on its way to its place.
#[derive(Debug)]
struct Pending {
    place: PathBuf,
    /// The new content until it is in its place.
    new: PathBuf,
    /// A second name of the earlier file, while it may have to come back.
    earlier: PathBuf,
    had_earlier: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Written,
    InPlace,
    Kept,
}

impl Pending {
    fn write(dir: &Path, file: &OutputFile) -> Result<Self, AppError> {
        let pending = Self {
            place: dir.join(&file.name),
            // In the same folder, since a rename is atomic only within one file system.
            new: dir.join(unfinished(&file.name)),
            earlier: dir.join(unfinished(&format!("{}{EARLIER}", file.name))),
            had_earlier: false,
            state: State::Written,
        };
        let write = || -> io::Result<()> {
            let mut target = File::create(&pending.new)?;
            target.write_all(&file.content)?;
            target.sync_all()
        };
        match write() {
            Ok(()) => Ok(pending),
            Err(source) => Err(pending.error(source)),
        }
    }

    fn put_in_place(&mut self) -> Result<(), AppError> {
        match self.link_earlier() {
            Ok(linked) => self.had_earlier = linked,
            Err(source) => return Err(self.error(source)),
        }
        fs::rename(&self.new, &self.place).map_err(|source| self.error(source))?;
        self.state = State::InPlace;
        Ok(())
    }

    /// Gives the earlier file a second name. Its own name stays, so that at no moment is
    /// there nothing under it.
    fn link_earlier(&self) -> io::Result<bool> {
        match fs::symlink_metadata(&self.place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
            Ok(found) if found.is_dir() => {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder has its name"));
            }
            Ok(_) => {}
        }
        // A process that was killed may have left it behind, as a second name of the very file: a copy would empty both.
        match fs::remove_file(&self.earlier) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::hard_link(&self.place, &self.earlier) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // Some file systems have no hard links.
            Err(_) => fs::copy(&self.place, &self.earlier).map(|_| true),
            Ok(()) => Ok(true),
        }
    }

    fn keep(&mut self) {
        self.state = State::Kept;
    }

    fn error(&self, source: io::Error) -> AppError {
        AppError::Replace { path: self.place.clone(), source }
    }
}

impl Drop for Pending {
    /// Whatever was not kept is undone. Nothing can be done about an error here, and the one
    /// that led here is on its way to the user.
    fn drop(&mut self) {
        match self.state {
            State::Written => _ = fs::remove_file(&self.new),
            State::InPlace if self.had_earlier => _ = fs::rename(&self.earlier, &self.place),
            State::InPlace => _ = fs::remove_file(&self.place),
            State::Kept => {}
        }
        if self.had_earlier {
            _ = fs::remove_file(&self.earlier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_file_system_does_not_offer_is_no_error() {
        let synced = |errno: Errno| where_offered(Err(io::Error::from_raw_os_error(errno.raw_os_error())));
        for errno in [Errno::INVAL, Errno::NOTSUP, Errno::BADF] {
            synced(errno).expect("folders are not synchronised there");
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT] {
            synced(errno).expect_err("the names may not be on the disk");
        }
    }
}
