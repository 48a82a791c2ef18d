//! The kernels of `life` and `stencil3d` on one core or on several at once, beside what this machine allows.
//!
//! A line for each kernel and size: what a cell takes, the highest of the bounds that were measured in turns with
//! it, which one that is, and how far above it the kernel is. `--all` shows every bound, `--cores=2` takes two cores at
//! once, each with fields of its own; anything else is part of the names of the kernels that are measured.

use streamhalo_apps::bench::kernels::{Speed, measure_kernels};

/// Turns of each contestant, of which the fastest counts.
const ROUNDS: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shows_all = arguments.iter().any(|argument| argument == "--all");
    let cores = arguments.iter().find_map(|argument| argument.strip_prefix("--cores="));
    let is_bare = arguments.iter().any(|argument| argument == "--cores");
    let (false, Ok(cores)) = (is_bare, cores.unwrap_or("1").parse()) else {
        eprintln!("--cores={}: how many cores? for example --cores=2", cores.unwrap_or_default());
        std::process::exit(2);
    };
    // `cargo bench` says that it is a bench.
    let part = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    println!("{:<28} {:>16} {:>9}   ns/cell   at least   ratio   because of", "kernel", "cells", "KiB");
    let result = measure_kernels(part, cores, ROUNDS, |speed| println!("{}", line(speed, shows_all)));
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn line(speed: &Speed, shows_all: bool) -> String {
    let (reason, limit_ns) = speed.limit();
    let cells: Vec<_> = speed.cells.iter().map(ToString::to_string).collect();
    let mut line = format!(
        "{:<28} {:>16} {:>9} {:>9.4} {:>10.4} {:>7.2}   {reason}",
        speed.name,
        cells.join(" x "),
        speed.bytes >> 10,
        speed.kernel_ns,
        limit_ns,
        speed.kernel_ns / limit_ns,
    );
    if shows_all {
        for (reason, ns) in &speed.bounds_ns {
            line.push_str(&format!("\n{ns:>76.4}           {reason}"));
        }
    }
    line
}
