//! What runs of a launcher's ranks leave behind besides results: checkpoints that others go on from, and timelines.

use super::checkpoint::{STENCIL, answers};
use super::launched::arguments_of;
use super::launchers::{Launcher, any_launcher};
use super::rendezvous::has_libfabric;
use super::timeline;
use super::{BACKENDS, Folder, SMALL, assert_verified, checksums, text};

/// Both over a library, and within a machine over shared memory as well.
const FABRICS: [&str; 2] = ["mpi", "shm+mpi"];

fn run(launcher: &Launcher, folder: &Folder, ranks: usize, config: &str, set: &[&str]) {
    let output = launcher.streamhalo(folder, ranks, &arguments_of(folder, config, set));
    assert_eq!(output.status.code(), Some(0), "{set:?} at {ranks} ranks: {}", text(&output.stderr));
}

/// Written by two ranks, and taken up by three of another fabric.
#[test]
fn runs_go_on_with_other_ranks_of_a_launcher() {
    let launcher = any_launcher();
    for (config, backend) in
        [(SMALL, "comm.backend=['st-send', 'notified']"), (STENCIL, "comm.backend=notified")]
    {
        let threads = Folder::new();
        let whole = threads.records(config, &["run.ranks=2"]);
        if let Some(launcher) = &launcher {
            for (written_over, read_over) in [FABRICS, [FABRICS[1], FABRICS[0]]].map(|[one, two]| (one, two))
            {
                let case = format!("written over {written_over}, read over {read_over}");
                let folder = Folder::new();
                let fabric = format!("comm.fabric={written_over}");
                let set = [fabric.as_str(), "run.ranks=2", "output.checkpoint_every=4"];
                run(launcher, &folder, 2, config, &[&set[..], &["comm.backend=st-rsend"]].concat());
                let written = folder.records_there();
                assert_eq!(answers(&written), [answers(&whole)[0].clone()], "{case}");
                let latest = folder.checkpoints().pop().expect("has written some");
                let (from, fabric) = (folder.from(&latest), format!("comm.fabric={read_over}"));
                run(launcher, &folder, 3, config, &[&from, &fabric, "run.ranks=[1, 3]", backend]);
                let after = folder.records_there();
                assert_verified(&after);
                assert_eq!(checksums(&after), checksums(&whole), "{case}");
                let step = latest.trim_end_matches(".halo").rsplit('_').next().expect("is a name");
                let step: u64 = step.parse().expect("is a number");
                assert!(step > 0 && after.iter().all(|run| run["result"]["restarted_at"] == step), "{case}");
            }
        }
    }
}

const STEPS: [&str; 3] = ["step 20", "step 21", "step 22"];

/// Few steps of few cells, of which nothing but the timelines is looked at.
const RECORDED: &str = "
app = { steps = 40, pattern = 'random:1' }
grid.cells = [48, 40]
run = { ranks = [2], trials = 1, warmup = 0, verify = false, pin = false }
comm.timeout_s = 60
";

#[test]
fn timelines_of_all_ranks_come_together_over_mpi() {
    if let Some(launcher) = any_launcher() {
        for fabric in FABRICS {
            let folder = Folder::new();
            let mut arguments = arguments_of(&folder, RECORDED, &[&format!("comm.fabric={fabric}")]);
            arguments.push("--timeline".to_owned());
            let output = launcher.streamhalo(&folder, 2, &arguments);
            assert_eq!(output.status.code(), Some(0), "{fabric}: {}", text(&output.stderr));
            for backend in BACKENDS {
                let (is_wired, case) = (!fabric.starts_with("shm"), format!("{backend} over {fabric}"));
                timeline::check(&folder, backend, 2, &STEPS, is_wired, &case);
            }
        }
    }
}

#[test]
fn timelines_of_all_ranks_come_together_over_libfabric() {
    if !has_libfabric() {
        return;
    }
    for fabric in ["ofi", "shm+ofi"] {
        let folder = Folder::new();
        let mut arguments = arguments_of(&folder, RECORDED, &[&format!("comm.fabric={fabric}")]);
        arguments.push("--timeline".to_owned());
        let output = folder.streamhalo(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{fabric}: {}", text(&output.stderr));
        for backend in BACKENDS {
            let (is_wired, case) = (!fabric.starts_with("shm"), format!("{backend} over {fabric}"));
            timeline::check(&folder, backend, 2, &STEPS, is_wired, &case);
        }
    }
}
