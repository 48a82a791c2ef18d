//! `streamhalo info`: what this version has, what can be used here, and why not.

mod libraries;
mod page;
#[cfg(test)]
mod tests;

use streamhalo::comm::backend::{AUTO, BACKENDS};
use streamhalo::comm::device::{cuda_compiler, cuda_devices, hip_devices, opencl_devices};
use streamhalo::comm::fabric::{Executor, FABRICS, FabricRow, libfabric_providers, mpi_libraries};
use streamhalo::comm::{By, PRIMITIVES};

use self::libraries::{of_cuda, of_hip, of_libfabric, of_mpi, of_opencl};
use self::page::Page;
use crate::app::APPLICATIONS;
use crate::config::Means;
use crate::error::{AppError, counted};
use crate::report::text::joined;
use crate::report::{self, MachineInfo};

/// Prints the lists.
pub(super) fn info() -> Result<u8, AppError> {
    report::print(&text(&MachineInfo::detect()))?;
    Ok(0)
}

/// Section, then a name and what is to be said of it.
fn text(machine: &MachineInfo) -> String {
    let mut page = Page::new(&format!("streamhalo {}", machine.streamhalo));
    let line = |name: &str, said: String| (name.to_owned(), vec![said]);

    let cores =
        machine.logical_cores.map_or("an unknown number of cores".to_owned(), |cores| counted(cores, "core"));
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let host = format!("{cores}, {cpu}; streams inline and threaded");
    let mut devices = vec![line("host", host)];
    devices.extend(of_opencl(opencl_devices()));
    devices.extend(of_cuda(cuda_devices(), cuda_compiler()));
    devices.extend(of_hip(hip_devices()));
    page.section("devices", &devices);

    let mut reasons: Vec<(&str, String)> = Vec::new();
    let fabrics: Vec<_> = FABRICS
        .iter()
        .map(|row| {
            let state = match (row.unusable)() {
                None => format!("usable; executed by {}", executors(row)),
                // Reasons can be long, and fabrics of one library have one.
                Some(reason) => match reasons.iter().find(|(_, known)| *known == reason) {
                    Some((other, _)) => format!("cannot be used here, as `{other}`"),
                    None => {
                        reasons.push((row.name, reason.clone()));
                        format!("cannot be used here: {reason}")
                    }
                },
            };
            let arrays = match (row.reaches_devices, row.takes_handles) {
                (true, _) => "arrays on devices: mapped by the other ranks",
                (_, true) => {
                    "arrays on devices: mapped by the other ranks of a node where devices give handles of them, else \
                     staged through the host's memory"
                }
                _ => "arrays on devices: not mapped by other ranks",
            };
            let wired = match (row.executor, row.takes_handles) {
                (Executor::Stream, _) => String::new(),
                (_, within_nodes) => format!(
                    "; messages{} go straight from and to their memory where the library takes its addresses \
                     (`device.wires`), else they are staged",
                    if within_nodes { " between nodes" } else { "" }
                ),
            };
            let arrays = format!("{arrays}{wired}");
            (row.name.to_owned(), vec![row.summary.to_owned(), state, arrays])
        })
        .collect();
    page.section("fabrics", &fabrics);
    page.section("MPI libraries", &of_mpi(&mpi_libraries()));
    page.section("libfabric providers", &of_libfabric(libfabric_providers()));

    let backends = BACKENDS.iter().map(|row| line(row.name, format!("{} ({})", row.summary, row.source)));
    let auto = "the fastest of them for an exchange, as measured when it is matched".to_owned();
    page.section("backends", &backends.chain([line(AUTO, auto)]).collect::<Vec<_>>());
    let primitives = PRIMITIVES.iter().map(|row| {
        let what = format!("{} ({}): {}", row.summary, row.source, row.module);
        (row.name.to_owned(), vec![what, format!("executed by {}", carried_out(row.by))])
    });
    page.section("primitives", &primitives.collect::<Vec<_>>());
    let applications = APPLICATIONS.iter().map(|row| {
        let axes = joined(row.dimensions, " or ");
        let noun = if axes == "1" { "axis" } else { "axes" };
        let (devices, needs) = match row.means() {
            Means::Exchanges => ("every device", "gather"),
            // What the host calls itself is between what it computes.
            Means::Primitives => ("the host", "messages, active target epochs or notified access"),
        };
        line(
            row.name,
            format!("{}; {axes} {noun}, on {devices}, needs {needs} ({})", row.summary, row.source),
        )
    });
    page.section("applications", &applications.collect::<Vec<_>>());
    page.into_text()
}

/// Who carries out what streams trigger over a fabric.
fn executors(row: &FabricRow) -> String {
    let far = match row.name.trim_start_matches("shm+") {
        "mpi" => "proxy, or by host where the library takes calls of one thread only".to_owned(),
        "ofi" => "nic where the provider has triggered operations, else by proxy".to_owned(),
        _ => row.executor.to_string(),
    };
    if row.name.starts_with("shm+") { format!("stream within a node, between nodes by {far}") } else { far }
}

/// Who carries out the operations of primitives.
fn carried_out(by: By) -> &'static str {
    match by {
        By::Host => "host, over every fabric",
        By::Stream => "stream; between nodes by proxy, or by host as the fabric's",
        By::Fabric => "whoever executes the fabric's operations",
    }
}
