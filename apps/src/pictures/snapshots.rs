//! Pictures after every so many steps, in the folder `snapshots` of the results.
//!
//! | file | what it is | who writes it |
//! |---|---|---|
//! | `NAME_000100_2.vti` | the cells of rank 2 after 100 steps | rank 2 |
//! | `NAME_000100.pvti` | the field of all ranks | rank 0 |
//! | `NAME_000100.png` | the same as an image; the middle plane of three dimensions | rank 0 |
//! | `NAME.pvd` | all that are there, as a series | rank 0 |
//!
//! A picture is there as a whole or not at all, and all ranks know which. A file gets its name once it is complete, and
//! the one that is of all ranks last. A run that ends in between takes away files of other names, and leaves some only where
//! it is killed; pieces, which nothing refers to, may stay either way.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::image::{self, Colours, MOST_PIXELS};
use super::{Mosaic, vti};
use crate::app::{Look, Looker};
use crate::config::{AppConfig, AppSettings, OnFullDisk, RunConfig};
use crate::error::AppError;
use crate::occupied::{BEGINNINGS, unfinished};
use crate::report::{OutputFile, left_in_replacing, replace_files};
use crate::unwritten::{Unwritten, verdict};

/// The folder in that of the results.
pub(crate) const FOLDER: &str = "snapshots";

/// That nothing else has the name of the folder, which the first picture would find.
pub(crate) fn check_place(results: &Path) -> Result<(), AppError> {
    let folder = results.join(FOLDER);
    match folder.symlink_metadata() {
        Ok(_) if !folder.is_dir() => {
            Err(AppError::NotWritable { dir: folder, source: ErrorKind::AlreadyExists.into() })
        }
        _ => Ok(()),
    }
}

/// Who writes them.
pub(crate) struct Snapshots<'a> {
    folder: PathBuf,
    name: &'a str,
    every: u64,
    /// The step that the run begins with.
    first: u64,
    /// Whether a picture has been begun.
    has_begun: Cell<bool>,
    colours: Colours,
    on_full_disk: OnFullDisk,
    /// Tells the user something; of rank 0.
    tell: &'a dyn Fn(String),
    /// Whether a picture has found no room.
    is_over: Cell<bool>,
}

impl<'a> Snapshots<'a> {
    /// Those that a configuration asks for, if it does, of a run that begins with step `first`.
    pub(crate) fn of(config: &'a RunConfig, first: u64, tell: &'a dyn Fn(String)) -> Option<Self> {
        let every = config.output.snapshot_every;
        let is_life = matches!(config.app.settings, AppSettings::Life(_));
        (every > 0).then(|| Self {
            folder: config.output.dir.join(FOLDER),
            name: &config.app.name,
            every,
            first,
            has_begun: Cell::new(false),
            colours: if is_life { Colours::LiveAndDead } else { Colours::Scale },
            on_full_disk: config.output.on_full_disk,
            tell,
            is_over: Cell::new(false),
        })
    }

    /// Makes the folder, and rids it once of what an earlier run has drawn of the steps that this one takes, or of another
    /// application, of what runs that were killed have left unfinished, and of their series, which name what goes.
    fn prepare(&self) -> Result<(), Unwritten> {
        fs::create_dir_all(&self.folder).map_err(|error| Unwritten::new(&self.folder, &error))?;
        if self.has_begun.replace(true) {
            return Ok(());
        }
        let series: Vec<String> = AppConfig::that_draw().map(series_of).collect();
        let step_of_any = |file: &str| AppConfig::that_draw().find_map(|name| step_of(name, file));
        let of_others = |file: &str| step_of_any(file).filter(|_| self.step_of(file).is_none());
        let unfinished = self.files_of(|file| {
            let name = left_in_replacing(file)?;
            step_of_any(name).or(series.iter().any(|one| one == name).then_some(0))
        })?;
        let drawn = self.files()?.into_iter().filter(|(step, _)| *step >= self.first);
        let drawn = drawn.chain(self.files_of(of_others)?).chain(unfinished).map(|(_, name)| name);
        // The series first: they never name what is gone.
        for name in series.into_iter().chain(drawn) {
            let path = self.folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Unwritten::new(&path, &error));
                }
                _ => {}
            }
        }
        // A run that goes on keeps pictures, which are shown whatever becomes of it.
        if self.first > 0 { self.list() } else { Ok(()) }
    }

    /// The files of pictures in the folder, by step.
    fn files(&self) -> Result<Vec<(u64, String)>, Unwritten> {
        self.files_of(|name| self.step_of(name))
    }

    /// What of the folder has a step by its name and is a file, not a link or a folder.
    fn files_of(&self, step_of: impl Fn(&str) -> Option<u64>) -> Result<Vec<(u64, String)>, Unwritten> {
        let read = || -> io::Result<Vec<(u64, String)>> {
            let mut files = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(step) = step_of(&name)
                    && entry.file_type()?.is_file()
                {
                    files.push((step, name));
                }
            }
            files.sort_unstable();
            Ok(files)
        };
        read().map_err(|error| Unwritten::new(&self.folder, &error))
    }

    fn step_of(&self, file: &str) -> Option<u64> {
        step_of(self.name, file)
    }

    fn piece(&self, step: u64, rank: usize) -> String {
        format!("{}_{step:06}_{rank}.vti", self.name)
    }

    fn whole(&self, step: u64, kind: &str) -> String {
        format!("{}_{step:06}.{kind}", self.name)
    }

    /// Writes this rank's piece, and on rank 0 the image.
    fn write(&self, look: &Look<'_>, image: Option<Vec<u8>>) -> Result<(), Unwritten> {
        let piece = self.piece(look.step, look.world().rank());
        self.create(&piece, |file| vti::write_piece(file, look))?;
        match image {
            Some(image) => self.create(&self.whole(look.step, "png"), |file| file.write_all(&image)),
            None => Ok(()),
        }
    }

    /// Writes what refers to the pieces of all ranks, and to what does, once all of them are there.
    fn complete(&self, look: &Look<'_>) -> Result<(), Unwritten> {
        let pieces = (0..look.owned.len()).map(|rank| self.piece(look.step, rank));
        let whole = vti::whole(look, pieces);
        self.create(&self.whole(look.step, "pvti"), |file| file.write_all(whole.as_bytes()))?;
        self.list()
    }

    fn create(
        &self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Unwritten> {
        let path = self.folder.join(name);
        let written = || -> io::Result<()> {
            let unfinished = self.folder.join(unfinished(name));
            let mut file = BufWriter::new(BEGINNINGS.begin(|| File::create(&unfinished))?);
            write(&mut file)?;
            // Some file systems say only now that there is no room.
            file.into_inner()?.sync_all()?;
            fs::rename(unfinished, &path)
        };
        written().map_err(|error| Unwritten::new(&path, &error))
    }

    /// Takes back what this rank has written of a picture.
    fn remove(&self, look: &Look<'_>) {
        let rank = look.world().rank();
        let mut names = Vec::new();
        if rank == 0 {
            names.extend(["pvti", "png"].map(|kind| self.whole(look.step, kind)));
        }
        names.push(self.piece(look.step, rank));
        for name in names.into_iter().flat_map(|name| [unfinished(&name), name]) {
            // The error that led here is on its way to the user.
            _ = fs::remove_file(self.folder.join(name));
        }
    }

    /// Writes down which pictures there are.
    fn list(&self) -> Result<(), Unwritten> {
        let files = self.files()?;
        let wholes = files.iter().filter(|(_, name)| name.ends_with(".pvti"));
        let series = vti::series(wholes.map(|(step, name)| (*step, &**name)));
        let series = OutputFile::new(series_of(self.name), series);
        let replaced = BEGINNINGS.begin(|| replace_files(&self.folder, &[series]));
        replaced.map_err(|error| match error {
            AppError::Replace { path, source } | AppError::NotWritable { dir: path, source } => {
                Unwritten::new(&path, &source)
            }
            other => Unwritten::because(&self.folder, other.to_string()),
        })
    }

    /// Whether all ranks have done their part of a picture. Collective.
    fn agree(&self, look: &Look<'_>, own: Result<(), Unwritten>) -> Result<bool, AppError> {
        let Err(failed) = verdict(look.world(), own) else {
            return Ok(true);
        };
        self.remove(look);
        let thing = format!("the picture after {} steps", look.step);
        let sentence = failed.judge(&thing, "without further pictures", self.on_full_disk)?;
        self.is_over.set(true);
        if look.world().rank() == 0 {
            (self.tell)(sentence);
        }
        Ok(false)
    }
}

/// The step of a picture of an application that a file belongs to, if its name is one of ours.
fn step_of(app: &str, file: &str) -> Option<u64> {
    let (stem, kind) = file.strip_prefix(app)?.strip_prefix('_')?.split_once('.')?;
    let (step, rank) = match stem.split_once('_') {
        Some((step, rank)) => (step, Some(rank)),
        None => (stem, None),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = match rank {
        Some(rank) => kind == "vti" && is_number(rank),
        None => kind == "pvti" || kind == "png",
    };
    if is_ours && is_number(step) { step.parse().ok() } else { None }
}

/// The file that lists an application's pictures.
fn series_of(app: &str) -> String {
    format!("{app}.pvd")
}

impl Looker for Snapshots<'_> {
    fn next(&self, from: u64) -> Option<u64> {
        if self.is_over.get() { None } else { from.checked_next_multiple_of(self.every) }
    }

    fn look(&self, look: &Look<'_>) -> Result<(), AppError> {
        let is_first = look.world().rank() == 0;
        let prepared = if is_first { self.prepare() } else { Ok(()) };
        if !self.agree(look, prepared)? {
            return Ok(());
        }
        let mosaic = Mosaic::fitting(look.cells, [MOST_PIXELS; 2]);
        let sums = mosaic.sums(look)?;
        let image = sums.map(|sums| image::png(look, self.name, &mosaic, &sums, self.colours));
        if self.agree(look, self.write(look, image))? {
            let completed = if is_first { self.complete(look) } else { Ok(()) };
            self.agree(look, completed)?;
        }
        Ok(())
    }
}
