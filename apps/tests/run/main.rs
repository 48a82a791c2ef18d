//! `streamhalo run` and its neighbours, from outside: the built program, end to end.

mod auto;
mod backends;
mod bench;
mod bench_devices;
mod checkpoint;
mod cholesky;
mod comb;
mod cuda;
mod devices;
mod errors;
mod everywhere;
mod faces;
mod failures;
mod hip;
mod launch;
mod launched;
mod launched_files;
mod launchers;
mod opencl;
mod outputs;
mod patterns;
mod pictures;
mod pipeline;
mod rendezvous;
mod replays;
mod setups;
mod shipped;
mod stencil3d;
mod survey;
mod timeline;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const BACKENDS: [&str; 5] = ["standard", "st-send", "st-rsend", "active-rma", "notified"];
const FABRICS: [&str; 2] = ["local", "shm"];

/// What says in a folder of results that somebody writes into it.
const OCCUPIED: &str = ".occupied";

/// No command here takes a tenth of it, unless ranks wait for each other for ever.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Set for every program that a folder starts, and inherited by whatever that starts: what finds
/// processes that were left behind.
const MARK: &str = "STREAMHALO_TEST_MARK";

/// A folder of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::with_prefix("streamhalo-").expect("can write"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, content).expect("can write");
        path
    }

    /// Where a run with [`Folder::run`] leaves its results.
    fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    fn read_out(&self, name: &str) -> String {
        fs::read_to_string(self.out().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A command that carries the folder's mark.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env(MARK, self.path()).stdin(Stdio::null());
        // Ranks that are threads share a GPU, and their streams need a queue of the hardware each.
        command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
        command
    }

    fn streamhalo(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_streamhalo"));
        finish(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
    }

    /// Starts a run of `config` with these values laid over it.
    fn start(&self, config: &str, set: &[&str]) -> Child {
        let config = self.write("config.toml", config);
        let mut command = self.command(env!("CARGO_BIN_EXE_streamhalo"));
        command.arg("run").arg(config).arg("--out").arg(self.out());
        for one in set {
            command.args(["--set", one]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Runs `config` with these values laid over it.
    fn run(&self, config: &str, set: &[&str]) -> Output {
        finish(Ok(self.start(config, set)))
    }

    /// The records of a run that must succeed.
    fn records(&self, config: &str, set: &[&str]) -> Vec<Value> {
        let output = self.run(config, set);
        assert_eq!(output.status.code(), Some(0), "{set:?}\n{}", text(&output.stderr));
        self.records_there()
    }

    /// The records that are there.
    fn records_there(&self) -> Vec<Value> {
        let results: Value = serde_json::from_str(&self.read_out("results.json")).expect("is JSON");
        results["runs"].as_array().expect("is a list").clone()
    }

    /// Runs a shell script, which may mount file systems and exits with 77 if it cannot; `None`, with the reason, if
    /// that is so. Its arguments are `"$@"`.
    fn with_mounts(&self, script: &str, arguments: &[&str]) -> Option<Output> {
        let mut command = self.command("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(arguments);
        let output = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Ok(child) => finish(Ok(child)),
            Err(error) => {
                eprintln!("skipped: there is no `unshare`: {error}");
                return None;
            }
        };
        let said = text(&output.stderr);
        if output.status.code() == Some(77) || said.starts_with("unshare:") {
            eprintln!("skipped: no file system can be mounted here: {said}");
            return None;
        }
        Some(output)
    }

    /// The processes that still run of all that carry the folder's mark.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.path().display());
        let of_folder = |process: &u32| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let entries = fs::read_dir("/proc").expect("is Linux").flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes.filter(of_folder).collect()
    }

    /// Those of them that are ranks.
    fn workers(&self) -> Vec<u32> {
        let is_worker = |process: &u32| {
            let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some("worker")
        };
        self.processes().into_iter().filter(is_worker).collect()
    }
}

impl Drop for Folder {
    /// What a test that fails has started would run on, and take the cores from all others.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kill = |process: u32| Command::new("kill").args(["-KILL", &process.to_string()]).status();
            self.processes().into_iter().map(kill).for_each(drop);
        }
    }
}

/// What a program has printed, and how it ended. One that does not end is a deadlock: it is ended,
/// and what it has printed is shown.
fn finish(child: std::io::Result<Child>) -> Output {
    let mut child = child.expect("the program starts");
    let since = Instant::now();
    // Nothing here prints as much as a pipe holds.
    while child.try_wait().expect("is our child").is_none() {
        if since.elapsed() > WATCHDOG {
            child.kill().expect("is our child");
            let output = child.wait_with_output().expect("has ended");
            panic!("hangs after {}", text(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("has ended")
}

/// Waits for something that another process brings about.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < WATCHDOG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(status.expect("`kill` is there").success(), "kill {name} {process}");
}

/// Processor time of a process that is there, in hundredths of a second.
fn ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in brackets, may hold blanks; user time is the 14th field.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields.get(11)?.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A pattern of the repository.
fn pattern(name: &str) -> String {
    let file = format!("../configs/life/patterns/{name}.rle");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    format!("app.pattern={:?}", path.canonicalize().expect("is in the repository"))
}

/// Few random cells at 1, 2 and 4 ranks, once: what most tests here vary.
const SMALL: &str = "
app = { steps = 24, pattern = 'random:7' }
grid.cells = [24, 40]
run = { ranks = [1, 2, 4], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

fn checksums(records: &[Value]) -> Vec<&str> {
    let mut checksums: Vec<_> =
        records.iter().map(|record| record["checksum"].as_str().expect("is text")).collect();
    checksums.dedup();
    checksums
}

fn assert_verified(records: &[Value]) {
    assert!(!records.is_empty());
    for record in records {
        assert_eq!(record["verified"], true, "{record}");
    }
}
