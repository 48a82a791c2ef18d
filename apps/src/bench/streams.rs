//! The streams that a measurement runs on: the host's, or those of a device, in each way to signal.

use serde::{Deserialize, Serialize};
use streamhalo::comm::device::Period;
use streamhalo::{Device, HaloError, Signals, Stream, StreamOptions, Waits, World};

use super::micro::split_device;
use crate::app;
use crate::error::AppError;

/// Where the streams of a measurement are. By default on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// The device, as `--device` has it; `None` is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How its streams signal: each is measured. None on the host, which has one way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signals>,
    /// Who waits in them.
    #[serde(default)]
    pub waits: Waits,
    /// How many exchanges, there and back, are captured as a period that streams replay; 0 for none.
    #[serde(default)]
    pub replay: usize,
}

/// A period that is replayed, and how many exchanges or round trips it has.
pub(super) type Replayed = Option<(Period, usize)>;

/// Captures a period of so many. `None` where there are to be none, and for what cannot be captured, which is enqueued every
/// time. Collective.
pub(super) fn captured(
    world: &World,
    stream: &Stream,
    times: usize,
    enqueue: impl FnOnce() -> Result<(), HaloError>,
) -> Result<Replayed, AppError> {
    if times == 0 {
        return Ok(None);
    }
    let period = app::captured(world, stream, || Ok(enqueue()?))?;
    Ok(period.ok().map(|period| (period, times)))
}

/// A backend on a stream that signals in one way.
pub(super) struct Contestant<'a> {
    pub(super) backend: &'a str,
    pub(super) signal: Option<Signals>,
    pub(super) stream: &'a Stream,
}

/// The opened streams of a rank.
pub(super) struct Opened {
    device: Device,
    /// One for each way to signal: backends share it, since the hardware has few queues on which something waits.
    streams: Vec<(Option<Signals>, Stream)>,
}

impl Streams {
    /// The device of a rank. Collective.
    pub(super) fn of_rank(&self, world: &World) -> Result<Device, AppError> {
        let (kind, select) = split_device(self.device.as_deref().unwrap_or("host"));
        Ok(Device::of_rank(world, kind, select)?.with_waits(self.waits))
    }

    /// The streams of a rank. The options are for the host. Collective.
    pub(super) fn open(&self, world: &World, options: StreamOptions) -> Result<Opened, AppError> {
        let device = self.of_rank(world)?;
        let mut streams = Vec::new();
        for signals in self.signals.iter().copied() {
            streams.push((Some(signals), device.clone().with_signals(signals).stream_with(world, options)?));
        }
        if streams.is_empty() {
            streams.push((None, device.stream_with(world, options)?));
        }
        Ok(Opened { device, streams })
    }

    /// Who is to wait in them, where they signal in ways of a device.
    pub(crate) fn waits_name(&self) -> Option<&'static str> {
        (!self.signals.is_empty()).then(|| self.waits.name())
    }

    /// What figures of a backend are called that was measured so.
    pub(crate) fn label(&self, backend: &str, signal: Option<&str>) -> String {
        match signal {
            Some(signal) if self.signals.len() > 1 => format!("{backend}/{signal}"),
            _ => backend.to_owned(),
        }
    }
}

impl Opened {
    /// What the device is called; `None` of the host.
    pub(super) fn device_name(&self) -> Option<String> {
        (self.device.name() != "host").then(|| self.device.name().to_owned())
    }

    /// Whether it computes on cores of its own; `None` of the host.
    pub(super) fn is_gpu(&self) -> Option<bool> {
        self.device_name().map(|_| self.device.is_gpu())
    }

    /// Each backend on each stream, in the order in which they take turns. `standard` signals nobody from a stream, and
    /// is there once.
    pub(super) fn contestants<'a>(&'a self, backends: &'a [String]) -> Vec<Contestant<'a>> {
        let of = |backend: &'a String| {
            let count = if backend == "standard" { 1 } else { self.streams.len() };
            self.streams[..count].iter().map(move |(signals, stream)| {
                let signal = signals.filter(|_| backend != "standard");
                Contestant { backend, signal, stream }
            })
        };
        backends.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_take_turns_in_each_way_to_signal_and_standard_once() {
        let world = World::alone().expect("a world of one rank");
        let backends = ["standard", "st-send", "notified"].map(str::to_owned);
        let on_host = Streams::default();
        let opened = on_host.open(&world, StreamOptions::default()).expect("the host's");
        let names = |opened: &Opened, streams: &Streams| -> Vec<String> {
            let label = |one: &Contestant<'_>| streams.label(one.backend, one.signal.map(Signals::name));
            opened.contestants(&backends).iter().map(label).collect()
        };
        assert_eq!(names(&opened, &on_host), backends);
        assert_eq!((opened.device_name(), opened.is_gpu()), (None, None));
        // The host's streams take any way, and signal in their own.
        let both = Streams { signals: vec![Signals::Kernel, Signals::Merged], ..Streams::default() };
        let opened = both.open(&world, StreamOptions::default()).expect("the host's");
        let expected = ["standard", "st-send/kernel", "st-send/merged", "notified/kernel", "notified/merged"];
        assert_eq!(names(&opened, &both), expected);
        let one = Streams { signals: vec![Signals::Merged], ..Streams::default() };
        assert_eq!(one.label("st-send", Some("merged")), "st-send");
    }
}
