//! The runs of one folder, grouped by rank count and backend, with speed-ups over one
//! baseline. The table and the plot are two views of it.

use super::results::{Results, RunRecord};
use crate::app::work_power_of;
use crate::error::ranks_of;

/// Median and extremes of the trials of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; between two, their mean.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self {
            median: (values[last / 2] + values[last.div_ceil(2)]) / 2.0,
            min: values[0],
            max: values[last],
        }
    }

    /// What is divided by these values, with the extremes changing places.
    fn speedup_from(self, baseline: f64) -> Option<Self> {
        (baseline > 0.0 && self.min > 0.0).then(|| Self {
            median: baseline / self.median,
            min: baseline / self.max,
            max: baseline / self.min,
        })
    }
}

/// What is known about the answers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every trial gave the reference's answer.
    Passed,
    /// Some were compared, and all of these gave the reference's answer.
    Partly,
    /// A trial gave another answer.
    Failed,
    /// Nobody looked.
    NotDone,
}

/// The trials of one backend at one rank count.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Number of ranks.
    pub ranks: usize,
    /// The backend.
    pub backend: String,
    /// How many trials.
    pub trials: usize,
    /// Whether times are of any steps. Without them they are of nothing but the clock.
    pub(crate) has_steps: bool,
    /// Solve times in seconds.
    pub solve_s: Spread,
    /// Seconds for each step that the solve times are of; `None` without any.
    pub step_s: Option<Spread>,
    /// Median nanoseconds for each cell and step; `None` without steps of cells.
    pub ns_per_cell_step: Option<f64>,
    /// Speed-up over the baseline; `None` where no time of any steps was measured.
    pub speedup: Option<Spread>,
    /// Median share of the solve time spent on exchanges, 0 to 1.
    pub halo_share: Option<f64>,
    /// Payload of one exchange, all ranks.
    pub bytes_per_exchange: u64,
    /// Messages of one exchange, all ranks.
    pub messages_per_exchange: u64,
    /// Whether the answers were right.
    pub verification: Verification,
}

/// What speed-ups are relative to: a median solve time.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// `standard` where it ran on the fewest ranks, else the first backend that did.
    pub backend: String,
    /// The fewest ranks.
    pub ranks: usize,
    /// Whether its time is of any steps.
    pub(crate) has_steps: bool,
    /// Its median solve time.
    pub solve_s: f64,
    /// The same in nanoseconds for each cell and step; `None` without steps of cells.
    pub ns_per_cell_step: Option<f64>,
}

impl Baseline {
    /// "standard at 1 rank".
    pub fn describe(&self) -> String {
        format!("{} at {}", self.backend, ranks_of(self.ranks))
    }
}

/// All groups of a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// By rank count, then in the order in which the backends first ran.
    pub groups: Vec<Group>,
    /// The backends in the order in which they first ran.
    pub backends: Vec<String>,
    /// `None` where there are no runs.
    pub baseline: Option<Baseline>,
    /// Whether the cells of each rank stayed the same: what stands for speed-up is then the efficiency.
    pub is_weak_scaling: bool,
    /// To which power of the cells the work grows.
    work_power: i32,
}

impl Summary {
    /// Groups the runs.
    pub fn of(results: &Results) -> Self {
        let runs = &results.runs;
        let mut backends: Vec<String> = Vec::new();
        let mut ranks: Vec<usize> = Vec::new();
        for run in runs {
            if !backends.contains(&run.backend) {
                backends.push(run.backend.clone());
            }
            ranks.push(run.ranks);
        }
        ranks.sort_unstable();
        ranks.dedup();
        let mut groups: Vec<Group> = Vec::new();
        for count in ranks {
            for backend in &backends {
                let of_group = |run: &&RunRecord| run.ranks == count && run.backend == *backend;
                let members: Vec<_> = runs.iter().filter(of_group).collect();
                groups.extend(group(&members));
            }
        }
        let baseline = find_baseline(&groups);
        if let Some(baseline) = baseline.as_ref().filter(|baseline| baseline.has_steps) {
            for group in groups.iter_mut().filter(|group| group.has_steps) {
                group.speedup = group.solve_s.speedup_from(baseline.solve_s);
            }
        }
        let work_power = runs.first().map_or(1, |run| work_power_of(&run.app));
        Self { groups, backends, baseline, is_weak_scaling: results.is_weak_scaling(), work_power }
    }

    /// What a time of the baseline over another one is.
    pub(crate) fn word(&self) -> &'static str {
        if self.is_weak_scaling { "Efficiency" } else { "Speed-up" }
    }

    /// What it would be at that many ranks if they did not have to wait for each other.
    pub(crate) fn ideal(&self, ranks: usize) -> f64 {
        let times = self.baseline.as_ref().map_or(1.0, |baseline| ranks as f64 / baseline.ranks as f64);
        if self.is_weak_scaling { times.powi(1 - self.work_power) } else { times }
    }
}

fn group(runs: &[&RunRecord]) -> Option<Group> {
    let first = runs.first()?;
    let has_steps = runs.iter().all(|run| run.steps_in_time() > 0);
    let timed = if has_steps { runs } else { &[] };
    let shares: Vec<f64> =
        timed.iter().filter(|run| run.solve_s > 0.0).map(|run| run.halo_s / run.solve_s).collect();
    Some(Group {
        ranks: first.ranks,
        backend: first.backend.clone(),
        trials: runs.len(),
        has_steps,
        solve_s: Spread::of(runs.iter().map(|run| run.solve_s).collect()),
        step_s: has_steps
            .then(|| Spread::of(runs.iter().map(|run| run.solve_s / run.steps_in_time() as f64).collect())),
        ns_per_cell_step: first
            .ns_per_cell_step()
            .map(|_| Spread::of(runs.iter().filter_map(|run| run.ns_per_cell_step()).collect()).median),
        speedup: None,
        halo_share: (!shares.is_empty()).then(|| Spread::of(shares).median),
        bytes_per_exchange: first.bytes_per_exchange,
        messages_per_exchange: first.messages_per_exchange,
        verification: verification(runs),
    })
}

fn verification(runs: &[&RunRecord]) -> Verification {
    let any = |wanted| runs.iter().any(|run| run.verified == wanted);
    if any(Some(false)) {
        Verification::Failed
    } else if !any(Some(true)) {
        Verification::NotDone
    } else if any(None) {
        Verification::Partly
    } else {
        Verification::Passed
    }
}

fn find_baseline(groups: &[Group]) -> Option<Baseline> {
    let fewest = groups.first()?.ranks;
    let mut candidates = groups.iter().filter(|group| group.ranks == fewest);
    let first = candidates.clone().next()?;
    let chosen = candidates.find(|group| group.backend == "standard").unwrap_or(first);
    Some(Baseline {
        backend: chosen.backend.clone(),
        ranks: chosen.ranks,
        has_steps: chosen.has_steps,
        solve_s: chosen.solve_s.median,
        ns_per_cell_step: chosen.ns_per_cell_step,
    })
}
