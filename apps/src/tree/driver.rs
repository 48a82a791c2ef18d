//! The hierarchical tree computation of the paper on notified access (2015, section VI-B).
//!
//! | paper | here |
//! |---|---|
//! | "a 16-ary tree" | `Place` |
//! | "performing a reduction at each stage" | `Node::reduce` |
//! | "fan-in/fan-out" | the two halves of `Node::reduce` |
//! | "to wait for all incoming children with a single request" | `receive_contributions` of notified access in [`links`](super) |
//! | message passing, general active target, notified access | [`links`](super) |
//! | "the semantically equivalent vendor optimized" reduction | `Library` |
//! | "average times" | `mean_times` |
//!
//! The paper's reduction ends at the root. Here the total goes down again: then it is what an allreduce gives, and
//! the next contribution may overwrite the last one without a message of its own that says so.

use std::time::Instant;

use serde_json::{Map, Value};
use streamhalo::GlobalGrid;
use streamhalo::comm::Error;

use super::check::result;
use super::library::Library;
use super::links::{self, Links};
use super::place::Place;
use super::reference::{MOST, value, weight};
use crate::app::values::{checksum_of_row, encode, shown};
use crate::app::{Answer, Application, ApplicationRow, Initial, Outcome, Routes, Times, Trial};
use crate::config::{AppSettings, Primitive, RunConfig, TreeSettings, Values};
use crate::error::AppError;

/// The row of the registry.
pub(crate) const ROW: ApplicationRow = ApplicationRow {
    name: "tree",
    summary: "a reduction over a tree of ranks, one counting notification for all children",
    source: "2015, section VI-B",
    dimensions: &[1],
    cell: "cell",
    steps_cells: false,
    work_power: 1,
    cut: None,
    open: |config| Ok(Box::new(Tree::open(config)?)),
};

/// The benchmark with its settings.
pub(super) struct Tree {
    pub(super) settings: TreeSettings,
    pub(super) leaves: GlobalGrid<1>,
    pub(super) steps: u64,
    /// What connects ranks: [`links::connect`], but for tests that show that each message counts.
    pub(super) connect: Connect,
    /// What gives a rank the library's total: [`Library::sum`], but for tests that show that each rank's counts.
    pub(super) library_sum: LibrarySum,
}

type LibrarySum =
    Box<dyn Fn(&Trial<'_>, &mut Library, &[f64], &mut [f64]) -> Result<(), Error> + Send + Sync>;

type Connect =
    Box<dyn Fn(&Trial<'_>, Primitive, &Place, usize) -> Result<Box<dyn Links>, Error> + Send + Sync>;

/// A rank in the tree.
struct Node {
    place: Place,
    links: Box<dyn Links>,
    /// What the children have sent, one behind the other.
    contributions: Vec<f64>,
}

impl Tree {
    pub(super) fn open(config: &RunConfig) -> Result<Self, AppError> {
        let AppSettings::Tree(settings) = &config.app.settings else {
            unreachable!("the configuration of `tree` has the settings of `tree`")
        };
        let (leaves, steps) = (config.grid.cells[0], config.app.steps);
        // Sums of reals are rounded, and compared with what that allows.
        let is_exact = settings.values == Values::Integers;
        if is_exact && (leaves as u64).saturating_mul(steps) > MOST {
            let message = format!(
                "{steps} reductions of {leaves} leaves: an f64 holds the sums of at most {MOST} integers in all; let \
                 `app.values` be \"reals\""
            );
            return Err(AppError::usage("app.steps", message));
        }
        let leaves = GlobalGrid::new([leaves], [false])?;
        Ok(Self {
            settings: settings.clone(),
            leaves,
            steps,
            connect: Box::new(links::connect),
            library_sum: Box::new(|_, library, own, total| library.sum(own, total)),
        })
    }

    pub(super) fn initial(&self) -> Initial {
        Initial { values: self.settings.values, seed: self.settings.seed }
    }

    fn place(&self, trial: &Trial<'_>) -> Place {
        Place::new(trial.world.rank(), trial.world.size(), self.settings.arity)
    }

    /// The sum of this rank's leaves, in order.
    fn own_leaves(&self, trial: &Trial<'_>) -> Result<Vec<f64>, AppError> {
        let own = trial.owned_cells(&self.leaves)?;
        let sum = |element| (own.start[0]..own.end[0]).map(|leaf| value(self.initial(), leaf, element)).sum();
        Ok((0..self.settings.elements).map(sum).collect())
    }

    /// The totals of all steps together, each made by `reduce` of this rank's weighted leaves, and the time that
    /// took. Collective.
    fn steps(
        &self,
        trial: &Trial<'_>,
        leaves: &[f64],
        mut reduce: impl FnMut(&[f64], &mut [f64]) -> Result<(), Error>,
    ) -> Result<(Vec<f64>, f64), AppError> {
        let (mut own, mut total, mut sum) = (leaves.to_vec(), leaves.to_vec(), vec![0.0; leaves.len()]);
        trial.world.barrier()?;
        let started = Instant::now();
        for step in 0..self.steps {
            for (own, leaf) in own.iter_mut().zip(leaves) {
                *own = weight(step) * leaf;
            }
            reduce(&own, &mut total)?;
            add(&mut sum, &total);
        }
        trial.world.barrier()?; // nobody drops what a neighbour still writes
        Ok((sum, started.elapsed().as_secs_f64()))
    }

    /// Payload bytes and number of the messages that a rank sends in a step.
    fn traffic(&self, place: &Place) -> (usize, usize) {
        let messages = place.children.len() + usize::from(place.parent.is_some());
        (messages * self.settings.elements * size_of::<f64>(), messages)
    }
}

impl Node {
    /// One reduction of all ranks' values, in the order of the tree.
    fn reduce(&mut self, own: &[f64], total: &mut [f64]) -> Result<(), Error> {
        total.copy_from_slice(own);
        if !self.place.children.is_empty() {
            self.links.receive_contributions(&mut self.contributions)?;
            self.contributions.chunks_exact(own.len()).for_each(|contribution| add(total, contribution));
        }
        if self.place.parent.is_some() {
            self.links.send_contribution(total)?;
            self.links.receive_total(total)?;
        }
        if !self.place.children.is_empty() {
            self.links.send_total(total)?;
        }
        Ok(())
    }
}

fn add(sum: &mut [f64], values: &[f64]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

impl Application for Tree {
    fn run_trial(&self, trial: &Trial<'_>) -> Result<Outcome, AppError> {
        let started = Instant::now();
        let (place, elements) = (self.place(trial), self.settings.elements);
        let links = (self.connect)(trial, trial.primitive(), &place, elements)?;
        let contributions = vec![0.0; place.children.len() * elements];
        let mut node = Node { place, links, contributions };
        let mut library = Library::connect(trial, elements)?;
        let leaves = self.own_leaves(trial)?;
        let setup_s = started.elapsed().as_secs_f64();

        let (sum, tree_s) = self.steps(trial, &leaves, |own, total| node.reduce(own, total))?;
        let library_total =
            |own: &[f64], total: &mut [f64]| (self.library_sum)(trial, &mut library, own, total);
        let (library_sum, library_s) = self.steps(trial, &leaves, library_total)?;

        // Of both: the state has the totals of rank 0 only.
        let checksums =
            trial.world.all_gather(&[&sum, &library_sum].map(|sum| checksum_of_row([0; 3], sum)))?;
        let is_agreed = checksums.iter().all(|of_rank| *of_rank == checksums[0]);
        let state =
            (trial.wants_state && trial.world.rank() == 0).then(|| encode(&[sum, library_sum].concat()));
        let answer = Answer { checksum: shown(checksums[0][0]), result: result(is_agreed), state };
        let times = Times { solve_s: tree_s, halo_s: tree_s, compute_s: 0.0 };
        let mut outcome = trial.outcome_by_host(setup_s, times, self.traffic(&node.place), answer)?;
        outcome.measured = mean_times(self.steps, outcome.solve_s, trial.world.all_max(library_s)?);
        Ok(outcome)
    }

    fn routes(&self, trial: &Trial<'_>) -> Result<Routes, AppError> {
        let (place, rank) = (self.place(trial), trial.world.rank());
        let bytes = self.settings.elements * size_of::<f64>();
        let up = place.parent.map(|parent| (parent, "up to the parent"));
        let down = place.children.clone().map(|child| (child, "down to a child"));
        let message =
            |(peer, why): (usize, &str)| (vec![peer as i32 - rank as i32], peer, bytes, why.to_owned());
        Ok(Routes::by_host(trial, up.into_iter().chain(down).map(message)))
    }
}

/// The mean time of a reduction over the tree, and of one by the library, in microseconds.
fn mean_times(steps: u64, tree_s: f64, library_s: f64) -> Map<String, Value> {
    let mean = |seconds: f64| Value::from(1e6 * seconds / steps as f64);
    let means = [("tree_us", tree_s), ("allreduce_us", library_s)];
    means.into_iter().filter(|_| steps > 0).map(|(key, seconds)| (key.to_owned(), mean(seconds))).collect()
}
