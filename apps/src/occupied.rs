//! One run at a time in a folder of results, and the names of files while they are written there.
//!
//! Who writes into a folder has the lock of a file in it, which the system takes back however the process ends. So
//! whatever is unfinished in the folder is what nobody will finish, on whichever machine that was begun.

use std::fs::{self, DirEntry, File, FileType, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::RwLock;

use crate::error::AppError;
use crate::report;

/// The file with the lock, which says whose it is.
const OCCUPIED: &str = ".occupied";

/// How the name of a file ends while it is written.
const UNFINISHED: &str = ".unfinished";

/// The name of a file while it is written.
pub(crate) fn unfinished(name: &str) -> String {
    format!(".{name}{UNFINISHED}")
}

/// The name that an unfinished file was to get.
pub(crate) fn finished(unfinished: &str) -> Option<&str> {
    unfinished.strip_prefix('.')?.strip_suffix(UNFINISHED)
}

/// Whether unfinished files may be begun: shared by those that begin one, while they do.
pub(crate) struct Beginnings(RwLock<()>);

/// Those of this program, whose ranks may be threads that go on until it has ended.
pub(crate) static BEGINNINGS: Beginnings = Beginnings::new();

impl Beginnings {
    const fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// Begins unfinished files. After [`Beginnings::end`] it begins none, and waits for the end of the program.
    pub(crate) fn begin<T>(&self, begin: impl FnOnce() -> T) -> T {
        let _shared = self.0.read();
        begin()
    }

    /// Has nobody begin another one, so that those that are removed now stay away while the program ends. Waits for who is
    /// beginning one.
    pub(crate) fn end(&self) {
        std::mem::forget(self.0.write());
    }
}

/// Removes the files that are unfinished in a folder, where it is there and nobody else writes into it.
///
/// # Errors
///
/// [`AppError::NotWritable`] where something cannot be removed.
pub(crate) fn remove_unfinished(folder: &Path) -> Result<(), AppError> {
    match remove_such(folder, |name, kind| finished(name).is_some() && kind.is_file()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        removed => removed.map_err(|source| AppError::NotWritable { dir: folder.to_owned(), source }),
    }
}

/// Removes what has such a name in a folder, and is of such a kind; of links, the links. What has got another name
/// meanwhile, or is gone, is passed over.
///
/// # Errors
///
/// What the system says, also where there is no such folder.
pub(crate) fn remove_such(folder: &Path, is_such: impl Fn(&str, FileType) -> bool) -> io::Result<()> {
    let remove = |entry: &DirEntry| {
        let kind = entry.file_type()?;
        let is_such = entry.file_name().to_str().is_some_and(|name| is_such(name, kind));
        if is_such { fs::remove_file(entry.path()) } else { Ok(()) }
    };
    for entry in fs::read_dir(folder)? {
        match remove(&entry?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A folder of results that nobody else writes into until this is dropped.
#[derive(Debug)]
pub(crate) struct Occupied {
    path: PathBuf,
    _lock: File,
}

impl Occupied {
    /// Makes the folder, tries to write into it, so that a run of an hour does not end in an error that its first second
    /// could have told, and keeps others from it. Says so where the file system has no locks.
    ///
    /// # Errors
    ///
    /// [`AppError::NotWritable`] with what the system said, [`AppError::Occupied`] with who is there.
    pub(crate) fn new(dir: &Path) -> Result<Self, AppError> {
        Self::by(dir, File::try_lock)
    }

    fn by(dir: &Path, try_lock: impl Fn(&File) -> Result<(), TryLockError>) -> Result<Self, AppError> {
        let path = dir.join(OCCUPIED);
        let failed = |source| AppError::NotWritable { dir: dir.to_owned(), source };
        let open = || {
            fs::create_dir_all(dir)?;
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        };
        loop {
            let mut file = open().map_err(failed)?;
            match try_lock(&file) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut by = String::new();
                    // Who has just come has not said yet who it is.
                    _ = file.take(256).read_to_string(&mut by);
                    let by = if by.is_empty() { "another process".to_owned() } else { by };
                    return Err(AppError::Occupied { dir: dir.to_owned(), by });
                }
                Err(TryLockError::Error(error)) => report::say(&format!(
                    "remark: {} has no locks ({error}): another run into it at the same time would not be noticed\n",
                    dir.display()
                )),
            }
            // Whoever had the lock before has removed the file, perhaps after it was opened here.
            let is_there = |found: io::Result<fs::Metadata>| match (found, file.metadata()) {
                (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
                _ => false,
            };
            if is_there(fs::metadata(&path)) {
                let written = file.set_len(0).and_then(|()| file.write_all(this_process().as_bytes()));
                // Where it cannot be written, this goes, and the file with it.
                let occupied = Self { path, _lock: file };
                return written.map(|()| occupied).map_err(failed);
            }
        }
    }
}

impl Drop for Occupied {
    /// The file goes before the lock does. One that stays, as of a process that was killed, keeps nobody away.
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

fn this_process() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "this machine" } else { host.trim() };
    format!("process {} on {host}", process::id())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Whoever begins them again and again, as a rank that is a thread does.
    #[test]
    fn what_is_removed_at_the_end_is_not_begun_again() {
        static OWN: Beginnings = Beginnings::new();
        let folder = tempfile::tempdir().expect("can be made");
        let path = folder.path().join(unfinished("a"));
        let begun = path.clone();
        // Not joined: it waits for the end of the program.
        thread::spawn(move || {
            loop {
                OWN.begin(|| fs::write(&begun, "half")).expect("can write");
                thread::sleep(Duration::from_micros(100));
            }
        });
        let since = Instant::now();
        while !path.exists() {
            assert!(since.elapsed() < Duration::from_secs(60), "it is never begun");
            thread::yield_now();
        }
        OWN.end();
        remove_unfinished(folder.path()).expect("can be removed");
        thread::sleep(Duration::from_millis(20));
        assert!(!path.exists());
    }

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().expect("can be made");
        let dir = folder.path().join("results");
        let first = Occupied::new(&dir).expect("nobody is there");
        let refused = Occupied::new(&dir).expect_err("somebody is there").to_string();
        assert!(refused.contains(&format!("process {} on ", process::id())), "{refused}");
        drop(first);
        assert_eq!(fs::read_dir(&dir).expect("is there").count(), 0);
        // What a process that was killed leaves, even one whose number another one has by now.
        fs::write(dir.join(OCCUPIED), "process 1 on this machine, whose name was longer").expect("can write");
        let next = Occupied::new(&dir).expect("nobody has the lock");
        assert_eq!(fs::read_to_string(dir.join(OCCUPIED)).expect("is there"), this_process());
        drop(next);
    }

    /// Whoever was there goes between this one's opening the file and its locking it.
    #[test]
    fn a_file_that_was_removed_is_not_what_others_find() {
        let folder = tempfile::tempdir().expect("can be made");
        let first = Cell::new(Some(Occupied::new(folder.path()).expect("nobody is there")));
        let occupied = Occupied::by(folder.path(), |file| {
            drop(first.take());
            file.try_lock()
        });
        let _occupied = occupied.expect("nobody is there any more");
        Occupied::new(folder.path()).expect_err("somebody is there");
    }

    #[test]
    fn a_file_system_without_locks_is_written_to() {
        let folder = tempfile::tempdir().expect("can be made");
        let none = |_: &File| Err(TryLockError::Error(io::ErrorKind::Unsupported.into()));
        let first = Occupied::by(folder.path(), none).expect("it can be written to");
        Occupied::by(folder.path(), none).expect("nobody can tell");
        drop(first);
    }

    #[test]
    fn a_folder_that_cannot_be_one_is_refused() {
        let folder = tempfile::tempdir().expect("can be made");
        let file = folder.path().join("results");
        fs::write(&file, "a file").expect("can write");
        let refused = Occupied::new(&file).expect_err("is a file");
        assert!(matches!(refused, AppError::NotWritable { .. }), "{refused}");
        assert_eq!(fs::read_to_string(&file).expect("is there"), "a file");
    }
}
