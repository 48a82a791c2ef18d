//! What only `faces` has in `[app]`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::fault::{Fault, Located};
use super::grid::Grid;
use super::primitives::Means;
use super::section::Section;

const NAME: &str = "faces";

pub(super) const OWN: Own = Own {
    name: NAME,
    keys: &["order", "outer", "middle", "values", "seed", "extra_compute"],
    steps: DEFAULT_STEPS,
    cells: &[8, 8, 8],
    means: Means::Exchanges,
    looks: Looks::Pictures,
    read: |section, grid, _| Ok(AppSettings::Faces(read(section, grid)?)),
};

const DEFAULT_STEPS: u64 = 100;

/// The highest polynomial order of an element.
const HIGHEST_ORDER: usize = 31;

/// A step multiplies a value by up to 8, the number of elements at a corner. From values below 2²⁰ that
/// many steps stay within what an `f64` holds.
const MOST_STEPS: u64 = 330;

/// What only `faces` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FacesSettings {
    /// Polynomial order p of an element, which has p + 1 points along each axis.
    pub order: usize,
    /// Passes of the outer loop, which allocates.
    pub outer: u32,
    /// Passes of the middle loop, which initialises, in each pass of the outer one.
    pub middle: u32,
    /// What the points hold at first.
    pub values: Values,
    /// Which values exactly.
    pub seed: u64,
    /// Sweeps of the extra kernel that overlaps with the exchange of each step; 0 for none.
    pub extra_compute: u32,
}

/// Kinds of initial values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Integers from -2²⁰ up to 2²⁰, whose sums are exact.
    #[default]
    Integers,
    /// Numbers from -1 up to 1, whose sums are rounded.
    Reals,
}

fn read(section: &Section<'_>, grid: &Grid) -> Result<FacesSettings, Fault> {
    grid.check_axes(NAME, 3, "[z, y, x]")?;
    if grid.config.halo.iter().any(|width| *width != 1) {
        let message =
            format!("`{NAME}` exchanges one layer of points, but `grid.halo` is {:?}", grid.config.halo);
        return Err(Fault::new(&grid.halo_origin, message).expected("`1`"));
    }
    let steps = section.integer("steps", 0)?.unwrap_or(Located::default(DEFAULT_STEPS));
    if steps.value > MOST_STEPS {
        let message = format!("`app.steps` is {}: each multiplies sums by up to 8", steps.value);
        return Err(Fault::new(&steps.origin, message)
            .expected(format!("at most {MOST_STEPS} steps, which an f64 can hold"))
            .hint("more passes of `app.middle` or `app.outer` begin with new values"));
    }
    Ok(FacesSettings {
        order: section.integer_up_to("order", HIGHEST_ORDER)?.map_or(7, |order| order.value),
        outer: section.integer("outer", 1)?.map_or(1, |outer| outer.value),
        middle: section.integer("middle", 1)?.map_or(1, |middle| middle.value),
        values: section.value("values")?.unwrap_or_default(),
        seed: section.integer("seed", 0)?.map_or(2026, |seed| seed.value),
        extra_compute: section.integer("extra_compute", 0)?.map_or(0, |sweeps| sweeps.value),
    })
}
