//! `streamhalo bench`: every measurement with few sizes and little time, its JSON and its files.

use super::errors::refused;
use super::{BACKENDS, FABRICS, Folder, finish, text};
use serde_json::Value;
use std::process::Stdio;

/// Runs a measurement with JSON lines on the standard output and files in a folder.
pub(super) fn figures(fabric: &str, bench: &[&str]) -> Vec<Value> {
    let folder = Folder::new();
    let out = folder.out().display().to_string();
    let rest = ["--fabric", fabric, "--seconds", "0.01", "--json", "-", "--out", &out];
    let output = folder.streamhalo(&[["bench"].as_slice(), bench, &rest].concat());
    assert_eq!(output.status.code(), Some(0), "{bench:?} over {fabric}: {}", text(&output.stderr));
    let figures: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    assert!(!figures.is_empty(), "{bench:?}");
    for figure in &figures {
        assert_eq!((&figure["bench"], &figure["fabric"]), (&Value::from(bench[0]), &Value::from(fabric)));
        let [median, best] = ["median_us", "min_us"].map(|name| figure[name].as_f64().expect("is a number"));
        assert!(best > 0.0 && median >= best, "{figure}");
        assert!(
            figure["bytes"].is_u64()
                && figure["ranks"].is_u64()
                && figure["backend"].is_string()
                && figure["stream"].is_string() == figure["device"].is_null(),
            "{figure}"
        );
    }
    let name = |end: &str| format!("bench-{}.{end}", bench[0]);
    let written: Value = serde_json::from_str(&folder.read_out(&name("json"))).expect("is JSON");
    assert_eq!(written.as_array(), Some(&figures));
    let csv = folder.read_out(&name("csv"));
    assert!(csv.starts_with("bench,"), "{csv}");
    assert_eq!(csv.lines().count(), figures.len() + 1);
    let svg = folder.read_out(&name("svg"));
    assert!(svg.starts_with("<svg") && svg.contains("<polygon"), "{svg}");
    figures
}

/// Each of them once for each size.
pub(super) fn assert_all(figures: &[Value], names: &[&str], sizes: &[u64]) {
    for bytes in sizes {
        let of_size = figures.iter().filter(|figure| figure["bytes"] == *bytes);
        let found: Vec<&str> = of_size.map(|figure| figure["backend"].as_str().expect("is text")).collect();
        assert_eq!(found, names, "at {bytes} bytes");
    }
}

/// Every measurement between two ranks over a fabric that others start or that has a wire, of few sizes and in little time:
/// its name, and the arguments.
pub(super) fn each_bench(fabric: &str) -> impl Iterator<Item = (&'static str, Vec<String>)> {
    let benches =
        ["latency", "bandwidth", "bibandwidth", "overlap", "loggp", "collectives", "pingpong", "throttle"];
    benches.into_iter().map(move |bench| {
        let sizes = match bench {
            "throttle" => "",
            "loggp" => " --sizes 8,4096,16384 --primitive two-sided,put-notify",
            _ => " --sizes 8,9000",
        };
        let line = format!("bench {bench}{sizes} --seconds 0.01 --fabric {fabric} --json -");
        (bench, line.split(' ').map(str::to_owned).collect())
    })
}

/// That it has said how long each contestant takes.
pub(super) fn assert_timed(bench: &str, fabric: &str, said: &str) {
    // A library may print lines of its own among them.
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let figures: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    let is_timed =
        |one: &Value| one["bench"] == bench && one["fabric"] == fabric && one["min_us"].as_f64() > Some(0.0);
    assert!(!figures.is_empty() && figures.iter().all(is_timed), "{bench}: {said}");
    if ["latency", "bandwidth", "bibandwidth", "overlap"].contains(&bench) {
        let names = figures.iter().map(|one| one["backend"].as_str().expect("is text"));
        let names: Vec<&str> = names.filter(|name| *name != "flag").collect();
        assert_eq!(names, [PRIMITIVES; 2].concat(), "{bench}: at two sizes each");
    }
}

#[test]
fn ping_pongs_of_all_backends() {
    for fabric in FABRICS {
        let found = figures(fabric, &["pingpong", "--sizes", "1,300,64KiB"]);
        assert_all(&found, &BACKENDS, &[1, 300, 65_536]);
        assert!(found.iter().all(|figure| figure["gb_per_s"].as_f64() > Some(0.0)));
    }
    let found =
        figures("local", &["pingpong", "--sizes", "8", "--stream", "threaded", "--backend", "st-send"]);
    assert_all(&found, &["st-send"], &[8]);
    assert_eq!(found[0]["stream"], "threaded");
}

#[test]
fn what_is_replayed_is_measured_in_whole_periods() {
    for fabric in FABRICS {
        let found = figures(fabric, &["pingpong", "--sizes", "300", "--replay", "6"]);
        assert_all(&found, &BACKENDS, &[300]);
        for figure in found.iter().filter(|figure| figure["backend"] != "standard") {
            let trips = figure["repeats_per_batch"].as_u64();
            assert!(trips.is_some_and(|trips| trips > 0 && trips % 6 == 0), "{figure}");
        }
        for generations in [&[][..], &["--alternating"]] {
            let shape = ["bench", "halo", "--layout", "2,1", "--cells", "5,6", "--replay", "6"];
            let rest = ["--fabric", fabric, "--seconds", "0.01", "--json", "-"];
            let output = Folder::new().streamhalo(&[&shape[..], generations, &rest].concat());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let said = text(&output.stdout);
            let found: Vec<Value> =
                said.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
            assert_eq!(found.len(), BACKENDS.len());
            for figure in found.iter().filter(|figure| figure["backend"] != "standard") {
                assert_eq!(figure["exchanges_per_batch"].as_u64().map(|each| each % 6), Some(0), "{figure}");
            }
        }
    }
    let odd = Folder::new().streamhalo(&["bench", "pingpong", "--replay", "3"]);
    refused(&odd, 2, &["--replay", "even number"]);
}

/// Wherever memory ends: for the messages, what they are compared with, or what collective calls compute with.
#[test]
fn sizes_that_there_is_no_memory_for_are_errors() {
    let benches =
        ["latency --primitive two-sided,put-notify", "collectives --operation allreduce --backend host"];
    for bench in benches {
        let fails = |mebibytes: u32| {
            let folder = Folder::new();
            let program = env!("CARGO_BIN_EXE_streamhalo");
            let kibibytes = mebibytes << 10;
            let script =
                format!("ulimit -v {kibibytes}; exec {program} bench {bench} --sizes 32MiB --seconds 0.001");
            let mut command = folder.command("sh");
            command.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::piped());
            let output = finish(command.spawn());
            let said = text(&output.stderr);
            let is_said = said.contains(" bytes of host memory could not be allocated: ");
            assert!(
                output.status.success() || output.status.code() == Some(1) && is_said,
                "{bench}, {kibibytes}: {said}"
            );
            !output.status.success()
        };
        let failed = [300, 350, 400, 450].map(fails);
        assert!(failed.contains(&true), "{bench} has memory enough with each limit");
    }
}

const PRIMITIVES: [&str; 6] = ["two-sided", "put-notify", "put-active", "put-stream", "enqueued", "queue"];

#[test]
fn primitives_of_all_kinds() {
    for (fabric, benches) in [("local", ["latency", "bandwidth"]), ("shm", ["latency", "bibandwidth"])] {
        for bench in benches {
            let found = figures(fabric, &[bench, "--sizes", "8,20000"]);
            let with_flag = ["flag"].iter().chain(&PRIMITIVES).copied().collect::<Vec<_>>();
            // A flag is one cache line.
            assert_all(&found, &with_flag, &[8]);
            assert_all(&found, &PRIMITIVES, &[20_000]);
            if bench == "latency" {
                let [flag, two_sided] = [&found[0], &found[1]].map(|one| one["ratio_to_flag"].as_f64());
                assert!(flag.is_none() && two_sided.is_some_and(|ratio| ratio > 0.0), "{found:?}");
            } else {
                assert!(
                    found
                        .iter()
                        .all(|figure| figure["best_gb_per_s"].as_f64() >= figure["gb_per_s"].as_f64())
                );
            }
        }
    }
}

#[test]
fn hidden_latency_is_a_share() {
    for fabric in FABRICS {
        let found = figures(fabric, &["overlap", "--sizes", "64,20000", "--primitive", "put-notify,queue"]);
        assert_all(&found, &["put-notify", "queue"], &[64, 20_000]);
        for figure in found {
            assert!(figure["compute_us"].as_f64() > Some(0.0), "{figure}");
            let number =
                |name| figure.get(name).expect("is there, if only to say that it cannot be told").as_f64();
            // Both or none: a sender does something, and what it does is not hidden.
            match (number("overhead_us"), number("overlap_percent")) {
                (Some(overhead_us), Some(share)) => {
                    assert!(overhead_us > 0.0 && (0.0..100.0).contains(&share), "{figure}");
                }
                both => assert_eq!(both, (None, None), "{figure}"),
            }
        }
    }
}

#[test]
fn the_model_is_fitted_for_each_primitive() {
    for fabric in FABRICS {
        let found =
            figures(fabric, &["loggp", "--sizes", "8,4096,16384", "--primitive", "two-sided,put-notify"]);
        let of = |operation: &str| found.iter().filter(|figure| figure["operation"] == operation).count();
        assert_eq!((of("latency"), of("gap"), of("fit")), (6, 6, 2));
        for fit in found.iter().filter(|figure| figure["operation"] == "fit") {
            for name in ["l_us", "o_us", "g_us", "g_ns_per_byte"] {
                let value = fit.get(name).expect("is there, if only to say that it cannot be told");
                assert!(value.is_null() || value.as_f64() > Some(0.0), "{name}: {fit}");
            }
        }
    }
}

#[test]
fn collectives_at_any_number_of_ranks() {
    for fabric in FABRICS {
        let found = figures(fabric, &["collectives", "--ranks", "3", "--sizes", "8,2048"]);
        assert!(found.iter().all(|figure| figure["ranks"] == 3));
        let (barriers, sums): (Vec<Value>, _) =
            found.into_iter().partition(|figure| figure["operation"] == "barrier");
        let with_host: Vec<&str> = ["host"].into_iter().chain(BACKENDS).collect();
        assert_all(&barriers, &with_host, &[0]);
        let (sums, of_host): (Vec<Value>, _) =
            sums.into_iter().partition(|figure| figure["operation"] == "allreduce");
        assert_all(&sums, &with_host, &[8, 2048]);
        assert_all(&of_host, &["host"; 4], &[8, 2048]);
        let neighbours = of_host.iter().filter(|figure| figure["operation"] == "neighbour-alltoall");
        assert_eq!(neighbours.count(), 2, "one of each size");
    }
    let found = figures("local", &["collectives", "--ranks", "1", "--sizes", "8", "--backend", "notified"]);
    assert_eq!(found.len(), 2);
    let found = figures("local", &["collectives", "--sizes", "8", "--operation", "broadcast"]);
    assert_all(&found, &["host"], &[8]);
}

#[test]
fn policies_over_budgets() {
    for fabric in FABRICS {
        let found = figures(fabric, &["throttle", "--entries", "2,16"]);
        let found: Vec<(&str, u64)> = found
            .iter()
            .map(|one| {
                (one["backend"].as_str().expect("is text"), one["entries"].as_f64().expect("is one") as u64)
            })
            .collect();
        let policies = ["application", "static", "adaptive"];
        let expected = [2, 16].map(|entries| policies.map(|policy| (policy, entries)));
        assert_eq!(found, expected.concat());
    }
}

#[test]
fn what_is_one_size_is_refused_as_a_list_and_a_flag_is_no_message() {
    let folder = Folder::new();
    for (arguments, said) in [
        ("throttle --size 1KiB,2KiB", "--size: is one size"),
        ("throttle --stream inline", "--stream: `inline` carries each operation out in the call"),
        ("pingpong --sizes 8..64,32", "32 is there twice"),
        ("overlap --primitive flag", "`flag`"),
        ("loggp --primitive flag", "`flag`"),
        (
            "collectives --operation broadcast --backend st-send",
            "--operation: `broadcast` is done by `host` only; st-send can do barrier and allreduce",
        ),
        (
            "collectives --operation barrier,reduce --backend st-send,notified",
            "--operation: `reduce` is done by `host` only; st-send, notified can do barrier and allreduce",
        ),
        (
            "collectives --operation broadcast --backend host,st-send",
            "--backend: `st-send` can do barrier and allreduce, and none of broadcast",
        ),
        (
            "halo --layout 2 --cells 8 --backend cray-mpich",
            "--backend: `cray-mpich` is a name of `standard` on fabrics over MPI; here it is `local`",
        ),
        ("pingpong --fabric mpi --backend standard,cray-mpich", "--backend: `standard` is there twice"),
        ("collectives --fabric shm+mpi --backend host,cray-mpich,standard", "`standard` is there twice"),
        ("halo --layout 2,1 --cells 8,4 --width 5", "--width: 5 layers are more than the 4 cells"),
        ("halo --layout 1,4 --cells 8,9223372036854775807", "--cells: of all ranks are more than 64 bits"),
        ("collectives --ranks 100000", "--ranks: 100000 ranks are more than the 4096"),
        (
            "pingpong --device hots",
            "--device: `hots` is not one of host, opencl, cuda, hip; did you mean `host`?",
        ),
        ("halo --device host:0", "--device: there is one `host`, of which `0` selects nothing"),
        ("copies --device host", "--device: `host` is not one of opencl, cuda, hip"),
        ("halo --device opencl:nosuch", "--device: device `opencl:nosuch` cannot be used: "),
        ("copies --device opencl:nosuch", "--device: device `opencl:nosuch` cannot be used: "),
    ] {
        let line = format!("bench {arguments}");
        refused(&folder.streamhalo(&line.split(' ').collect::<Vec<_>>()), 2, &[said]);
    }
    for (what, has_flag) in
        [("latency", true), ("bandwidth", true), ("bibandwidth", true), ("overlap", false), ("loggp", false)]
    {
        let help = text(&folder.streamhalo(&["bench", what, "--help"]).stdout);
        assert_eq!(help.contains("Primitives: flag"), has_flag, "{help}");
        assert!(help.contains("put-notify"), "{help}");
        assert!(help.contains(&format!("streamhalo bench {what} ")), "{help}");
    }
}

#[test]
fn files_are_written_also_where_nobody_listens() {
    let folder = Folder::new();
    let out = folder.out().display().to_string();
    for bench in [
        &["latency", "--sizes", "8", "--primitive", "two-sided"][..],
        &["halo", "--layout", "2", "--cells", "8"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("there is one");
        let mut command = folder.command(env!("CARGO_BIN_EXE_streamhalo"));
        command.arg("bench").args(bench).args(["--seconds", "0.01", "--json", "-", "--out", &out]);
        let output = command.stdout(full).output().expect("the program starts");
        refused(&output, 1, &["cannot print: No space left"]);
        assert!(folder.read_out(&format!("bench-{}.json", bench[0])).contains("median_us"));
        let plot = folder.read_out(&format!("bench-{}.svg", bench[0]));
        assert!(plot.contains(if bench[0] == "halo" { "st-rsend" } else { "two-sided" }), "{plot}");
    }
}

/// It would be missing from the table without a word, or be the only one there.
#[test]
fn a_primitive_that_was_asked_for_and_cannot_be_measured_is_an_error() {
    let folder = Folder::new();
    let out = folder.out().display().to_string();
    let measured = |bench: &str, primitives: &str, sizes: &str| {
        let asked = ["--primitive", primitives, "--sizes", sizes, "--seconds", "0.01", "--out", &out];
        folder.streamhalo(&[&["bench", bench], &asked[..]].concat())
    };
    let files = || std::fs::read_dir(folder.out()).map_or(0, Iterator::count);
    for bench in ["latency", "bandwidth", "bibandwidth"] {
        for (primitives, others) in [("flag", 0), ("flag,two-sided", 1)] {
            let output = measured(bench, primitives, "33,64KiB");
            let said = "--primitive: `flag` is not measured: it is a cache line with room for 32 bytes";
            refused(&output, 2, &[said, "leave it out"]);
            let table = text(&output.stdout);
            assert_eq!(table.contains("two-sided"), others > 0, "{table}");
            assert_eq!((table.is_empty(), files()), (others == 0, 0), "{table}");
        }
    }
    // One size is enough, and who asks for all takes what there is.
    for (primitives, sizes) in [("flag", "8,64KiB"), ("all", "64KiB")] {
        let output = measured("latency", primitives, sizes);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(files(), 3);
        std::fs::remove_dir_all(folder.out()).expect("is there");
    }
}

#[test]
fn tables_say_what_was_measured_and_that_it_was_checked() {
    let folder = Folder::new();
    for (arguments, parts) in [
        ("pingpong --sizes 8,1KiB --backend standard,st-send", &["1 KiB", "st-send", "per round trip"][..]),
        (
            "loggp --sizes 8,4KiB --primitive put-notify",
            &[
                "\n operation ",
                "LogGP",
                "G, ns/B",
                "gap",
                " -\n",
                "-: these",
                "G needs two sizes from 4 KiB on",
            ],
        ),
        (
            "throttle --entries 4 --policy static",
            &["entries", "static", "per epoch", "threaded streams, puts of 1 KiB"],
        ),
    ] {
        let line = format!("bench {arguments} --seconds 0.01");
        let output = folder.streamhalo(&line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        for part in
            parts.iter().chain(&["fabric local, 2 ranks", "All answers were checked before they were timed."])
        {
            assert!(said.contains(part), "no `{part}` in\n{said}");
        }
        assert!(said.lines().all(|line| line.chars().count() <= 110), "{said}");
    }
    assert!(!folder.out().exists());
}

#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let folder = Folder::new();
    for bench in [
        &["halo", "--layout", "2", "--cells", "8"][..],
        &["pingpong", "--sizes", "8"],
        &["latency", "--sizes", "64KiB"],
        &["loggp", "--sizes", "8,64"],
        &["collectives", "--sizes", "8"],
        &["throttle", "--entries", "2"],
    ] {
        let output = folder.streamhalo(&[&["bench"], bench, &["--seconds", "0.01"]].concat());
        let table = text(&output.stdout);
        assert!(
            table.contains("executed by host") || bench[0] == "halo" || bench[0] == "throttle",
            "{table}"
        );
        for line in table.lines() {
            assert!(line.chars().count() <= 80, "{line}\nin\n{table}");
        }
        // Names are broken where they have a hyphen.
        assert!(!table.contains("put-activ "), "{table}");
        assert_eq!(table.contains("neighbour-"), table.contains("alltoall"), "{table}");
    }
}
