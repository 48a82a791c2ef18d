//! `results.json`, schema 1, in both directions.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::MachineInfo;
use super::text::joined;
use crate::app::{APPLICATIONS, cell_of};
use crate::config::RunConfig;
use crate::error::AppError;

/// The version of the schema that this program writes and reads.
pub const SCHEMA: u32 = 1;

/// The file's name in a results folder.
pub const RESULTS_FILE: &str = "results.json";

/// Everything that was measured, and what it was measured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    schema: u32,
    /// The resolved configuration. Kept as it is written: a report needs no key of it, and so
    /// outlives a change of the configuration.
    pub config: Value,
    /// On what it was measured.
    pub machine: MachineInfo,
    /// One record a timed run, in the order of the runs.
    pub runs: Vec<RunRecord>,
}

/// One timed run. Times are in seconds, of the slowest rank; axes are slowest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The application.
    pub app: String,
    /// The backend.
    pub backend: String,
    /// The fabric.
    pub fabric: String,
    /// Who executed the deferred operations: `stream`, `nic`, `proxy` or `host`, or several of them, as in
    /// `stream+proxy`.
    pub executor: String,
    /// The device.
    pub device: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Ranks per axis.
    pub layout: Vec<usize>,
    /// Cells per axis, of all ranks together.
    pub cells: Vec<usize>,
    /// Time steps.
    pub steps: u64,
    /// How many steps `solve_s` is of, where it is not of each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_steps: Option<u64>,
    /// Which repetition, counted from 0.
    pub trial: u32,
    /// All steps, set-up excluded.
    pub solve_s: f64,
    /// The part of it spent on exchanges.
    pub halo_s: f64,
    /// The part of it spent on kernels.
    pub compute_s: f64,
    /// Before the first step.
    pub setup_s: f64,
    /// Payload of one exchange, of all ranks together.
    pub bytes_per_exchange: u64,
    /// Messages of one exchange, of all ranks together.
    pub messages_per_exchange: u64,
    /// Whether the answer is the reference's; `None` where nobody looked.
    pub verified: Option<bool>,
    /// Of the final state, in hexadecimal.
    pub checksum: String,
    /// The application's own, such as the population of `life`.
    pub result: Map<String, Value>,
}

impl RunRecord {
    /// How many steps `solve_s` is of.
    pub fn steps_in_time(&self) -> u64 {
        self.timed_steps.unwrap_or(self.steps)
    }

    /// "5 steps", or "5 steps, 30 timed".
    pub(crate) fn described_steps(&self) -> String {
        match self.steps_in_time() {
            timed if timed == self.steps => format!("{timed} steps"),
            timed => format!("{} steps, {timed} timed", self.steps),
        }
    }

    /// Nanoseconds for each cell and step, of all ranks together; `None` without steps, or where these are not of each
    /// cell.
    pub fn ns_per_cell_step(&self) -> Option<f64> {
        let cells: f64 = self.cells.iter().map(|cells| *cells as f64).product();
        let steps = self.steps_in_time();
        let row = APPLICATIONS.iter().find(|row| row.name == self.app);
        let steps_cells = row.is_some_and(|row| row.steps_cells);
        (steps_cells && steps > 0).then(|| self.solve_s * 1e9 / (cells * steps as f64))
    }
}

impl Results {
    /// Results of `config` on `machine`.
    ///
    /// # Errors
    ///
    /// [`AppError::InconsistentRun`] for a record that cannot be right.
    pub fn new(config: &RunConfig, machine: MachineInfo, runs: Vec<RunRecord>) -> Result<Self, AppError> {
        let results = Self {
            schema: SCHEMA,
            // The configuration holds nothing that JSON cannot: string keys, finite numbers.
            config: serde_json::to_value(config).expect("a configuration is JSON"),
            machine,
            runs,
        };
        results.check()?;
        Ok(results)
    }

    /// Whether no run failed its verification.
    pub fn all_verified(&self) -> bool {
        self.runs.iter().all(|run| run.verified != Some(false))
    }

    /// Whether the cells of each rank were the same at every number of ranks.
    pub fn is_weak_scaling(&self) -> bool {
        self.config["run"]["scaling"] == "weak"
    }

    /// "64 x 64 cells", or "64 x 64 cells a rank", of the first run; of `faces` elements.
    pub(crate) fn cells(&self, by: &str) -> String {
        let Some(first) = self.runs.first() else { return String::new() };
        if self.is_weak_scaling() {
            let own: Vec<usize> =
                first.cells.iter().zip(&first.layout).map(|(cells, parts)| cells / parts).collect();
            return format!("{} {}s a rank", joined(&own, by), cell_of(&first.app));
        }
        format!("{} {}s", joined(&first.cells, by), cell_of(&first.app))
    }

    /// The text of `results.json`.
    ///
    /// # Errors
    ///
    /// [`AppError::InconsistentRun`] for a record that cannot be right.
    pub fn to_json(&self) -> Result<String, AppError> {
        self.check()?;
        let mut text = serde_json::to_string_pretty(self).expect("checked numbers are JSON");
        text.push('\n');
        Ok(text)
    }

    /// Reads the `results.json` of a folder.
    ///
    /// # Errors
    ///
    /// A variant of [`AppError`] for each way in which there is nothing to report on: no
    /// file, half a file, another program's file, another version's file.
    pub fn read(dir: &Path) -> Result<Self, AppError> {
        let path = dir.join(RESULTS_FILE);
        let text = fs::read_to_string(&path)
            .map_err(|source| AppError::ResultsUnreadable { path: path.clone(), source })?;
        Self::parse(&path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, AppError> {
        let foreign = |reason: String| AppError::ResultsForeign { path: path.to_owned(), reason };
        let value: Value = serde_json::from_str(text).map_err(|error| match error.is_eof() {
            true => AppError::ResultsTruncated { path: path.to_owned(), reason: error.to_string() },
            false => foreign(error.to_string()),
        })?;
        // The version is looked at first: a later schema may miss what this one requires.
        match value.get("schema") {
            None => return Err(foreign("it has no `schema`".to_owned())),
            Some(found) if found.as_u64() == Some(SCHEMA.into()) => {}
            Some(found) => {
                return Err(AppError::ResultsSchema {
                    path: path.to_owned(),
                    found: found.to_string(),
                    supported: SCHEMA,
                });
            }
        }
        let results: Self = serde_json::from_value(value).map_err(|error| foreign(error.to_string()))?;
        results.check().map_err(|error| foreign(error.to_string()))?;
        Ok(results)
    }

    fn check(&self) -> Result<(), AppError> {
        for (index, run) in self.runs.iter().enumerate() {
            run.check().map_err(|reason| AppError::InconsistentRun { run: index + 1, reason })?;
        }
        Ok(())
    }
}

impl RunRecord {
    fn check(&self) -> Result<(), String> {
        let times = [
            ("solve_s", self.solve_s),
            ("halo_s", self.halo_s),
            ("compute_s", self.compute_s),
            ("setup_s", self.setup_s),
        ];
        // JSON has no NaN: it would come back as null, which is no number.
        if let Some((name, time)) = times.into_iter().find(|(_, time)| !time.is_finite() || *time < 0.0) {
            return Err(format!("`{name}` is {time}, not a time"));
        }
        let product = self.layout.iter().try_fold(1_usize, |n, axis| n.checked_mul(*axis));
        if self.ranks == 0 || product != Some(self.ranks) {
            return Err(format!("`layout` is {:?} for {} ranks", self.layout, self.ranks));
        }
        Ok(())
    }
}
