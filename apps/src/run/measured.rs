//! What the backend `auto` has measured, kept from run to run where a file is named for it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use streamhalo::comm::backend::Measured;

use crate::config::RunConfig;
use crate::error::AppError;
use crate::report::{OutputFile, check_writable, replace_files};

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
    /// [`AppError::Measured`] where it cannot be read, or is something else.
    pub(crate) fn open(config: &RunConfig) -> Result<Self, AppError> {
        // Of a link, the file behind it is replaced.
        let path = config.comm.measured.clone().map(|path| fs::canonicalize(&path).unwrap_or(path));
        let known = path.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { path, known })
    }

    /// What was in it.
    pub(crate) fn known(&self) -> &[Measured] {
        &self.known
    }

    /// Whether the file can be written at the end, which the first second can tell.
    ///
    /// # Errors
    ///
    /// [`AppError::Measured`].
    pub(crate) fn check_writable(&self) -> Result<(), AppError> {
        let check = |path: &Path| check_writable(folder_of(path)).map_err(|error| not_written(path, error));
        self.path.as_deref().map_or(Ok(()), check)
    }

    /// Adds what a run has `measured`, if it has measured anything, to what is there by now. Blocks while another run of this
    /// machine does so.
    ///
    /// # Errors
    ///
    /// [`AppError::NotKept`].
    pub(crate) fn write_with(&self, measured: Vec<Measured>) -> Result<(), AppError> {
        let Some(path) = self.path.as_deref().filter(|_| !measured.is_empty()) else { return Ok(()) };
        self.add(path, measured).map_err(|error| match error {
            AppError::Measured { path, reason } => AppError::NotKept { path, reason },
            other => other,
        })
    }

    fn add(&self, path: &Path, measured: Vec<Measured>) -> Result<(), AppError> {
        // Where there are no such locks, of two that end together one counts.
        let folder = File::open(folder_of(path));
        let _alone = folder.and_then(|folder| folder.lock().map(|()| folder));
        let mut content = Content { measured: read(path)? };
        content.measured.retain(|known| measured.iter().all(|new| new.shape() != known.shape()));
        content.measured.extend(measured);
        let text = serde_json::to_string_pretty(&content).expect("names and numbers are JSON") + "\n";
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let files = [OutputFile::new(name, text)];
        replace_files(folder_of(path), &files).map_err(|error| not_written(path, error))
    }
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
        let error = file.write_with(file.known().to_vec()).expect_err("it is none any more");
        assert_eq!(error.exit_status(), 1, "{error}");
        assert!(matches!(&error, AppError::NotKept { path: told, .. } if *told == path), "{error}");
    }
}
