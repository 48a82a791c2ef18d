//! A rank in the situations that the suites `shm` and `mpi` put it in.
//!
//! `tried_rank MODE [ARGUMENTS]` takes its place in the job from the environment, as any rank does; see
//! [`modes`]. `tried_rank launch N MODE` is a launcher itself, and `tried_rank launch-scripts N MODE` one of scripts around
//! ranks. `tried_rank with [NAME=VALUE | NAME]... MODE` is a rank whose environment was changed: set, or taken away.

mod ending;
mod launching;
mod memory;
mod modes;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["launch", ranks, mode] => launching::launch(ranks, mode, false),
        ["launch-scripts", ranks, mode] => launching::launch(ranks, mode, true),
        ["with", changes @ .., mode] => launching::with_changes(changes, mode),
        [mode, rest @ ..] => modes::run(mode, rest),
        [] => Err("a mode is missing".into()),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // In one piece: the other ranks write to the same place.
            let line = format!("{error}\n");
            _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            std::process::ExitCode::FAILURE
        }
    }
}
