//! `[device]`: what runs the kernels.

use serde::{Deserialize, Serialize};

use super::fault::Fault;
use super::section::{Section, Shape};

pub(super) const SHAPE: Shape<'static> = Shape { name: "device", keys: &["kind", "stream", "threads"] };

/// Devices that this version does not have.
pub(crate) const LATER_DEVICES: [&str; 3] = ["opencl", "cuda", "hip"];

/// What runs the kernels of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceConfig {
    /// The device's row in the registry.
    pub kind: String,
    /// How a host stream runs; `None` on any other device, whose streams are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamKind>,
    /// Threads per rank for kernels.
    pub threads: usize,
}

/// How a host stream runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// On the rank's own thread, at enqueue.
    Inline,
    /// On a worker thread.
    Threaded,
}

pub(super) fn read(section: &Section<'_>, devices: &[&str]) -> Result<DeviceConfig, Fault> {
    let kind = section.name_by_now("kind", "device", devices, &LATER_DEVICES)?;
    let kind = kind.map_or_else(|| "host".to_owned(), |kind| kind.value);
    // Checked on every device, so that one configuration serves several by `--set
    // device.kind=...` and a slip does not hide until then.
    let stream = section.name("stream", &["inline", "threaded"])?;
    let stream = match stream.as_ref().map(|stream| stream.value.as_str()) {
        Some("threaded") => StreamKind::Threaded,
        _ => StreamKind::Inline,
    };
    let threads = section.integer("threads", 1)?;
    Ok(DeviceConfig {
        stream: (kind == "host").then_some(stream),
        kind,
        threads: threads.map_or(1, |threads| threads.value),
    })
}
