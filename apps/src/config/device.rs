//! `[device]`: what runs the kernels.

use serde::{Deserialize, Serialize};
use streamhalo::{MemoryMode, Peers, StreamKind, Waits, Wires};

use super::fault::Fault;
use super::section::{Section, Shape, as_integer, wrong};
use super::value::Value;

pub(super) const SHAPE: Shape<'static> = Shape {
    name: "device",
    keys: &["kind", "select", "memory", "peers", "wires", "waits", "stream", "threads"],
};

/// What runs the kernels of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceConfig {
    /// The device's row in the registry.
    pub kind: String,
    /// Which of the devices of that kind; `None` for the first that can be used, and on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// Where arrays are; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryMode>,
    /// How other ranks reach arrays; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Peers>,
    /// What wires are given of arrays; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wires: Option<Wires>,
    /// Who waits for other ranks; `None` on the host, which has one way only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// How a host stream runs; `None` on any other device, whose streams are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamKind>,
    /// Threads per rank for kernels.
    pub threads: usize,
}

/// The device that computes on the threads of ranks, and has none of the ways that others have.
pub(super) const HOST: &str = "host";

/// Those of the known kinds that are not the host.
pub(super) fn others<'n>(devices: &[&'n str]) -> Vec<&'n str> {
    devices.iter().copied().filter(|kind| *kind != HOST).collect()
}

/// More than any machine has cores for a rank: each is a thread of the operating system.
const MOST_THREADS: u32 = 4096;

pub(super) fn read(section: &Section<'_>, devices: &[&str]) -> Result<DeviceConfig, Fault> {
    let kind = section.name("kind", devices)?;
    let kind = kind.map_or_else(|| HOST.to_owned(), |kind| kind.value);
    let stream = section.named("stream", StreamKind::OF_HOST, StreamKind::name)?.unwrap_or_default();
    let threads = section.integer_up_to("threads", MOST_THREADS)?.map(|threads| threads.value);
    let select = read_select(section)?;
    let waits = section.named("waits", Waits::ALL, Waits::name)?.unwrap_or_default();
    let memory = section.named("memory", MemoryMode::ALL, MemoryMode::name)?.unwrap_or_default();
    let peers = section.named("peers", Peers::ALL, Peers::name)?.unwrap_or_default();
    let wires = section.named("wires", Wires::ALL, Wires::name)?.unwrap_or_default();
    if kind == HOST {
        section.refuse_on(HOST, &["select", "memory", "peers", "wires", "waits"], &others(devices))?;
    } else {
        // What is said of the host as it is by itself hides nothing, and may stay where `--set device.kind=...` chooses
        // another device.
        if stream == StreamKind::Threaded {
            section.refuse_on(&kind, &["stream"], &[HOST])?;
        }
        if threads.is_some_and(|threads| threads > 1) {
            section.refuse_on(&kind, &["threads"], &[HOST])?;
        }
    }
    Ok(DeviceConfig {
        select,
        memory: (kind != HOST).then_some(memory),
        peers: (kind != HOST).then_some(peers),
        wires: (kind != HOST).then_some(wires),
        waits: (kind != HOST).then_some(waits),
        stream: (kind == HOST).then_some(stream),
        kind,
        threads: threads.map_or(1, |threads| threads as usize),
    })
}

/// A number of the list of `streamhalo info`, or a part of a name.
fn read_select(section: &Section<'_>) -> Result<Option<String>, Fault> {
    let Some(node) = section.node("select") else { return Ok(None) };
    match &node.value {
        Value::String(text) if !text.is_empty() => Ok(Some(text.clone())),
        value => match as_integer::<usize>(value, 0) {
            Some(index) => Ok(Some(index.to_string())),
            None => Err(wrong(
                &section.dotted("select"),
                node,
                "a part of a device's name such as `pocl` or `H100`, or its number as `streamhalo info` lists it",
            )),
        },
    }
}
