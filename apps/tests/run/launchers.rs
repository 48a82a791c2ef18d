//! The MPI launchers that tests are to use, and how each is told what it needs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{Folder, OCCUPIED, finish, text, ticks, until};

/// Names the launchers, separated by colons.
const VARIABLE: &str = "STREAMHALO_TEST_MPIEXEC";

/// An `mpiexec`.
pub(crate) struct Launcher {
    program: PathBuf,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    OpenMpi,
    Intel,
    Other,
}

/// Does a test with every launcher, one after the other.
pub(crate) fn each_launcher(test: impl Fn(&Launcher)) {
    launchers().iter().for_each(test);
}

/// Does a test of each case, with every launcher the first, and each of the others with one launcher, in turn: for cases that
/// do not depend on the library, of which one shows that none is in their way.
pub(crate) fn in_turn<T>(cases: impl IntoIterator<Item = T>, test: impl Fn(&Launcher, &T)) {
    let launchers = launchers();
    let mut cases = cases.into_iter();
    if let Some(first) = cases.next() {
        launchers.iter().for_each(|launcher| test(launcher, &first));
    }
    // Where there is no launcher nothing is left to be said.
    cases.zip(launchers.iter().cycle()).for_each(|(case, launcher)| test(launcher, &case));
}

/// As [`each_launcher`], all at once: for tests in which ranks wait for longer than they compute.
pub(crate) fn each_launcher_at_once(test: impl Fn(&Launcher) + Sync) {
    let (launchers, test) = (launchers(), &test);
    std::thread::scope(|scope| {
        for launcher in &launchers {
            scope.spawn(move || test(launcher));
        }
    });
}

/// One launcher, if there is any: for what does not depend on the library. One whose ranks give way where they wait,
/// as `tests/engines` tells those of Open MPI to: those of MPICH poll, and where they are more than the cores, beside a
/// device that computes on these, they take ten times as long.
pub(crate) fn any_launcher() -> Option<Launcher> {
    let mut launchers = launchers();
    let giving_way = launchers.iter().position(|launcher| launcher.family == Family::OpenMpi);
    (!launchers.is_empty()).then(|| launchers.swap_remove(giving_way.unwrap_or(0)))
}

/// The launchers; says so if there are none.
fn launchers() -> Vec<Launcher> {
    let Some(programs) = std::env::var_os(VARIABLE).filter(|programs| !programs.is_empty()) else {
        eprintln!("skipped: {VARIABLE} names no `mpiexec`");
        return Vec::new();
    };
    let launchers: Vec<_> = std::env::split_paths(&programs).map(Launcher::find).collect();
    for launcher in &launchers {
        println!("with {} ({:?})", launcher.program.display(), launcher.family);
    }
    launchers
}

impl Launcher {
    /// The program that it starts.
    pub(crate) const PROGRAM: &'static str = env!("CARGO_BIN_EXE_streamhalo");

    fn find(program: PathBuf) -> Self {
        let output = Command::new(&program).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", program.display()));
        let said = text(&output.stdout) + &text(&output.stderr);
        let family = match said {
            said if said.contains("Open MPI") || said.contains("PRRTE") => Family::OpenMpi,
            said if said.contains("Intel") => Family::Intel,
            _ => Family::Other,
        };
        Self { program, family }
    }

    /// Starts that many processes of whatever is added.
    pub(crate) fn command(&self, folder: &Folder, ranks: usize) -> Command {
        let mut command = folder.command(self.program.to_str().expect("is text"));
        match self.family {
            Family::OpenMpi => {
                let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
                command.envs(root.map(|name| (name, "1"))).arg("--oversubscribe");
            }
            Family::Intel => {
                let prefix = self.program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
                command.env("I_MPI_ROOT", prefix).env("I_MPI_FABRICS", "shm");
            }
            Family::Other => {}
        }
        command.args(["-n", &ranks.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Waits for the end of all ranks.
    pub(crate) fn finish(&self, mut command: Command) -> Output {
        finish(command.spawn())
    }

    /// The program with these arguments on every rank.
    pub(crate) fn streamhalo(&self, folder: &Folder, ranks: usize, arguments: &[String]) -> Output {
        let mut command = self.command(folder, ranks);
        command.arg(Self::PROGRAM).args(arguments);
        self.finish(command)
    }

    /// Waits until all ranks of an endless game have computed for some time, and gives them by number, each with its process.
    /// What they computed before rank 0 occupied the folder for results does not count: libraries poll while their
    /// ranks find each other, and whoever waits for the game to begin waits as long as it takes.
    pub(crate) fn ranks_at_work(&self, folder: &Folder, count: usize) -> Vec<(usize, u32)> {
        until("the folder is occupied", || folder.out().join(OCCUPIED).exists());
        let mut ranks = Vec::new();
        until("the ranks are there", || {
            ranks = self.ranks(folder);
            ranks.len() == count
        });
        let since: Vec<_> = ranks.iter().map(|(_, process)| ticks(*process)).collect();
        until("the ranks are at work", || {
            let gained =
                |((_, process), since): (&(usize, u32), &Option<u64>)| Some(ticks(*process)? - (*since)?);
            ranks.iter().zip(&since).all(|both| gained(both) > Some(20))
        });
        ranks
    }

    /// The ranks of a folder.
    fn ranks(&self, folder: &Folder) -> Vec<(usize, u32)> {
        let rank_of = |process: u32| {
            let program = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
            if program != Path::new(Self::PROGRAM).canonicalize().ok()? {
                return None;
            }
            let environment = std::fs::read(format!("/proc/{process}/environ")).ok()?;
            let variables = environment.split(|byte| *byte == 0).map(text);
            let name = if self.family == Family::OpenMpi { "OMPI_COMM_WORLD_RANK=" } else { "PMI_RANK=" };
            let rank = variables.filter_map(|variable| variable.strip_prefix(name)?.parse().ok()).next();
            Some((rank?, process))
        };
        let mut ranks: Vec<_> = folder.processes().into_iter().filter_map(rank_of).collect();
        ranks.sort_unstable();
        ranks
    }
}
