//! The MPI launchers that tests are told of.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Colon-separated paths of `mpiexec` programs, one for each library to test with.
pub const LAUNCHERS_VARIABLE: &str = "STREAMHALO_TEST_MPIEXEC";

/// A launcher with its library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// Its program.
    pub program: PathBuf,
    /// Whose it is: `MPICH`, `Open MPI` or `Intel MPI`.
    pub library: &'static str,
}

/// The launchers that the environment names, or why there are none.
///
/// # Panics
/// If one of them cannot be used: what was named must be there.
pub fn launchers() -> Result<Vec<Launcher>, String> {
    let Some(list) = std::env::var_os(LAUNCHERS_VARIABLE).filter(|list| !list.is_empty()) else {
        return Err(format!("{LAUNCHERS_VARIABLE} names no mpiexec"));
    };
    Ok(std::env::split_paths(&list).map(Launcher::new).collect())
}

impl Launcher {
    fn new(program: PathBuf) -> Self {
        let mut launcher = Self { program, library: "" };
        let output = launcher.bare().arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", launcher.program.display()));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        launcher.library =
            [("Intel", "Intel MPI"), ("HYDRA", "MPICH"), ("Open MPI", "Open MPI"), ("OpenRTE", "Open MPI")]
                .iter()
                .find_map(|(word, library)| said.contains(word).then_some(*library))
                .unwrap_or_else(|| {
                    panic!("{}: nobody knows this launcher: {said}", launcher.program.display())
                });
        launcher
    }

    /// The folder in which the library is installed.
    pub fn prefix(&self) -> PathBuf {
        let program = std::fs::canonicalize(&self.program).unwrap_or_else(|_| self.program.clone());
        program.parent().and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default()
    }

    /// The program, in an environment in which it works in a container and for the superuser.
    fn bare(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if self.library == "Intel MPI" || self.library.is_empty() {
            command.env("I_MPI_ROOT", self.prefix()).env("I_MPI_FABRICS", "shm");
        }
        command
    }

    /// The program, to which `-n RANKS PROGRAM ARGUMENTS` can be added, once or several times with
    /// colons between.
    pub fn command(&self) -> Command {
        let mut command = self.bare();
        if self.library == "Open MPI" {
            command.arg("--oversubscribe").env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        command
    }

    /// Whether the library of `other` can be used with this launcher.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.library == "Open MPI") == (other.library == "Open MPI")
    }
}
