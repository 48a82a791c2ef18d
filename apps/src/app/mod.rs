//! Applications: what `streamhalo run` runs.
//!
//! An application is one file or folder and one row of [`APPLICATIONS`]; settings of its own are
//! read where `[app]` is. It gets a [`Trial`] on every rank and answers with an [`Outcome`] that is
//! the same on all of them. Everything around it (which backends and ranks, warm-up, verification,
//! reports) is the same for all applications.

mod answer;
mod between;
mod grids;
mod initial;
mod line;
mod marks;
mod mix;
#[cfg(test)]
pub(crate) mod on_device;
mod output_row;
#[cfg(test)]
pub(crate) mod played;
#[cfg(test)]
pub(crate) mod recorded;
mod replays;
mod steps;
mod stopwatch;
mod stored;
mod texts;
mod tiles;
mod trial;
pub(crate) mod values;
mod vectors;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use streamhalo::comm::backend::Route;
use streamhalo::comm::fabric::Executor;
use streamhalo::{KernelText, LocalGrid, StreamHalo};

use crate::config::{Means, RunConfig};
use crate::error::AppError;
use crate::report::OutputFile;
use crate::{cholesky, comb, faces, life, pipeline, stencil3d, tree};

pub use answer::{Answer, Verified};
pub(crate) use between::{Between, Geometry, Look, Looker};
pub(crate) use grids::{global_grid, of_axes, places_of};
pub(crate) use initial::Initial;
pub(crate) use line::Line;
pub(crate) use marks::{END_MARK, step_mark, step_of_mark};
pub(crate) use mix::mix;
pub(crate) use output_row::OutputRow;
pub(crate) use replays::{REPLAYED_BY, Replays, captured};
pub(crate) use steps::Steps;
pub(crate) use stopwatch::Laps;
pub use stopwatch::{Phase, Stopwatch, Times};
pub(crate) use stored::Stored;
pub(crate) use texts::{Tables, of_real, real_texts};
pub(crate) use tiles::inner_of;
pub(crate) use trial::CHOSEN_BACKEND;
pub use trial::{Outcome, Trial};
pub use vectors::Vectors;
#[cfg(test)]
pub(crate) use vectors::levels;
pub(crate) use vectors::{LINE_BYTES, array, one_to_the_left, one_to_the_right};

/// One row of the registry.
#[derive(Clone, Copy, Debug)]
pub struct ApplicationRow {
    /// The name in configurations.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// The numbers of axes that its grid can have.
    pub dimensions: &'static [usize],
    /// What an entry of its `grid.cells` is, in words: a cell, but for those that have another name for it.
    pub cell: &'static str,
    /// Whether each step computes each cell of the grid, so that a time for each cell and step says something. Not so
    /// where cells are leaves that are added up before, or rows of a matrix.
    pub steps_cells: bool,
    /// To which power of its cells the work of a step grows: with weak scaling that of each rank grows by one less with
    /// the ranks.
    pub work_power: i32,
    /// The only axis that can be cut, if there is only one: then the layout that the program chooses has all
    /// ranks along it. It is the application that refuses others.
    pub cut: Option<usize>,
    pub(crate) open: fn(&RunConfig) -> Result<Box<dyn Application>, AppError>,
}

/// Every application.
pub const APPLICATIONS: &[ApplicationRow] = &[
    life::driver::ROW,
    faces::driver::ROW,
    stencil3d::driver::ROW,
    pipeline::driver::ROW,
    tree::driver::ROW,
    cholesky::driver::ROW,
    comb::driver::ROW,
];

/// An application with its settings, checked.
pub trait Application: Verified + Send + Sync {
    /// Runs once and gives the same on every rank. Collective; blocks.
    ///
    /// # Errors
    ///
    /// What goes wrong on this rank, or which other rank failed.
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError>;

    /// Sets up as a trial does, without a step, and says how this rank's messages travel.
    /// Collective; blocks.
    ///
    /// # Errors
    ///
    /// As [`Application::run_trial`].
    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError>;

    /// Whether a grid that is split so can be computed on, besides what the grid itself allows.
    ///
    /// # Errors
    ///
    /// What does not fit, and what to do about it.
    fn check_layout(&self, _layout: &[usize]) -> Result<(), AppError> {
        Ok(())
    }

    /// Whether a stream can replay its steps, as `run.replay` asks for.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn check_replay(&self) -> Result<(), String> {
        Err("its steps are not put on a stream one after the other; those of life, faces and stencil3d are"
            .to_owned())
    }

    /// Its own settings that determine the answer at each step, by the keys of the configuration: what a run
    /// that goes on from a checkpoint must have in common with the one that wrote it. Asked only where its time
    /// loop is that of `Steps`.
    fn determines_answer(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Its kernels as texts, for devices that compile them; none where they are there for the host only.
    fn device_kernels(&self) -> Vec<&'static KernelText> {
        Vec::new()
    }

    /// Whether it makes files of its final state, which is brought together for that.
    fn has_files(&self) -> bool {
        false
    }

    /// Files of its own for the results folder, made from a final state.
    fn files(&self, _state: &[u8]) -> Vec<OutputFile> {
        Vec::new()
    }
}

impl ApplicationRow {
    /// The application that a configuration names.
    ///
    /// # Errors
    ///
    /// Settings that do not fit each other, or a file of its own that cannot be read.
    pub fn open(config: &RunConfig) -> Result<Box<dyn Application>, AppError> {
        let application = (Self::of(config).open)(config)?;
        replays::check(config, &*application)?;
        Ok(application)
    }

    /// The row of the application that a configuration names.
    pub(crate) fn of(config: &RunConfig) -> &'static Self {
        let row = APPLICATIONS.iter().find(|row| row.name == config.app.name);
        row.expect("a configuration names a registered application")
    }

    /// How it gets values from rank to rank.
    pub(crate) fn means(&self) -> Means {
        Means::of(self.name)
    }
}

/// What an application calls an entry of its `grid.cells`; results may be of one that this program does not have.
pub(crate) fn cell_of(app: &str) -> &'static str {
    APPLICATIONS.iter().find(|row| row.name == app).map_or("cell", |row| row.cell)
}

/// To which power of an application's cells the work of a step grows; of one that this program does not have, to the first.
pub(crate) fn work_power_of(app: &str) -> i32 {
    APPLICATIONS.iter().find(|row| row.name == app).map_or(1, |row| row.work_power)
}

/// The product of some sizes, or the largest number if that is larger: nobody has room for either.
pub(crate) fn size_of_all(factors: impl IntoIterator<Item = usize>) -> usize {
    factors.into_iter().fold(1, usize::saturating_mul)
}

/// How the messages of one rank travel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Routes {
    /// The backend that carries them.
    pub backend: String,
    /// Each offset at which this rank has a neighbour that it sends to, slowest axis first, and that neighbour's rank,
    /// which may be its own.
    pub neighbors: Vec<(Vec<i32>, usize)>,
    /// One for each rank that it sends to.
    pub ways: Vec<Way>,
}

/// How one message travels: a [`Route`] that another process can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The other rank.
    pub peer: usize,
    /// Payload bytes.
    pub bytes: usize,
    /// The path.
    pub path: String,
    /// Why this path.
    pub reason: String,
    /// Who carries it out.
    pub executor: String,
}

impl From<Route> for Way {
    fn from(route: Route) -> Self {
        let Route { peer, bytes, path, reason, executor } = route;
        Self { peer, bytes, path: path.into(), reason, executor: executor.to_string() }
    }
}

impl Routes {
    /// Those of messages that the host carries out, each with an offset, a rank, payload bytes, and what it carries.
    pub(crate) fn by_host(
        trial: &Trial<'_>,
        messages: impl IntoIterator<Item = (Vec<i32>, usize, usize, String)>,
    ) -> Self {
        let (path, executor) = (trial.primitive().summary(), Executor::Host.to_string());
        let of_message = |(offset, peer, bytes, reason)| {
            let way = Way { peer, bytes, path: path.to_owned(), reason, executor: executor.clone() };
            ((offset, peer), way)
        };
        let (neighbors, ways) = messages.into_iter().map(of_message).unzip();
        Self { backend: trial.backend.to_owned(), neighbors, ways }
    }

    /// Those of an exchange on a grid.
    pub fn of<const D: usize>(grid: &LocalGrid<D>, halo: &StreamHalo) -> Self {
        // What fills ghosts from one side goes to the other.
        let neighbor = |from: &Vec<i32>| {
            let offset: [i32; D] = std::array::from_fn(|axis| -from[axis]);
            Some((offset.to_vec(), grid.neighbor(offset)?))
        };
        let mut neighbors: Vec<_> = halo.offsets().iter().filter_map(neighbor).collect();
        neighbors.sort_unstable();
        let ways = halo.routes().into_iter().map(Way::from).collect();
        Self { backend: halo.backend().to_owned(), neighbors, ways }
    }
}
