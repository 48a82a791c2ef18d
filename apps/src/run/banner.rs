//! What a run uses, said as it begins: nothing falls back silently.

use std::fmt;

use serde::{Deserialize, Serialize};
use streamhalo::comm::backend::{AUTO, BACKENDS};
use streamhalo::comm::fabric::{Executor, FABRICS};
use streamhalo::{Device, Stream, World};

use super::device::{has_wire, unreached_because};
use super::{device, executors_of};
use crate::app::ApplicationRow;
use crate::config::{Means, RunConfig};
use crate::error::counted;
use crate::ranks::Ranks;
use crate::report::{self, MachineInfo};

/// What is known before there are ranks: some lines, each with its end.
pub(crate) struct Banner<'a> {
    /// What is to be run.
    pub(crate) config: &'a RunConfig,
    /// By whom.
    pub(crate) ranks: &'a Ranks,
    /// Where.
    pub(crate) machine: &'a MachineInfo,
}

impl fmt::Display for Banner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, ranks, machine } = self;
        let cores = machine.logical_cores.map_or("? cores".to_owned(), |cores| counted(cores, "core"));
        let stream = config.device.stream.unwrap_or_default().name();
        let threads = counted(config.device.threads, "thread");
        let row = FABRICS.iter().find(|row| row.name == config.comm.fabric);
        let row = row.expect("a configuration names a registered fabric");
        let kind = &config.device.kind;
        match device(config, None) {
            // That it can be opened has been checked.
            Ok(device) if kind != "host" => {
                // What a wire takes is said by the ranks.
                let staged = unreached_because(config).filter(|_| !has_wire(config));
                let staged = staged.map_or_else(String::new, |reason| {
                    format!("; messages are staged through the host's memory, because {reason}")
                });
                writeln!(f, "device:   {}; a queue of its own a rank{staged}", device.name())?
            }
            _ => {
                writeln!(f, "device:   {kind}, {cores}; {stream} stream, {threads} a rank for kernels")?;
            }
        }
        writeln!(f, "fabric:   {}, {}", row.name, row.summary)?;
        if let Ranks::Launched(launched) = ranks {
            writeln!(f, "{launched}")?;
        }
        writeln!(f, "backends: {}", config.comm.backend.join(", "))?;
        Ok(())
    }
}

/// What only ranks know: who carries out what they start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Uses {
    /// Those that the ranks of a node take in turn, where there is a choice.
    devices: Vec<String>,
    /// The library of the machine that carries messages, if one does.
    engine: Option<String>,
    /// How it takes the arrays of a device, if there is one.
    wires: Option<String>,
    /// Who carries out each of the backends.
    executors: Vec<(String, String)>,
}

impl Uses {
    /// What this rank's fabric and device say.
    pub(crate) fn of(world: &World, device: &Device, stream: &Stream, config: &RunConfig) -> Self {
        let fabric = world.fabric();
        let peers = (0..fabric.size()).filter(|peer| *peer != fabric.rank());
        let of_peer = |peer| if fabric.is_mapped(peer) { stream.executor() } else { fabric.executor() };
        let mut of_messages: Vec<Executor> = peers.map(of_peer).collect();
        if of_messages.is_empty() {
            of_messages.push(if stream.is_on_host() { fabric.executor() } else { stream.executor() });
        }
        if ApplicationRow::of(config).means() == Means::Primitives {
            of_messages = vec![Executor::Host];
        }
        let executor = |backend: &String| (backend.clone(), executor(backend, &of_messages));
        let wires = stream.told_of_wires();
        let executors = config.comm.backend.iter().map(executor).collect();
        Self { devices: device.shared_out().to_vec(), engine: fabric.engine(), wires, executors }
    }
}

/// Some lines, each with its end.
impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.devices.is_empty() {
            writeln!(f, "devices:  {}; the ranks of a node take them in turn", self.devices.join(", "))?;
        }
        if let Some(engine) = &self.engine {
            writeln!(f, "library:  {}", in_short(engine))?;
        }
        if let Some(wires) = &self.wires {
            writeln!(f, "messages: {wires}")?;
        }
        let executors = self.executors.iter().map(|(backend, by)| (by.clone(), backend.as_str()));
        writeln!(f, "executor: {}", report::by_executor(executors))
    }
}

/// Who carries out what a backend starts.
fn executor(backend: &str, of_messages: &[Executor]) -> String {
    if backend == AUTO {
        return "whoever carries out the one that is chosen".into();
    }
    let row = BACKENDS.iter().find(|row| row.name == backend);
    let row = row.expect("a configuration names registered backends");
    executors_of(of_messages.iter().map(|executor| row.executor(*executor)))
}

/// The beginning of what a library says of itself, which can be lines with options of its compiler.
pub(crate) fn in_short(library: &str) -> String {
    let line = library.lines().next().unwrap_or_default();
    // Open MPI goes on with who has built it, and where.
    let said = line.split(", package:").next().unwrap_or_default();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_stands_in_for_every_executor_of_standard() {
        let composite = [Executor::Proxy, Executor::Stream];
        assert_eq!(executor("standard", &composite), "host");
        assert_eq!(executor("st-send", &composite), "stream+proxy");
    }

    #[test]
    fn libraries_are_named_in_short() {
        for (said, short) in [
            ("MPICH Version:      4.3.2\nMPICH Release date: x\n", "MPICH Version: 4.3.2"),
            ("Open MPI v5.0.8, package: a b, ident: 5.0.8", "Open MPI v5.0.8"),
            ("libfabric 1.17, provider tcp;ofi_rxm", "libfabric 1.17, provider tcp;ofi_rxm"),
            ("Intel(R) MPI Library 2021.16 for Linux* OS\n", "Intel(R) MPI Library 2021.16 for Linux* OS"),
        ] {
            assert_eq!(in_short(said), short);
        }
    }
}
