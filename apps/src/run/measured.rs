//! What the backend `auto` has measured, kept from run to run where a file is named for it.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use streamhalo::comm::backend::Measured;

use crate::config::RunConfig;
use crate::error::AppError;
use crate::interrupt::Interrupt;
use crate::report::{OutputFile, check_writable, replace_files, say};

/// The file of `comm.measured`, if there is to be one, and what is known.
#[derive(Debug)]
pub(crate) struct MeasuredFile {
    path: Option<PathBuf>,
    known: Vec<Measured>,
}

/// What is in it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    measured: Vec<Measured>,
}

impl MeasuredFile {
    /// Reads it; one that is not there yet has nothing in it.
    ///
    /// # Errors
    ///
    /// [`AppError::Measured`] where it cannot be read, or is something else, or a link leads to a name that cannot be kept.
    pub(crate) fn open(config: &RunConfig) -> Result<Self, AppError> {
        let path = config.comm.measured.clone().map(behind_links);
        if let Some(path) =
            path.as_ref().filter(|path| path.file_name().is_some_and(|name| name.to_str().is_none()))
        {
            let reason = "its name is not Unicode; a link leads there".to_owned();
            return Err(AppError::Measured { path: path.clone(), reason });
        }
        let known = path.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { path, known })
    }

    /// What was in it.
    pub(crate) fn known(&self) -> &[Measured] {
        &self.known
    }

    /// The file, where what was measured of exchanges of that shape is from there.
    pub(crate) fn path_of(&self, measured: &Measured) -> Option<&Path> {
        let is_known = self.known.iter().any(|known| known.shape() == measured.shape());
        self.path.as_deref().filter(|_| is_known)
    }

    /// Whether the file can be written at the end, which the first second can tell. Its folder is made then, where there is
    /// anything to write.
    ///
    /// # Errors
    ///
    /// [`AppError::Measured`].
    pub(crate) fn check_writable(&self) -> Result<(), AppError> {
        let check = |path: &Path| {
            let there = folder_of(path).ancestors().find(|folder| folder.exists());
            check_writable(there.unwrap_or(Path::new("."))).map_err(|error| not_written(path, error))
        };
        self.path.as_deref().map_or(Ok(()), check)
    }

    /// Adds what a run has `measured`, if it has measured anything, to what is there by now. Blocks while another run of this
    /// machine does so, and says so where that lasts.
    ///
    /// # Errors
    ///
    /// [`AppError::NotKept`], also where the user does not wait for the other run.
    pub(crate) fn write_with(&self, measured: Vec<Measured>, interrupt: &Interrupt) -> Result<(), AppError> {
        let Some(path) = self.path.as_deref().filter(|_| !measured.is_empty()) else { return Ok(()) };
        add(path, measured, interrupt).map_err(|error| match error {
            AppError::Measured { path, reason } => AppError::NotKept { path, reason },
            other => other,
        })
    }
}

/// Between two looks at the lock of a folder.
const PAUSE: Duration = Duration::from_millis(20);
/// After that long the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(2);

fn add(path: &Path, measured: Vec<Measured>, interrupt: &Interrupt) -> Result<(), AppError> {
    check_writable(folder_of(path)).map_err(|error| not_written(path, error))?;
    let _alone = alone_in(path, interrupt)?;
    let mut content = Content { measured: read(path)? };
    content.measured.retain(|known| measured.iter().all(|new| new.shape() != known.shape()));
    content.measured.extend(measured);
    let text = serde_json::to_string_pretty(&content).expect("names and numbers are JSON") + "\n";
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let files = [OutputFile::new(name, text)];
    replace_files(folder_of(path), &files).map_err(|error| not_written(path, error))
}

/// The folder of a file, once no other run has its lock. `None` where there are no such locks: of two that end together one
/// counts.
fn alone_in(path: &Path, interrupt: &Interrupt) -> Result<Option<File>, AppError> {
    let Ok(folder) = File::open(folder_of(path)) else { return Ok(None) };
    let since = Instant::now();
    let mut is_said = false;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
        }
        if !is_said && since.elapsed() >= SILENCE {
            is_said = true;
            say(&format!(
                "waiting for another run, which adds to {} or has a lock on its folder\n",
                path.display()
            ));
        }
        if interrupt.has_come() {
            let reason = "interrupted while another run has the lock of its folder".to_owned();
            return Err(AppError::Measured { path: path.to_owned(), reason });
        }
        std::thread::sleep(PAUSE);
    }
}

/// The file behind links, be it there or not: it is what is replaced, and not the link.
fn behind_links(mut path: PathBuf) -> PathBuf {
    // As many as the system follows. What leads round in circles it refuses when it is read.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => break,
        }
    }
    path
}

fn not_written(path: &Path, error: AppError) -> AppError {
    let reason = match error {
        AppError::NotWritable { source, .. } | AppError::Replace { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    AppError::Measured { path: path.to_owned(), reason: format!("it cannot be written: {reason}") }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn read(path: &Path) -> Result<Vec<Measured>, AppError> {
    let wrong = |reason: String| AppError::Measured { path: path.to_owned(), reason };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(wrong("it is no file".to_owned()));
    }
    match fs::read_to_string(path) {
        Ok(text) => {
            let content: Result<Content, _> = serde_json::from_str(&text);
            Ok(content.map_err(|error| wrong(error.to_string()))?.measured)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(wrong(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads the exit status takes a wrong configuration for a run that has left nothing.
    #[test]
    fn what_goes_wrong_once_all_has_run_is_no_wrong_configuration() {
        let folder = tempfile::tempdir().expect("can be made");
        let path = folder.path().join("measured.json");
        let one = r#"{ "measured": [ { "shape": { "fabric": "local", "library": null, "stream": "host, inline",
            "ranks": 2, "near": 1, "far": 0, "bytes": 64, "direct": "never" }, "microseconds": { "st-send": 1.0 } } ] }"#;
        fs::write(&path, one).expect("can write");
        let text = format!(
            "app.pattern = 'random:1'\ncomm = {{ backend = 'auto', measured = '{}' }}",
            path.display()
        );
        let file = MeasuredFile::open(&RunConfig::of(&text)).expect("is one");
        fs::write(&path, "something else").expect("can write");
        let interrupt = Interrupt::left_to_the_system();
        let error = file.write_with(file.known().to_vec(), &interrupt).expect_err("it is none any more");
        assert_eq!(error.exit_status(), 1, "{error}");
        assert!(matches!(&error, AppError::NotKept { path: told, .. } if *told == path), "{error}");
    }
}
