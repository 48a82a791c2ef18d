//! What a run uses, said before it begins: nothing falls back silently.

use std::fmt;

use streamhalo::World;
use streamhalo::comm::backend::BACKENDS;
use streamhalo::comm::fabric::{Executor, FABRICS, FabricRow};

use super::executors_of;
use crate::config::{RunConfig, StreamKind};
use crate::error::ranks_of;
use crate::ranks::Ranks;
use crate::report::{self, MachineInfo};

/// Some lines, each with its end.
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
        let cores = machine.logical_cores.map_or("?".to_owned(), |cores| cores.to_string());
        let stream = match config.device.stream {
            Some(StreamKind::Threaded) => "threaded",
            _ => "inline",
        };
        let threads = match config.device.threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        };
        let row = FABRICS.iter().find(|row| row.name == config.comm.fabric);
        let row = row.expect("a configuration names a registered fabric");
        let backends = &config.comm.backend;
        let kind = &config.device.kind;
        writeln!(f, "device:   {kind}, {cores} cores; {stream} stream, {threads} a rank for kernels")?;
        writeln!(f, "fabric:   {}, {}", row.name, row.summary)?;
        if let Ranks::Launched(launched) = ranks {
            let world = launched.world();
            writeln!(f, "launcher: has started {}", ranks_of(world.size()))?;
            if let Some(library) = world.fabric().engine() {
                writeln!(f, "library:  {}", in_short(&library))?;
            }
        }
        writeln!(f, "backends: {}", backends.join(", "))?;
        let of_messages = executors_of_messages(row, ranks);
        let executors = backends.iter().map(|backend| (executor(backend, &of_messages), backend.as_str()));
        writeln!(f, "executor: {}", report::by_executor(executors))
    }
}

/// Who carries out triggered operations, as far as the leading rank can tell: the fabric itself says so
/// where there is one.
fn executors_of_messages(row: &FabricRow, ranks: &Ranks) -> Vec<Executor> {
    match ranks {
        Ranks::Own(_) => vec![row.executor],
        Ranks::Launched(launched) => executors_of_world(launched.world()),
    }
}

fn executors_of_world(world: &World) -> Vec<Executor> {
    let fabric = world.fabric();
    let peers = (0..world.size()).filter(|peer| *peer != world.rank());
    let of_peer = |peer| if fabric.is_mapped(peer) { Executor::Stream } else { fabric.executor() };
    let mut executors: Vec<Executor> = peers.map(of_peer).collect();
    if executors.is_empty() {
        executors.push(fabric.executor());
    }
    executors
}

/// Who carries out what a backend starts.
fn executor(backend: &str, of_messages: &[Executor]) -> String {
    let row = BACKENDS.iter().find(|row| row.name == backend);
    let row = row.expect("a configuration names registered backends");
    executors_of(of_messages.iter().map(|executor| row.executor(*executor)))
}

/// The beginning of what a library says of itself, which can be lines with options of its compiler.
pub(crate) fn in_short(library: &str) -> String {
    let line = library.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split(',').next().unwrap_or_default().split_whitespace().collect();
    words.join(" ")
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
            ("Intel(R) MPI Library 2021.16 for Linux* OS\n", "Intel(R) MPI Library 2021.16 for Linux* OS"),
        ] {
            assert_eq!(in_short(said), short);
        }
    }
}
