//! `[output]`: where the results go, and which pictures and checkpoints are among them.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::app::{Looks, Own};
use super::checkpoint;
use super::fault::Fault;
use super::section::{Section, Shape};

pub(super) const SHAPE: Shape<'static> = Shape {
    name: "output",
    keys: &["dir", "snapshot_every", checkpoint::EVERY, checkpoint::KEPT, "on_full_disk"],
};

/// Where the results go, and what is written during a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputConfig {
    /// The folder, relative to the working directory.
    pub dir: PathBuf,
    /// Steps between two pictures of the field; 0 for no pictures.
    #[serde(default)]
    pub snapshot_every: u64,
    /// Steps between two checkpoints; 0 for none.
    #[serde(default)]
    pub checkpoint_every: u64,
    /// How many of them stay; 0 for all.
    #[serde(default)]
    pub checkpoints_kept: usize,
    /// What becomes of a run whose pictures or checkpoints find no room.
    #[serde(default)]
    pub on_full_disk: OnFullDisk,
}

/// What becomes of a run that cannot write for want of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OnFullDisk {
    /// It ends with an error.
    #[default]
    Stop,
    /// It says so, and goes on without what it would have written.
    GoOn,
}

/// Without a folder the results of an application go to `results/NAME`.
pub(super) fn read(section: &Section<'_>, app: &Own) -> Result<OutputConfig, Fault> {
    let dir = section.string("dir", "the path of a folder")?;
    let snapshot_every = section.integer("snapshot_every", 0)?;
    if let Some(every) = &snapshot_every
        && every.value > 0
        && app.looks < Looks::Pictures
    {
        let message = format!("`{}` has no field of cells that could be shown", app.name);
        return Err(Fault::new(&every.origin, message)
            .expected(format!("pictures of {}", Own::names_with(Looks::Pictures))));
    }
    let (checkpoint_every, checkpoints_kept) = checkpoint::read(section, app)?;
    Ok(OutputConfig {
        dir: match dir {
            Some(dir) => PathBuf::from(dir.value),
            None => PathBuf::from("results").join(app.name),
        },
        snapshot_every: snapshot_every.map_or(0, |every| every.value),
        checkpoint_every,
        checkpoints_kept,
        on_full_disk: section.value("on_full_disk")?.unwrap_or_default(),
    })
}
