//! What a configuration may say, and what it means.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use streamhalo::comm::{Staging, StagingMemory, StagingScheme};
use streamhalo::{MemoryMode, Peers, Signals, StreamKind, Waits, Wires};
use streamhalo_apps::AppError;
use streamhalo_apps::config::{AppSettings, CellsAs, Layout, LifeSettings, Overrides, Pattern, RunConfig};

use super::{NAMES, parse, parse_with};

/// The example of the design, with its patterns beside it.
const EXAMPLE: &str = r#"
[app]
name    = "life"
steps   = 1000
pattern = "patterns/acorn.rle"

[grid]
cells    = [2048, 2048]
periodic = [true, true]
halo     = 1

[run]
ranks  = [1, 2, 4]
scaling = "strong"
layout = "auto"
trials = 5
warmup = 1
verify = true
exchange_every = 1
replay = 0
pin    = true

[comm]
backend = ["standard", "st-send", "st-rsend", "active-rma", "notified"]
fabric  = "local"
timeout_s = 60

[device]
kind   = "host"
stream = "inline"
threads = 1

[output]
dir = "results/life"
snapshot_every = 0
checkpoint_every = 0
checkpoints_kept = 2
on_full_disk = "stop"
"#;

fn load(folder: &Path, text: &str) -> RunConfig {
    fs::create_dir_all(folder.join("patterns")).expect("can write");
    fs::write(folder.join("patterns/acorn.rle"), "bob!").expect("can write");
    let file = folder.join("f.toml");
    fs::write(&file, text).expect("can write");
    let config = RunConfig::load(&file, &Overrides::default(), &NAMES);
    config.unwrap_or_else(|error| panic!("{error}")).0
}

#[test]
fn the_example_is_what_an_empty_file_means() {
    let folder = tempfile::tempdir().expect("can write");
    let (example, empty) = (load(folder.path(), EXAMPLE), load(folder.path(), ""));
    assert_eq!(example, empty);
    let mut found = serde_json::to_value(&example).expect("is JSON");
    let pattern = found["app"]["pattern"].take();
    let pattern = pattern.as_str().expect("is a path");
    assert!(pattern.ends_with("patterns/acorn.rle"), "{pattern}");
    assert_eq!(
        found,
        json!({
            "app": { "name": "life", "steps": 1000, "pattern": null, "cells_as": "u8" },
            "grid": { "cells": [2048, 2048], "periodic": [true, true], "halo": [1, 1] },
            "run": {
                "ranks": [1, 2, 4], "scaling": "strong", "layout": "auto", "trials": 5, "warmup": 1,
                "verify": true, "exchange_every": 1, "replay": 0, "pin": true,
            },
            "comm": {
                "backend": ["standard", "st-send", "st-rsend", "active-rma", "notified"],
                "fabric": "local", "timeout_s": 60.0,
            },
            "device": { "kind": "host", "stream": "inline", "threads": 1 },
            "output": {
                "dir": "results/life", "snapshot_every": 0, "checkpoint_every": 0, "checkpoints_kept": 2,
                "on_full_disk": "stop",
            },
        })
    );
}

#[test]
fn one_value_stands_for_a_list() {
    let config = parse("[run]\nranks = 2\n[comm]\nbackend = 'st-send'").expect("is right");
    assert_eq!(config.run.ranks, [2]);
    assert_eq!(config.comm.backend, ["st-send"]);
    let config = parse("[grid]\ncells = [8, 9]\nperiodic = false\nhalo = 3").expect("is right");
    assert_eq!(config.grid.halo, [3, 3]);
    assert_eq!(config.grid.periodic, [false, false]);
    let config = parse("[grid]\nhalo = [1, 2]\nperiodic = [true, false]").expect("is right");
    assert_eq!(config.grid.halo, [1, 2]);
}

#[test]
fn layouts_belong_to_the_entries_of_ranks() {
    let config = parse("[run]\nranks = [1, 6]\nlayout = [[1, 1], [3, 2]]").expect("is right");
    assert_eq!(config.run.layout.for_entry(0), Some([1, 1].as_slice()));
    assert_eq!(config.run.layout.for_entry(1), Some([3, 2].as_slice()));
    assert_eq!(config.run.layout.for_entry(2), None);
    assert_eq!(Layout::Auto.for_entry(0), None);
    let json = serde_json::to_value(&config.run).expect("is JSON");
    assert_eq!(json["layout"], json!([[1, 1], [3, 2]]));
}

#[test]
fn no_steps_and_no_limit_are_allowed() {
    let config = parse("app.steps = 0\napp.pattern = 'glider-field'\ncomm.timeout_s = 0");
    let config = config.expect("is right");
    assert_eq!(config.app.steps, 0);
    assert_eq!(config.comm.timeout(), None);
    let config = parse("comm.timeout_s = 0.5").expect("is right");
    assert_eq!(config.comm.timeout(), Some(Duration::from_millis(500)));
}

#[test]
fn the_patterns_of_life() {
    let pattern = |text: &str| match parse(text).expect("is right").app.settings {
        AppSettings::Life(life) => life,
        other => panic!("{other:?}"),
    };
    let generated = |pattern| LifeSettings { pattern, origin: None, cells_as: CellsAs::U8 };
    assert_eq!(pattern("app.pattern = 'glider-field'"), generated(Pattern::GliderField));
    assert_eq!(pattern("app.pattern = 'random:42'"), generated(Pattern::Random(42)));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_eq!(
        pattern(&format!("app.pattern = '{file}'\napp.origin = [1, 2]")),
        LifeSettings { origin: Some([1, 2]), ..generated(Pattern::File(file.into())) }
    );
    assert_eq!(
        pattern("app.pattern = 'random:42'\napp.cells_as = 'f64'"),
        LifeSettings { cells_as: CellsAs::F64, ..generated(Pattern::Random(42)) }
    );
}

#[test]
fn a_relative_path_starts_at_the_file_that_holds_it() {
    let flags = |set: &str| Overrides { set: vec![set.to_owned()], ..Overrides::default() };
    // Tests run in the folder of the package, where `Cargo.toml` is and `src/Cargo.toml` not.
    let parse = |text: &str, flags: &Overrides| {
        RunConfig::parse("src/f.toml", text, flags, &NAMES).map(|config| config.app.settings)
    };
    let file = |path: &str| {
        let (pattern, cells_as) = (Pattern::File(path.into()), CellsAs::U8);
        Ok(AppSettings::Life(LifeSettings { pattern, origin: None, cells_as }))
    };
    let text = "app.pattern = 'lib.rs'";
    assert_eq!(parse(text, &Overrides::default()), file("src/lib.rs"));
    assert_eq!(parse(text, &flags("app.pattern=Cargo.toml")), file("Cargo.toml"));
    assert!(parse(text, &flags("app.pattern=lib.rs")).is_err());
}

#[test]
fn what_an_application_is_not_told_has_defaults() {
    let config = parse("app.name = 'comb'\napp.steps = 7\ngrid.cells = [4, 4, 4]");
    let config = config.expect("is right");
    assert_eq!(config.grid.halo, [1, 1, 1]);
    assert_eq!(config.output.dir.to_str(), Some("results/comb"));
    let json = serde_json::to_value(&config.app).expect("is JSON");
    assert_eq!(json, json!({ "name": "comb", "steps": 7, "variables": 3, "element": "f64" }));
}

#[test]
fn cray_mpich_is_standard_on_mpi() {
    for fabric in ["mpi", "shm+mpi"] {
        let config = parse(&format!("comm.fabric = '{fabric}'\ncomm.backend = ['cray-mpich', 'st-send']"));
        assert_eq!(config.expect("is right").comm.backend, ["standard", "st-send"]);
    }
}

#[test]
fn keys_of_one_kind_of_device_hold_there_only() {
    let host = parse("device.stream = 'threaded'").expect("is right");
    assert_eq!((host.device.stream, host.comm.signal), (Some(StreamKind::Threaded), None));
    // A file that says what the host does by itself serves another device too.
    let flags = Overrides {
        set: ["device.kind=opencl", "comm.signal=memop"].map(str::to_owned).to_vec(),
        ..Overrides::default()
    };
    let gpu = parse_with("device = { kind = 'host', stream = 'inline', threads = 1 }", &flags);
    let gpu = gpu.expect("is right");
    assert_eq!((gpu.device.stream, gpu.comm.signal), (None, Some(Signals::Memop)));
}

#[test]
fn all_backends_are_those_without_a_name() {
    let by_default = parse("").expect("is right").comm.backend;
    assert_eq!(parse("comm.backend = 'all'").expect("is right").comm.backend, by_default);
    let flags = Overrides { backend: Some("all".to_owned()), ..Overrides::default() };
    assert_eq!(parse_with("comm.backend = 'st-send'", &flags).expect("is right").comm.backend, by_default);
}

#[test]
fn a_device_is_chosen_by_name_or_by_number() {
    let of = |text: &str| parse(text).expect("is right").device;
    let named = of("device = { kind = 'opencl', select = 'pocl', waits = 'kernel' }");
    assert_eq!((named.select.as_deref(), named.waits), (Some("pocl"), Some(Waits::Kernel)));
    let numbered = of("device = { kind = 'opencl', select = 2 }");
    assert_eq!((numbered.select.as_deref(), numbered.waits), (Some("2"), Some(Waits::Auto)));
    let host = of("");
    assert_eq!((host.select, host.waits, host.memory, host.peers), (None, None, None, None));
    assert_eq!(host.wires, None);
    let direct = of("device = { kind = 'opencl', wires = 'direct' }");
    assert_eq!((named.wires, direct.wires), (Some(Wires::Auto), Some(Wires::Direct)));
    let staged = of("device = { kind = 'opencl', peers = 'staged' }");
    assert_eq!((named.peers, staged.peers), (Some(Peers::Auto), Some(Peers::Staged)));
    let separate = of("device = { kind = 'opencl', memory = 'separate' }");
    assert_eq!((named.memory, separate.memory), (Some(MemoryMode::Auto), Some(MemoryMode::Separate)));
}

/// Ranks are told a configuration by these names, and results keep them.
#[test]
fn options_are_written_by_their_names_and_no_others_are_read() {
    let text = "device = { kind = 'opencl', memory = 'separate', peers = 'staged', wires = 'direct', waits = 'proxy' }\n\
                comm.signal = 'memop'\nstaging = { memory = 'pageable', scheme = 'naive' }";
    let mut written = serde_json::to_value(parse(text).expect("is right")).expect("is JSON");
    let device = json!({
        "kind": "opencl", "memory": "separate", "peers": "staged", "wires": "direct", "waits": "proxy", "threads": 1,
    });
    assert_eq!((&written["device"], &written["comm"]["signal"]), (&device, &json!("memop")));
    assert_eq!(written["staging"]["memory"], "pageable");
    for (section, key) in [
        ("device", "memory"),
        ("device", "peers"),
        ("device", "wires"),
        ("device", "waits"),
        ("comm", "signal"),
        ("staging", "memory"),
        ("staging", "scheme"),
    ] {
        let right = std::mem::replace(&mut written[section][key], json!("nonsense"));
        assert!(serde_json::from_value::<RunConfig>(written.clone()).is_err(), "{section}.{key}");
        written[section][key] = right;
    }
    assert!(serde_json::from_value::<RunConfig>(written).is_ok());
}

#[test]
fn messages_of_a_device_are_staged_as_told() {
    let of = |text: &str| parse(text).expect("is right").staging;
    assert_eq!(of(""), None, "the host stages nothing");
    assert_eq!(of("device.kind = 'opencl'"), Some(Staging::default()));
    let told = "device.kind = 'opencl'\n[staging]\nmemory = 'pageable'\nscheme = 'even'\nblocks = 8\n\
                threshold_bytes = 0\nfirst = 1\nlast = 2.5";
    let (memory, scheme) = (StagingMemory::Pageable, StagingScheme::Even);
    let expected = Staging { memory, scheme, blocks: 8, threshold_bytes: 0, first: 1.0, last: 2.5 };
    assert_eq!(of(told), Some(expected));
}

#[test]
fn an_absent_file_is_a_matter_of_usage() {
    let error = RunConfig::load("absent/f.toml".as_ref(), &Overrides::default(), &NAMES);
    let error = error.expect_err("is absent");
    assert!(matches!(error, AppError::ConfigUnreadable { .. }), "{error:?}");
    assert_eq!(error.exit_status(), 2);
    assert!(error.to_string().contains("absent/f.toml"), "{error}");
    assert!(error.hint().expect("has a remedy").contains("streamhalo run"));
}
