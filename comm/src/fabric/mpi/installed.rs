//! Which MPI libraries there are, without using them.
//!
//! Opening a library runs its initialisers, and those of the network libraries below it, which install
//! handlers and hooks; two MPIs in one process can disturb each other. Each library is therefore opened
//! in a child process, which reports what it has seen and ends at once.

use super::found::FoundLibrary;
use super::launcher::{Launcher, first_line};
use super::library::{Library, VARIABLE};
use super::search::{Place, candidates};
use super::table::{NAMES, Table};
use super::{gpus, has_partitioned, unfit};
use serde::{Deserialize, Serialize};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a library may take to be opened: the time of a slow file system.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child tells of the library that it has opened.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    path: PathBuf,
    abi: String,
    version: String,
    partitioned: bool,
    persistent: bool,
    windows: bool,
    gpus: Vec<String>,
    unusable: Option<String>,
}

/// The MPI libraries of this machine: that of the variable `STREAMHALO_MPI`, that of the launcher, those on the
/// loader's path, in the usual folders, and beside every `mpiexec` on the search path of programs. MPI is not
/// initialised. Starts a short-lived child process for each library; not to be called while MPI is in use.
pub fn installed() -> Vec<FoundLibrary> {
    let launcher = Launcher::of_this_process();
    let mut found: Vec<FoundLibrary> = Vec::new();
    // What is in this process already is not made worse by asking it here.
    if let Some(library) = Library::loaded() {
        found.push(entry(describe(&library), &launcher));
    }
    let mut files: Vec<PathBuf> = found.iter().map(|one| real(&one.path)).collect();
    for place in places(&launcher) {
        if let Place::File(path) = &place {
            if !path.exists() || files.contains(&real(path)) {
                continue;
            }
            files.push(real(path));
        }
        let report = match in_child(|| examine(&place)) {
            Ok(report) => report,
            Err(reason) => Report {
                path: place.name().to_owned(),
                unusable: Some(format!("opening it failed: {reason}")),
                ..Report::default()
            },
        };
        if let Place::Name(name) = &place {
            let absent = report
                .unusable
                .as_ref()
                .is_some_and(|reason| reason.contains(&format!("{name}: cannot open")));
            if absent || files.contains(&real(&report.path)) {
                continue;
            }
            files.push(real(&report.path));
        }
        found.push(entry(report, &launcher));
    }
    found
}

/// Where libraries may be, for whatever launcher.
fn places(launcher: &Launcher) -> Vec<Place> {
    let any = Launcher { programs: launcher.programs.clone(), ..Launcher::default() };
    let asked = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let mut all = Vec::new();
    if let Some(asked) = &asked {
        all.extend(candidates(Some(Path::new(asked)), &any));
    }
    all.extend(candidates(None, &any));
    // Files come first, as they need no child to be known twice.
    let (names, files): (Vec<Place>, Vec<Place>) =
        all.into_iter().map(|one| one.place).partition(|place| matches!(place, Place::Name(_)));
    files.into_iter().chain(names).collect()
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn entry(report: Report, launcher: &Launcher) -> FoundLibrary {
    let has =
        [(report.persistent, "persistent"), (report.windows, "RMA"), (report.partitioned, "partitioned")];
    let unusable = report.unusable.or_else(|| launcher.mismatch(&report.path, &report.version));
    FoundLibrary {
        path: report.path,
        abi: report.abi,
        version: first_line(&report.version).split_whitespace().collect::<Vec<_>>().join(" "),
        gpus: report.gpus,
        capabilities: has.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect(),
        unusable,
    }
}

fn examine(place: &Place) -> Report {
    match Library::open(place) {
        Ok(library) => describe(&library),
        Err(reason) => Report { path: place.name().to_owned(), unusable: Some(reason), ..Report::default() },
    }
}

fn describe(library: &Library) -> Report {
    let lacks = |part: &str| {
        let mut names = NAMES.iter().filter(|name| name.to_string_lossy().contains(part));
        names.any(|name| library.symbol(name).is_none())
    };
    let mut report = Report {
        path: library.path.clone(),
        abi: library.abi.to_string(),
        partitioned: has_partitioned(library),
        persistent: !lacks("_init") && !lacks("MPI_Start"),
        windows: !lacks("MPI_Win_") && !lacks("MPI_Put"),
        ..Report::default()
    };
    // SAFETY: the symbols are those of a library that has `MPI_Init_thread`.
    let table = unsafe { Table::load(library.abi, |name| library.symbol(name)) };
    let asked = table.and_then(|table| Ok((table.library_version()?, table.version()?)));
    match asked {
        Ok((version, standard)) => {
            report.gpus = gpus::told(library, &version);
            report.unusable = unfit(library.abi, (standard, &version), &library.path);
            report.version = version;
        }
        Err(error) => report.unusable = Some(error.to_string()),
    }
    report
}

/// What `work` reports from a child process, or how the child ended.
fn in_child(work: impl FnOnce() -> Report) -> Result<Report, String> {
    let (reader, writer) = std::io::pipe().map_err(|error| error.to_string())?;
    // SAFETY: the C library makes its allocator and loader usable in the child; the child calls nothing of
    // this program's other threads, and should it stand still all the same, it is ended.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        0 => {
            drop(reader);
            silence();
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tell(writer, &work())));
            // SAFETY: ends the child without this program's exit handlers, which belong to the parent.
            unsafe { libc::_exit(i32::from(told.is_err())) }
        }
        child => {
            drop(writer);
            let heard = hear(reader);
            if heard.is_err() {
                // SAFETY: the child is this call's, and was not waited for.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            let mut status = 0;
            // SAFETY: the place lives through the call. Where the program has waited for all of its children
            // meanwhile, the call fails, and the status is not needed.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            postcard::from_bytes(&heard?).map_err(|_| ending(status))
        }
    }
}

fn ending(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("the process that opened it was ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("the process that opened it ended with status {}", libc::WEXITSTATUS(status))
    }
}

/// Sends what a library writes while it is opened to nowhere: it is not the user's own program's output.
fn silence() {
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        for output in [1, 2] {
            // SAFETY: both are open files of this child.
            unsafe { libc::dup2(nowhere.as_raw_fd(), output) };
        }
    }
}

fn tell(mut writer: PipeWriter, report: &Report) {
    // A parent that does not listen any more has given up.
    if let Ok(bytes) = postcard::to_stdvec(report) {
        let _ = writer.write_all(&bytes);
    }
}

/// All that the child writes until it closes its end.
fn hear(mut reader: PipeReader) -> Result<Vec<u8>, String> {
    let deadline = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives through the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) };
        if ready == 0 {
            return Err(format!("it was not open after {} s", PATIENCE.as_secs()));
        }
        if ready < 0 {
            continue; // by a signal: look again
        }
        match reader.read(&mut piece) {
            Ok(0) => return Ok(heard),
            Ok(bytes) => heard.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reports() {
        let report = in_child(|| Report { version: "v".repeat(100_000), ..Report::default() });
        assert_eq!(report.expect("reports").version.len(), 100_000);
    }

    #[test]
    fn a_child_that_crashes_harms_nobody() {
        // SAFETY: ends the child only.
        let reason = in_child(|| unsafe { libc::_exit(7) }).expect_err("has ended");
        assert!(reason.contains("status 7"), "{reason}");
        let reason = in_child(|| {
            // SAFETY: ends the child only.
            unsafe { libc::raise(libc::SIGKILL) };
            Report::default()
        });
        assert!(reason.expect_err("was ended").contains("signal 9"));
    }

    #[test]
    fn a_file_that_is_no_library_is_unusable() {
        let this = std::env::current_exe().expect("has a file");
        let report = in_child(|| examine(&Place::File(this.with_extension("d")))).expect("reports");
        assert!(report.unusable.is_some());
    }

    #[test]
    fn what_is_installed_is_listed_once() {
        let found = installed();
        for (index, one) in found.iter().enumerate() {
            eprintln!(
                "{} | {} | {} | {:?} | {:?}",
                one.path.display(),
                one.abi,
                one.version,
                one.capabilities,
                one.unusable
            );
            assert!(one.unusable.is_some() || (!one.version.is_empty() && !one.capabilities.is_empty()));
            assert!(found[..index].iter().all(|other| real(&other.path) != real(&one.path)));
        }
    }
}
