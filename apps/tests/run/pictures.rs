//! `--snapshot`: pictures of the built program, and what becomes of a run that has no room for them. What is in
//! them cell by cell is tested where they are made (`apps/src/pictures/tests`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use streamhalo_apps::life::rle::Pattern;

use super::errors::refused;
use super::{FABRICS, Folder, SMALL, assert_verified, finish, pattern, signal, text, ticks, until};

/// Names and contents of what is in a folder, in order.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("was made").map(|entry| entry.expect("is readable"));
    let content = |entry: &fs::DirEntry| fs::read(entry.path()).expect("is readable");
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().expect("is text");
    let mut files: Vec<_> = entries.map(|entry| (name(&entry), content(&entry))).collect();
    files.sort();
    files
}

/// The cells of an uncompressed piece of bytes: what follows the underscore and its length.
fn cells(piece: &[u8]) -> &[u8] {
    let mark = b"<AppendedData encoding=\"raw\">\n   _";
    let start = piece.windows(mark.len()).position(|window| window == mark).expect("has data") + mark.len();
    let length = u64::from_le_bytes(piece[start..start + 8].try_into().expect("are 8"));
    &piece[start + 8..][..length as usize]
}

fn run(folder: &Folder, config: &str, arguments: &[&str]) -> Output {
    let config = folder.write("config.toml", config);
    let out = folder.out();
    let paths = ["run", config.to_str().expect("is text"), "--out", out.to_str().expect("is text")];
    folder.streamhalo(&[&paths, arguments].concat())
}

/// The same without room for one file of the pictures.
fn run_without_room_for(file: &str, folder: &Folder, config: &str, arguments: &[&str]) -> Output {
    let config = folder.write("config.toml", config);
    let unfinished = folder.out().join("snapshots").join(format!(".{file}.unfinished"));
    symlink("/dev/full", unfinished).expect("can write");
    let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
    command.arg("run").arg(config).arg("--out").arg(folder.out()).args(arguments);
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
}

#[test]
fn ranks_draw_what_they_have_wherever_they_are() {
    let mut drawn = Vec::new();
    for fabric in FABRICS {
        let folder = Folder::new();
        // Three columns of 14, 13 and 13 cells. Other ranks and backends draw nothing.
        let set = ["--set", "run.layout=[[1, 3], [2, 1]]", "--set", "run.trials=2"];
        let flags = ["--snapshot", "every=12", "--ranks", "3,2", "--fabric", fabric];
        let output = run(&folder, SMALL, &[&set[..], &flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let files = files(&folder.out().join("snapshots"));
        let names: Vec<_> = files.iter().map(|(name, _)| &**name).collect();
        let of_step = |step: &str| {
            ["png", "pvti"]
                .map(|kind| format!("life_{step}.{kind}"))
                .into_iter()
                .chain((0..3).map(move |rank| format!("life_{step}_{rank}.vti")))
                .collect::<Vec<_>>()
        };
        let steps = ["000000", "000012", "000024"].map(of_step).concat();
        assert_eq!(names, [vec!["life.pvd".to_owned()], steps].concat());
        // The last picture is the last generation.
        let last = Pattern::parse(&folder.read_out("final.rle")).expect("is a pattern");
        let live = |y: usize, x: usize| u8::from(last.cells.contains(&(y, x)));
        for (rank, columns) in [0..14, 14..27, 27..40].into_iter().enumerate() {
            let name = format!("life_000024_{rank}.vti");
            let (_, piece) = files.iter().find(|(found, _)| *found == name).expect("is there");
            let expected: Vec<u8> =
                (0..24).flat_map(|y| columns.clone().map(move |x| (y, x))).map(|(y, x)| live(y, x)).collect();
            assert_eq!(cells(piece), expected, "{name}");
            let extent = format!("Extent=\"{} {} 0 24 0 0\"", columns.start, columns.end);
            assert!(String::from_utf8_lossy(piece).contains(&extent), "{extent}");
        }
        drawn.push(files);
    }
    assert!(drawn[0] == drawn[1], "processes draw the same bytes as threads");
}

/// A run that was killed while it drew leaves half a picture, which the one that goes on does not show.
#[test]
fn a_run_that_goes_on_draws_its_own_steps_again() {
    let folder = Folder::new();
    let alone = ["--ranks", "2", "--backend", "st-send", "--snapshot"];
    let output = run(&folder, SMALL, &[&alone[..], &["every=5", "--checkpoint", "every=12"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let snapshots = folder.out().join("snapshots");
    fs::write(snapshots.join("life_000020_1.vti"), "half of it").expect("can write");
    let from = folder.out().join("checkpoints/life_000012.halo").display().to_string();
    // One that finds no room for its first picture shows those before it.
    let arguments = [&alone[..], &["every=8", "--restart", &from, "--quiet"]].concat();
    let output = run_without_room_for("life_000016_0.vti", &folder, SMALL, &arguments);
    refused(&output, 1, &["cannot write the picture after 16 steps"]);
    let series = fs::read_to_string(snapshots.join("life.pvd")).expect("is there");
    assert_eq!(series.matches("<DataSet ").count(), 3, "{series}");
    assert!(!series.contains("000015") && !snapshots.join("life_000015.pvti").exists(), "{series}");
    let output = run(&folder, SMALL, &[&alone[..], &["every=8", "--restart", &from]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let files = files(&snapshots);
    let wholes = files.iter().filter_map(|(name, _)| name.strip_suffix(".pvti"));
    let wholes: Vec<&str> = wholes.collect();
    assert_eq!(wholes, ["000000", "000005", "000010", "000016", "000024"].map(|step| format!("life_{step}")));
    assert!(files.iter().all(|(name, content)| !name.contains("000020") && content != b"half of it"));
    let (_, series) = files.iter().find(|(name, _)| name == "life.pvd").expect("is there");
    assert!(!text(series).contains("000020"), "{}", text(series));
}

#[test]
fn applications_without_a_field_refuse_pictures_by_name() {
    for app in ["pipeline", "tree", "cholesky", "comb"] {
        let folder = Folder::new();
        let output = run(&folder, &format!("app.name = '{app}'\n"), &["--snapshot", "every=5"]);
        let said = format!("--snapshot every=5: `{app}` has no field of cells that could be shown");
        refused(&output, 2, &[&said, "expected pictures of `life` or `faces` or `stencil3d`"]);
        let output = run(&folder, &format!("app.name = '{app}'\noutput.snapshot_every = 5\n"), &[]);
        refused(
            &output,
            2,
            &[&format!("config.toml:2:25: `{app}` has no field"), "2 | output.snapshot_every"],
        );
        assert!(!folder.out().exists(), "{app}");
    }
}

/// A step gives every copy of a shared point the sum of all copies. Passes of the loops around it are not shown.
#[test]
fn points_of_elements_are_drawn_with_their_sums() {
    const POINTS: usize = 6;
    let config = "app = { name = 'faces', order = 2, steps = 3, outer = 2, middle = 2 }\ngrid.cells = [2, 2, 2]\n\
                  run = { trials = 1, warmup = 0, pin = false, layout = [[2, 1, 1]] }\n";
    for fabric in FABRICS {
        let folder = Folder::new();
        let output = run(&folder, config, &["--ranks", "2", "--fabric", fabric, "--snapshot", "every=2"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let snapshots = folder.out().join("snapshots");
        let series = fs::read_to_string(snapshots.join("faces.pvd")).expect("is there");
        assert_eq!(series.matches("<DataSet ").count(), 2, "{series}");
        // The ranks share the slowest axis.
        let points = |step: usize| {
            let piece =
                |rank| fs::read(snapshots.join(format!("faces_{step:06}_{rank}.vti"))).expect("is there");
            let bytes = [cells(&piece(0)), cells(&piece(1))].concat();
            let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("are 8"));
            bytes.chunks_exact(8).map(value).collect::<Vec<_>>()
        };
        let copies = |point: usize| match point % 3 {
            0 => vec![point, (point + POINTS - 1) % POINTS],
            2 => vec![point, (point + 1) % POINTS],
            _ => vec![point],
        };
        let sums = |before: &[f64]| -> Vec<f64> {
            let sum = |index: usize| {
                let [z, y, x] =
                    [index / POINTS / POINTS, index / POINTS % POINTS, index % POINTS].map(copies);
                let at = |z: usize, y: usize, x: usize| before[(z * POINTS + y) * POINTS + x];
                let along_x = |z, y| x.iter().map(move |x| at(z, y, *x)).sum::<f64>();
                z.iter().map(|z| y.iter().map(|y| along_x(*z, *y)).sum::<f64>()).sum()
            };
            (0..before.len()).map(sum).collect()
        };
        let first = points(0);
        assert_eq!(first.len(), POINTS.pow(3));
        assert_eq!(points(2), sums(&sums(&first)), "{fabric}");
        assert_ne!(points(2), first);
    }
}

/// Rank 1 alone finds no room, for the second picture.
#[test]
fn a_full_disk_is_the_matter_of_all_ranks() {
    for fabric in FABRICS {
        let folder = Folder::new();
        folder.records(SMALL, &["run.ranks=1", "app.steps=1"]);
        let earlier = folder.read_out("results.json");
        let snapshots = folder.out().join("snapshots");
        fs::create_dir(&snapshots).expect("can write");
        let arguments = ["--snapshot", "every=8", "--ranks", "2", "--fabric", fabric, "--quiet"];
        let of_first =
            ["life.pvd", "life_000000.png", "life_000000.pvti", "life_000000_0.vti", "life_000000_1.vti"];
        let names = || files(&snapshots).into_iter().map(|(name, _)| name).collect::<Vec<_>>();

        let output = run_without_room_for("life_000008_1.vti", &folder, SMALL, &arguments);
        let parts = [
            "error: rank 1 failed: cannot write the picture after 8 steps, ",
            "snapshots/life_000008_1.vti: No space left on device",
            "with `output.on_full_disk = \"go-on\"` it goes on without (standard, 2 ranks, trial 0)",
        ];
        refused(&output, 1, &parts);
        assert_eq!(folder.read_out("results.json"), earlier);
        assert_eq!(names(), of_first);

        let go_on = [&arguments[..], &["--set", "output.on_full_disk=go-on"]].concat();
        let output = run_without_room_for("life_000008_1.vti", &folder, SMALL, &go_on);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.starts_with("rank 1 cannot write the picture after 8 steps, "), "{said}");
        assert!(said.ends_with("; the run goes on without further pictures\n"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let records = folder.records_there();
        assert_eq!(records.len(), 5);
        assert_verified(&records);
        assert_eq!(names(), of_first);
    }
}

/// The same where the disk is a small one of our own, if the system lets us have one.
#[test]
fn a_small_disk_fills_up() {
    let folder = Folder::new();
    let out = folder.out();
    fs::create_dir(&out).expect("can write");
    let config = folder.write("config.toml", SMALL);
    let pattern = pattern("glider");
    // 96,000 bytes a picture: there is room for four of them, and then for the results.
    let script = format!(
        "mount -t tmpfs -o size=512k none {out:?} || exit 77\n\
         {program:?} run {config:?} --out {out:?} --ranks 2 --fabric shm --quiet --snapshot every=1 \"$@\"\n\
         status=$?\nls {out:?}/snapshots | wc -l\nls {out:?}\nexit $status\n",
        program = env!("CARGO_BIN_EXE_streamhalo"),
    );
    for (answer, status) in [("stop", 1), ("go-on", 0)] {
        let full = format!("output.on_full_disk={answer}");
        let arguments =
            &["--set", &pattern, "--set", "grid.cells=[240,400]", "--backend", "st-send", "--set", &full];
        let Some(output) = folder.with_mounts(&script, &arguments[..]) else { return };
        let (said, listed) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(status), "{said}\n{listed}");
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(listed.contains("results.json"), status == 0, "{listed}");
        // The series, and of each of four pictures four files.
        assert!(listed.lines().any(|line| line.trim() == "17"), "{listed}");
    }
}

/// A disk without room for one more file has none for the file by which the folder is tried either.
#[test]
fn a_disk_that_takes_no_more_files_is_full() {
    let folder = Folder::new();
    let out = folder.out();
    let snapshots = out.join("snapshots");
    fs::create_dir_all(&snapshots).expect("can write");
    let config = folder.write("config.toml", SMALL);
    // Its root, and of a picture one piece, the image and what refers to the piece.
    let script = format!(
        "mount -t tmpfs -o nr_inodes=4 none {snapshots:?} || exit 77\n\
         exec {program:?} run {config:?} --out {out:?} --ranks 1 --quiet --snapshot every=1 \"$@\"\n",
        program = env!("CARGO_BIN_EXE_streamhalo"),
    );
    let full = ["--set", "output.on_full_disk=go-on", "--backend", "st-send"];
    let Some(output) = folder.with_mounts(&script, &full) else { return };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("No space left on device") && said.contains("without further pictures"), "{said}");
    folder.records_there();
}

/// Whether a program can be started.
fn exists(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

mod watched {
    use super::*;

    const ENTER: &str = "\x1b[?1049h";
    const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

    /// A shell in a terminal of 20 lines with 60 columns that runs `streamhalo run config.toml` with these
    /// arguments; nothing where the system has no `script` to make terminals with.
    fn in_a_terminal(folder: &Folder, arguments: &str) -> Option<std::process::Child> {
        if !exists("script") {
            eprintln!("skipped: there is no `script`");
            return None;
        }
        let program = env!("CARGO_BIN_EXE_streamhalo");
        let (config, out) = (folder.write("config.toml", SMALL), folder.out());
        let line = format!(
            "stty rows 20 columns 60; exec {program:?} run {config:?} --out {out:?} {arguments} --watch"
        );
        let mut command = folder.command("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
        Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("is there"))
    }

    #[test]
    fn a_terminal_shows_every_trial_and_is_given_back() {
        for fabric in FABRICS {
            let folder = Folder::new();
            let glider = pattern("glider").replace('"', "'");
            let arguments = format!(
                "--fabric {fabric} --ranks 2 --backend st-send,st-rsend --set \"{glider}\" \
                 --set app.origin=[0,0] --set app.steps=4 --set run.warmup=1"
            );
            let Some(child) = in_a_terminal(&folder, &arguments) else { return };
            let output = finish(Ok(child));
            let shown = text(&output.stdout);
            assert_eq!(output.status.code(), Some(0), "{shown}");
            assert_eq!((shown.matches(ENTER).count(), shown.matches(LEAVE).count()), (1, 1));
            let (frames, rest) = shown.split_once(LEAVE).expect("is there");
            for backend in ["st-send", "st-rsend"] {
                for trial in ["warm-up", "trial 0"] {
                    // Lines of a terminal have 60 characters; this says the last generation of that trial.
                    let line = format!("generation 4 of 4, 5 live; {backend}, {trial}, 1 x 2 ranks");
                    assert!(line.len() <= 60 && frames.contains(&line), "no {line:?} in {frames:?}");
                }
            }
            // 24 rows in 12 lines; the glider as it is after 4 generations.
            assert!(frames.contains("\x1b[H\x1b[K  ▄ ") && frames.contains("\r\n\x1b[K ▄▄█ "), "{frames:?}");
            assert!(rest.contains("life: 24 x 40 cells, 4 steps"), "{rest}");
        }
    }

    #[test]
    fn ctrl_c_gives_it_back_too() {
        for fabric in FABRICS {
            let folder = Folder::new();
            let endless =
                format!("--fabric {fabric} --ranks 2 --set run.verify=false --set app.steps=1000000000");
            let Some(child) = in_a_terminal(&folder, &endless) else { return };
            let program = || {
                let is_program = |process: &u32| {
                    let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
                    line.split('\0').nth(1) == Some("run")
                };
                folder.processes().into_iter().find(is_program)
            };
            let ticks = |process| ticks(process).unwrap_or_default();
            let is_busy = || folder.processes().into_iter().map(ticks).sum::<u64>() > 20;
            until("it runs", || program().is_some() && is_busy());
            signal("-INT", program().expect("was there"));
            let output = finish(Ok(child));
            let shown = text(&output.stdout);
            assert_eq!(output.status.code(), Some(130), "{shown}");
            let (frames, rest) = shown.split_once(LEAVE).expect("is given back");
            assert!(frames.contains(ENTER) && rest.contains("interrupted; earlier results are untouched"));
            until("all processes have ended", || folder.processes().is_empty());
        }
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        let folder = Folder::new();
        let output = run(&folder, SMALL, &["--watch"]);
        refused(&output, 2, &["--watch: the standard output is not a terminal", "--snapshot every=N"]);
        let output = run(&folder, "app.name = 'stencil3d'\n", &["--watch"]);
        refused(&output, 2, &["--watch: shows `life`, and this configuration is of `stencil3d`"]);
        let output = run(&folder, SMALL, &["--watch", "--quiet"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!folder.out().exists());
    }
}
