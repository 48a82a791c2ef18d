//! How the grid is split at each entry of `run.ranks`, checked before anything runs.

use streamhalo::comm::fabric;
use streamhalo::grid::GridError;
use streamhalo::{GlobalGrid, Partition};

use crate::config::RunConfig;
use crate::error::AppError;

/// More ranks than this on one machine are a slip of the keyboard.
const MOST_RANKS: usize = 4096;

/// An entry of `run.ranks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of ranks.
    pub(crate) ranks: usize,
    /// Ranks per axis, slowest axis first.
    pub(crate) layout: Vec<usize>,
}

/// Every entry of `run.ranks` with the layout that the user or the program chooses.
///
/// # Errors
///
/// [`AppError::Split`] where the grid cannot be split so, or a part is thinner than the halo.
pub(crate) fn plan(config: &RunConfig) -> Result<Vec<Entry>, AppError> {
    let usage = |flag: &str, message: String| AppError::Usage { flag: flag.to_owned(), message };
    // A launcher may have started them on many machines, and has said how many.
    let most = if fabric::launched().is_some() { usize::MAX } else { MOST_RANKS };
    if let Some(ranks) = config.run.ranks.iter().find(|ranks| **ranks > most) {
        return Err(usage(
            "run.ranks",
            format!("{ranks} ranks are more than the {most} that one machine is given"),
        ));
    }
    let entry = match config.grid.cells.len() {
        1 => entry::<1>,
        2 => entry::<2>,
        3 => entry::<3>,
        axes => return Err(usage("grid.cells", format!("{axes} axes; a grid has 1, 2 or 3"))),
    };
    let entries = config.run.ranks.iter().enumerate();
    let planned = entries.map(|(index, &ranks)| {
        let layout = entry(config, config.run.layout.for_entry(index), ranks);
        match layout {
            Ok(layout) => Ok(Entry { ranks, layout }),
            Err(source) => Err(AppError::Split { ranks, source: Box::new(source) }),
        }
    });
    planned.collect()
}

/// The layout, checked.
fn entry<const D: usize>(
    config: &RunConfig,
    asked: Option<&[usize]>,
    ranks: usize,
) -> Result<Vec<usize>, GridError> {
    let grid = GlobalGrid::<D>::new(array(&config.grid.cells), array(&config.grid.periodic))?;
    let partition = match asked {
        Some(layout) => Partition::with_layout(&grid, array(layout), ranks)?,
        None => Partition::automatic(&grid, ranks)?,
    };
    partition.subdomain(0, array(&config.grid.halo))?;
    Ok(partition.layout().to_vec())
}

/// A list of the configuration, one entry an axis.
fn array<T: Copy, const D: usize>(per_axis: &[T]) -> [T; D] {
    per_axis.try_into().expect("the configuration gives every axis an entry")
}
