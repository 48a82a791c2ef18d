//! What a measurement says.

use super::turns::Timing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use streamhalo::Device;

/// The figures of one contestant at one size. Times are per repetition, the slowest rank's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Which measurement this is, as in `pingpong`.
    pub bench: String,
    /// What was done, where a measurement does several things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What did it: a backend, a primitive, or a policy.
    pub backend: String,
    /// The backend that `auto` has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_backend: Option<String>,
    /// How many round trips were replayed together, if any were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<usize>,
    /// How streams signalled, on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The fabric.
    pub fabric: String,
    /// The device of the streams, unless it is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The kind of the streams, on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Who was to wait in the streams, on a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Who carried out the messages, as in `stream+proxy`.
    pub executor: String,
    /// How many ranks took part.
    pub ranks: usize,
    /// Payload bytes of a message.
    pub bytes: usize,
    /// Median over batches.
    pub median_us: f64,
    /// Minimum over batches.
    pub min_us: f64,
    /// Batches measured.
    pub batches: usize,
    /// Repetitions in a batch.
    pub repeats_per_batch: usize,
    /// Of each batch, in the order of the turns.
    #[serde(skip)]
    pub(super) turns_us: Vec<f64>,
    /// What follows from the times, and what else was measured; nothing where it could not be told.
    #[serde(flatten)]
    pub more: BTreeMap<String, Option<f64>>,
}

impl Figure {
    /// Adds something that was measured.
    #[must_use]
    pub(super) fn with(self, name: &str, value: f64) -> Self {
        self.with_if_known(name, Some(value))
    }

    /// Adds something that is to be told, if it can be.
    #[must_use]
    pub(super) fn with_if_known(mut self, name: &str, value: Option<f64>) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Something that was added, if it is known.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.more.get(name).copied().flatten()
    }

    /// Says which device it is of and whether that is a GPU, unless it is the host.
    #[must_use]
    pub(super) fn on(self, device: &Device) -> Self {
        if device.name() == "host" {
            return self;
        }
        let is_gpu = f64::from(u8::from(device.is_gpu()));
        Self { device: Some(device.name().to_owned()), ..self.with("is_gpu", is_gpu) }
    }

    /// The same in units of `parts`: half of a round trip, one message of a window.
    #[must_use]
    pub(super) fn divided_by(mut self, parts: f64) -> Self {
        self.median_us /= parts;
        self.min_us /= parts;
        self.turns_us.iter_mut().for_each(|turn| *turn /= parts);
        self
    }
}

/// What moves that many bytes in so many microseconds, in 10⁹ bytes a second.
pub(super) fn gigabytes_per_second(bytes: f64, microseconds: f64) -> f64 {
    bytes / microseconds / 1e3
}

impl Timing {
    /// A figure of a measurement.
    pub(super) fn figure(
        self,
        bench: &super::micro::MicroBench,
        (backend, executor): (&str, String),
        bytes: usize,
    ) -> Figure {
        Figure {
            bench: bench.what.row().name.to_owned(),
            operation: None,
            backend: backend.to_owned(),
            chosen_backend: None,
            replayed: None,
            signal: None,
            fabric: bench.fabric.clone(),
            device: None,
            stream: bench.stream_name().map(str::to_owned),
            waits: bench.streams.waits_name().map(str::to_owned),
            executor,
            ranks: bench.ranks,
            bytes,
            median_us: self.median_us,
            min_us: self.min_us,
            batches: self.batches,
            repeats_per_batch: self.repeats_per_batch,
            turns_us: self.turns_us,
            more: BTreeMap::new(),
        }
    }
}
