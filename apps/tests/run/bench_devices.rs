//! `streamhalo bench` on devices: each way to signal, what is moved, and what is refused.

use super::bench::{assert_all, figures};
use super::opencl::is_there;
use super::{BACKENDS, FABRICS, Folder, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Whose figures they are, and how it signalled.
fn contestants(figures: &[Value]) -> Vec<(&str, Option<&str>)> {
    figures
        .iter()
        .map(|figure| (figure["backend"].as_str().expect("is text"), figure["signal"].as_str()))
        .collect()
}

/// `standard` once, and the others in each way.
fn in_each_way<'a>(signals: &[&'a str]) -> Vec<(&'a str, Option<&'a str>)> {
    let of = |backend: &'static str| -> Vec<(&'a str, Option<&'a str>)> {
        match backend {
            "standard" => vec![(backend, None)],
            _ => signals.iter().map(|signal| (backend, Some(*signal))).collect(),
        }
    };
    BACKENDS.into_iter().flat_map(of).collect()
}

#[test]
fn ping_pongs_between_ranks_on_a_device() {
    if !is_there() {
        return;
    }
    // What no queue of OpenCL can do is no part of all.
    let found = figures("local", &["pingpong", "--device", "opencl", "--signal", "all", "--sizes", "40"]);
    assert_eq!(contestants(&found), in_each_way(&["kernel", "merged"]));
    // Which is one of the others, and is there where it is named.
    let named = ["pingpong", "--device", "opencl", "--signal", "auto,kernel", "--sizes", "40"];
    assert_eq!(contestants(&figures("local", &named)), in_each_way(&["auto", "kernel"]));
    for figure in &found {
        assert!(figure["device"].as_str().is_some_and(|name| name.starts_with("opencl, ")), "{figure}");
        let expected = if figure["backend"] == "standard" { "host" } else { "proxy" };
        assert_eq!((&figure["executor"], &figure["is_gpu"]), (&expected.into(), &Value::from(0.0)));
        let ratio = figure["ratio_to_standard"].as_f64();
        assert_eq!(ratio.is_some_and(|ratio| ratio > 0.0), figure["backend"] != "standard", "{figure}");
    }
    let by_kernels = ["--signal", "merged", "--waits", "kernel", "--backend", "st-rsend"];
    let found = figures(
        "local",
        &[&["pingpong", "--device", "opencl", "--sizes", "9,70000"], &by_kernels[..]].concat(),
    );
    assert_all(&found, &["st-rsend"], &[9, 70_000]);
    assert!(found.iter().all(|figure| figure["executor"] == "stream" && figure["signal"] == "merged"));
    let replayed = ["--replay", "4", "--signal", "kernel,merged"];
    let found =
        figures("local", &[&["pingpong", "--device", "opencl", "--sizes", "40"], &replayed[..]].concat());
    assert_eq!(contestants(&found), in_each_way(&["kernel", "merged"]));
    // Messages are staged there, and threads signal.
    let found = figures("shm", &["pingpong", "--device", "opencl", "--sizes", "40", "--backend", "notified"]);
    assert_eq!(contestants(&found), [("notified", Some("auto"))]);
}

/// Figures of ranks on a device, which say so: what was measured, and who has carried it out.
fn on_device(fabric: &str, bench: &[&str]) -> Vec<(String, String)> {
    let found = figures(fabric, &[bench, &["--device", "opencl"]].concat());
    for figure in &found {
        assert!(figure["device"].as_str().is_some_and(|name| name.starts_with("opencl, ")), "{figure}");
        assert_eq!((&figure["is_gpu"], figure.get("ratio_to_flag")), (&Value::from(0.0), None), "{figure}");
    }
    let word = |figure: &Value, name: &str| figure[name].as_str().expect("is text").to_owned();
    found.iter().map(|figure| (word(figure, "backend"), word(figure, "executor"))).collect()
}

/// Those that are found, by whom.
fn assert_by(found: Vec<(String, String)>, expected: &[(&str, &str)], what: &str) {
    let expected = expected.iter().map(|(name, executor)| ((*name).to_owned(), (*executor).to_owned()));
    assert_eq!(found, expected.collect::<Vec<_>>(), "{what}");
}

#[test]
fn primitives_between_ranks_on_a_device() {
    if !is_there() {
        return;
    }
    // A flag and what puts notify of are in the host's memory.
    let by_host = ["two-sided", "put-active"].map(|name| (name, "host"));
    let by_proxy = ["put-stream", "enqueued", "queue"].map(|name| (name, "proxy"));
    let all = [&by_host[..], &by_proxy].concat();
    for fabric in FABRICS {
        assert_by(on_device(fabric, &["latency", "--sizes", "8,70000"]), &all.repeat(2), fabric);
        for bench in ["bandwidth", "bibandwidth", "overlap"] {
            assert_by(on_device(fabric, &[bench, "--sizes", "300"]), &all, bench);
        }
        let found = on_device(fabric, &["loggp", "--sizes", "8", "--primitive", "two-sided,queue"]);
        let [host, proxy] = [("two-sided", "host"), ("queue", "proxy")];
        assert_by(found, &[host, host, proxy, proxy, host, proxy], fabric);
    }
    let line = "bench latency --device opencl --sizes 8 --primitive queue --seconds 0.001";
    let said = text(&Folder::new().streamhalo(&line.split(' ').collect::<Vec<_>>()).stdout);
    for part in ["2 ranks, waits auto, on opencl, ", " proxy", "say nothing about a GPU"] {
        assert!(said.replace('\n', " ").contains(part) && !said.contains("`flag`"), "no {part:?} in {said}");
    }
}

#[test]
fn collectives_and_epochs_of_ranks_on_a_device() {
    if !is_there() {
        return;
    }
    let on_streams = BACKENDS.map(|name| (name, if name == "standard" { "host" } else { "proxy" }));
    // Barriers, reductions, and what the host alone does.
    let once = [&[("host", "host")], &on_streams[..]].concat();
    let expected = [&once[..], &once, &[("host", "host"); 4]].concat();
    for fabric in FABRICS {
        let found = on_device(fabric, &["collectives", "--ranks", "3", "--sizes", "2048"]);
        assert_by(found, &expected, fabric);
        let policies = ["application", "static", "adaptive"].map(|policy| (policy, "proxy"));
        assert_by(on_device(fabric, &["throttle", "--entries", "4"]), &policies, fabric);
    }
}

#[test]
fn halos_of_ranks_on_a_device() {
    if !is_there() {
        return;
    }
    for (ranks, layout) in [(1, "1,1,1"), (2, "2,1,1"), (4, "2,2,1"), (8, "2,2,2")] {
        let folder = Folder::new();
        let line = format!(
            "bench halo --device opencl --signal kernel,merged --layout {layout} --cells 3,4,5 --seconds 0.001 --json -"
        );
        let output = folder.streamhalo(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let found: Vec<Value> =
            said.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
        assert_eq!(contestants(&found), in_each_way(&["kernel", "merged"]), "{ranks} ranks");
        assert!(
            found.iter().all(|figure| figure["is_gpu"] == false && figure["min_us"].as_f64() > Some(0.0))
        );
    }
    let folder = Folder::new();
    let line = "bench halo --device opencl --signal kernel,merged --cells 8,9 --layout 1,2 --seconds 0.001 \
                --backend st-send,standard --alternating --element u8";
    let output = folder.streamhalo(&line.split_whitespace().collect::<Vec<_>>());
    let said = text(&output.stdout);
    // Where the line ends depends on the device's name.
    for part in ["on opencl,", "st-send/kernel", "st-send/merged", "\n standard", "say nothing about a GPU"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn kernels_that_pack_beside_the_devices_own_copies() {
    if !is_there() {
        return;
    }
    // An axis of one layer, odd rows, and words of one byte.
    for (cells, width, element, bytes) in [(5_u64, 2_u64, "u8", 1_u64), (6, 1, "f64", 8), (3, 3, "f32", 4)] {
        let [cells_told, width_told] = [cells, width].map(|number| number.to_string());
        let shape = ["--cells", &cells_told, "--width", &width_told, "--element", element];
        let found = figures("local", &[&["moves", "--device", "opencl"], &shape[..]].concat());
        assert_eq!(found.len(), 5 * 3);
        for one in &found {
            assert_eq!(
                (&one["cells"], &one["width"]),
                (&(cells as f64).into(), &(width as f64).into()),
                "{one}"
            );
            let face = 2 * width * cells * cells * bytes;
            let all = (0..27).filter(|offset| *offset != 13).map(|offset| {
                let axes = [offset / 9, offset / 3 % 3, offset % 3];
                axes.map(|axis| if axis == 1 { cells } else { width }).iter().product::<u64>() * bytes
            });
            let expected = match one["operation"].as_str() {
                Some("pack" | "unpack") => all.sum(),
                _ => face,
            };
            assert_eq!(one["bytes"], expected, "{one}");
            let ratios = ["ratio_to_copy", "ratio_to_fused"].map(|name| one[name].as_f64().is_some());
            assert_eq!(ratios, [one["backend"] != "copy", one["backend"] != "fused"], "{one}");
        }
    }
}

#[test]
fn what_a_device_cannot_do_is_refused_by_its_flag() {
    for (line, expected) in [
        ("pingpong --signal merged", "--signal: is for devices"),
        ("halo --waits proxy", "--waits: is for devices"),
        ("pingpong --device opencl --signal memop", "have no memory operations; choose `kernel` or `merged`"),
        ("pingpong --device opencl --signal mergd", "did you mean `merged`?"),
        ("halo --device opencl --waits never", "`never` is not one of auto, kernel, proxy"),
        ("halo --device opencel", "did you mean `opencl`?"),
        ("pingpong --device opencl --stream threaded", "--stream: is for the host"),
        ("throttle --device opencl --stream threaded", "--stream: is for the host"),
        ("collectives --device opencl --stream threaded", "--stream: is for the host"),
        ("latency --device opencl --stream threaded", "--stream: is for the host"),
        (
            "latency --device opencl --primitive two-sided,flag",
            "--primitive: `flag` is a cache line of the host's memory: leave it out, or give `--device host`",
        ),
        (
            "overlap --device opencl --primitive put-notify",
            "--primitive: `put-notify` leaves what it puts in",
        ),
        ("loggp --device opencel", "did you mean `opencl`?"),
        ("throttle --device host:0", "--device: there is one `host`"),
        ("bandwidth --device opencl:nosuch", "--device: device `opencl:nosuch` cannot be used: "),
        ("collectives --device opencl:nosuch", "--device: device `opencl:nosuch` cannot be used: "),
        (
            "staging --scheme user --memory all",
            "--memory: is for schemes, and `--scheme user` is none of them",
        ),
        ("staging --scheme naive,user --blocks 2", "--blocks: is for schemes that cut messages"),
        ("staging --scheme naive --threshold 8", "--threshold: is for schemes that cut messages"),
        ("moves --device host", "--device: `host` is not one of opencl, cuda, hip"),
        ("moves --cells 8,4 --width 5", "--cells: of 4 cells along an axis 5 layers cannot be packed"),
        ("moves --fabric shm", "--fabric: nothing is sent"),
        ("moves --operation faces", "`faces` is not one of"),
    ] {
        let folder = Folder::new();
        let line = format!("bench {line} --seconds 0.001");
        let output = folder.streamhalo(&line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn memory_that_there_is_not_ends_a_measurement_cleanly() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let output = folder.streamhalo(&["bench", "moves", "--device", "opencl", "--cells", "30000"]);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("at most") && said.contains("device"), "{said}");
}

/// The script that is carried to a machine with a GPU, with a program and configurations beside it.
fn carried(program: Option<&str>) -> (Folder, impl Fn(&[&str]) -> Output) {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::os::unix::fs::symlink(root.join("configs"), folder.path().join("configs")).expect("a link");
    std::fs::copy(root.join("tests/gpu"), folder.path().join("gpu")).expect("it can be copied");
    if let Some(program) = program {
        std::os::unix::fs::symlink(program, folder.path().join("streamhalo")).expect("a link");
    }
    let (gpu, place) = (folder.path().join("gpu"), folder.path().to_owned());
    let run = move |arguments: &[&str]| {
        let mut command = Command::new(&gpu);
        let command = command.args(arguments).current_dir(&place).env_remove("RUST_BACKTRACE");
        command.output().expect("it can be started")
    };
    (folder, run)
}

#[test]
fn the_script_for_a_gpu_says_what_it_lacks() {
    let program = env!("CARGO_BIN_EXE_streamhalo");
    let (_folder, run) = carried(None);
    let (_other, run_beside) = carried(Some(program));
    for (output, status, expected) in [
        (run(&["--help"]), 0, "usage: tests/gpu --pack FOLDER"),
        (run(&["--devices", "cuda"]), 2, "there is no option `--devices`"),
        (run(&["--out"]), 2, "--out needs a value"),
        (run(&["--within", "soon"]), 2, "--within is a number of seconds, not `soon`"),
        (run(&["--device", "metal"]), 2, "--device is cuda, hip or opencl, not `metal`"),
        (run(&[]), 2, "tests/gpu --pack FOLDER"),
        (
            run_beside(&["--device", "hip"]),
            2,
            "there is no device of hip here: nothing was tested or measured",
        ),
    ] {
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(expected), "no {expected:?} in {said}");
    }
}

#[test]
fn the_script_for_a_gpu_measures_and_sums_up() {
    if !is_there() {
        return;
    }
    let (folder, run) = carried(Some(env!("CARGO_BIN_EXE_streamhalo")));
    let output = run(&["--device", "opencl", "--quick", "--out", "found"]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for app in ["life", "faces", "stencil3d", "comb"] {
        // With each of the backends.
        assert!(said.contains(&format!("{app}: 5 runs, all of them right\n")), "{said}");
    }
    // Threads wait on this device.
    for app in ["life", "faces"] {
        let expected = format!("{app}-replayed: 5 runs, all of them right, replayed by: nobody proxy\n");
        assert!(said.contains(&expected), "{said}");
    }
    let summary = std::fs::read_to_string(folder.path().join("found/summary.txt")).expect("a summary");
    assert!(said.contains(&summary) && !summary.contains("not measured"), "{summary}");
    // Each ratio beside what is to be reached, as found in a file of figures.
    let ratio = |start: &str| -> f64 {
        let line =
            summary.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}"));
        let (found, _) = line.split_once(['<', '>']).expect("a bound");
        found.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let figures = folder.path().join("found/run-1/moves-small/bench-moves.json");
    let figures: Value =
        serde_json::from_str(&std::fs::read_to_string(figures).expect("figures")).expect("JSON");
    let apart = figures
        .as_array()
        .expect("a list")
        .iter()
        .find(|figure| figure["backend"] == "apart" && figure["operation"] == "unpack");
    let expected = apart.and_then(|one| one["ratio_to_fused"].as_f64()).expect("a ratio");
    assert!((ratio("one kernel per neighbour to one for all, unpack") - expected).abs() < 0.006, "{summary}");
    for start in [
        "pingpong, 32 B to 512 KiB",
        "pingpong-replayed, ",
        "halo, ranks 2,2,2",
        "halo-replayed, ranks 2,1,1",
        "fused move, x-faces",
    ] {
        assert!(ratio(start) > 0.0, "{summary}");
    }
    let steps = summary.split_once("one by one to replayed: ").expect("is there").1;
    assert!(steps.lines().next().is_some_and(|found| found.parse::<f64>().is_ok()), "{summary}");
    for part in [
        "none of these ratios says anything about a GPU",
        "lacking: memcheck and racecheck",
        "kernel ",
        "merged ",
    ] {
        assert!(summary.contains(part), "no {part:?} in {summary}");
    }
}
