//! `[device]`: what runs the kernels.

use serde::{Deserialize, Serialize};

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
    /// Where arrays are, by the name of [`streamhalo::MemoryMode`]; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// How other ranks reach arrays, by the name of [`streamhalo::Peers`]; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<String>,
    /// What wires are given of arrays, by the name of [`streamhalo::Wires`]; `None` on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wires: Option<String>,
    /// Who waits for other ranks, by the name of [`streamhalo::Waits`]; `None` on the host, which has one way only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
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
    let stream = section.name("stream", &["inline", "threaded"])?;
    let stream = match stream.as_ref().map(|stream| stream.value.as_str()) {
        Some("threaded") => StreamKind::Threaded,
        _ => StreamKind::Inline,
    };
    let threads = section.integer_up_to("threads", 1, MOST_THREADS)?;
    let select = read_select(section)?;
    let waits = section.name("waits", &["auto", "kernel", "proxy"])?;
    let waits = waits.map_or_else(|| "auto".to_owned(), |waits| waits.value);
    let memory = section.name("memory", &["auto", "shared", "separate"])?;
    let memory = memory.map_or_else(|| "auto".to_owned(), |memory| memory.value);
    let peers = section.name("peers", &["auto", "staged"])?;
    let peers = peers.map_or_else(|| "auto".to_owned(), |peers| peers.value);
    let wires = section.name("wires", &["auto", "direct", "staged"])?;
    let wires = wires.map_or_else(|| "auto".to_owned(), |wires| wires.value);
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
