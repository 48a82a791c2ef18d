//! How the grid is split at each entry of `run.ranks`, checked before anything runs.

use std::cmp::Reverse;
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

/// The last application that was opened, and its configuration.
type Opened = Option<(RunConfig, Rc<dyn Application>)>;

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
    let entries = match axes {
        1 => entries::<1>,
        2 => entries::<2>,
        3 => entries::<3>,
        axes => return Err(AppError::usage("grid.cells", format!("{axes} axes; a grid has 1, 2 or 3"))),
    };
    let mut opened = None;
    let part = |(index, &ranks): (usize, &usize)| {
        let only =
            cut.map(|cut| (0..axes).map(|axis| if axis == cut { ranks } else { 1 }).collect::<Vec<_>>());
        let split = |source| AppError::Split { ranks, source: Box::new(source) };
        let entries = entries(config, config.run.layout.for_entry(index).or(only.as_deref()), ranks);
        let entries = entries.map_err(split)?.into_iter().map(|entry| entry.map_err(split));
        first_that_fits(config, entries, &mut opened)
    };
    config.run.ranks.iter().enumerate().map(part).collect()
}

/// The first of these entries that the halo and the application take, or why the very first is not taken.
fn first_that_fits(
    config: &RunConfig,
    entries: impl Iterator<Item = Result<Entry, AppError>>,
    opened: &mut Opened,
) -> Result<Part, AppError> {
    let mut refusal = None;
    for entry in entries {
        let refused = match entry {
            Ok(entry) => {
                let (config, application) = open(config, &entry.cells, opened)?;
                match application.check_layout(&entry.layout) {
                    Ok(()) => return Ok(Part { entry, config, application }),
                    Err(refused) => refused,
                }
            }
            Err(refused) => refused,
        };
        refusal.get_or_insert(refused);
    }
    Err(refusal.expect("a grid that cannot be split has been refused before"))
}

/// The application on so many cells, with its configuration: that of before if it has as many.
fn open(
    config: &RunConfig,
    cells: &[usize],
    opened: &mut Opened,
) -> Result<(RunConfig, Rc<dyn Application>), AppError> {
    if let Some(known) = opened.as_ref().filter(|(config, _)| config.grid.cells == cells) {
        return Ok(known.clone());
    }
    let mut config = config.clone();
    config.grid.cells = cells.to_vec();
    let application: Rc<dyn Application> = Rc::from(ApplicationRow::open(&config)?);
    device::check(&config, &*application)?;
    Ok(opened.insert((config, application)).clone())
}

/// The layouts that may be taken with the cells of all ranks, the best first, and which of them the halo does not allow.
fn entries<const D: usize>(
    config: &RunConfig,
    asked: Option<&[usize]>,
    ranks: usize,
) -> Result<Vec<Result<Entry, GridError>>, GridError> {
    let (cells, periodic) = (array(&config.grid.cells), array(&config.grid.periodic));
    let split =
        |cells, layout| Partition::with_layout(&GlobalGrid::<D>::new(cells, periodic)?, layout, ranks);
    let times =
        |factors: [usize; D]| std::array::from_fn(|axis| usize::saturating_mul(cells[axis], factors[axis]));
    let grown = |layout: [usize; D]| split(times(layout), layout);
    let partitions = match (config.run.scaling, asked) {
        (Scaling::Strong, Some(layout)) => vec![split(cells, array(layout))],
        (Scaling::Strong, None) => {
            let all = Partition::by_surface(&GlobalGrid::new(cells, periodic)?, ranks)?;
            all.into_iter().map(Ok).collect()
        }
        (Scaling::Weak, Some(layout)) => vec![grown(array(layout))],
        (Scaling::Weak, None) => {
            // Compact, as the layout that would cut the cells of one rank best, were they fine enough for it: the least
            // surface of the grid that is made has a row of ranks, each with two neighbours however many there are.
            let all = Partition::by_surface(&GlobalGrid::<D>::new([ranks; D], periodic)?, ranks)?;
            let mut layouts: Vec<_> = all.iter().map(Partition::layout).collect();
            layouts.sort_by_key(|layout| (cut_surface(cells, periodic, *layout), Reverse(*layout)));
            layouts.into_iter().map(grown).collect()
        }
    };
    let halo = array(&config.grid.halo);
    let entry = |partition: Result<Partition<D>, GridError>| {
        let partition = partition?;
        partition.subdomain(0, halo)?;
        Ok(Entry { ranks, layout: partition.layout().to_vec(), cells: partition.grid().cells().to_vec() })
    };
    Ok(partitions.into_iter().map(entry).collect())
}

/// The area of the planes that separate ranks, as [`Partition::surface`] has it, also where there are more parts than cells.
fn cut_surface<const D: usize>(cells: [usize; D], periodic: [bool; D], layout: [usize; D]) -> u128 {
    let volume: u128 = cells.iter().map(|cells| *cells as u128).product();
    let of_axis = |axis: usize| {
        let planes = if periodic[axis] && layout[axis] > 1 { layout[axis] } else { layout[axis] - 1 };
        planes as u128 * (volume / cells[axis] as u128)
    };
    (0..D).map(of_axis).sum()
}

/// A list of the configuration, one entry an axis.
fn array<T: Copy, const D: usize>(per_axis: &[T]) -> [T; D] {
    per_axis.try_into().expect("the configuration gives every axis an entry")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout that is chosen for so many ranks, or why none is.
    fn chosen(ranks: usize, text: &str) -> Result<Vec<usize>, String> {
        let parts = plan(&RunConfig::of(&format!("{text}\nrun.ranks = {ranks}")));
        parts.map(|mut parts| parts.remove(0).entry.layout).map_err(|error| error.to_string())
    }

    #[test]
    fn the_layout_is_the_best_of_those_that_the_halo_and_the_application_take() {
        let life = "app.pattern = 'random:1'\ngrid = { cells = [8, 8], halo = HALO }";
        let stencil3d = "app.name = 'stencil3d'\ngrid = { cells = [8, 8, 8], halo = HALO }";
        let faces = "app.name = 'faces'\ngrid.cells = [5, 4, 4]";
        for (ranks, text, halo, expected) in [
            (4, life, "2", [4, 1].as_slice()),
            (4, life, "4", &[2, 2]),
            (8, stencil3d, "2", &[4, 2, 1]),
            (8, stencil3d, "4", &[2, 2, 2]),
            (2, faces, "", &[1, 2, 1]),
        ] {
            assert_eq!(chosen(ranks, &text.replace("HALO", halo)).as_deref(), Ok(expected), "{text}");
        }
        // Where none fits, what is wrong with the best of all is said.
        let refused = |ranks, text: &str| chosen(ranks, text).expect_err("does not fit");
        let error = refused(4, &life.replace("HALO", "5"));
        assert!(error.contains("thinnest subdomain of layout [4, 1]"), "{error}");
        let error = refused(3, faces);
        assert!(error.contains("the 3 ranks of the layout [3, 1, 1]"), "{error}");
    }

    #[test]
    fn cells_of_each_rank_are_laid_out_in_compact_blocks() {
        let weak = "grid.cells = [4, 4, 4]\nrun.scaling = 'weak'";
        for (ranks, text, expected) in [
            (8, format!("app.name = 'faces'\n{weak}\ngrid.periodic = false"), [2, 2, 2]),
            (4, format!("app.name = 'stencil3d'\n{weak}\ngrid.periodic = false"), [2, 2, 1]),
            // Equal surfaces split the slower axis.
            (2, format!("app.name = 'faces'\n{weak}"), [2, 1, 1]),
        ] {
            assert_eq!(chosen(ranks, &text).as_deref(), Ok(expected.as_slice()), "{text}");
        }
        // A grid that could not be counted if each axis had as many times its cells as there are ranks.
        let large =
            "app.name = 'stencil3d'\ngrid.cells = [512, 512, 512]\nrun.scaling = 'weak'\nrun.verify = false";
        assert_eq!(chosen(4096, large).as_deref(), Ok([16, 16, 16].as_slice()));
        // The shortest axis of a rank says nothing of how many cells there are.
        let flat =
            "app.name = 'stencil3d'\ngrid.cells = [1, 6000, 6000]\nrun.scaling = 'weak'\nrun.verify = false";
        assert_eq!(chosen(4096, flat).as_deref(), Ok([1, 64, 64].as_slice()));
        // More ranks in a row than one of them has cells there.
        let few = "app.pattern = 'random:1'\ngrid.cells = [2, 2]\nrun.scaling = 'weak'";
        assert_eq!(chosen(7, few).as_deref(), Ok([7, 1].as_slice()));
    }

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
