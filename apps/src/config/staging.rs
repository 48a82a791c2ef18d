//! `[staging]`: how messages of a device go through the host's memory.

use serde::{Deserialize, Serialize};
use streamhalo::comm::{Staging, StagingMemory, StagingScheme};

use super::device::{HOST, others};
use super::fault::Fault;
use super::section::{Section, Shape};

pub(super) const SHAPE: Shape<'static> =
    Shape { name: "staging", keys: &["memory", "scheme", "blocks", "threshold_bytes", "first", "last"] };

/// How messages of a device are staged, in the words of [`Staging`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StagingConfig {
    /// Host memory, by its name.
    pub memory: String,
    /// How messages are cut, by the scheme's name.
    pub scheme: String,
    /// Into how many blocks.
    pub blocks: u32,
    /// Messages up to there are in one piece.
    pub threshold_bytes: usize,
    /// The first block's length, in those in between.
    pub first: f64,
    /// The last block's.
    pub last: f64,
}

impl StagingConfig {
    /// The same, for a world.
    pub fn staging(&self) -> Staging {
        let Self { memory, scheme, blocks, threshold_bytes, first, last } = self;
        Staging {
            memory: StagingMemory::from_name(memory).unwrap_or_default(),
            scheme: StagingScheme::from_name(scheme).unwrap_or_default(),
            blocks: *blocks,
            threshold_bytes: *threshold_bytes,
            first: *first,
            last: *last,
        }
    }
}

/// `None` on the host.
pub(super) fn read(
    section: &Section<'_>,
    devices: &[&str],
    device: &str,
) -> Result<Option<StagingConfig>, Fault> {
    let default = Staging::default();
    let memory = section.name("memory", &StagingMemory::ALL.map(StagingMemory::name))?;
    let scheme = section.name("scheme", &StagingScheme::ALL.map(StagingScheme::name))?;
    let blocks = section.integer_up_to("blocks", 1, Staging::MOST_BLOCKS)?;
    let threshold_bytes = section.integer("threshold_bytes", 0)?;
    let first = section.positive("first")?;
    let last = section.positive("last")?;
    if device == HOST {
        section.refuse_on(HOST, SHAPE.keys, &others(devices))?;
        return Ok(None);
    }
    Ok(Some(StagingConfig {
        memory: memory.map_or_else(|| default.memory.name().to_owned(), |memory| memory.value),
        scheme: scheme.map_or_else(|| default.scheme.name().to_owned(), |scheme| scheme.value),
        blocks: blocks.unwrap_or(default.blocks),
        threshold_bytes: threshold_bytes.map_or(default.threshold_bytes, |bytes| bytes.value),
        first: first.unwrap_or(default.first),
        last: last.unwrap_or(default.last),
    }))
}
