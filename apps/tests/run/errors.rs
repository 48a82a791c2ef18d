//! What is wrong before anything runs: said with its place, and nothing is written.

use std::fs;
use std::path::Path;
use std::process::Output;

use super::{Folder, SMALL, assert_verified, text};

/// That a program has ended with this status, and said all of this.
pub(super) fn refused(output: &Output, status: i32, parts: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.starts_with("error: "), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

/// Values laid over the small configuration, and what must be said of them.
const WRONG: &[(&[&str], &[&str])] = &[
    (&["run.ranks=0"], &["run.ranks", "at least 1"]),
    (&["run.ranks=5000"], &["run.ranks", "5000", "`srun`), or `--rank-zero` one by one, starts more"]),
    (&["run.rank=2"], &["unknown key `rank`", "did you mean `ranks`?"]),
    (&["grid.cells=[2, 2]", "run.ranks=5"], &["at 5 ranks", "cannot be split over 5 ranks"]),
    (
        &["grid.cells=[8, 8]", "grid.halo=5", "run.ranks=4"],
        &["at 4 ranks", "halo width of 5", "thinnest subdomain"],
    ),
    (&["run.ranks=4", "run.layout=[[4, 2]]"], &["run.layout", "product is 4"]),
    (&["grid.cells=[24, 2]", "run.ranks=4", "run.layout=[[1, 4]]"], &["at 4 ranks", "axis 1 into 4 parts"]),
    (
        &["run.exchange_every=2"],
        &[
            "run.exchange_every",
            "`grid.halo` is 1 wide",
            "hint: set `run.exchange_every` to 1, or `grid.halo` to 2",
        ],
    ),
    (&["grid.cells=[8, 8, 8]"], &["2 axes"]),
    (&["grid.cells=[20, 20]", "app.pattern=glider-field"], &["glider-field needs multiples of 8"]),
    (&["app.pattern=random:x"], &["`x` is not a seed"]),
    (&["app.pattern=random:1", "app.origin=[1, 2]"], &["`app.origin` is where a pattern of a file goes"]),
    (&["device.threads=100000"], &["device.threads", "an integer from 1 to 4096"]),
    (&["app.pattern=absent.rle"], &["there is no file absent.rle"]),
    (
        &["app.pattern=/dev/null"],
        &["--set app.pattern=/dev/null: `app.pattern`: /dev/null is no regular file"],
    ),
    (&["app.pattern=."], &["--set app.pattern=.: `app.pattern`: . is a folder"]),
    (
        &["device.kind=opencl", "device.select=nosuch"],
        &["--set device.select=nosuch: device `opencl:nosuch` cannot be used: "],
    ),
    (&["comm.backend=st-sent"], &["did you mean `st-send`?"]),
    (
        &["comm.fabric=mpi"],
        &[
            "no MPI launcher has started this process",
            "hint: start it as in `mpiexec -n 4 streamhalo run ...",
        ],
    ),
    (&["comm.fabric=shm+mpi"], &["ranks over the fabric `shm+mpi` are started by an MPI launcher"]),
    (&["comm.fabric=locl"], &["did you mean `local`?"]),
];

#[test]
fn wrong_configurations_exit_with_2_and_write_nothing() {
    let folder = Folder::new();
    for (set, parts) in WRONG {
        refused(&folder.run(SMALL, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}

#[test]
fn a_file_in_place_of_the_folder_is_said_to_be_one() {
    let folder = Folder::new();
    fs::write(folder.out(), "no folder").expect("can write");
    refused(
        &folder.run(SMALL, &[]),
        1,
        &["cannot write results into ", "hint: a file has the name of the folder"],
    );
    assert_eq!(fs::read_to_string(folder.out()).expect("is there"), "no folder");
}

#[test]
fn a_folder_in_place_of_a_file_is_found_before_anything_runs() {
    let folder = Folder::new();
    let hint = "hint: a folder has the name of the file";
    for name in ["results.json", "results.csv", "speedup.svg", "time.svg", "final.rle"] {
        let place = folder.out().join(name);
        fs::create_dir_all(&place).expect("can write");
        let output = folder.run(SMALL, &[]);
        refused(&output, 1, &["cannot replace ", name, hint]);
        assert_eq!(text(&output.stdout), "", "no table: nothing has run");
        fs::remove_dir(&place).expect("is empty");
    }
    // Pictures have a folder of their own.
    let place = folder.out().join("snapshots");
    fs::write(&place, "mine").expect("can write");
    let output = folder.run(SMALL, &["output.snapshot_every=1"]);
    refused(&output, 1, &["snapshots", "hint: a file has the name of the folder"]);
    assert_eq!(text(&output.stdout), "", "no table: nothing has run");
    fs::remove_file(&place).expect("is there");
    let out = folder.out().display().to_string();
    for (what, name) in
        [(["halo", "--layout"], "bench-halo.json"), (["pingpong", "--sizes"], "bench-pingpong.svg")]
    {
        let place = folder.out().join(name);
        fs::create_dir_all(&place).expect("can write");
        let flags = ["bench", what[0], what[1], "2", "--seconds", "0.01", "--out", &out];
        let cells: &[&str] = if what[0] == "halo" { &["--cells", "8"] } else { &[] };
        let output = folder.streamhalo(&[&flags[..], cells].concat());
        refused(&output, 1, &["cannot replace ", name, hint]);
        assert_eq!(text(&output.stdout), "", "no table: nothing has run");
    }
}

#[test]
fn grids_that_no_machine_has_room_for() {
    let folder = Folder::new();
    let huge = ["grid.cells=[100000000, 1000000]", "run.ranks=2"];
    let output = folder.run(SMALL, &[&huge[..], &["run.verify=false"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("could not be allocated") && !folder.out().join("results.json").exists(), "{said}");
    fs::remove_dir(folder.out()).expect("is empty");

    // That there is no room for the reference is known before anything runs.
    let verified = |config: &str, set: &[&str], place: &str, bytes: &str| {
        let room = format!("no room for the {bytes} bytes that it takes to verify");
        let hint = "hint: ask for fewer cells or elements, or do not verify: `run.verify = false`";
        refused(&folder.run(config, set), 2, &[place, &room, hint]);
        assert!(!folder.out().exists());
    };
    verified(SMALL, &huge, "error: --set grid.cells=[100000000, 1000000]: ", "1600000000000000");
    let cholesky = "[app]\nname = 'cholesky'\ntile = 500\n[grid]\ncells = 1000000\n";
    verified(cholesky, &[], "config.toml:5:9: ", "32000000000000");
}

#[test]
fn a_wrong_line_is_shown() {
    let folder = Folder::new();
    let output = folder.run("[run]\nranks = [1, 2]\ntrails = 3\n", &["app.pattern=random:1"]);
    refused(
        &output,
        2,
        &["config.toml:3:1: unknown key `trails`", "3 | trails = 3", "did you mean `trials`?"],
    );
}

/// What is known only once the grid is split and the application opened is said with its line, or its flag, too.
#[test]
fn what_does_not_fit_together_is_shown_at_its_line() {
    const RANDOM: &[&str] = &["app.pattern=random:1"];
    let folder = Folder::new();
    let cases: [(&str, &[&str], &[&str]); 7] = [
        ("[run]\nranks = 5000\n", RANDOM, &["config.toml:2:9: run.ranks: 5000 ranks", "2 | ranks = 5000"]),
        (
            "[grid]\ncells = [24, 2]\n[run]\nranks = 4\nlayout = [[1, 4]]\n",
            RANDOM,
            &["config.toml:5:10: at 4 ranks", "axis 1 into 4 parts"],
        ),
        (
            "[grid]\ncells = [8, 8]\nhalo = 5\n[run]\nranks = 4\n",
            RANDOM,
            &["config.toml:3:8: at 4 ranks", "thinnest subdomain"],
        ),
        (
            "[app]\npattern = 'glider-field'\n[grid]\ncells = [20, 20]\n",
            &[],
            &["config.toml:2:11: `app.pattern`: glider-field needs multiples of 8"],
        ),
        (
            "[device]\nthreads = 4096\n[run]\nranks = 4096\n[grid]\ncells = [4096, 8]\n",
            RANDOM,
            &["config.toml:2:11: device.threads: 4096 for each of 4096 ranks are 16777216 threads on "],
        ),
        (
            "[run]\nranks = 2\n",
            &["run.ranks=5000", RANDOM[0]],
            &["error: --set run.ranks", "5000 ranks are more"],
        ),
        (
            "[app]\nname = 'comb'\n[grid]\ncells = [8, 8, 8]\n[run]\nexchange_every = 2\n",
            &["grid.halo=2"],
            &["config.toml:6:18: run.exchange_every: it is 2"],
        ),
    ];
    for (config, set, parts) in cases {
        refused(&folder.run(config, set), 2, parts);
    }
}

/// Nobody has to listen to what is said beside the results.
#[test]
fn a_standard_error_that_takes_nothing_is_no_error() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    for (config, status) in [(config.as_path(), 0), (Path::new("absent.toml"), 2)] {
        let full = fs::File::options().write(true).open("/dev/full").expect("there is one");
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        command.arg("run").arg(config).arg("--out").arg(folder.out()).stderr(full);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(status));
    }
    assert!(folder.read_out("results.json").contains("verified"));
}

#[test]
fn patterns_that_are_none() {
    let folder = Folder::new();
    let cases: [(&str, &[&str]); 4] = [
        ("x = 3, y = 3\nbob$2bq$3o!\n", &["line 2, column 7", "'q'"]),
        ("x = 3, y = 3\nbob$2bo$3o\n", &["expected ! at the end of the pattern"]),
        ("x = 50, y = 2\n50o$50o!\n", &["wrong.rle has 2 x 50 cells", "does not fit the grid of 24 x 40"]),
        ("x = 4294967295, y = 1\n4294967295o!\n", &["wrong.rle has 1 x 4294967295 cells"]),
    ];
    for (content, parts) in cases {
        let path = folder.write("wrong.rle", content);
        let output = folder.run(SMALL, &[&format!("app.pattern={path:?}")]);
        refused(&output, 2, &[&["`app.pattern`: "], parts].concat());
        assert!(!folder.out().exists());
    }
    let path = folder.write("row.rle", "x = 3, y = 1\n3o!\n");
    let output =
        folder.run(SMALL, &[&format!("app.pattern={path:?}"), "app.origin=[0, 38]", "grid.periodic=false"]);
    refused(&output, 2, &["app.origin", "axis 1, which is not periodic"]);
    let output = folder.run(SMALL, &[&format!("app.pattern={path:?}"), "app.origin=[24, 0]"]);
    refused(&output, 2, &["app.origin", "the origin [24, 0] is outside of the grid of 24 x 40 cells"]);
    assert!(!folder.out().exists());
    // Where the scaling is weak the whole grid is larger.
    let weak = ["run.scaling=weak", "run.ranks=2", "run.layout=[[2, 1]]"];
    let pattern = format!("app.pattern={path:?}");
    let set = [&[pattern.as_str(), "app.origin=[24, 0]"][..], &weak].concat();
    assert_verified(&folder.records(SMALL, &set));
}

#[test]
fn files_that_are_not_there() {
    let folder = Folder::new();
    refused(
        &folder.streamhalo(&["run", "absent.toml"]),
        2,
        &["absent.toml", "hint: give the path of a TOML file"],
    );
    // A file where the folder for results should be: nobody can write into that, root included.
    fs::write(folder.out(), "a file").expect("can write");
    refused(&folder.run(SMALL, &[]), 1, &["cannot write results into", "--out DIR"]);
    assert_eq!(fs::read_to_string(folder.out()).expect("is there"), "a file");
}

#[test]
fn launchers_that_it_cannot_work_under() {
    let folder = Folder::new();
    let config = folder.write("config.toml", SMALL);
    let run = ["run", config.to_str().expect("is text")];
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    let output = command.args(run).env("PMI_SIZE", "2").output().expect("the program starts");
    refused(&output, 2, &["a launcher (PMI_SIZE=2)", "each of the 2 processes", "choose `mpi`"]);
    let program = env!("CARGO_BIN_EXE_streamhalo");
    let output = folder.streamhalo(&["launch", "-n", "2", program, run[0], run[1]]);
    refused(&output, 2, &["`streamhalo launch`", "`--fabric shm`"]);
}

#[test]
fn workers_are_not_for_people() {
    let folder = Folder::new();
    refused(&folder.streamhalo(&["worker", "run"]), 2, &["`streamhalo run` starts"]);
    refused(&folder.streamhalo(&["worker", "nothing"]), 2, &["there is no work `nothing`"]);
    assert!(!text(&folder.streamhalo(&["--help"]).stdout).contains("worker"));
}
