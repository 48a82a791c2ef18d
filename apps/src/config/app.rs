//! `[app]`: which application, how many steps, and the application's own settings.
//!
//! A new application with settings of its own adds a variant of [`AppSettings`], its keys to
//! [`own_keys`] and a reader; one without needs nothing here.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::fault::{Fault, Located, Origin};
use super::grid::Grid;
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AppSettings {
    /// Conway's Game of Life.
    Life(LifeSettings),
    /// An application without settings of its own.
    Plain {},
}

/// What only `life` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LifeSettings {
    /// The first generation.
    pub pattern: Pattern,
    /// Where the upper left cell of a pattern file goes, `[y, x]`; `None` centres it. Only
    /// files have an origin: it stays `None` for the generated patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<[usize; 2]>,
}

/// The first generation of `life`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// A run-length encoded file. A relative path in a configuration file starts at that
    /// file's folder, one in a flag at the working directory; this is the resolved path.
    File(PathBuf),
    /// Gliders all over the grid.
    GliderField,
    /// Random cells from a seed.
    Random(u64),
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => serializer.collect_str(&path.display()),
            Self::GliderField => serializer.serialize_str(GLIDER_FIELD),
            Self::Random(seed) => serializer.collect_str(&format_args!("{RANDOM}{seed}")),
        }
    }
}

const GLIDER_FIELD: &str = "glider-field";
const RANDOM: &str = "random:";
const PATTERN_EXPECTED: &str = "the path of an RLE file, `glider-field` or `random:SEED`";

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
    let pattern = match section.string("pattern", PATTERN_EXPECTED)? {
        Some(pattern) => pattern,
        None => Located::default("patterns/acorn.rle".to_owned()),
    };
    let pattern = read_pattern(&pattern, folder)?;
    let origin = read_origin(section, &grid.config.cells)?;
    Ok(LifeSettings { origin: origin.filter(|_| matches!(pattern, Pattern::File(_))), pattern })
}

fn read_pattern(text: &Located<String>, folder: &Path) -> Result<Pattern, Fault> {
    if text.value == GLIDER_FIELD {
        return Ok(Pattern::GliderField);
    }
    if let Some(seed) = text.value.strip_prefix(RANDOM) {
        return seed.parse().map(Pattern::Random).map_err(|_| {
            let message = format!("`{seed}` is not a seed for `app.pattern`");
            Fault::new(&text.origin, message)
                .expected("an integer from 0 to 18446744073709551615, as in `random:42`")
        });
    }
    let path = match text.origin {
        Origin::Flag(_) => PathBuf::from(&text.value),
        Origin::File(_) | Origin::Default => folder.join(&text.value),
    };
    if !path.is_file() {
        let message = format!("`app.pattern`: there is no file {}", path.display());
        let names = [GLIDER_FIELD];
        return Err(Fault::new(&text.origin, message)
            .expected(PATTERN_EXPECTED)
            .nearest(super::names::nearest(&text.value, &names)));
    }
    Ok(Pattern::File(path))
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
