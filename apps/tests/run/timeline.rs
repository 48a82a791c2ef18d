//! `--timeline`: what comes before what, in the files that are written.

use std::collections::BTreeMap;

use roxmltree::Document;
use serde_json::Value;

use super::{BACKENDS, Folder, opencl, text};

const HOST: u64 = 0;
const STREAM: u64 = 1;

const LIFE: &str = "app = { steps = 40, pattern = 'random:1' }\ngrid.cells = [48, 40]\n";
const STENCIL: &str = "app = { name = 'stencil3d', steps = 40 }\ngrid.cells = [12, 10, 8]\n";
const FACES: &str = "app = { name = 'faces', steps = 9, outer = 2, middle = 2, order = 2, extra_compute = 3 }\n\
                     grid.cells = [4, 4, 2]\n";
const COMB: &str = "app = { name = 'comb', steps = 40 }\ngrid.cells = [6, 8, 10]\n";
const RUN: &str = "run = { trials = 1, warmup = 0, verify = false }\n";

/// One event with a duration, in nanoseconds.
#[derive(Clone, Debug)]
struct Event {
    activity: String,
    peer: Option<u64>,
    begin: u64,
    end: u64,
}

/// The events of one file.
struct Trace {
    json: Value,
    /// By rank and lane, in the order of their beginnings.
    lanes: BTreeMap<(u64, u64), Vec<Event>>,
    /// What is marked on a lane, and where.
    marks: BTreeMap<(u64, u64), Vec<(String, u64)>>,
}

fn ns(us: &Value) -> u64 {
    (us.as_f64().expect("is a number") * 1e3).round() as u64
}

impl Trace {
    fn read(folder: &Folder, backend: &str) -> Self {
        let text = folder.read_out(&format!("timeline-{backend}.json"));
        let json: Value = serde_json::from_str(&text).expect("is JSON");
        let (mut lanes, mut marks) = (BTreeMap::<_, Vec<Event>>::new(), BTreeMap::<_, Vec<_>>::new());
        for event in json["traceEvents"].as_array().expect("is a list") {
            let lane = || {
                let number = |key: &str| event[key].as_u64().expect("is a number");
                (number("pid"), number("tid"))
            };
            let begin = || ns(&event["ts"]);
            match event["ph"].as_str() {
                Some("X") => lanes.entry(lane()).or_default().push(Event {
                    activity: event["cat"].as_str().expect("is text").to_owned(),
                    peer: event["args"]["peer"].as_u64(),
                    begin: begin(),
                    end: begin() + ns(&event["dur"]),
                }),
                Some("i") => {
                    let name = event["name"].as_str().expect("is text").to_owned();
                    marks.entry(lane()).or_default().push((name, begin()));
                }
                _ => {}
            }
        }
        Self { json, lanes, marks }
    }

    fn ranks(&self) -> u64 {
        self.lanes.keys().map(|(rank, _)| rank + 1).max().unwrap_or(0)
    }

    /// The events of a lane with this activity.
    fn those(&self, rank: u64, lane: u64, activity: &str) -> Vec<&Event> {
        self.lanes[&(rank, lane)].iter().filter(|event| event.activity == activity).collect()
    }

    fn steps(&self, rank: u64, lane: u64) -> Vec<(&str, u64)> {
        let marks = self.marks[&(rank, lane)].iter();
        marks.filter(|(name, _)| name != "end").map(|(name, at)| (name.as_str(), *at)).collect()
    }

    /// Everything that must hold on any backend, fabric and number of ranks. Over a wire a stream may also wait for the
    /// room that it packs into, before it does.
    fn check(&self, backend: &str, first_steps: &[&str], is_wired: bool, case: &str) {
        for rank in 0..self.ranks() {
            for lane in [HOST, STREAM] {
                let steps: Vec<_> = self.steps(rank, lane).iter().map(|(name, _)| *name).collect();
                assert_eq!(steps, first_steps, "{case}: rank {rank}");
            }
            let mut last = 0;
            for event in &self.lanes[&(rank, STREAM)] {
                let waits = self.those(rank, STREAM, "wait");
                let is_within = waits.iter().any(|wait| wait.begin <= event.begin && event.end <= wait.end);
                assert!(event.begin >= last || is_within, "{case}: {event:?} overlaps what ended at {last}");
                last = last.max(event.end);
            }
            self.check_messages(rank, backend, first_steps.len(), case);
            let waits = self.those(rank, STREAM, "wait").len();
            assert!(is_wired || backend == "standard" || waits == first_steps.len(), "{case}: {waits} waits");
            self.check_host(rank, backend, first_steps.len(), case);
        }
    }

    fn check_messages(&self, rank: u64, backend: &str, exchanges: usize, case: &str) {
        // The last one before each unpack.
        let waits_of = |rank| {
            let waits = self.those(rank, if backend == "standard" { HOST } else { STREAM }, "wait");
            let before = |unpack: &Event| waits.iter().rfind(|wait| wait.end <= unpack.begin).copied();
            let unpacks = self.those(rank, STREAM, "unpack");
            let mut waits: Vec<&Event> = unpacks.into_iter().filter_map(before).collect();
            waits.dedup_by_key(|wait| wait.begin);
            waits
        };
        let unpacks = self.those(rank, STREAM, "unpack").len();
        assert_eq!((waits_of(rank).len(), unpacks), (exchanges, exchanges), "{case}: rank {rank}");
        assert!(!self.those(rank, STREAM, "kernel").is_empty(), "{case}");
        let packs = self.those(rank, STREAM, "pack");
        assert!(!packs.is_empty(), "{case}: rank {rank} sends");
        for peer in (0..self.ranks()).filter(|peer| *peer != rank) {
            let of_peer = packs.iter().filter(|pack| pack.peer == Some(peer));
            for (pack, wait) in of_peer.zip(waits_of(peer)) {
                assert!(pack.end <= wait.end, "{case}: {pack:?} of {rank}, {wait:?} of {peer}");
            }
        }
    }

    /// Only `standard` makes the host wait between the first step and the last.
    fn check_host(&self, rank: u64, backend: &str, exchanges: usize, case: &str) {
        let steps = self.steps(rank, HOST);
        let within = steps[0].1..steps[steps.len() - 1].1;
        let count = |activity| {
            let events = self.those(rank, HOST, activity);
            events.iter().filter(|event| within.contains(&event.begin)).count()
        };
        let expected = if backend == "standard" { exchanges - 1 } else { 0 };
        assert_eq!((count("synchronize"), count("wait")), (expected, expected), "{case}: rank {rank}");
    }

    /// The events between the last two steps, which are those of a picture.
    fn of_last_exchange(&self) -> usize {
        let begins = |back: usize| {
            (0..self.ranks()).map(move |rank| {
                let steps = self.steps(rank, STREAM);
                steps[steps.len() - back].1
            })
        };
        let (from, to) = (begins(2).min().expect("there are ranks"), begins(1).max().expect("there are"));
        self.lanes.values().flatten().filter(|event| event.begin < to && event.end >= from).count()
    }
}

/// Runs every backend with a timeline.
fn run(config: &str, ranks: &str, fabric: &str, more: &[&str]) -> Folder {
    let folder = Folder::new();
    let path = folder.write("config.toml", &format!("{config}{RUN}"));
    let (path, out) = (path.display().to_string(), folder.out().display().to_string());
    let mut arguments = vec!["run", &path, "--out", &out, "--ranks", ranks, "--fabric", fabric, "--quiet"];
    arguments.extend(more);
    let output = folder.streamhalo(&arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{}", text(&output.stderr));
    folder
}

/// The two files of a backend, of ranks of one machine.
pub(super) fn check(folder: &Folder, backend: &str, ranks: u64, steps: &[&str], is_wired: bool, case: &str) {
    let trace = Trace::read(folder, backend);
    assert_eq!(trace.ranks(), ranks, "{case}");
    trace.check(backend, steps, is_wired, case);
    let clock = &trace.json["otherData"]["clocks"][1];
    assert_eq!((&clock["offset_ns"], &clock["uncertainty_ns"]), (&0.into(), &0.into()), "{case}");
    assert_eq!(trace.json["otherData"]["backend"], backend, "{case}");

    let svg = folder.read_out(&format!("timeline-{backend}.svg"));
    let svg = Document::parse(&svg).expect("is well-formed");
    let spans = svg.descendants().filter(|node| node.attribute("class") == Some("span"));
    assert_eq!(spans.count(), trace.of_last_exchange(), "{case}");
}

/// What the device says of itself. Its clock is that of the host but for some microseconds, by which ranks may differ.
#[test]
fn a_device_says_when_it_did_what() {
    if !opencl::is_there() {
        return;
    }
    for config in [LIFE, STENCIL] {
        let folder = run(config, "2", "local", &["--timeline", "steps=3", "--set", opencl::DEVICE]);
        for backend in BACKENDS {
            let trace = Trace::read(&folder, backend);
            assert_eq!(trace.ranks(), 2, "{backend}");
            for rank in 0..2 {
                let steps = trace.steps(rank, STREAM);
                let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, ["step 20", "step 21", "step 22"], "{backend}");
                let count = |activity| trace.those(rank, STREAM, activity).len();
                assert_eq!(count("unpack"), 3, "{backend}: rank {rank}");
                assert!(count("pack") >= 3, "{backend}: rank {rank}");
                let kernels = trace.those(rank, STREAM, "kernel");
                let each = kernels.len() / steps.len();
                assert!(each > 0 && kernels.len() == each * steps.len(), "{backend}: {kernels:?}");
                for (number, kernel) in kernels.iter().enumerate() {
                    let step = number / each;
                    let is_before_next = steps.get(step + 1).is_none_or(|(_, next)| kernel.end <= *next);
                    assert!(
                        steps[step].1 <= kernel.begin && is_before_next,
                        "{backend}: {kernel:?}, {steps:?}"
                    );
                }
            }
            let svg = folder.read_out(&format!("timeline-{backend}.svg"));
            assert!(Document::parse(&svg).is_ok(), "{backend}");
        }
    }
}

/// Nor are the cells of another application's last step.
#[test]
fn a_final_state_of_an_earlier_run_is_not_left_among_new_results() {
    let folder = run(LIFE, "2", "local", &["--backend", "st-send"]);
    let state = folder.out().join("final.rle");
    assert!(state.exists());
    let faces =
        "app = { name = 'faces', steps = 2 }\ngrid.cells = [2, 2, 2]\nrun = { ranks = 1, pin = false }\n";
    let output = folder.run(faces, &["comm.backend=st-send"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!state.exists());
}

/// A timeline of another run would be taken for one of the results beside it.
#[test]
fn timelines_of_an_earlier_run_are_not_left_among_new_results() {
    let folder = run(LIFE, "2", "local", &["--timeline", "--backend", "st-send,notified"]);
    let own = folder.out().join("timeline-of-mine.svg");
    std::fs::write(&own, "mine").expect("can write");
    let there = |backend: &str| {
        ["json", "svg"].map(|kind| folder.out().join(format!("timeline-{backend}.{kind}")).exists())
    };
    assert_eq!((there("st-send"), there("notified")), ([true; 2], [true; 2]));
    let again = |set: &[&str], status| {
        let config = folder.write("config.toml", &format!("{LIFE}{RUN}")).display().to_string();
        let out = folder.out().display().to_string();
        let output =
            folder.streamhalo(&[&["run", &config, "--out", &out, "--quiet", "--ranks", "2"], set].concat());
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    };
    // What fails leaves everything as it was.
    again(&["--set", "app.pattern=absent.rle"], 2);
    assert_eq!((there("st-send"), there("notified")), ([true; 2], [true; 2]));
    again(&["--timeline", "--backend", "notified"], 0);
    assert_eq!((there("st-send"), there("notified")), ([false; 2], [true; 2]));
    again(&["--backend", "notified"], 0);
    assert_eq!((there("st-send"), there("notified")), ([false; 2], [false; 2]));
    assert_eq!(std::fs::read_to_string(&own).expect("is there"), "mine");
}

#[test]
fn every_backend_leaves_a_timeline_in_the_right_order() {
    for (name, config) in [("life", LIFE), ("stencil3d", STENCIL), ("faces", FACES), ("comb", COMB)] {
        // The last is that of the most ranks.
        for (ranks, fabric, most) in [("1,2", "local", 2), ("4", "local", 4), ("2", "shm", 2)] {
            let folder = run(config, ranks, fabric, &["--timeline"]);
            for backend in BACKENDS {
                let case = format!("{name}, {backend}, {ranks} ranks over {fabric}");
                let steps = match name {
                    "faces" => ["step 6", "step 7", "step 8"],
                    _ => ["step 20", "step 21", "step 22"],
                };
                check(&folder, backend, most, &steps, false, &case);
            }
        }
    }
}

#[test]
fn kernels_of_inner_cells_are_seen_between_sending_and_waiting() {
    for (kind, config) in [("inline", STENCIL), ("threaded", STENCIL), ("inline", FACES)] {
        let stream = format!("device.stream={kind}");
        let folder = run(config, "2", "local", &["--timeline", "steps=2", "--set", &stream]);
        for backend in ["st-rsend", "notified"] {
            let trace = Trace::read(&folder, backend);
            for rank in 0..2 {
                let sent = trace.those(rank, STREAM, "trigger");
                let waits = trace.those(rank, STREAM, "wait");
                assert_eq!((sent.len(), waits.len()), (2, 2), "{kind}, {backend}");
                for (sent, wait) in sent.iter().zip(waits) {
                    let kernels = trace.those(rank, STREAM, "kernel");
                    let between = |kernel: &&&Event| sent.end <= kernel.begin && kernel.end <= wait.begin;
                    assert_eq!(kernels.iter().filter(between).count(), 1, "{kind}, {backend}, rank {rank}");
                }
            }
        }
        // The extra kernel of `faces` has a stream of its own.
        let lanes = Trace::read(&folder, "st-rsend").lanes;
        assert_eq!(lanes.contains_key(&(0, STREAM + 1)), config == FACES, "{kind}");
    }
}

/// Which may lag, but is not ahead.
#[test]
fn the_extra_kernel_of_a_step_begins_when_that_has_been_sent() {
    for kind in ["inline", "threaded"] {
        let stream = format!("device.stream={kind}");
        let folder = run(FACES, "2", "local", &["--timeline", "steps=9", "--set", &stream]);
        let trace = Trace::read(&folder, "st-rsend");
        for rank in 0..2 {
            let sent = trace.those(rank, STREAM, "trigger");
            let extra = trace.those(rank, STREAM + 1, "kernel");
            assert_eq!((sent.len(), extra.len()), (9, 9), "{kind}, rank {rank}");
            let is_behind = |(extra, sent): (&&Event, &&Event)| sent.end <= extra.begin;
            assert!(extra.iter().zip(&sent).all(is_behind), "{kind}, rank {rank}: {extra:?}, {sent:?}");
        }
    }
}

#[test]
fn what_is_measured_and_what_is_recorded_are_not_the_same_trials() {
    let folder = run(LIFE, "2", "local", &["--timeline", "steps=2", "--backend", "st-send"]);
    let runs = folder.records_there();
    assert_eq!(runs.len(), 1, "the recorded trial is not among them");
    assert_eq!(runs[0]["steps"], 40, "which is as long as ever");
    assert!(!folder.out().join("timeline-standard.json").exists(), "it was not asked for");
}

#[test]
fn what_cannot_be_recorded_is_refused_before_anything_runs() {
    let refused = |config: &str, flags: &[&str]| {
        let folder = Folder::new();
        let path = folder.write("config.toml", config).display().to_string();
        let out = folder.out().display().to_string();
        let output = folder.streamhalo(&[&["run", &path, "--out", &out], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!folder.out().exists(), "nothing was written");
        text(&output.stderr)
    };
    for (name, cells) in [("pipeline", "[8, 8]"), ("tree", "8"), ("cholesky", "64")] {
        let config = format!("app = {{ name = '{name}', steps = 2 }}\ngrid.cells = {cells}\n");
        let said = refused(&config, &["--timeline"]);
        assert!(said.contains(&format!("--timeline: `{name}` puts nothing on a stream")), "{said}");
        assert!(said.contains("a timeline can be had of life, faces, stencil3d, comb"), "{said}");
    }
    let said = refused(LIFE, &["--timeline", "steps=0"]);
    assert!(said.contains("expected `steps=K`"), "{said}");
    let said = refused(LIFE, &["--timeline", "--set", "app.steps=0"]);
    assert!(said.contains("nothing to record in 0 steps"), "{said}");
}
