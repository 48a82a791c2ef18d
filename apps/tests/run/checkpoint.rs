//! Checkpoints from outside: runs that are interrupted, killed or out of room, and go on elsewhere.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::errors::refused;
use super::{
    BACKENDS, FABRICS, Folder, OCCUPIED, SMALL, assert_verified, checksums, finish, pattern, signal, text,
    until,
};

pub(super) const STENCIL: &str = "
app = { name = 'stencil3d', steps = 9, equation = 'jacobi', residual_every = 2 }
grid.cells = [8, 9, 10]
run = { ranks = [2], trials = 1, warmup = 0, pin = false }
comm = { timeout_s = 60, backend = 'st-send' }
";

impl Folder {
    /// The checkpoints of its runs, by name.
    pub(super) fn checkpoints(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.checkpoint_folder()) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.expect("is readable").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("is text")).collect();
        names.sort();
        names
    }

    fn checkpoint_folder(&self) -> PathBuf {
        self.out().join("checkpoints")
    }

    /// The key that has a run go on from a checkpoint, or from the latest one.
    pub(super) fn from(&self, name: &str) -> String {
        format!("run.restart={:?}", self.checkpoint_folder().join(name))
    }
}

/// What does not depend on time.
pub(super) fn answers(records: &[Value]) -> Vec<(Value, Value)> {
    let answer = |record: &Value| {
        let mut result = record["result"].clone();
        result.as_object_mut().expect("is an object").remove("restarted_at");
        (record["checksum"].clone(), result)
    };
    records.iter().map(answer).collect()
}

#[test]
fn runs_go_on_with_other_ranks_fabrics_and_backends() {
    let folder = Folder::new();
    let whole = folder.records(SMALL, &["output.checkpoint_every=7"]);
    assert_verified(&whole);
    assert_eq!(folder.checkpoints(), ["life_000014.halo", "life_000021.halo"], "of 24 steps");
    for (name, step, set) in [
        ("life_000014.halo", 14, &["run.ranks=[1, 2, 3, 4]"][..]),
        ("", 21, &["comm.fabric=shm", "run.layout=[[1, 1], [1, 2], [4, 1]]"]),
        ("life_000014.halo", 14, &["grid.halo=4", "run.exchange_every=4", "device.stream=threaded"]),
        ("life_000021.halo", 21, &["comm.fabric=shm", "device.threads=2", "run.trials=2", "run.warmup=1"]),
    ] {
        let records = folder.records(SMALL, &[&[folder.from(name).as_str()], set].concat());
        assert_verified(&records);
        assert!(records.len() >= 3 * BACKENDS.len());
        assert_eq!(checksums(&records), checksums(&whole));
        for record in records {
            assert_eq!(record["result"]["restarted_at"], step, "{record}");
            assert_eq!(record["timed_steps"], 24 - step, "{record}");
            assert_eq!(record["result"]["population"], whole[0]["result"]["population"]);
        }
    }
}

/// Cells are alive or not, whatever they are stored as: bytes go on as doubles, and the other way round.
#[test]
fn cells_go_on_as_another_type() {
    let as_type = |cells: &str| format!("app.cells_as={cells}");
    let expected = Folder::new().records(SMALL, &[]);
    for written in ["u8", "f64"] {
        let folder = Folder::new();
        let every = ["output.checkpoint_every=10", "run.ranks=2", "comm.backend=st-send"];
        let whole = folder.records(SMALL, &[&every[..], &[&as_type(written)]].concat());
        assert_eq!(checksums(&whole), checksums(&expected));
        let from = folder.from("life_000010.halo");
        for read in ["f64", "u8"] {
            let records = folder.records(SMALL, &[&from, "run.ranks=[1, 3]", &as_type(read)]);
            assert_verified(&records);
            assert_eq!(checksums(&records), checksums(&expected), "{written} goes on as {read}");
            assert!(records.iter().all(|record| record["result"]["restarted_at"] == 10));
        }
    }
}

#[test]
fn stencils_go_on_over_processes() {
    for element in ["f32", "f64"] {
        let folder = Folder::new();
        let element = format!("app.element={element}");
        let set =
            [element.as_str(), "comm.fabric=shm", "output.checkpoint_every=4", "output.checkpoints_kept=0"];
        let whole = folder.records(STENCIL, &set);
        assert_eq!(folder.checkpoints(), ["stencil3d_000004.halo", "stencil3d_000008.halo"]);
        for name in folder.checkpoints() {
            let from = folder.from(&name);
            let same = folder.records(STENCIL, &[&element, &from, "comm.backend=['notified', 'standard']"]);
            assert_verified(&same);
            assert_eq!(answers(&same), [answers(&whole), answers(&whole)].concat(), "norms too");
            let other = ["run.ranks=[1, 3, 4]", "grid.halo=2", "run.exchange_every=2", "comm.fabric=shm"];
            let other = folder.records(STENCIL, &[&[element.as_str(), &from], &other[..]].concat());
            assert_verified(&other);
            assert_eq!(checksums(&other), checksums(&whole));
        }
    }
}

/// One can go on beyond the end.
#[test]
fn flags_say_the_same_as_keys() {
    let folder = Folder::new();
    let run = |steps: &str, flags: &[&str]| {
        let config = folder.write("config.toml", SMALL);
        let (config, out) = (config.to_str().expect("is text"), folder.out());
        let start = ["run", config, "--out", out.to_str().expect("is text"), "--set", steps];
        folder.streamhalo(&[&start[..], flags].concat())
    };
    assert_eq!(run("app.steps=10", &["--checkpoint", "every=10", "--quiet"]).status.code(), Some(0));
    assert_eq!(folder.checkpoints(), ["life_000010.halo"]);
    // The folder of the results, in which checkpoints have one of their own.
    let from = folder.out();
    let output = run("app.steps=24", &["--restart", from.to_str().expect("is text"), "--ranks", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("life_000010.halo, after 10 steps"), "{}", text(&output.stderr));
    let whole = Folder::new().records(SMALL, &[]);
    let results: Value = serde_json::from_str(&folder.read_out("results.json")).expect("is JSON");
    assert_eq!(results["runs"][0]["checksum"], whole[0]["checksum"]);
    let restart = results["config"]["run"]["restart"].as_str().expect("is kept");
    assert!(restart.ends_with("life_000010.halo"), "the file, and not only its folder: {restart}");
}

/// What an earlier run has left in the folder is neither gone on from nor removed.
#[test]
fn a_folder_stands_for_the_latest_checkpoint_that_the_run_can_go_on_from() {
    let folder = Folder::new();
    let one = ["run.ranks=1", "comm.backend=st-send", "output.checkpoints_kept=0"];
    let every = |every: &str, set: &[&str]| {
        folder.records(SMALL, &[&one[..], &[&format!("output.checkpoint_every={every}")], set].concat());
    };
    every("20", &["app.pattern=random:8"]);
    every("5", &["app.steps=15"]);
    let expected = ["05", "10", "15", "20"].map(|step| format!("life_0000{step}.halo"));
    assert_eq!(folder.checkpoints(), expected);
    let restart = |set: &[&str]| folder.run(SMALL, &[&one[..], &[folder.from("").as_str()], set].concat());
    for (steps, step, not) in [(24, 15, &["20"][..]), (12, 10, &["20", "15"])] {
        let output = restart(&[&format!("app.steps={steps}")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("life_0000{step}.halo, after {step} steps\n")), "{said}");
        let passed: Vec<_> = said.lines().filter(|line| line.trim_start().starts_with("and not ")).collect();
        assert_eq!(passed.len(), not.len(), "{said}");
        for (line, step) in passed.iter().zip(not) {
            assert!(line.contains(&format!("life_0000{step}.halo, which is of another run")), "{said}");
        }
        assert_verified(&folder.records_there());
        assert_eq!(folder.records_there()[0]["result"]["restarted_at"], step);
    }
    assert_eq!(folder.checkpoints(), expected);
    // Where it can go on from none, the latest is the one that is spoken of.
    let parts = ["life_000020.halo is of another run", "`app.pattern` is \"random:8\" there"];
    refused(&restart(&["app.pattern=random:9"]), 2, &parts);
}

/// At the flag that says where checkpoints go.
#[test]
fn a_checkpoint_that_another_run_needs_is_not_written_over() {
    let folder = Folder::new();
    folder.records(SMALL, &["output.checkpoint_every=10", "run.ranks=1", "comm.backend=st-send"]);
    let before = folder.checkpoints();
    let config = format!("{SMALL}output.checkpoint_every = 4\n").replace("random:7", "random:8");
    let parts = [
        "error: --out /",
        "life_000020.halo is of another run: `app.pattern` is \"random:7\" there, and \"random:8\" in this",
        "; this run would write its own over it",
        "hint: choose another folder with `--out DIR`, or remove the file if nobody needs it",
    ];
    refused(&folder.run(&config, &[]), 2, &parts);
    assert_eq!(folder.checkpoints(), before);
    // Others that it needs are not there, and those that are there it does not need.
    folder.records(&config, &["app.steps=19", "run.ranks=1", "comm.backend=st-send"]);
    assert_eq!(folder.checkpoints(), ["10", "12", "16", "20"].map(|step| format!("life_0000{step}.halo")));
}

/// A game that would take hours, with a checkpoint whenever one is done.
const ENDLESS: [&str; 7] = [
    "app.steps=1000000000",
    "grid.cells=[96, 128]",
    "run.ranks=2",
    "run.verify=false",
    "comm.backend=st-send",
    "output.checkpoint_every=1",
    "comm.fabric=shm",
];

/// Whenever it is killed, each checkpoint that there is is whole.
#[test]
fn runs_that_are_killed_go_on_from_their_last_checkpoint() {
    let folder = Folder::new();
    let mut last = 0;
    for attempt in 0..6 {
        let from = folder.from("");
        let set: Vec<_> = ENDLESS.iter().copied().chain((attempt > 0).then_some(from.as_str())).collect();
        let child = folder.start(SMALL, &set);
        let step = || {
            let names = folder.checkpoints();
            let steps = names
                .iter()
                .filter_map(|name| name.strip_prefix("life_")?.strip_suffix(".halo")?.parse().ok());
            steps.max().unwrap_or(0)
        };
        until("there are new checkpoints", || step() > last + 2);
        std::thread::sleep(Duration::from_micros(700 * attempt));
        signal("-KILL", child.id());
        finish(Ok(child));
        until("all processes have ended", || folder.processes().is_empty());
        last = step();
        for name in folder.checkpoints().iter().filter(|name| name.starts_with("life")) {
            let step: u64 = name["life_".len()..name.len() - ".halo".len()].parse().expect("is a number");
            let steps = format!("app.steps={}", step + 1);
            let from = folder.from(name);
            let elsewhere = Folder::new();
            let set = [&from, "grid.cells=[96, 128]", "run.ranks=1", &steps, "comm.backend=st-send"];
            assert_verified(&elsewhere.records(SMALL, &set));
        }
    }
    // What was half-written is gone once a run has come to its end there.
    let steps = format!("app.steps={}", last + 1);
    let from = folder.from("");
    let set = [
        &from,
        "grid.cells=[96, 128]",
        "run.ranks=1",
        &steps,
        "comm.backend=st-send",
        "output.checkpoint_every=1",
    ];
    assert_verified(&folder.records(SMALL, &set));
    let left: Vec<_> = folder.checkpoints().into_iter().filter(|name| name.starts_with('.')).collect();
    assert_eq!(left, [""; 0]);
}

/// Whenever it is interrupted, nothing is left that is half-written.
#[test]
fn runs_that_are_interrupted_leave_no_part_of_a_checkpoint() {
    for fabric in FABRICS {
        let folder = Folder::new();
        let fabric = format!("comm.fabric={fabric}");
        // As long as it takes to write them there is one that is unfinished.
        let large = ["grid.cells=[4096, 4096]", "run.ranks=2", "app.steps=1000000", "run.verify=false"];
        let child = folder.start(SMALL, &[&large[..], &["output.checkpoint_every=1", &fabric]].concat());
        until("a checkpoint is begun", || {
            folder.checkpoint_folder().is_dir()
                && folder.checkpoints().iter().any(|name| name.ends_with(".unfinished"))
        });
        signal("-INT", child.id());
        let output = finish(Ok(child));
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        until("all processes have ended", || folder.processes().is_empty());
        let left: Vec<_> = folder.checkpoints().into_iter().filter(|name| name.starts_with('.')).collect();
        assert_eq!(left, [""; 0]);
    }
}

/// As one that is none at all: by the line that names it.
#[test]
fn a_damaged_checkpoint_is_refused_where_it_is_named() {
    let folder = Folder::new();
    folder.records(SMALL, &["output.checkpoint_every=14", "run.ranks=1"]);
    let path = folder.checkpoint_folder().join("life_000014.halo");
    let mut bytes = fs::read(&path).expect("is there");
    *bytes.last_mut().expect("has some") ^= 1;
    fs::write(&path, bytes).expect("can write");
    let config = SMALL.replace("run = {", &format!("run = {{ restart = {path:?},"));
    refused(&folder.run(&config, &[]), 2, &["config.toml:4:", "life_000014.halo is damaged"]);
}

/// A limit on the size of files does to a write what a full disk does, and needs no rights.
#[test]
fn a_run_without_room_for_a_checkpoint_keeps_the_earlier_one() {
    let glider = pattern("glider");
    let game = [glider.as_str(), "grid.cells=[600, 600]", "run.ranks=2", "comm.backend=st-send"];
    let folder = Folder::new();
    let whole = folder.records(SMALL, &[&game[..], &["output.checkpoint_every=10", "app.steps=10"]].concat());
    assert_verified(&whole);
    let earlier = folder.checkpoints();
    let config = folder.write("config.toml", SMALL);
    let set: Vec<_> = game.iter().map(|one| format!("--set '{one}'")).collect();
    // 200 KiB: room for the results, but not for 360,000 cells.
    let script = format!(
        "ulimit -f 400; exec {program:?} run {config:?} --out {out:?} {set} --quiet \
         --checkpoint every=8 \"$@\"",
        program = env!("CARGO_BIN_EXE_streamhalo"),
        out = folder.out(),
        set = set.join(" "),
    );
    let run = |arguments: &[&str]| {
        let mut command = folder.command("sh");
        command.args(["-c", &script, "sh"]).args(arguments);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
    };
    let message = "cannot write the checkpoint after 8 steps, ";
    let stopped = format!("error: rank 0 failed: {message}");
    let parts =
        [&stopped, "checkpoints/life_000008.halo: File too large", "on_full_disk = \"go-on\"` it goes on"];
    refused(&run(&[]), 1, &parts);
    assert_eq!(folder.checkpoints(), earlier);
    assert_verified(&folder.records(SMALL, &[&game[..], &[&folder.from(""), "app.steps=11"]].concat()));

    let output = run(&["--set", "output.on_full_disk=go-on"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with(&format!("rank 0 {message}")), "{said}");
    assert!(said.ends_with("; the run goes on without it\n") && said.lines().count() == 1, "{said}");
    assert_eq!(folder.checkpoints(), earlier);
}

/// What was measured is shown if its files cannot be written, and so is what came out wrong.
#[test]
fn results_that_cannot_be_written_are_shown() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let script = format!(
        "ulimit -f 1; exec {program:?} run {config:?} --out {out:?} --quiet --ranks 1 --backend st-send",
        program = env!("CARGO_BIN_EXE_streamhalo"),
        out = folder.out(),
    );
    let mut command = folder.command("sh");
    command.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(command.spawn());
    refused(&output, 1, &["results.json: File too large"]);
    let table = text(&output.stdout);
    assert!(table.contains("st-send") && table.contains("yes"), "{table}");
    // Nor is anything left where not even the name of the process that writes there has room.
    let mut command = folder.command("sh");
    command.args(["-c", &script.replace("ulimit -f 1;", "ulimit -f 0;")]);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    refused(&output, 1, &["File too large"]);
    assert!(!folder.out().join(OCCUPIED).exists());
}

/// The same in the middle of the file, where the disk is a small one of our own, if the system lets us have one.
#[test]
fn a_small_disk_fills_up() {
    let folder = Folder::new();
    let out = folder.out();
    fs::create_dir(&out).expect("can write");
    let config = folder.write("config.toml", SMALL);
    let kept = folder.path().join("kept");
    let glider = pattern("glider");
    // A file has 64 KiB: the disk has room for one, and for the results.
    let script = format!(
        "mount -t tmpfs -o size=120k none {out:?} || exit 77\n\
         {program:?} run {config:?} --out {out:?} --set '{glider}' --set grid.cells=[200,300] --ranks 2 \
         --fabric shm --backend st-send --quiet --checkpoint every=4 \"$@\"\n\
         status=$?\nrm -rf {kept:?}\ncp -r {out:?}/checkpoints {kept:?}\nls -A {out:?}\nexit $status\n",
        program = env!("CARGO_BIN_EXE_streamhalo"),
    );
    for (answer, status) in [("stop", 1), ("go-on", 0)] {
        let full = format!("output.on_full_disk={answer}");
        let arguments = &["--set", &full];
        let Some(output) = folder.with_mounts(&script, &arguments[..]) else { return };
        let (said, listed) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(status), "{said}\n{listed}");
        assert!(
            said.contains("checkpoint after 8 steps") && said.contains("No space left on device"),
            "{said}"
        );
        assert_eq!(listed.contains("results.json"), status == 0, "{listed}");
        let names: Vec<_> =
            fs::read_dir(&kept).expect("was copied").map(|entry| entry.expect("is readable")).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let from = format!("run.restart={:?}", kept.join("life_000004.halo"));
        let elsewhere = Folder::new();
        assert_verified(&elsewhere.records(SMALL, &[&from, &glider, "grid.cells=[200, 300]"]));
    }
}

#[test]
fn a_run_that_is_too_short_for_a_checkpoint_says_so() {
    let folder = Folder::new();
    for (every, is_said) in [("output.checkpoint_every=24", false), ("output.checkpoint_every=25", true)] {
        let said = text(&folder.run(SMALL, &[every, "run.ranks=1"]).stderr);
        let sentence = "checkpoints: none, for they are 25 steps apart and the run has 24";
        assert_eq!(said.contains(sentence), is_said, "{said}");
        assert_eq!(folder.checkpoints().len(), usize::from(!is_said), "{said}");
        fs::remove_dir_all(folder.out()).expect("is there");
    }
    let said = text(&folder.run(SMALL, &["app.steps=0", "output.checkpoint_every=1", "run.ranks=1"]).stderr);
    assert!(said.contains("checkpoints: none, for they are 1 step apart and the run has 0\n"), "{said}");
    fs::remove_dir_all(folder.out()).expect("is there");
    // Neither if it goes on behind the last one, nor if it is to say little.
    folder.records(SMALL, &["output.checkpoint_every=20", "run.ranks=1"]);
    let paths = [folder.write("config.toml", SMALL), folder.checkpoint_folder(), folder.out()];
    let [config, from, out] = paths.each_ref().map(|path| path.to_str().expect("is text"));
    let run = ["run", config, "--out", out, "--ranks", "1", "--quiet", "--restart", from];
    for (every, expected) in [
        ("every=4", ""),
        ("every=5", "checkpoints: none, for they are 5 steps apart and the run goes from 20 to 24\n"),
    ] {
        let output = folder.streamhalo(&[&run[..], &["--checkpoint", every]].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), expected.to_owned()), "{every}");
        fs::remove_file(folder.checkpoint_folder().join("life_000024.halo")).unwrap_or_default();
    }
}

#[test]
fn what_cannot_be_gone_on_from_is_refused_before_anything_runs() {
    let folder = Folder::new();
    folder.records(SMALL, &["output.checkpoint_every=10", "run.ranks=1"]);
    let path = folder.checkpoint_folder().join("life_000010.halo");
    let right = fs::read(&path).expect("is there");
    let elsewhere = Folder::new();
    let from = format!("run.restart={path:?}");
    let refuses = |set: &[&str], parts: &[&str]| {
        refused(&elsewhere.run(SMALL, &[&[from.as_str()], set].concat()), 2, parts);
        assert!(!elsewhere.out().exists(), "{set:?}");
    };
    refuses(
        &["app.pattern=random:8"],
        &["is of another run", "`app.pattern` is \"random:7\" there, and \"random:8\""],
    );
    refuses(&["grid.cells=[40, 24]"], &["`grid.cells` is [24,40] there, and [40,24] in this configuration"]);
    refuses(
        &["app.steps=9"],
        &["is of step 10, but `app.steps` is 9", "hint: set `app.steps` to 10 or more"],
    );
    refuses(
        &["run.scaling=weak", "run.ranks=[1, 2]"],
        &[
            "`grid.cells` is [24,40] there, and [24,80] in this configuration at 2 ranks, as `run.scaling` is weak",
            "hint: each entry of `run.ranks` has other cells: go on with the one that wrote the checkpoint, by `--ranks N`, and with `grid.cells` as they were",
        ],
    );
    // A folder stands for the latest by their names.
    fs::copy(&path, elsewhere.path().join("life_000030.halo")).expect("can write");
    let misnamed = format!("run.restart={:?}", elsewhere.path());
    let parts = ["life_000030.halo holds step 10, not 30 as its name says", "hint: "];
    refused(&elsewhere.run(SMALL, &[&misnamed]), 2, &parts);
    // What follows from another grid, as where a pattern lies in it, is not to blame.
    refuses(
        &["grid.cells=[40, 24]", "app.pattern=random:8"],
        &["`grid.cells` is [24,40] there, and [40,24] in this configuration"],
    );
    let absent = format!("run.restart={:?}", folder.path().join("absent.halo"));
    refused(
        &elsewhere.run(SMALL, &[&absent]),
        2,
        &["cannot read the checkpoint", "absent.halo", "hint: give the path"],
    );
    let restart = format!("run = {{ restart = {:?},", folder.path().join("absent.halo"));
    let from_file = SMALL.replace("run = {", &restart);
    refused(&elsewhere.run(&from_file, &[]), 2, &["config.toml:4:", &restart, "cannot read the checkpoint"]);
    let empty = format!("run.restart={:?}", folder.path());
    let parts = ["has no checkpoint of `life`", "neither there nor in a folder checkpoints in it"];
    refused(&elsewhere.run(SMALL, &[&empty]), 2, &parts);
    for (content, part) in [
        (&right[..right.len() - 1], "is truncated: it has 5055 bytes of 5056"),
        (b"x = 3, y = 3", "is no checkpoint of streamhalo"),
        (&[&right[..right.len() - 5], b"wrong"].concat(), "(block 1 of 1) are not what was written"),
        (&[&right[..8], &[2], &right[9..]].concat(), "has format 2; this program reads format 1"),
    ] {
        fs::write(&path, content).expect("can write");
        refuses(&[], &[part, "hint: "]);
    }
    let faces =
        "app = { name = 'faces', steps = 2 }\ngrid.cells = [2, 2, 2]\nrun = { ranks = 1, pin = false }\n";
    for set in ["output.checkpoint_every=1", &from] {
        refused(&elsewhere.run(faces, &[set]), 2, &["`faces`", "`life` or `stencil3d`"]);
    }
}
