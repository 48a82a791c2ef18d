//! `[output]`: where the results go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::section::{Section, Shape};

pub(super) const SHAPE: Shape<'static> = Shape { name: "output", keys: &["dir"] };

/// Where the results go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputConfig {
    /// The folder, relative to the working directory.
    pub dir: PathBuf,
}

/// Without a folder the results of an application go to `results/NAME`.
pub(super) fn read(section: &Section<'_>, app: &str) -> Result<OutputConfig, Fault> {
    let dir = section.string("dir", "the path of a folder")?;
    Ok(OutputConfig {
        dir: match dir {
            Some(dir) => PathBuf::from(dir.value),
            None => PathBuf::from("results").join(app),
        },
    })
}
