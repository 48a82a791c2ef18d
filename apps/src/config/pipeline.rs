//! What only `pipeline` has in `[app]`.

use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::fault::Fault;
use super::grid::Grid;
use super::primitives::{Means, check_grid};
use super::section::Section;

const NAME: &str = "pipeline";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["block_rows"],
    steps: 100,
    cells: &[1280, 1280],
    means: Means::Primitives,
    looks: Looks::None,
    read: |section, grid, _| Ok(AppSettings::Pipeline(read(section, grid)?)),
};

/// What only `pipeline` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineSettings {
    /// Rows that one message is about, at least 1.
    pub block_rows: usize,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<PipelineSettings, Fault> {
    check_grid(grid, NAME, "[rows, columns]", 2)?;
    if let Some(axis) = grid.config.cells.iter().position(|cells| *cells < 2) {
        let message =
            format!("`{NAME}` updates what is beyond the first row and column, but axis {axis} has 1");
        return Err(Fault::new(&grid.cells_origin, message).expected("at least 2 rows and 2 columns"));
    }
    Ok(PipelineSettings { block_rows: section.integer("block_rows", 1)?.map_or(1, |rows| rows.value) })
}
