//! How the grid is split at each entry of `run.ranks`, checked before anything runs.

use std::num::NonZeroUsize;
use std::rc::Rc;

use streamhalo::grid::GridError;
use streamhalo::{GlobalGrid, Partition};

use super::device;
use crate::app::{Application, ApplicationRow};
use crate::config::{RunConfig, Scaling};
use crate::error::{AppError, counted, ranks_of};
use crate::ranks::are_started_by_others;

/// More ranks than that on one machine are a slip of the keyboard.
const MOST_RANKS: usize = 4096;

/// Refuses more `things`, ranks or processes, than one machine is given, `None` where 64 bits do not hold them. `ways` is how
/// more are started.
///
/// # Errors
///
/// [`AppError::Usage`] of the flag or key that asks for them.
pub(crate) fn check_ranks_here(
    flag: &str,
    (ranks, things): (Option<usize>, &str),
    ways: &str,
) -> Result<(), AppError> {
    if ranks.is_some_and(|ranks| ranks <= MOST_RANKS) {
        return Ok(());
    }
    let asked = ranks.map_or("so many".to_owned(), |ranks| ranks.to_string());
    let message = format!(
        "{asked} {things} are more than the {MOST_RANKS} that one machine is given; {ways} starts more"
    );
    Err(AppError::usage(flag, message))
}

/// The same of ranks that this program starts. Whoever else has started them may have done so on many machines, and has said
/// how many.
///
/// # Errors
///
/// As [`check_ranks_here`].
pub(crate) fn check_ranks(flag: &str, ranks: Option<usize>) -> Result<(), AppError> {
    if are_started_by_others() {
        return Ok(());
    }
    check_ranks_here(flag, (ranks, "ranks"), "a launcher (`mpiexec`, `srun`), or `--rank-zero` one by one,")
}

/// Threads on a core, beyond which a step takes many times as long as on few: they wake each other, and take turns.
const MOST_A_CORE: usize = 64;

/// Refuses so many threads on so many ranks of this machine that they would do little but wait for its cores.
fn check_threads(threads: usize, ranks: usize, cores: usize) -> Result<(), AppError> {
    let most = MOST_A_CORE * cores;
    let all = threads.saturating_mul(ranks);
    // Ranks without threads of their own are limited by their number.
    if threads == 1 || all <= most {
        return Ok(());
    }
    let (of_ranks, cores) = (ranks_of(ranks), counted(cores, "core"));
    let message = format!(
        "{threads} for each of {of_ranks} are {all} threads on {cores}, far more than do anything but wait; give at \
         most {}, which is {MOST_A_CORE} a core",
        (most / ranks).max(1)
    );
    Err(AppError::usage("device.threads", message))
}

/// An entry of `run.ranks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of ranks.
    pub(crate) ranks: usize,
    /// Ranks per axis, slowest axis first.
    pub(crate) layout: Vec<usize>,
    /// Cells per axis, of all ranks together.
    pub(crate) cells: Vec<usize>,
}

/// An entry of `run.ranks`, and what runs there.
pub(crate) struct Part {
    /// The ranks and their layout.
    pub(crate) entry: Entry,
    /// The configuration, in which `grid.cells` are those of all ranks together.
    pub(crate) config: RunConfig,
    /// The application on this grid: one object for all entries that have the same grid.
    pub(crate) application: Rc<dyn Application>,
}

/// Every entry of `run.ranks` with the layout that the user or the program chooses.
///
/// # Errors
///
/// [`AppError::Split`] where the grid cannot be split so, or a part is thinner than the halo; that of
/// the application where it cannot be opened, or does not take the layout.
pub(crate) fn plan(config: &RunConfig) -> Result<Vec<Part>, AppError> {
    for ranks in &config.run.ranks {
        check_ranks("run.ranks", Some(*ranks))?;
        // Of ranks that others have started nobody here knows how many are on one machine.
        let here = if are_started_by_others() { 1 } else { *ranks };
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        check_threads(config.device.threads, here, cores)?;
    }
    let (axes, cut) = (config.grid.cells.len(), ApplicationRow::of(config).cut);
    let entry = match axes {
        1 => entry::<1>,
        2 => entry::<2>,
        3 => entry::<3>,
        axes => return Err(AppError::usage("grid.cells", format!("{axes} axes; a grid has 1, 2 or 3"))),
    };
    let mut parts: Vec<Part> = Vec::new();
    for (index, &ranks) in config.run.ranks.iter().enumerate() {
        let only =
            cut.map(|cut| (0..axes).map(|axis| if axis == cut { ranks } else { 1 }).collect::<Vec<_>>());
        let entry = entry(config, config.run.layout.for_entry(index).or(only.as_deref()), ranks)
            .map_err(|source| AppError::Split { ranks, source: Box::new(source) })?;
        let mut config = config.clone();
        config.grid.cells.clone_from(&entry.cells);
        let known = parts.last().filter(|part| part.entry.cells == entry.cells);
        let application = match known {
            Some(part) => part.application.clone(),
            None => {
                let application: Rc<dyn Application> = Rc::from(ApplicationRow::open(&config)?);
                device::check(&config, &*application)?;
                application
            }
        };
        application.check_layout(&entry.layout)?;
        parts.push(Part { entry, config, application });
    }
    Ok(parts)
}

/// The layout and the cells of all ranks, checked.
fn entry<const D: usize>(
    config: &RunConfig,
    asked: Option<&[usize]>,
    ranks: usize,
) -> Result<Entry, GridError> {
    let (cells, periodic) = (array(&config.grid.cells), array(&config.grid.periodic));
    let times =
        |factors: [usize; D]| std::array::from_fn(|axis| usize::saturating_mul(cells[axis], factors[axis]));
    let partition = match (config.run.scaling, asked) {
        (Scaling::Strong, Some(layout)) => {
            Partition::with_layout(&GlobalGrid::<D>::new(cells, periodic)?, array(layout), ranks)?
        }
        (Scaling::Strong, None) => Partition::automatic(&GlobalGrid::new(cells, periodic)?, ranks)?,
        (Scaling::Weak, asked) => {
            let layout = match asked {
                Some(layout) => array(layout),
                // The layout that would cut this many times the cells along every axis best.
                None => Partition::automatic(&GlobalGrid::new(times([ranks; D]), periodic)?, ranks)?.layout(),
            };
            Partition::with_layout(&GlobalGrid::new(times(layout), periodic)?, layout, ranks)?
        }
    };
    partition.subdomain(0, array(&config.grid.halo))?;
    Ok(Entry { ranks, layout: partition.layout().to_vec(), cells: partition.grid().cells().to_vec() })
}

/// A list of the configuration, one entry an axis.
fn array<T: Copy, const D: usize>(per_axis: &[T]) -> [T; D] {
    per_axis.try_into().expect("the configuration gives every axis an entry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_would_only_wait_for_cores_are_refused() {
        for (threads, ranks, cores) in [(1, 4096, 1), (64, 1, 1), (2, 64, 2), (4, 4, 1), (4096, 1, 64)] {
            check_threads(threads, ranks, cores).expect("is slow at worst");
        }
        let refused = |threads, ranks, cores| {
            check_threads(threads, ranks, cores)
                .expect_err("would hang, as far as anybody can see")
                .to_string()
        };
        let expected = "device.threads: 4096 for each of 4 ranks are 16384 threads on 2 cores, far more than do anything \
                        but wait; give at most 32, which is 64 a core";
        assert_eq!(refused(4096, 4, 2), expected);
        assert!(refused(65, 1, 1).contains("at most 64,"));
        assert!(refused(2, 4096, 1).contains("at most 1,"));
    }
}
