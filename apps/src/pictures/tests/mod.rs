//! Pictures, read back by a reader of their own and compared with the reference, cell by cell.

mod images;
mod read;
mod room;
mod wholes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use streamhalo::{Device, WorldOptions};
use tempfile::TempDir;

use super::Snapshots;
use crate::app::{ApplicationRow, Between, Looker, Trial};
use crate::config::RunConfig;
use crate::error::AppError;
use crate::ranks::on_threads;

/// A folder of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::with_prefix("streamhalo-").expect("can write"));
        fs::create_dir(folder.snapshots()).expect("can write");
        folder
    }

    fn snapshots(&self) -> PathBuf {
        self.0.path().join("snapshots")
    }

    /// The names of all files in it.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.snapshots()).expect("was made");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("is readable").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("names are text")).collect();
        names.sort();
        names
    }

    /// A configuration whose results go there.
    fn config(&self, text: &str) -> RunConfig {
        RunConfig::of(&format!("{text}\noutput.dir = {:?}\n", self.0.path()))
    }
}

/// Runs a configuration on the ranks of a layout, with somebody who looks.
fn looked_at<L: Looker>(
    config: &RunConfig,
    layout: &[usize],
    looker: impl Fn() -> L + Sync,
) -> Result<(), AppError> {
    let application = ApplicationRow::open(config)?;
    on_threads(layout.iter().product(), WorldOptions::default(), |world| {
        let stream = Device::host().stream(world)?;
        let looker = looker();
        let between = Between { lookers: &[&looker], ..Between::default() };
        let trial =
            Trial { world, stream: &stream, backend: "st-rsend", layout, wants_state: false, between };
        application.run_trial(&trial).map(|_| ())
    })?;
    Ok(())
}

/// The same with pictures; what the user is told.
fn drawn(config: &RunConfig, layout: &[usize]) -> Result<Vec<String>, AppError> {
    let said = Mutex::new(Vec::new());
    let tell = |sentence| said.lock().expect("nobody panics").push(sentence);
    looked_at(config, layout, || Snapshots::of(config, 0, &tell).expect("are asked for"))?;
    Ok(said.into_inner().expect("nobody panics"))
}

/// The cells of the whole grid after some steps, as the reference has them: bytes of `u8`, or of floats.
fn reference(config: &RunConfig, steps: u64) -> Vec<u8> {
    let mut config = config.clone();
    config.app.steps = steps;
    let application = ApplicationRow::open(&config).expect("is right");
    let state = application.reference(&|| Ok(())).expect("nobody stops it").state.expect("has one");
    if config.app.name == "life" {
        let cells: usize = config.grid.cells.iter().product();
        return (0..cells).map(|cell| state[cell / 8] >> (cell % 8) & 1).collect();
    }
    state
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// Waits for something that another thread brings about.
fn until(is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "never");
        std::thread::sleep(Duration::from_millis(1));
    }
}
