//! What only `tree` has in `[app]`.

use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::faces::Values;
use super::fault::Fault;
use super::grid::Grid;
use super::primitives::{Means, check_grid};
use super::section::Section;

const NAME: &str = "tree";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["arity", "elements", "values", "seed"],
    steps: 10_000,
    cells: &[64],
    means: Means::Primitives,
    looks: Looks::None,
    read: |section, grid, _| Ok(AppSettings::Tree(read(section, grid)?)),
};

/// 128 MiB.
const MOST_ELEMENTS: usize = 1 << 24;

/// What only `tree` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSettings {
    /// Children of a rank, at most.
    pub arity: usize,
    /// Values of a leaf, and of a message.
    pub elements: usize,
    /// What the leaves hold.
    pub values: Values,
    /// Which values exactly.
    pub seed: u64,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<TreeSettings, Fault> {
    check_grid(grid, NAME, "[leaves]", 1)?;
    Ok(TreeSettings {
        arity: section.integer("arity", 1)?.map_or(16, |arity| arity.value),
        elements: section.integer_up_to("elements", MOST_ELEMENTS)?.map_or(1, |elements| elements.value),
        values: section.value("values")?.unwrap_or_default(),
        seed: section.integer("seed", 0)?.map_or(2015, |seed| seed.value),
    })
}
