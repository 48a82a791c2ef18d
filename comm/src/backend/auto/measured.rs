//! What exchanges of a shape take, backend by backend.

use super::super::{Direct, ExchangeSpec, find};
use crate::device::Stream;
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Longer messages are rehearsed with as many bytes.
const MOST_BYTES: usize = 1 << 20;
/// Messages of a rank are rehearsed with as many bytes together, about.
const MOST_BYTES_OF_ALL: usize = 4 * MOST_BYTES;

/// What exchanges have in common whose fastest backend is the same, as far as `auto` tells them apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExchangeShape {
    /// The fabric's name.
    pub fabric: String,
    /// The library that carries its messages, with its version, if one of the machine's does.
    pub library: Option<String>,
    /// The stream: its device and its kind, and on a device who waits and signals, and how arrays and messages get to other
    /// ranks.
    pub stream: String,
    /// How many ranks there are.
    pub ranks: usize,
    /// How many messages a rank sends to peers whose memory is mapped: the most of any rank.
    pub near: usize,
    /// How many it sends over a wire: the most of any rank.
    pub far: usize,
    /// Bytes of the longest message, rounded up to a power of two; 1 MiB for all that are longer.
    pub bytes: usize,
    /// What all receivers allow senders to do.
    pub direct: Direct,
}

impl ExchangeShape {
    /// That of what the ranks want to exchange. Collective; blocks.
    pub(super) fn agree(world: &World, stream: &Stream, spec: &ExchangeSpec) -> crate::error::Result<Self> {
        let is_far = |peer: usize| peer < world.size() && !world.fabric().is_mapped(peer);
        let far = spec.sends.iter().filter(|send| is_far(send.peer)).count();
        let longest = spec.sends.iter().map(|send| send.bytes).max().unwrap_or(0).min(MOST_BYTES);
        let own = Self {
            fabric: world.fabric().name().into(),
            library: world.fabric().engine().map(|all| all.lines().next().unwrap_or_default().trim().into()),
            stream: match stream.is_on_host() {
                true => stream.described(),
                false => format!("{}, {:?}", stream.described(), world.staging()),
            },
            ranks: world.size(),
            near: spec.sends.len() - far,
            far,
            bytes: if longest == 0 { 0 } else { longest.next_power_of_two() },
            direct: spec.recvs.iter().map(|recv| recv.direct).min().unwrap_or(Direct::Alternating),
        };
        let all = world.all_gather(&own)?;
        let mut different: Vec<&str> = Vec::new();
        for shape in &all {
            if !different.contains(&shape.stream.as_str()) {
                different.push(&shape.stream);
            }
        }
        let most = |of: fn(&Self) -> usize| all.iter().map(of).max().unwrap_or(0);
        Ok(Self {
            near: most(|shape| shape.near),
            far: most(|shape| shape.far),
            bytes: most(|shape| shape.bytes),
            direct: all.iter().map(|shape| shape.direct).min().unwrap_or(Direct::Never),
            stream: different.join("; "),
            ..all[0].clone()
        })
    }

    /// The bytes that messages of such exchanges are rehearsed with at most: the same on both sides of each.
    pub(super) fn most_bytes(&self) -> usize {
        (MOST_BYTES_OF_ALL / (self.near + self.far).max(1)).min(MOST_BYTES)
    }
}

/// What exchanges of a shape have taken. As `serde` writes it down it can be kept from run to run, for one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Measured {
    shape: ExchangeShape,
    microseconds: BTreeMap<String, f64>,
}

/// Not looked at yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    shape: ExchangeShape,
    microseconds: BTreeMap<String, f64>,
}

impl TryFrom<Written> for Measured {
    type Error = String;

    fn try_from(Written { shape, microseconds }: Written) -> Result<Self, String> {
        Self::new(shape, microseconds)
    }
}

impl Measured {
    /// What exchanges of that shape take, with packing and unpacking, by backend.
    ///
    /// # Errors
    /// Why not: there is no such backend, a time is not above zero, or there is none.
    pub fn new(shape: ExchangeShape, microseconds: BTreeMap<String, f64>) -> Result<Self, String> {
        for (name, time) in &microseconds {
            find(name).map_err(|error| error.to_string())?;
            if !(time.is_finite() && *time > 0.0) {
                return Err(format!("an exchange by `{name}` takes {time} us; that must be above zero"));
            }
        }
        if microseconds.is_empty() {
            return Err("there is no backend with a time".into());
        }
        Ok(Self { shape, microseconds })
    }

    /// The shape.
    pub fn shape(&self) -> &ExchangeShape {
        &self.shape
    }

    /// Backends with the microseconds of an exchange, the fastest first.
    pub fn by_time(&self) -> Vec<(&str, f64)> {
        let mut all: Vec<_> = self.microseconds.iter().map(|(name, time)| (name.as_str(), *time)).collect();
        all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        all
    }

    /// The same without some of the backends; `None` if none is left.
    pub(super) fn without(&self, names: &[&str]) -> Option<Self> {
        let left = self.microseconds.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        let microseconds: BTreeMap<_, _> = left.map(|(name, time)| (name.clone(), *time)).collect();
        (!microseconds.is_empty()).then(|| Self { shape: self.shape.clone(), microseconds })
    }

    /// The one that takes the least: the one that `auto` is for exchanges of the shape.
    pub fn fastest(&self) -> &str {
        self.by_time()[0].0
    }
}

/// "`notified` for 2 messages a rank and 1 over a wire, up to 4096 bytes: 1.93 us; st-send 2.10, standard 6.05".
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExchangeShape { near, far, bytes, .. } = self.shape;
        let by_time = self.by_time();
        let (fastest, time) = by_time[0];
        let messages = |count| if count == 1 { "1 message".into() } else { format!("{count} messages") };
        let messages = match (near, far) {
            (near, 0) => format!("{} a rank", messages(near)),
            (0, far) => format!("{} a rank over a wire", messages(far)),
            (near, far) => format!("{} a rank and {far} over a wire", messages(near)),
        };
        let most = if bytes < MOST_BYTES { "up to" } else { "the longest at least" };
        write!(f, "`{fastest}` for {messages}, {most} {bytes} bytes: {time:.2} us")?;
        for (index, (name, time)) in by_time[1..].iter().enumerate() {
            write!(f, "{} {name} {time:.2}", if index == 0 { ";" } else { "," })?;
        }
        Ok(())
    }
}
