//! The run configuration: a TOML file and the flags laid over it, resolved and checked.
//!
//! Reading has three steps, each in a file of its own: the text becomes a tree whose nodes
//! know where they come from (`value`), flags replace nodes of it (`overrides`), and every
//! section is read from it with its defaults (`grid`, `app`, `run`, `comm`, `device`,
//! `staging`, `output`). What is wrong is reported with its line or its flag ([`ConfigError`]).
//!
//! ```
//! use streamhalo_apps::config::{KnownNames, Overrides, RunConfig};
//!
//! let names = KnownNames {
//!     backends: &["standard", "st-send"],
//!     fabrics: &["local"],
//!     devices: &["host"],
//! };
//! let text = "app.pattern = 'random:1'\nrun.ranks = [1, 2]\n";
//! let flags = Overrides { ranks: Some("2".into()), ..Overrides::default() };
//! let config = RunConfig::parse("example.toml", text, &flags, &names)?;
//! assert_eq!(config.run.ranks, [2]);
//! # Ok::<(), Box<streamhalo_apps::config::ConfigError>>(())
//! ```

mod app;
mod checkpoint;
mod cholesky;
mod comb;
mod comm;
mod device;
mod faces;
mod fault;
mod grid;
mod life;
mod names;
mod output;
mod overrides;
mod pattern;
mod pipeline;
mod places;
mod primitives;
mod run;
mod section;
mod staging;
mod stencil3d;
mod tree;
mod value;

use std::path::Path;

use serde::{Deserialize, Serialize};
use streamhalo::comm::Staging;
use streamhalo::comm::backend::{AUTO, backend_names};

pub use app::{AppConfig, AppSettings};
pub use cholesky::CholeskySettings;
pub use comb::CombSettings;
pub use comm::CommConfig;
pub(crate) use comm::own_name;
pub use device::DeviceConfig;
pub use faces::{FacesSettings, Values};
pub use fault::{ConfigError, Excerpt, Place};
pub use grid::GridConfig;
pub use life::{CellsAs, LifeSettings};
pub use names::{KnownNames, nearest};
pub use output::{OnFullDisk, OutputConfig};
pub use overrides::Overrides;
pub use pattern::Pattern;
pub use pipeline::PipelineSettings;
pub use places::Places;
pub(crate) use primitives::Means;
pub use primitives::Primitive;
pub(crate) use run::check_replayed;
pub use run::{Layout, RunSettings, Scaling};
pub use stencil3d::{Equation, Precision, Stencil3dSettings};
pub use tree::TreeSettings;

use crate::error::AppError;
use fault::{Fault, Origin};
use names::one_of;
use section::{Section, Shape, belongs_to};
use value::Table;

/// The sections in the order of the documentation, the first with these keys.
fn shapes<'k>(of_app: &'k [&'static str]) -> [Shape<'k>; 7] {
    let app = Shape { name: app::NAME, keys: of_app };
    [app, grid::SHAPE, run::SHAPE, comm::SHAPE, device::SHAPE, staging::SHAPE, output::SHAPE]
}

/// A resolved configuration: every key has its value. Serialised, it is the `config` of
/// `results.json`, and what the processes of ranks are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// `[app]`
    pub app: AppConfig,
    /// `[grid]`
    pub grid: GridConfig,
    /// `[run]`
    pub run: RunSettings,
    /// `[comm]`
    pub comm: CommConfig,
    /// `[device]`
    pub device: DeviceConfig,
    /// `[staging]`; `None` on the host, which stages nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Staging>,
    /// `[output]`
    pub output: OutputConfig,
}

impl RunConfig {
    /// Reads a configuration file and lays `overrides` over it; and where its keys were set.
    ///
    /// # Errors
    ///
    /// [`AppError::ConfigUnreadable`] where the file cannot be read, [`AppError::Config`]
    /// where its content or a flag is wrong.
    pub fn load(
        path: &Path,
        overrides: &Overrides,
        names: &KnownNames<'_>,
    ) -> Result<(Self, Places), AppError> {
        // Its paths may start there, and results and ranks that are processes are told of them as text.
        if path.parent().is_some_and(|folder| folder.to_str().is_none()) {
            let message =
                format!("the folder of {} has a name that is not Unicode; give it another", path.display());
            return Err(AppError::usage("CONFIG", message));
        }
        let bytes = std::fs::read(path)
            .map_err(|source| AppError::ConfigUnreadable { path: path.to_owned(), source })?;
        let shown = path.display().to_string();
        let text = String::from_utf8(bytes).map_err(|error| Box::new(fault::not_utf8(&shown, &error)))?;
        Ok(parse(&shown, &text, overrides, names)?)
    }

    /// Reads a configuration from `text`. Errors call it `file`, and relative paths in it
    /// start at the folder of `file`.
    ///
    /// # Errors
    ///
    /// The first mistake of the text or of a flag.
    pub fn parse(
        file: &str,
        text: &str,
        overrides: &Overrides,
        names: &KnownNames<'_>,
    ) -> Result<Self, Box<ConfigError>> {
        Ok(parse(file, text, overrides, names)?.0)
    }
}

/// The names that `comm.backend` takes in this version.
pub(crate) fn known_backends() -> Vec<&'static str> {
    backend_names().chain([AUTO]).collect()
}

#[cfg(test)]
impl RunConfig {
    /// What a text configures that is right: of any application and backends, on the host.
    pub(crate) fn of(text: &str) -> Self {
        let names = KnownNames { backends: &known_backends(), fabrics: &["local"], devices: &["host"] };
        let config = Self::parse("f.toml", text, &Overrides::default(), &names);
        config.unwrap_or_else(|error| panic!("{text}: {error}"))
    }
}

fn parse(
    file: &str,
    text: &str,
    overrides: &Overrides,
    names: &KnownNames<'_>,
) -> Result<(RunConfig, Places), Box<ConfigError>> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let keys = app::keys();
    let all = shapes(&keys);
    let read = || {
        let mut root = value::parse_document(text)?;
        overrides::apply(&mut root, overrides, &all)?;
        Ok((resolve(&root, folder, names, &all)?, Places::of(&root, file, text)))
    };
    read().map_err(|fault: Fault| Box::new(fault.locate(file, text)))
}

fn resolve(
    root: &Table,
    folder: &Path,
    names: &KnownNames<'_>,
    all: &[Shape<'_>],
) -> Result<RunConfig, Fault> {
    check_sections(root, all)?;
    let section = |shape: Shape<'static>| {
        let section = Section::find(root, shape.name)?;
        section.check_keys(&shape, all)?;
        Ok(section)
    };
    // The keys of [app] depend on its name, so its reader checks them.
    let in_app = Section::find(root, app::NAME)?;
    let own = app::Own::chosen(&in_app)?;
    let grid = grid::read(&section(grid::SHAPE)?, own)?;
    let app = own.settings(&in_app, &grid, folder, all)?;
    let run = run::read(&section(run::SHAPE)?, &grid, own, folder)?;
    let (device, comm) = (section(device::SHAPE)?, section(comm::SHAPE)?);
    let mut backends = names.backends.to_vec();
    if own.means == Means::Primitives {
        primitives::check_device(&device, own.name)?;
        primitives::check_backends(&comm, own.name, names.backends)?;
        backends = primitives::backends(names.backends);
    }
    let device = device::read(&device, names.devices)?;
    let comm = comm::read(&comm, &KnownNames { backends: &backends, ..*names }, &device.kind, folder)?;
    let staging = staging::read(&section(staging::SHAPE)?, names.devices, &device.kind)?;
    let output = output::read(&section(output::SHAPE)?, own)?;
    pattern::check_default(&app.settings, &in_app)?;
    Ok(RunConfig { app, grid: grid.config, run, comm, device, staging, output })
}

/// Refuses whatever stands beside the sections.
fn check_sections(root: &Table, all: &[Shape<'_>]) -> Result<(), Fault> {
    let names: Vec<_> = all.iter().map(|shape| shape.name).collect();
    let unknown = root.entries.iter().find(|entry| !names.contains(&entry.key.as_str()));
    let Some(entry) = unknown else {
        return Ok(());
    };
    let fault = unknown_section(&entry.key_origin, &entry.key, &names);
    Err(match belongs_to(&entry.key, all) {
        Some(hint) => fault.hint(hint),
        None => fault.nearest(nearest(&entry.key, &names)),
    })
}

fn unknown_section(origin: &Origin, name: &str, names: &[&str]) -> Fault {
    Fault::new(origin, format!("unknown section `{name}`")).expected(one_of(names))
}
