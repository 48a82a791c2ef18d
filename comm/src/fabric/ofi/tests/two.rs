//! Two processes of the test program, and what they tell each other.

use super::PATIENCE;
use crate::fabric::ofi::provider::{TRIGGERED, providers};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const RANK: &str = "STREAMHALO_TEST_OFI_RANK";
const FOLDER: &str = "STREAMHALO_TEST_OFI_FOLDER";
/// How long a whole test may take: whatever the ranks wait for gives up earlier.
const LIMIT: Duration = Duration::from_secs(240);

/// Whether a provider is there; says that the test is skipped otherwise.
pub(super) fn has(provider: &str, triggered: bool) -> bool {
    let known = match providers() {
        Ok(known) => known,
        Err(error) => {
            println!("skipped: {error}");
            return false;
        }
    };
    let fits = |one: &crate::fabric::ofi::provider::Provider| {
        one.name.split(';').any(|part| part == provider)
            && one.unusable.is_none()
            && (!triggered || one.capabilities.contains(&TRIGGERED))
    };
    if known.iter().any(fits) {
        return true;
    }
    println!("skipped: this libfabric has no usable provider `{provider}`");
    false
}

/// Runs the ignored test `inner` as two processes, and panics if one of them fails or does not end.
pub(super) fn run_two(inner: &str) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("streamhalo-ofi-{}-{run}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder for the ranks' messages can be made");
    let program = std::env::current_exe().expect("the test program has a path");
    let mut ranks: Vec<Child> = (0..2)
        .map(|rank| {
            Command::new(&program)
                .args(["--exact", &format!("fabric::ofi::tests::{inner}"), "--ignored", "--nocapture"])
                .args(["--test-threads", "1"])
                .env(RANK, rank.to_string())
                .env(FOLDER, &folder)
                .spawn()
                .expect("the test program starts")
        })
        .collect();
    let verdict = ended(&mut ranks);
    for rank in &mut ranks {
        let _ = rank.kill();
        let _ = rank.wait();
    }
    let _ = std::fs::remove_dir_all(&folder);
    if let Err(reason) = verdict {
        panic!("{inner}: {reason}");
    }
}

/// Waits for both.
fn ended(ranks: &mut [Child]) -> Result<(), String> {
    let end = Instant::now() + LIMIT;
    let mut running: Vec<usize> = (0..ranks.len()).collect();
    while !running.is_empty() {
        for rank in running.clone() {
            match ranks[rank].try_wait() {
                Ok(None) => {}
                Ok(Some(status)) if status.success() => running.retain(|one| *one != rank),
                Ok(Some(status)) => return Err(format!("rank {rank} failed: {status}")),
                Err(error) => return Err(format!("rank {rank} cannot be waited for: {error}")),
            }
        }
        if Instant::now() > end {
            return Err(format!("ranks {running:?} have not ended after {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How the two ranks tell each other things: one file for each.
pub(super) struct Meeting {
    pub(super) rank: usize,
    folder: PathBuf,
}

impl Meeting {
    /// In a process that [`run_two`] has started; none if the test was started by hand.
    pub(super) fn join() -> Option<Meeting> {
        let rank = std::env::var(RANK).ok()?.parse().ok()?;
        Some(Meeting { rank, folder: std::env::var_os(FOLDER)?.into() })
    }

    /// Tells the other rank something.
    pub(super) fn tell(&self, name: &str, said: &[u8]) {
        let path = self.folder.join(format!("{name}.{}", self.rank));
        let unfinished = self.folder.join(format!("{name}.{}.part", self.rank));
        std::fs::write(&unfinished, said).expect("the folder can be written to");
        // Seen whole or not at all.
        std::fs::rename(&unfinished, path).expect("a file can be renamed");
    }

    /// Whether the other rank has told it.
    pub(super) fn has_told(&self, name: &str) -> bool {
        self.folder.join(format!("{name}.{}", 1 - self.rank)).exists()
    }

    /// Waits for what the other rank tells.
    pub(super) fn hear(&self, name: &str) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        while !self.has_told(name) {
            assert!(Instant::now() < end, "the other rank has not told its `{name}`");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::read(self.folder.join(format!("{name}.{}", 1 - self.rank))).expect("the file can be read")
    }
}
