//! `stencil3d` from outside: every backend, fabric and layout, what it reports, and what it refuses.

use super::errors::refused;
use super::{BACKENDS, FABRICS, Folder, assert_verified, checksums, text};

/// A small grid at 1, 2 and 4 ranks, once.
const STENCIL: &str = "
app = { name = 'stencil3d', steps = 7 }
grid = { cells = [9, 10, 11], periodic = [true, false, true] }
run = { ranks = [1, 2, 4], trials = 1, warmup = 0, pin = false }
comm.timeout_s = 60
";

/// Every cell is computed by one formula, whoever computes it.
#[test]
fn every_backend_fabric_and_layout_gives_the_same_bits() {
    let folder = Folder::new();
    for (points, element) in [(7, "f64"), (27, "f32")] {
        let points = format!("app.points={points}");
        let element = format!("app.element={element}");
        let mut all = Vec::new();
        for fabric in FABRICS {
            let fabric = format!("comm.fabric={fabric}");
            for set in [
                &["run.layout=auto"][..],
                &["run.layout=[[1, 1, 1], [1, 1, 2], [4, 1, 1]]", "app.overlap=false"],
                &["grid.halo=2", "run.exchange_every=2"],
                &["grid.halo=[2, 3, 2]", "run.exchange_every=2", "app.overlap=false"],
            ] {
                let set = [&[points.as_str(), &element, &fabric], set].concat();
                let records = folder.records(STENCIL, &set);
                assert_verified(&records);
                assert_eq!(records.len(), 3 * BACKENDS.len());
                all.extend(records);
            }
        }
        assert_eq!(checksums(&all).len(), 1, "{points}");
    }
}

#[test]
fn threads_and_threaded_streams() {
    let folder = Folder::new();
    let plain = folder.records(STENCIL, &["app.equation=jacobi"]);
    for set in [&["device.stream=threaded"][..], &["device.threads=3"]] {
        let records = folder.records(STENCIL, &[set, &["app.equation=jacobi"]].concat());
        assert_verified(&records);
        assert_eq!(checksums(&records), checksums(&plain), "{set:?}");
        // Norms too have one value at a layout, whatever adds the rows.
        for (record, plain) in records.iter().zip(&plain) {
            assert_eq!(record["result"], plain["result"], "{set:?}");
        }
    }
}

#[test]
fn errors_and_residuals_are_reported() {
    let folder = Folder::new();
    for run in folder.records(STENCIL, &[]) {
        let error = run["result"]["error"].as_f64().expect("is a number");
        assert!(0.0 < error && error < 0.05, "{run}");
        assert!(run["result"]["residual"].is_null(), "{run}");
    }
    let set = ["app.equation=jacobi", "app.steps=200", "app.residual_every=40", "grid.periodic=false"];
    for run in folder.records(STENCIL, &set) {
        let [first, last] =
            ["first", "last"].map(|which| run["result"]["residual"][which].as_f64().expect("is a number"));
        assert!(last < 1e-2 * first, "{run}");
    }
    let header = folder.read_out("results.csv");
    let header = header.lines().next().expect("has a header");
    assert!(header.ends_with("result_error,result_residual_first,result_residual_last"), "{header}");
    let report = folder.streamhalo(&["report", folder.out().to_str().expect("is text")]);
    assert!(text(&report.stdout).starts_with("stencil3d: 9 x 10 x 11 cells, 200 steps"));
}

/// 7 points need faces only, unless steps compute ghosts.
#[test]
fn messages_are_those_that_the_stencil_needs() {
    let folder = Folder::new();
    let grid = ["grid.cells=[8, 8, 8]", "grid.periodic=false", "run.ranks=4", "run.layout=[[2, 2, 1]]"];
    for (set, messages, bytes) in [
        (&["app.points=7"][..], 4 * 2, 4 * 2 * 8 * 4 * 8),
        (&["app.points=27"], 4 * 3, 4 * 8 * (2 * 4 * 8 + 8)),
        (&["app.points=7", "grid.halo=2", "run.exchange_every=2"], 4 * 3, 4 * 8 * (2 * 2 * 4 * 8 + 4 * 8)),
    ] {
        for run in folder.records(STENCIL, &[&grid, set].concat()) {
            assert_eq!(run["messages_per_exchange"], messages, "{run}");
            assert_eq!(run["bytes_per_exchange"], bytes, "{run}");
        }
    }
    let config = folder.write("config.toml", STENCIL);
    let explain = folder.streamhalo(&["explain", config.to_str().expect("is text")]);
    assert_eq!(explain.status.code(), Some(0), "{}", text(&explain.stderr));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["app.points=9"], &["`app.points` is 9", "`7` or `27`"]),
        (&["app.element=f16"], &["`app.element`", "`f32` or `f64`"]),
        (&["app.equation=heet"], &["`heat` or `jacobi`", "did you mean `heat`?"]),
        (&["app.residual_every=5"], &["`app.residual_every` is of `jacobi`"]),
        (&["app.overlap=2"], &["app.overlap", "`true` or `false`"]),
        (&["app.order=7"], &["unknown key `order`"]),
        (&["grid.cells=[4, 4]", "grid.periodic=true"], &["`stencil3d` lives on 3 axes", "[z, y, x]"]),
        (&["run.exchange_every=2"], &["`grid.halo` is 1 wide"]),
        (
            &[
                "grid.cells=[4, 4, 4]",
                "grid.halo=2",
                "run.exchange_every=2",
                "run.ranks=4",
                "run.layout=[[4, 1, 1]]",
            ],
            &["at 4 ranks", "halo width of 2"],
        ),
    ];
    for (set, parts) in cases {
        refused(&folder.run(STENCIL, set), 2, parts);
        assert!(!folder.out().exists(), "{set:?}");
    }
}
