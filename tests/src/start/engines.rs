//! Every way in which the ranks of a program can be brought together on this machine.

use super::{Launcher, launchers};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use streamhalo::comm::fabric::FABRICS;
use streamhalo::comm::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};

/// A fabric with what starts its ranks, and what it is told.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The fabric's name.
    pub fabric: &'static str,
    /// Who starts the ranks and with which library, for people and for the table.
    pub by: String,
    /// What starts them, or why it cannot be tried here.
    pub start: Result<Start, String>,
}

/// What starts processes.
#[derive(Debug, Clone)]
pub enum Start {
    /// Nothing: the ranks are threads.
    Threads,
    /// A job over shared memory.
    Job,
    /// An MPI launcher.
    Mpi {
        /// Which.
        launcher: Launcher,
        /// Whether the library lets one thread call it only.
        is_funneled: bool,
        /// Whether some ranks are made to look as on other machines.
        is_split: bool,
    },
    /// Nobody: the processes find each other at a rendezvous.
    Rendezvous {
        /// The libfabric provider.
        provider: &'static str,
        /// Whether some ranks are made to look as on other machines.
        is_split: bool,
    },
}

/// What libfabric is tried with: a fabric, a provider that works between processes of one machine, and
/// whether some ranks are made to look as on other machines.
const LIBFABRIC: [(&str, &str, bool); 6] = [
    ("ofi", "sockets", false),
    ("ofi", "tcp", false),
    ("ofi", "shm", false),
    ("shm+ofi", "tcp", false),
    ("shm+ofi", "sockets", true),
    ("shm+ofi", "tcp", true),
];
/// The libraries that are in the table, whether or not they are here.
const LIBRARIES: [&str; 3] = ["MPICH", "Open MPI", "Intel MPI"];

/// All engines, in the order of the table.
pub fn engines() -> Vec<Engine> {
    let mut all = vec![
        Engine { fabric: "local", by: "threads".into(), start: Ok(Start::Threads) },
        Engine { fabric: "shm", by: "processes".into(), start: Ok(Start::Job) },
    ];
    let found = launchers();
    for fabric in ["mpi", "shm+mpi"] {
        for library in LIBRARIES {
            let launcher = found.clone().and_then(|found| {
                let found = found.into_iter().find(|launcher| launcher.library == library);
                found.ok_or_else(|| format!("{} names no mpiexec of {library}", super::LAUNCHERS_VARIABLE))
            });
            for (is_funneled, is_split) in [(false, false), (true, false), (false, true)] {
                // Intel's runs over shared memory only, without a libfabric of its own.
                if is_split && (fabric == "mpi" || library == "Intel MPI") {
                    continue;
                }
                let mut by = library.to_string();
                by += if is_funneled { ", funneled" } else { "" };
                by += if is_split { ", several nodes" } else { "" };
                let start = launcher.clone().and_then(|launcher| {
                    if is_split {
                        can_split()?;
                    }
                    Ok(Start::Mpi { launcher, is_funneled, is_split })
                });
                all.push(Engine { fabric, by, start });
            }
        }
    }
    for (fabric, provider, is_split) in LIBFABRIC {
        let by = format!("libfabric, {provider}{}", if is_split { ", several nodes" } else { "" });
        let start = if is_split && provider != "tcp" { can_split() } else { Ok(()) };
        all.push(Engine { fabric, by, start: start.map(|()| Start::Rendezvous { provider, is_split }) });
    }
    for engine in &mut all {
        let row = FABRICS.iter().find(|row| row.name == engine.fabric);
        let reason = match row {
            None => Some("this version has no such fabric".to_string()),
            // What is there for a launcher need not be there for this process.
            Some(_) if engine.fabric.contains("mpi") => None,
            Some(row) => (row.unusable)(),
        };
        if let Some(reason) = reason {
            engine.start = Err(reason);
        }
    }
    all
}

/// Why ranks cannot be made to look as on other machines, if so.
fn can_split() -> Result<(), String> {
    let unshared = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    match unshared {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

impl Start {
    /// Whether ranks that wait keep their cores: those of Open MPI are told to give way.
    pub fn polls(&self) -> bool {
        matches!(self, Start::Mpi { launcher, .. } if launcher.library != "Open MPI")
    }

    /// The processes for that many ranks of a program; none for threads and jobs, which are started
    /// otherwise.
    pub fn commands(&self, ranks: usize, program: &Path, arguments: &[&str]) -> Vec<Command> {
        match self {
            Start::Threads | Start::Job => Vec::new(),
            Start::Mpi { launcher, is_funneled, is_split } => {
                let mut command = launcher.command();
                if *is_funneled {
                    command.env("STREAMHALO_MPI_THREADS", "funneled");
                }
                if *is_split {
                    split(&mut command, launcher, ranks, program, arguments);
                } else {
                    command.args(["-n", &ranks.to_string()]).arg(program).args(arguments);
                }
                vec![command]
            }
            Start::Rendezvous { provider, is_split } => {
                let address = format!("127.0.0.1:{}", free_port());
                (0..ranks)
                    .map(|rank| {
                        let mut command = match (is_split, provider) {
                            (true, &"tcp") => on_a_node_of_that_name(program, rank),
                            (true, _) if rank > 1 => on_another_node(program),
                            _ => Command::new(program),
                        };
                        command.args(arguments);
                        at_rendezvous(&mut command, &address, rank, ranks, provider);
                        command
                    })
                    .collect()
            }
        }
    }
}

/// A program that looks as if it was on a machine of its own: a node is a view of processes, and so a
/// namespace of processes looks like another.
const ALONE: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];

/// Another way to the same, which needs no namespace: the first two ranks on one node, and each of the others on its own.
fn on_a_node_of_that_name(program: &Path, rank: usize) -> Command {
    let mut command = Command::new(program);
    command.env("STREAMHALO_NODE", if rank > 1 { rank.to_string() } else { "the first".into() });
    command
}

fn on_another_node(program: &Path) -> Command {
    let mut command = Command::new(ALONE[0]);
    command.args(&ALONE[1..]).arg(program);
    command
}

/// Tells a process where it meets the others.
pub fn at_rendezvous(command: &mut Command, address: &str, rank: usize, ranks: usize, provider: &str) {
    command
        .env("STREAMHALO_RENDEZVOUS", address)
        .env(RANK_VARIABLE, rank.to_string())
        .env(SIZE_VARIABLE, ranks.to_string())
        .env("STREAMHALO_JOB_KEY", format!("{:064x}", std::process::id()))
        .env("STREAMHALO_OFI_PROVIDER", provider);
}

/// A port that nobody listens on, for now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// The first two ranks on one node, and each of the others on its own.
fn split(command: &mut Command, launcher: &Launcher, ranks: usize, program: &Path, arguments: &[&str]) {
    // What libraries do within a machine does not know that this is none.
    command.env("MPIR_CVAR_CH4_CMA_ENABLE", "0").env("UCX_TLS", "self,tcp");
    command.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", "self,tcp");
    // Who started them cannot be seen from the others' namespaces.
    command.env("STREAMHALO_MPI", launcher.prefix());
    command.args(["-n", &ranks.min(2).to_string()]).arg(program).args(arguments);
    for _ in 2..ranks {
        command.args([":", "-n", "1"]).args(ALONE).arg(program).args(arguments);
    }
}
