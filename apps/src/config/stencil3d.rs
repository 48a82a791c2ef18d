//! What only `stencil3d` has in `[app]`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::fault::{Fault, Located};
use super::grid::Grid;
use super::primitives::Means;
use super::section::Section;

const NAME: &str = "stencil3d";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["equation", "points", "element", "overlap", "residual_every"],
    steps: 100,
    cells: &[64, 64, 64],
    means: Means::Exchanges,
    looks: Looks::PicturesAndCheckpoints,
    read: |section, grid, _| Ok(AppSettings::Stencil3d(read(section, grid)?)),
};

/// What only `stencil3d` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stencil3dSettings {
    /// What is solved.
    pub equation: Equation,
    /// Points of the stencil: 7 or 27.
    pub points: u32,
    /// The type of a cell's value.
    pub element: Precision,
    /// Whether cells that need no ghosts are computed while ghosts are on their way.
    pub overlap: bool,
    /// Steps from one residual norm to the next; 0 for none.
    pub residual_every: u64,
}

/// What is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Equation {
    /// The heat equation, by explicit steps in time.
    #[default]
    Heat,
    /// Poisson's equation, by Jacobi's iteration.
    Jacobi,
}

/// The type of a cell's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single.
    F32,
    /// Double.
    #[default]
    F64,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<Stencil3dSettings, Fault> {
    grid.check_axes(NAME, 3, "[z, y, x]")?;
    let equation = section.value("equation")?.unwrap_or_default();
    let element = section.value("element")?.unwrap_or_default();
    let points: Located<u32> = section.integer("points", 1)?.unwrap_or(Located::default(7));
    if ![7, 27].contains(&points.value) {
        let message = format!("`app.points` is {}", points.value);
        return Err(Fault::new(&points.origin, message).expected("`7` or `27`"));
    }
    let residual_every: Option<Located<u64>> = section.integer("residual_every", 0)?;
    let residual_every = match (equation, residual_every) {
        (Equation::Heat, Some(found)) if found.value > 0 => {
            let message = "`app.residual_every` is of `jacobi`; the heat equation has no residual";
            return Err(Fault::new(&found.origin, message).expected("`app.equation = \"jacobi\"`, or 0 here"));
        }
        (Equation::Heat, _) => 0,
        (Equation::Jacobi, found) => found.map_or(10, |found| found.value),
    };
    let overlap = section.boolean("overlap")?.unwrap_or(true);
    Ok(Stencil3dSettings { equation, points: points.value, element, overlap, residual_every })
}
