//! A checkpoint that a run goes on from.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use streamhalo::{Array, ElementType, Entity, World};

use super::runs::{Runs, checksum};
use super::{CheckpointError, Head, settings};
use crate::app::{Application, Stored};
use crate::config::RunConfig;
use crate::error::AppError;

/// A file whose head and length are right.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    /// Read from as long as trials begin with it, whatever has its path by then.
    file: File,
    head: Head,
    payload_start: u64,
    checksum: String,
}

impl Checkpoint {
    /// Opens the one that a configuration asks for, if it does, which has been found to have that checksum.
    ///
    /// # Errors
    ///
    /// As [`Checkpoint::open`]; or another file has its path by now.
    pub(crate) fn asked_for(
        config: &RunConfig,
        application: &dyn Application,
        found: Option<&str>,
    ) -> Option<Result<Self, CheckpointError>> {
        let path = config.run.restart.as_ref()?;
        let opened = Self::open(path, config, application);
        let is_another = |opened: &Self| found.is_some_and(|found| found != opened.checksum);
        Some(opened.and_then(|opened| match is_another(&opened) {
            true => Err(CheckpointError::Replaced { path: path.clone() }),
            false => Ok(opened),
        }))
    }

    /// What tells it from others.
    pub(crate) fn checksum(&self) -> &str {
        &self.checksum
    }

    /// Opens a checkpoint for a run that is to go on from it.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, is none, is not whole, or is of another run.
    pub(crate) fn open(
        path: &Path,
        config: &RunConfig,
        application: &dyn Application,
    ) -> Result<Self, CheckpointError> {
        let opened = Self::read(path)?;
        let path = || path.to_owned();
        let difference = settings::difference(&opened.head.settings, &settings::of(config, application));
        if let Some((key, found, asked)) = difference {
            return Err(CheckpointError::OtherRun { path: path(), key, found, asked, weak: None });
        }
        if opened.step() > config.app.steps {
            let (found, asked) = (opened.step(), config.app.steps);
            return Err(CheckpointError::Beyond { path: path(), found, asked });
        }
        Ok(opened)
    }

    /// Opens any checkpoint.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, is none, or is not whole.
    pub(super) fn read(path: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable { path: path.to_owned(), source };
        // Of a pipe opening would wait for somebody who writes.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("it is no regular file")));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let (head, payload_start, checksum) = Head::read(&mut file, path)?;
        let payload_bytes = head.payload_bytes().expect("was checked when it was read");
        let (path, needed_bytes) = (path.to_owned(), payload_start.saturating_add(payload_bytes));
        match file.metadata().map_err(unreadable)?.len() {
            found_bytes if found_bytes < needed_bytes => {
                Err(CheckpointError::Truncated { path, found_bytes, needed_bytes, at_least: false })
            }
            found_bytes if found_bytes > needed_bytes => {
                Err(CheckpointError::TooLong { path, found_bytes, needed_bytes })
            }
            _ => Ok(Self { path, file, head, payload_start, checksum }),
        }
    }

    /// Looks at every byte of the payload.
    ///
    /// # Errors
    ///
    /// Which bytes are not those that were written.
    pub(crate) fn verify(&self) -> Result<(), CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable { path: self.path.clone(), source };
        for (index, written) in self.head.blocks.iter().enumerate() {
            let (start, bytes) = self.head.block(index);
            let start = self.payload_start + start;
            if checksum(&self.file, start, bytes).map_err(unreadable)? != *written {
                let what = format!(
                    "bytes {start} to {} (block {} of {}) are not what was written",
                    start + bytes,
                    index + 1,
                    self.head.blocks.len()
                );
                return Err(CheckpointError::Damaged { path: self.path.clone(), what });
            }
        }
        Ok(())
    }

    /// That all ranks have opened the same one. Collective; blocks.
    ///
    /// # Errors
    ///
    /// Which rank has not.
    pub(crate) fn agree(world: &World, opened: Result<Self, CheckpointError>) -> Result<Self, AppError> {
        const CALL: &str = "opening a checkpoint";
        let all = world.agree(CALL, opened.as_ref().map(|opened| opened.checksum.clone()))?;
        let opened = opened.expect("all have opened theirs");
        let same = if opened.checksum == all[0] { Ok(()) } else { Err("it finds another file than rank 0") };
        world.agree(CALL, same)?;
        Ok(opened)
    }

    /// The same, if it holds the step that its name says, where that counts.
    ///
    /// # Errors
    ///
    /// Both steps.
    pub(crate) fn named(self, step: Option<u64>) -> Result<Self, CheckpointError> {
        match step {
            Some(named) if named != self.step() => {
                Err(CheckpointError::Misnamed { found: self.step(), path: self.path, named })
            }
            _ => Ok(self),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Steps that are finished.
    pub(crate) fn step(&self) -> u64 {
        self.head.step
    }

    /// What the application has put there besides the cells.
    pub(crate) fn carried(&self) -> &Map<String, Value> {
        &self.head.carried
    }

    /// Gives the owned cells of this rank their values. Waits for the stream.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read any more, or has another number of cells.
    pub(crate) fn restore<T: Stored, const D: usize>(&self, field: &mut Array<T, D>) -> Result<(), AppError> {
        let mut cells = [1; 3];
        cells[3 - D..].copy_from_slice(&field.grid().subdomain().partition().grid().cells());
        let damaged = |what| Err(CheckpointError::Damaged { path: self.path.clone(), what }.into());
        if self.head.cells != cells {
            return damaged(format!("it has {:?} cells, the grid has {cells:?}", self.head.cells));
        }
        let own = field.grid().owned_global(Entity::Cell).tile();
        let element = ElementType::from_name(&self.head.element).expect("was checked when it was read");
        let runs = Runs::new(self.payload_start, cells, own, element.bytes());
        let bytes = runs
            .read(&self.file)
            .map_err(|source| CheckpointError::Unreadable { path: self.path.clone(), source })?;
        let number: fn(&[u8]) -> f64 = match element {
            ElementType::U8 => |bytes| u8::read(bytes).to_f64(),
            ElementType::F32 => |bytes| f32::read(bytes).to_f64(),
            ElementType::F64 => |bytes| f64::read(bytes),
            other => return damaged(format!("it has values of {other}, which no application has")),
        };
        // Where the type matters it is one of the settings; cells that are 0 or 1 are so in each.
        let is_same = element == T::TYPE;
        let value = |bytes: &[u8]| if is_same { T::read(bytes) } else { T::from_f64(number(bytes)) };
        let mut values = bytes.chunks_exact(element.bytes()).map(value);
        Ok(field.fill(|_, _| values.next().expect("there is one for each owned cell"))?)
    }
}
