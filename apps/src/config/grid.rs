//! `[grid]`: the cells, which axes wrap around, and the width of the halo.

use serde::{Deserialize, Serialize};

use super::app::Own;
use super::fault::{Fault, Origin};
use super::primitives::Means;
use super::section::{List, Section, Shape};
use crate::error::counted;

pub(super) const SHAPE: Shape<'static> = Shape { name: "grid", keys: &["cells", "periodic", "halo"] };

/// The global grid, slowest axis first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridConfig {
    /// Cells per axis: of all ranks together, or of each rank where the scaling is weak.
    pub cells: Vec<usize>,
    /// Whether an axis wraps around.
    pub periodic: Vec<bool>,
    /// Width of the halo in cells, per axis.
    pub halo: Vec<usize>,
}

/// The section with what later checks point at.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) config: GridConfig,
    pub(super) cells_origin: Origin,
    pub(super) periodic_origin: Origin,
    pub(super) halo_origin: Origin,
}

impl Grid {
    /// Refuses another number of axes than an application lives on, which `cells` names.
    pub(super) fn check_axes(&self, app: &str, axes: usize, cells: &str) -> Result<(), Fault> {
        let found = self.config.cells.len();
        if found == axes {
            return Ok(());
        }
        let message = format!("`{app}` lives on {}, `grid.cells` has {found}", counted(axes, "axis"));
        Err(Fault::new(&self.cells_origin, message).expected(format!("`{cells}`")))
    }
}

/// The defaults of cells, and of whether axes wrap around, are those of the application.
pub(super) fn read(section: &Section<'_>, app: &Own) -> Result<Grid, Fault> {
    let cells = section.integers("cells", 1)?.unwrap_or(List {
        values: app.cells.to_vec(),
        origin: Origin::Default,
        single: false,
    });
    let total = cells.values.iter().try_fold(1_usize, |total, axis| total.checked_mul(*axis));
    if total.is_none() {
        let message = "the product of `grid.cells` does not fit into 64 bits";
        return Err(Fault::new(&cells.origin, message));
    }
    let axes = cells.values.len();
    let periodic = section.booleans("periodic")?;
    let halo = section.integers("halo", 1)?;
    let periodic_origin = periodic.as_ref().map_or(Origin::Default, |periodic| periodic.origin.clone());
    let halo_origin = halo.as_ref().map_or(Origin::Default, |halo| halo.origin.clone());
    Ok(Grid {
        config: GridConfig {
            periodic: per_axis("`grid.periodic`", periodic, app.means == Means::Exchanges, axes)?,
            halo: per_axis("`grid.halo`", halo, 1, axes)?,
            cells: cells.values,
        },
        cells_origin: cells.origin,
        periodic_origin,
        halo_origin,
    })
}

/// One value for all axes, or a list with one for each.
fn per_axis<T: Clone>(
    subject: &str,
    found: Option<List<T>>,
    default: T,
    axes: usize,
) -> Result<Vec<T>, Fault> {
    match found {
        None => Ok(vec![default; axes]),
        Some(list) if list.single => Ok(vec![list.values[0].clone(); axes]),
        Some(list) if list.values.len() == axes => Ok(list.values),
        Some(list) => {
            let entries = counted(list.values.len(), "entry");
            let message = format!("{subject} has {entries}, `grid.cells` has {axes}");
            Err(Fault::new(&list.origin, message)
                .expected("one value for all axes, or a list with one for each axis"))
        }
    }
}
