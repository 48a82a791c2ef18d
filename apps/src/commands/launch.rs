//! `streamhalo launch -n N PROGRAM`: one's own program as the ranks of a world over `shm`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use streamhalo::comm::fabric::FABRIC_VARIABLE;
use streamhalo::comm::fabric::shm::{Exit, Job};

use crate::cli::LaunchArgs;
use crate::error::AppError;
use crate::interrupt::Interrupt;
use crate::run::check_ranks_here;

/// How long between two looks at the processes: they may hold all cores.
const PAUSE: Duration = Duration::from_millis(5);

/// That nobody has asked for another fabric than the one that processes are started for here.
fn check_fabric() -> Result<(), AppError> {
    let asked = std::env::var(FABRIC_VARIABLE).ok().filter(|name| name != SHM);
    asked.map_or(Ok(()), |name| {
        let flag = format!("{FABRIC_VARIABLE}={name}");
        let message = format!(
            "`streamhalo launch` starts processes for `{SHM}`; unset it, or start them as `{name}` needs, as with `mpiexec`"
        );
        Err(AppError::Usage { flag, message })
    })
}

/// The fabric of what is launched.
const SHM: &str = "shm";

/// Why a program could not be started, where that is its own fault: the system says of whatever it cannot execute that
/// permission is denied.
fn why(program: &Path, error: AppError) -> AppError {
    let is_path = program.as_os_str().as_encoded_bytes().contains(&b'/');
    let folders = if is_path { vec![PathBuf::new()] } else { folders_of_programs() };
    let mut there = folders.iter().filter_map(|folder| fs::metadata(folder.join(program)).ok());
    let (program, Some(found)) = (program.display().to_string(), there.next()) else {
        return AppError::NoProgram { program: program.display().to_string() };
    };
    let reason = match found {
        _ if found.is_dir() => "is a folder",
        _ if !found.is_file() => "is no regular file",
        _ if found.permissions().mode() & 0o111 == 0 => "is a file that nobody may execute",
        _ => return error,
    };
    AppError::NotAProgram { program, reason }
}

/// Where the system looks for programs.
fn folders_of_programs() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// Starts the processes with this one's standard input, output and error, and waits for them. Once
/// one has failed or the user interrupts, the others are ended.
pub(super) fn launch(args: &LaunchArgs) -> Result<u8, AppError> {
    check_fabric()?;
    let ways = "`mpiexec` or `srun`, across machines,";
    check_ranks_here("-n", (Some(args.processes.get()), "processes"), ways)?;
    let (program, arguments) = args.program();
    let interrupt = Interrupt::watch()?;
    let mut job = Job::start_with_descendants(args.processes.get(), &mut |_rank| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    })
    .map_err(|error| why(Path::new(program), error.into()))?;
    let exit = job.wait(&|| {
        std::thread::sleep(PAUSE);
        interrupt.has_come()
    })?;
    if let Some(signal) = interrupt.signal() {
        return Err(AppError::LaunchInterrupted { signal });
    }
    match exit {
        Exit::Success => Ok(0),
        Exit::Failed { rank, reason, code } => Err(AppError::Launched {
            program: program.display().to_string(),
            rank,
            reason,
            // What a system can report is 1 to 255.
            status: u8::try_from(code).ok().filter(|code| *code != 0).unwrap_or(1),
        }),
    }
}
