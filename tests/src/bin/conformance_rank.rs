//! A rank that tries every case in every way over the fabric that it was started for.
//!
//! `conformance_rank FABRIC [few]` takes its place among the others from the environment. Rank 0
//! writes a line for each cell of the table. With `few` the cases that only differ in geometry are
//! left out.

use std::process::ExitCode;
use streamhalo::{HaloError, World};
use streamhalo_tests::{try_cells, watchdog};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [fabric] => run(fabric, true),
        [fabric, "few"] => run(fabric, false),
        other => {
            eprintln!("usage: conformance_rank FABRIC [few], not {other:?}");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(fabric: &str, at_length: bool) -> Result<(), HaloError> {
    let world = World::over(fabric, watchdog())?;
    let is_first = world.rank() == 0;
    try_cells(&world, at_length, |cell| {
        if is_first {
            println!("{cell}");
        }
    })?;
    world.barrier()?;
    Ok(())
}
