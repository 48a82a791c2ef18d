//! `[app]`: which application, how many steps, and the application's own settings.
//!
//! The settings of an application are a variant of [`AppSettings`] and a row of `OWN`, which names its keys, its
//! defaults and its reader, in a file of its own.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cholesky::{self, CholeskySettings};
use super::comb::{self, CombSettings};
use super::faces::{self, FacesSettings};
use super::fault::Fault;
use super::grid::Grid;
use super::life::{self, LifeSettings};
use super::pipeline::{self, PipelineSettings};
use super::primitives::Means;
use super::section::{Section, Shape};
use super::stencil3d::{self, Stencil3dSettings};
use super::tree::{self, TreeSettings};

pub(super) const NAME: &str = "app";

/// The keys of every application.
const COMMON_KEYS: &[&str] = &["name", "steps"];

/// Every key that some application has.
pub(super) fn keys() -> Vec<&'static str> {
    COMMON_KEYS.iter().chain(OWN.iter().flat_map(|own| own.keys)).copied().collect()
}

/// What can be had of an application's field of cells between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Looks {
    /// Nothing: it has none, or nothing that would be seen.
    None,
    Pictures,
    PicturesAndCheckpoints,
}

/// What an application has of its own in a configuration.
pub(super) struct Own {
    /// Its row in the registry.
    pub(super) name: &'static str,
    /// Its keys in `[app]`, besides those of every application.
    pub(super) keys: &'static [&'static str],
    /// The default of `app.steps`.
    pub(super) steps: u64,
    /// The default of `grid.cells`.
    pub(super) cells: &'static [usize],
    /// How it uses backends.
    pub(super) means: Means,
    /// What can be had of its field between steps.
    pub(super) looks: Looks,
    /// Reads its settings; relative paths start at the folder.
    pub(super) read: fn(&Section<'_>, &Grid, &Path) -> Result<AppSettings, Fault>,
}

/// Every application.
const OWN: &[Own] =
    &[life::OWN, faces::OWN, stencil3d::OWN, pipeline::OWN, tree::OWN, cholesky::OWN, comb::OWN];

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

/// The settings of one application. Each has a key that no other has, so that they can be told apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AppSettings {
    /// Conway's Game of Life.
    Life(LifeSettings),
    /// Shared faces of spectral elements.
    Faces(FacesSettings),
    /// A stencil in three dimensions.
    Stencil3d(Stencil3dSettings),
    /// A pipelined stencil.
    Pipeline(PipelineSettings),
    /// A reduction tree.
    Tree(TreeSettings),
    /// A tiled Cholesky factorisation.
    Cholesky(CholeskySettings),
    /// Cycles of a halo exchange of several variables.
    Comb(CombSettings),
}

impl Means {
    /// Those of the application of that name.
    pub(crate) fn of(app: &str) -> Self {
        Own::of(app).means
    }
}

impl AppConfig {
    /// The applications of which there are pictures.
    pub(crate) fn that_draw() -> impl Iterator<Item = &'static str> {
        Own::with(Looks::Pictures)
    }
}

impl Own {
    fn of(app: &str) -> &'static Self {
        OWN.iter().find(|own| own.name == app).expect("every application has settings of its own")
    }

    /// That of the application that a configuration names, which decides what keys and defaults there are. Read before
    /// anything else.
    pub(super) fn chosen(section: &Section<'_>) -> Result<&'static Self, Fault> {
        let names: Vec<&str> = OWN.iter().map(|own| own.name).collect();
        let name = section.name("name", &names)?;
        Ok(Self::of(name.as_ref().map_or("life", |name| &name.value)))
    }

    /// The applications of which so much can be had.
    fn with(looks: Looks) -> impl Iterator<Item = &'static str> {
        OWN.iter().filter(move |own| own.looks >= looks).map(|own| own.name)
    }

    /// The same as they are written.
    pub(super) fn names_with(looks: Looks) -> String {
        let names: Vec<_> = Self::with(looks).map(|name| format!("`{name}`")).collect();
        names.join(" or ")
    }

    /// The rest of the section. `folder` is the folder of the configuration file.
    pub(super) fn settings(
        &self,
        section: &Section<'_>,
        grid: &Grid,
        folder: &Path,
        all: &[Shape<'_>],
    ) -> Result<AppConfig, Fault> {
        let keys = [COMMON_KEYS, self.keys].concat();
        section.check_keys(&Shape { name: NAME, keys: &keys }, all)?;
        let steps = section.integer("steps", 0)?.map_or(self.steps, |steps| steps.value);
        let settings = (self.read)(section, grid, folder)?;
        Ok(AppConfig { name: self.name.to_owned(), steps, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::APPLICATIONS;

    #[test]
    fn every_application_has_settings() {
        assert!(OWN.iter().map(|own| own.name).eq(APPLICATIONS.iter().map(|row| row.name)));
    }
}
