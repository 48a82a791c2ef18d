//! `streamhalo info`: what this version has, what can be used here, and why not.

use std::fmt::Write;

use streamhalo::comm::backend::BACKENDS;
use streamhalo::comm::fabric::FABRICS;

use crate::app::{APPLICATIONS, Need};
use crate::config::{LATER_DEVICES, later_fabrics};
use crate::error::AppError;
use crate::report::{self, MachineInfo};

/// Prints the lists.
pub(super) fn info() -> Result<u8, AppError> {
    report::print(&text(&MachineInfo::detect()))?;
    Ok(0)
}

/// Section, then a name and what is to be said of it a line.
fn text(machine: &MachineInfo) -> String {
    let mut text = format!("streamhalo {}\n", machine.streamhalo);
    let mut section = |title: &str, lines: Vec<(String, String)>| {
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        writeln!(text, "\n{title}").expect("a string takes all");
        for (name, said) in lines {
            writeln!(text, "  {name:width$}  {said}").expect("a string takes all");
        }
    };
    let line = |name: &str, said: String| (name.to_owned(), said);
    let later = |names: &[&str]| line(&names.join(", "), "not in this version".to_owned());

    let cores = machine
        .logical_cores
        .map_or("an unknown number of cores".to_owned(), |cores| format!("{cores} cores"));
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let host = format!("{cores}, {cpu}; streams inline and threaded");
    section("devices", vec![line("host", host), later(&LATER_DEVICES)]);

    let mut fabrics: Vec<_> = FABRICS
        .iter()
        .map(|row| {
            let state = match (row.unusable)() {
                None => format!("executed by {}", row.executor),
                Some(reason) => format!("cannot be used here: {reason}"),
            };
            line(row.name, format!("{}; {state}", row.summary))
        })
        .collect();
    let known: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    let missing = later_fabrics(&known);
    if !missing.is_empty() {
        fabrics.push(later(&missing));
    }
    section("fabrics", fabrics);
    section(
        "libraries",
        vec![
            line("MPI", "not in this version: no MPI library is looked for".to_owned()),
            line("libfabric", "not in this version: no provider is looked for".to_owned()),
        ],
    );
    let backends = BACKENDS.iter().map(|row| line(row.name, format!("{} ({})", row.summary, row.source)));
    section("backends", backends.collect());
    let applications = APPLICATIONS.iter().map(|row| {
        let axes: Vec<String> = row.dimensions.iter().map(ToString::to_string).collect();
        let needs: Vec<&str> = row
            .needs
            .iter()
            .map(|need| match need {
                Need::Gather => "gather",
                Need::Scatter => "scatter",
            })
            .collect();
        let (axes, needs) = (axes.join(" or "), needs.join(" and "));
        line(row.name, format!("{}; {axes} axes, needs {needs} ({})", row.summary, row.source))
    });
    section("applications", applications.collect());
    text
}
