//! `[app]`: which application, how many steps, and the application's own settings.
//!
//! A new application with settings of its own adds a variant of [`AppSettings`], its keys to
//! [`own_keys`] and a reader; one without needs nothing here.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fault::{Fault, Located};
use super::grid::Grid;
use super::pattern::Pattern;
use super::section::{Section, Shape, as_integer, wrong};
use super::value::Value;

/// The keys of every application.
const COMMON_KEYS: &[&str] = &["name", "steps"];
const LIFE_KEYS: &[&str] = &["pattern", "origin"];

pub(super) const NAME: &str = "app";

/// Every key that some application has.
pub(super) const ANY_SHAPE: Shape<'static> =
    Shape { name: NAME, keys: &["name", "steps", "pattern", "origin"] };

/// Which application, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppConfig {
    /// The application's row in the registry.
    pub name: String,
    /// Time steps; 0 sets up and verifies only.
    pub steps: u64,
    /// What only this application has.
    #[serde(flatten)]
    pub settings: AppSettings,
}

/// The settings of one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AppSettings {
    /// Conway's Game of Life.
    Life(LifeSettings),
    /// An application without settings of its own.
    Plain {},
}

/// What only `life` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeSettings {
    /// The first generation.
    pub pattern: Pattern,
    /// Where the upper left cell of a pattern file goes, `[y, x]`; `None` centres it. Only
    /// files have an origin: it stays `None` for the generated patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<[usize; 2]>,
}

/// `folder` is the folder of the configuration file.
pub(super) fn read(
    section: &Section<'_>,
    grid: &Grid,
    apps: &[&str],
    folder: &Path,
    all: &[Shape<'_>],
) -> Result<AppConfig, Fault> {
    // The name decides which keys there are, so it is read first.
    let name = match section.name("name", apps)? {
        Some(name) => name,
        None => Located::default("life".to_owned()),
    };
    let keys = [COMMON_KEYS, own_keys(&name.value)].concat();
    let shape = Shape { name: NAME, keys: &keys };
    section.check_keys(&shape, all)?;
    let steps = section.integer("steps", 0)?;
    let settings = match name.value.as_str() {
        "life" => AppSettings::Life(life(section, grid, folder)?),
        _ => AppSettings::Plain {},
    };
    Ok(AppConfig { name: name.value, steps: steps.map_or(1000, |steps| steps.value), settings })
}

fn own_keys(app: &str) -> &'static [&'static str] {
    match app {
        "life" => LIFE_KEYS,
        _ => &[],
    }
}

fn life(section: &Section<'_>, grid: &Grid, folder: &Path) -> Result<LifeSettings, Fault> {
    let axes = grid.config.cells.len();
    if axes != 2 {
        let message = format!("`life` lives on 2 axes, `grid.cells` has {axes}");
        return Err(Fault::new(&grid.cells_origin, message).expected("`[rows, columns]`"));
    }
    let pattern = Pattern::read(section, folder)?;
    let origin = read_origin(section, &grid.config.cells)?;
    Ok(LifeSettings { origin: origin.filter(|_| matches!(pattern, Pattern::File(_))), pattern })
}

fn read_origin(section: &Section<'_>, cells: &[usize]) -> Result<Option<[usize; 2]>, Fault> {
    let Some(node) = section.node("origin") else {
        return Ok(None);
    };
    let found = match &node.value {
        Value::Array(items) => {
            items.iter().map(|item| as_integer(&item.value, 0)).collect::<Option<Vec<usize>>>()
        }
        _ => None,
    };
    let expected = format!("`[y, x]` within the {} by {} cells, counted from 0", cells[0], cells[1]);
    match found.as_deref() {
        Some(&[y, x]) if y < cells[0] && x < cells[1] => Ok(Some([y, x])),
        Some(outside) => {
            let message = format!("`app.origin` is {outside:?}");
            Err(Fault::new(&node.origin, message).expected(expected))
        }
        None => Err(wrong(&section.dotted("origin"), node, &expected)),
    }
}
