//! What only `life` has in `[app]`.

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::app::{AppSettings, Looks, Own};
use super::fault::Fault;
use super::grid::Grid;
use super::pattern::Pattern;
use super::primitives::Means;
use super::section::{Section, as_integer, wrong};
use super::value::{Node, Value};
use crate::error::counted;

pub(super) const OWN: Own = Own {
    name: "life",
    keys: &["pattern", "origin", "cells_as"],
    steps: 1000,
    cells: &[2048, 2048],
    means: Means::Exchanges,
    looks: Looks::PicturesAndCheckpoints,
    read: |section, grid, folder| Ok(AppSettings::Life(read(section, grid, folder)?)),
};

/// What only `life` has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeSettings {
    /// The first generation.
    pub pattern: Pattern,
    /// Where the upper left cell of a pattern file goes, `[y, x]`; `None` centres it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<[usize; 2]>,
    /// What a cell is stored as.
    pub cells_as: CellsAs,
}

/// What a cell of `life` is stored as: 0 or 1 of one of the element types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CellsAs {
    /// A byte.
    #[default]
    U8,
    /// A double, as CabanaGhost has them (2026, section VI-A3).
    F64,
}

fn read(section: &Section<'_>, grid: &Grid, folder: &Path) -> Result<LifeSettings, Fault> {
    grid.check_axes("life", 2, "[rows, columns]")?;
    let pattern = Pattern::read(section, folder)?;
    let origin = read_origin(section)?;
    let cells_as = section.value("cells_as")?.unwrap_or_default();
    if let (Some(node), false) = (section.node("origin"), matches!(pattern, Pattern::File(_))) {
        let message = "`app.origin` is where a pattern of a file goes; a generated one fills the grid";
        return Err(Fault::new(&node.origin, message).expected("a file in `app.pattern`, or no origin"));
    }
    Ok(LifeSettings { pattern, origin, cells_as })
}

/// Whether it is within the grid is known once that is: where the scaling is weak it grows with the ranks.
fn read_origin(section: &Section<'_>) -> Result<Option<[usize; 2]>, Fault> {
    let Some(node) = section.node("origin") else {
        return Ok(None);
    };
    let (subject, pair) = (section.dotted("origin"), "`[y, x]`, counted from 0");
    let Value::Array(items) = &node.value else { return Err(wrong(&subject, node, pair)) };
    let [y, x] = &items[..] else {
        let message = format!("{subject} has {}", counted(items.len(), "entry"));
        return Err(Fault::new(&node.origin, message).expected(pair));
    };
    let read = |entry: usize, item: &Node| {
        let expected = "an integer of at least 0: rows and columns are counted from there";
        as_integer(&item.value, 0).ok_or_else(|| wrong(&format!("{subject} entry {entry}"), item, expected))
    };
    Ok(Some([read(1, y)?, read(2, x)?]))
}
