//! What only `comb` has in `[app]`.

use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::fault::Fault;
use super::grid::Grid;
use super::primitives::Means;
use super::section::Section;
use super::stencil3d::Precision;

const NAME: &str = "comb";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["variables", "element"],
    steps: 100,
    cells: &[64, 64, 64],
    means: Means::Exchanges,
    looks: Looks::None,
    read: |section, grid, _| Ok(AppSettings::Comb(read(section, grid)?)),
};

/// More are a slip: each has an array of its own.
const MOST_VARIABLES: usize = 1024;

/// What only `comb` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CombSettings {
    /// Variables of a cell, all of which go into one exchange.
    pub variables: usize,
    /// The type of a variable's values.
    pub element: Precision,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<CombSettings, Fault> {
    grid.check_axes(NAME, 3, "[z, y, x]")?;
    let variables =
        section.integer_up_to("variables", MOST_VARIABLES)?.map_or(3, |variables| variables.value);
    Ok(CombSettings { variables, element: section.value("element")?.unwrap_or_default() })
}
