//! Programs of several processes, started with a time limit, of which nothing is left behind.

mod engines;
mod launchers;

pub use engines::{Engine, Start, at_rendezvous, engines};
pub use launchers::{LAUNCHERS_VARIABLE, Launcher, launchers};

use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use streamhalo::comm::fabric::shm::{Exit, Job};

/// By what the processes of a start are found, whatever became of their parents.
const MARK_VARIABLE: &str = "STREAMHALO_TEST_START";
/// How long processes have to end by themselves once those that were waited for have.
const GRACE: Duration = Duration::from_secs(5);

/// What came of a start.
#[derive(Debug)]
pub struct Ended {
    /// By process, in the order in which they were started; `None` for one that was ended because
    /// the time was over.
    pub statuses: Vec<Option<ExitStatus>>,
    /// What all of them wrote to their standard output, and what to their standard error.
    pub said: String,
    /// The same, of the standard error.
    pub complained: String,
    /// How long it took.
    pub took: Duration,
    /// Processes that were still there some seconds afterwards, and were ended.
    pub left_behind: usize,
}

impl Ended {
    /// Whether all processes ended well.
    pub fn is_success(&self) -> bool {
        self.left_behind == 0 && self.statuses.iter().all(|status| status.is_some_and(|one| one.success()))
    }

    /// All that was written.
    pub fn all(&self) -> String {
        format!("{}{}", self.said, self.complained)
    }
}

/// Processes under way.
#[derive(Debug)]
pub struct Started {
    children: Vec<Child>,
    pipes: Vec<[JoinHandle<String>; 2]>,
    mark: String,
    begun: Instant,
}

impl Started {
    /// Starts all commands at once.
    ///
    /// # Panics
    /// If a program cannot be started.
    pub fn new(commands: Vec<Command>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut started = Self { children: Vec::new(), pipes: Vec::new(), mark, begun: Instant::now() };
        for mut command in commands {
            command.env(MARK_VARIABLE, &started.mark).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let output = child.stdout.take().expect("piped");
            let errors = child.stderr.take().expect("piped");
            started.pipes.push([drain(output), drain(errors)]);
            started.children.push(child);
        }
        started
    }

    /// Waits until all have ended, or ends them once they have taken `limit`.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let mut statuses = vec![None; self.children.len()];
        while statuses.iter().any(Option::is_none) && self.begun.elapsed() < limit {
            for (status, child) in statuses.iter_mut().zip(&mut self.children) {
                if status.is_none() {
                    *status = child.try_wait().expect("children can be asked");
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let took = self.begun.elapsed();
        let is_late = statuses.iter().any(Option::is_none);
        let alone = Instant::now();
        while !is_late && alone.elapsed() < GRACE && !marked(&self.mark).is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left_behind = self.kill();
        let pipes = std::mem::take(&mut self.pipes);
        let [mut said, mut complained] = [String::new(), String::new()];
        for [output, errors] in pipes {
            said += &output.join().expect("reading does not panic");
            complained += &errors.join().expect("reading does not panic");
        }
        Ended { statuses, said, complained, took, left_behind }
    }

    /// Ends what still runs, and says how many processes that were.
    fn kill(&mut self) -> usize {
        let mut ended = 0;
        // A launcher that is asked to end may start to clean up, and a rank may just be starting.
        for _ in 0..100 {
            let left = marked(&self.mark);
            if left.is_empty() {
                break;
            }
            ended = ended.max(left.len());
            for process in left {
                // It may have ended meanwhile.
                let _ = kill_process(process, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        ended
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts all commands, and waits for them.
pub fn run(commands: Vec<Command>, limit: Duration) -> Ended {
    Started::new(commands).wait(limit)
}

/// Reads to the end, so that the writer never waits.
fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is worth more than the error.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The running processes that were started with that mark.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK_VARIABLE}={mark}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |number: &i32| {
        // Empty for a process that has ended and only waits to be asked how.
        let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    numbers.filter(has_mark).filter_map(Pid::from_raw).collect()
}

/// A program of these tests: where it was built, or beside the running one, where both were carried to another machine.
pub fn carried(built: &str) -> PathBuf {
    let built = PathBuf::from(built);
    let here =
        std::env::current_exe().ok().zip(built.file_name()).map(|(own, name)| own.with_file_name(name));
    here.filter(|here| !built.exists() && here.exists()).unwrap_or(built)
}

/// A job over shared memory, whose ranks say little enough for their pipes.
///
/// # Panics
/// If a rank fails, or they take longer than that.
pub fn job(ranks: usize, program: &Path, arguments: &[&str], limit: Duration) -> Ended {
    let begun = Instant::now();
    let mut job = Job::start(ranks, &mut |_rank| {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped());
        command
    })
    .expect("the job starts");
    let exit = job.wait(&|| begun.elapsed() > limit).expect("ranks can be waited for");
    assert_eq!(exit, Exit::Success, "{ranks} ranks of {arguments:?}");
    let mut said = String::new();
    for child in job.ranks() {
        let output = child.stdout.take().expect("piped");
        said += &std::io::read_to_string(output).expect("it writes text");
    }
    Ended { statuses: Vec::new(), said, complained: String::new(), took: begun.elapsed(), left_behind: 0 }
}

/// Blocks until each rank of a job has said that it runs.
///
/// # Panics
/// If one says something else.
pub fn wait_until_running(job: &mut Job) {
    for (rank, child) in job.ranks().iter_mut().enumerate() {
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("it writes text");
        assert_eq!(line, format!("rank {rank} runs\n"));
    }
}
