//! `[staging]`: how messages of a device go through the host's memory.

use streamhalo::comm::{Staging, StagingMemory, StagingScheme};

use super::device::{HOST, others};
use super::fault::Fault;
use super::section::{Section, Shape};

pub(super) const SHAPE: Shape<'static> =
    Shape { name: "staging", keys: &["memory", "scheme", "blocks", "threshold_bytes", "first", "last"] };

/// `None` on the host.
pub(super) fn read(section: &Section<'_>, devices: &[&str], device: &str) -> Result<Option<Staging>, Fault> {
    let default = Staging::default();
    let threshold_bytes = section.integer("threshold_bytes", 0)?;
    let blocks = section.integer_up_to("blocks", Staging::MOST_BLOCKS)?;
    let staging = Staging {
        memory: section.named("memory", StagingMemory::ALL, StagingMemory::name)?.unwrap_or_default(),
        scheme: section.named("scheme", StagingScheme::ALL, StagingScheme::name)?.unwrap_or_default(),
        blocks: blocks.map_or(default.blocks, |blocks| blocks.value),
        threshold_bytes: threshold_bytes.map_or(default.threshold_bytes, |bytes| bytes.value),
        first: section.positive("first")?.unwrap_or(default.first),
        last: section.positive("last")?.unwrap_or(default.last),
    };
    if device == HOST {
        section.refuse_on(HOST, SHAPE.keys, &others(devices))?;
        return Ok(None);
    }
    Ok(Some(staging))
}
