//! What only `cholesky` has in `[app]`.

use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::faces::Values;
use super::fault::{Fault, Located, Origin};
use super::grid::Grid;
use super::primitives::{Means, check_grid};
use super::section::Section;

const NAME: &str = "cholesky";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["tile", "values", "seed"],
    steps: 10,
    cells: &[512],
    means: Means::Primitives,
    looks: Looks::None,
    read: |section, grid, _| Ok(AppSettings::Cholesky(read(section, grid)?)),
};

/// Tiles of 128 MiB, which are messages.
const MOST_TILE: usize = 4096;

/// What only `cholesky` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CholeskySettings {
    /// Rows and columns of a tile, of which the rows of the matrix are a multiple.
    pub tile: usize,
    /// What the matrix is made of: a factor of integers, or rounded numbers.
    pub values: Values,
    /// Which values exactly.
    pub seed: u64,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<CholeskySettings, Fault> {
    check_grid(grid, NAME, "[rows]", 1)?;
    let tile = section.integer_up_to("tile", MOST_TILE)?.unwrap_or(Located::default(32));
    let rows = grid.config.cells[0];
    if !rows.is_multiple_of(tile.value) {
        let message = format!(
            "the {rows} rows of `grid.cells` are no multiple of `app.tile`, which is {}: `{NAME}` has whole tiles",
            tile.value
        );
        let origin = match &tile.origin {
            Origin::Default => &grid.cells_origin,
            set => set,
        };
        let (below, above) = (rows / tile.value * tile.value, rows.next_multiple_of(tile.value));
        let fits = if below == 0 { format!("{above}") } else { format!("{below} or {above}") };
        return Err(Fault::new(origin, message).expected(format!("{fits} rows, or another `app.tile`")));
    }
    Ok(CholeskySettings {
        tile: tile.value,
        values: section.value("values")?.unwrap_or_default(),
        seed: section.integer("seed", 0)?.map_or(2015, |seed| seed.value),
    })
}
