//! The backend `auto`: what a run says of it, keeps of it, and takes from what was kept.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::errors::refused;
use super::opencl::is_there;
use super::{BACKENDS, FABRICS, Folder, SMALL, assert_verified, checksums, finish, signal, text};
use serde_json::Value;

const AUTO: &str = "comm.backend=auto";

/// The flag that keeps what is measured in that file of the folder.
fn kept_in(folder: &Folder, name: &str) -> String {
    format!("comm.measured={:?}", folder.path().join(name).display().to_string())
}

fn chosen(records: &[Value]) -> Vec<&str> {
    records.iter().map(|run| run["result"]["chosen_backend"].as_str().expect("is a name")).collect()
}

#[test]
fn the_answer_is_that_of_all_others() {
    let folder = Folder::new();
    let mut all = Vec::new();
    for fabric in FABRICS {
        let fabric = format!("comm.fabric={fabric}");
        let set = ["comm.backend=[\"auto\", \"standard\"]", &fabric, "run.trials=2"];
        let output = folder.run(SMALL, &set);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        // At one rank nothing is sent; trials of one entry have one shape.
        assert_eq!(said.matches("auto: ").count(), 2, "{said}");
        assert!(
            said.contains("whoever carries out the one that is chosen (auto), host (standard)"),
            "{said}"
        );
        let records = folder.records_there();
        assert_verified(&records);
        let by_auto: Vec<Value> = records.iter().filter(|run| run["backend"] == "auto").cloned().collect();
        assert_eq!((by_auto.len(), records.len()), (6, 12));
        for name in chosen(&by_auto) {
            assert!(BACKENDS.contains(&name), "{name}");
            assert!(name == "st-send" || said.contains(&format!("`{name}` for ")), "{name}: {said}");
        }
        assert!(
            records
                .iter()
                .all(|run| run["backend"] == "auto" || run["result"].get("chosen_backend").is_none())
        );
        all.extend(records);
    }
    assert_eq!(checksums(&all).len(), 1);
}

#[test]
fn what_was_measured_is_kept_and_holds_in_the_next_run() {
    let folder = Folder::new();
    let (kept, two) = (kept_in(&folder, "new/measured.json"), "run.ranks=2");
    let first = folder.records(SMALL, &[AUTO, &kept, two]);
    let path = folder.path().join("new/measured.json");
    let read = || fs::read_to_string(&path).expect("was written");
    let content: Value = serde_json::from_str(&read()).expect("is JSON");
    let [one] = content["measured"].as_array().expect("is a list").as_slice() else { panic!("{content}") };
    let times = one["microseconds"].as_object().expect("is by backend");
    assert_eq!(times.len(), BACKENDS.len());
    let time = |name: &str| times[name].as_f64().expect("is a number");
    let fastest = BACKENDS.into_iter().min_by(|one, other| time(one).total_cmp(&time(other)));
    assert_eq!(Some(chosen(&first)[0]), fastest);

    // Whatever is said to be the fastest is taken, and neither measured again nor written.
    for name in BACKENDS {
        let mut said_to_be = content.clone();
        said_to_be["measured"][0]["microseconds"][name] = 1e-3.into();
        fs::write(&path, said_to_be.to_string()).expect("can write");
        let output = folder.run(SMALL, &[AUTO, &kept, two]);
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.matches("auto: ").count(), 1, "{said}");
        let [choice, from] = [format!("auto: `{name}` for "), format!("(read from {})", path.display())];
        assert!(said.contains(&choice) && said.contains(&from), "{said}");
        assert!(
            text(&output.stdout).contains(&format!("auto is {name} (2 ranks)")),
            "{}",
            text(&output.stdout)
        );
        assert_eq!(chosen(&folder.records_there()), [name]);
        assert_eq!(read(), said_to_be.to_string());
        let config = folder.path().join("config.toml").display().to_string();
        let explained = folder.streamhalo(&["explain", &config, "--set", AUTO, "--set", &kept, "--set", two]);
        assert!(text(&explained.stdout).contains(&format!("({name})")), "{}", text(&explained.stdout));
    }

    // Another number of ranks is added, to the file behind a link.
    let link = folder.path().join("link.json");
    symlink(&path, &link).expect("can make");
    folder.records(SMALL, &[AUTO, &kept_in(&folder, "link.json"), "run.ranks=4"]);
    assert!(link.is_symlink());
    let content: Value = serde_json::from_str(&read()).expect("is JSON");
    assert_eq!(content["measured"].as_array().expect("is a list").len(), 2);
}

#[test]
fn nothing_is_made_where_there_is_nothing_to_keep() {
    let folder = Folder::new();
    // At one rank nothing is sent.
    folder.records(SMALL, &[AUTO, &kept_in(&folder, "new/measured.json"), "run.ranks=1"]);
    assert!(!folder.path().join("new").exists());
}

#[test]
fn a_link_to_a_file_that_is_not_there_yet_stays_one() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("kept")).expect("can make");
    let [first, second] = ["first.json", "kept/second.json"].map(|name| folder.path().join(name));
    symlink("kept/second.json", &first).expect("can make");
    symlink("measured.json", &second).expect("can make");
    folder.records(SMALL, &[AUTO, &kept_in(&folder, "first.json"), "run.ranks=2"]);
    assert!(first.is_symlink() && second.is_symlink());
    assert!(folder.path().join("kept/measured.json").is_file());
}

/// It would be written to another file than it is read from.
#[test]
fn a_link_to_a_name_that_is_not_unicode_is_refused() {
    let folder = Folder::new();
    symlink(OsStr::from_bytes(b"m\xff.json"), folder.path().join("first.json")).expect("can make");
    let output = folder.run(SMALL, &[AUTO, &kept_in(&folder, "first.json"), "run.ranks=2"]);
    refused(&output, 2, &["--set comm.measured=", "its name is not Unicode", "name another file"]);
    assert!(!folder.out().exists());
}

#[test]
fn whoever_waits_for_another_run_says_so() {
    let folder = Folder::new();
    let other = fs::File::open(folder.path()).expect("is a folder");
    other.lock().expect("nobody has it");
    let set = [AUTO, &kept_in(&folder, "measured.json"), "run.ranks=2"];
    let mut child = folder.start(SMALL, &set);
    let mut said =
        BufReader::new(child.stderr.take().expect("is a pipe")).lines().map(|line| line.expect("is text"));
    let waits = said.find(|line| line.starts_with("waiting for another run, which adds to "));
    assert!(waits.is_some_and(|line| line.contains("measured.json ")));
    assert!(folder.out().join("results.json").exists(), "it does not wait with its results");
    other.unlock().expect("has it");
    assert_eq!((said.count(), finish(Ok(child)).status.code()), (1, Some(0)));
    assert!(folder.path().join("measured.json").exists());

    // The user need not wait either.
    fs::remove_file(folder.path().join("measured.json")).expect("is there");
    other.lock().expect("nobody has it");
    let mut child = folder.start(SMALL, &set);
    let mut said =
        BufReader::new(child.stderr.take().expect("is a pipe")).lines().map(|line| line.expect("is text"));
    said.find(|line| line.starts_with("waiting for another run, ")).expect("it says so");
    signal("-INT", child.id());
    let rest = said.collect::<Vec<_>>().join("\n");
    assert_eq!(finish(Ok(child)).status.code(), Some(1), "{rest}");
    assert!(
        rest.contains("measured.json: interrupted while") && rest.contains("the results are there"),
        "{rest}"
    );
}

#[test]
fn a_file_that_is_none_is_refused_before_anything_runs() {
    let folder = Folder::new();
    let refused = |content: &str, expected: &[&str]| {
        folder.write("measured.json", content);
        let output = folder.run(&format!("{SMALL}comm.measured = 'measured.json'\n"), &[AUTO]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        // The place of the key, the file, and what to do.
        let always = ["config.toml:6", "measured.json", "remove it"];
        for part in always.iter().chain(expected) {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
        assert!(!folder.out().exists());
    };
    let shape = r#"{ "fabric": "local", "library": null, "stream": "host, inline", "ranks": 2, "near": 1, "far": 0,
        "bytes": 64, "direct": "never" }"#;
    let with =
        |times: &str| format!(r#"{{ "measured": [ {{ "shape": {shape}, "microseconds": {times} }} ] }}"#);
    refused("", &["EOF", "line 1"]);
    refused("{ \"measured\": 3 }", &["line 1 column 15"]);
    refused(&with("{ \"st-recv\": 1.0 }"), &["`st-recv`", "st-rsend", "line 2"]);
    refused(&with("{ \"st-send\": 0 }"), &["`st-send` takes 0 us"]);
    refused(&with("{}"), &["no backend with a time"]);
    refused(&with("{ \"st-send\": 1.0 }").replace("near", "nearby"), &["`nearby`"]);

    // What is no file, what names none, and where none can be: said with the flag.
    fs::create_dir(folder.path().join("folder")).expect("can make");
    folder.write("file", "");
    for (name, expected) in [
        ("folder", "it is no file"),
        ("/dev/zero", "it is no file"),
        ("folder/..", "names no file"),
        ("file/measured.json", "Not a directory"),
        ("/proc/measured.json", "/proc/measured.json: it cannot be written: "),
        ("/proc/new/measured.json", "/proc/new/measured.json: it cannot be written: "),
    ] {
        let output = folder.run(SMALL, &[AUTO, &kept_in(&folder, name)]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{name}: {said}");
        assert!(said.starts_with("error: --set comm.measured="), "{name}: {said}");
        assert!(!said.contains("--out") && !folder.out().exists(), "{said}");
    }
}

/// Each finds what the other has added: none takes the file from under the other.
#[test]
fn runs_at_the_same_time_keep_what_they_measure_in_one_file() {
    let folder = Folder::new();
    let folders: Vec<_> = (0..6).map(|_| Folder::new()).collect();
    let short = [AUTO, "run.ranks=2", "app.steps=1", "run.verify=false"];
    for round in 0..8 {
        let shared = kept_in(&folder, &format!("measured-{round}.json"));
        let cells = |index: usize| format!("grid.cells=[{0}, {0}]", 8 << index);
        let children: Vec<_> = folders
            .iter()
            .enumerate()
            .map(|(index, one)| one.start(SMALL, &[&short[..], &[&shared, &cells(index)]].concat()))
            .collect();
        for child in children {
            let output = finish(Ok(child));
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        let path = folder.path().join(format!("measured-{round}.json"));
        let kept: Value =
            serde_json::from_str(&fs::read_to_string(path).expect("is there")).expect("is JSON");
        let shapes = kept["measured"].as_array().expect("a list").iter().map(|one| &one["shape"]["bytes"]);
        let shapes: std::collections::BTreeSet<String> = shapes.map(ToString::to_string).collect();
        assert_eq!(shapes.len(), folders.len(), "{kept}");
    }
}

#[test]
fn reductions_on_a_stream_and_figures_of_benches_take_it_too() {
    let folder = Folder::new();
    let jacobi = "app = { name = 'stencil3d', equation = 'jacobi', steps = 3 }\ngrid = { cells = [8, 9, 10] }\n\
                  run = { ranks = [1, 2, 3], trials = 1, warmup = 0, pin = false }\n";
    let records = folder.records(jacobi, &["comm.backend=[\"auto\", \"st-send\"]"]);
    assert_verified(&records);
    assert_eq!(checksums(&records).len(), 1);

    let halo = ["halo", "--layout", "1,2", "--cells", "16,16"];
    let pingpong = ["pingpong", "--sizes", "8,300"];
    for (arguments, told) in [(&halo[..], "auto ("), (&pingpong, "`auto` is `")] {
        let arguments = [&["bench"], arguments, &["--seconds", "0.02"]].concat();
        let json = ["--backend", "auto,st-send", "--json", "-"];
        let output = folder.streamhalo(&[&arguments[..], &json].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let lines: Vec<Value> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
        let (auto, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["backend"] == "auto");
        assert!(auto.len() == others.len() && !auto.is_empty(), "{lines:?}");
        let is_chosen = |line: &&Value| BACKENDS.contains(&line["chosen_backend"].as_str().expect("a name"));
        assert!(auto.iter().all(is_chosen), "{lines:?}");
        assert!(others.iter().all(|line| line.get("chosen_backend").is_none()), "{lines:?}");
        let output = folder.streamhalo(&[&arguments[..], &["--backend", "auto"]].concat());
        assert!(text(&output.stdout).contains(told), "{}", text(&output.stdout));
    }
}

#[test]
fn a_device_is_measured_by_itself() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let kept = kept_in(&folder, "measured.json");
    let set = [AUTO, &kept, "run.ranks=2"];
    let host = folder.records(SMALL, &set);
    let device = folder.records(SMALL, &[&set[..], &["device.kind=opencl"]].concat());
    assert_verified(&device);
    assert_eq!(checksums(&[host, device].concat()).len(), 1);
    // Who waits decides.
    let set = [&set[..], &["device.kind=opencl", "device.waits=kernel"]].concat();
    assert!(text(&folder.run(SMALL, &set).stderr).contains("auto: "));
    let content = fs::read_to_string(folder.path().join("measured.json")).expect("was written");
    let content: Value = serde_json::from_str(&content).expect("is JSON");
    let measured = content["measured"].as_array().expect("is a list");
    let streams: Vec<&str> =
        measured.iter().map(|one| one["shape"]["stream"].as_str().expect("is text")).collect();
    assert!(
        streams.len() == 3 && streams[0] == "host, inline" && streams[2].contains(", device, waits kernel"),
        "{streams:?}"
    );
}
