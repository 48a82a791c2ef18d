//! Whatever a configuration varies besides backend, fabric and ranks.

use super::{FABRICS, Folder, SMALL, assert_verified, checksums};

/// What a set-up is, and what it must give: the checksum of the same game without it.
fn same_answer(plain: &[&str], varied: &[&[&str]]) {
    let folder = Folder::new();
    let expected = folder.records(SMALL, plain);
    assert_verified(&expected);
    for set in varied {
        let records = folder.records(SMALL, &[plain, set].concat());
        assert_verified(&records);
        assert_eq!(checksums(&records), checksums(&expected), "{set:?}");
    }
}

/// Also where the last exchange is followed by fewer steps than k: 24 is no multiple of 5.
#[test]
fn wide_halos_give_the_bits_of_narrow_ones() {
    for periodic in ["true", "false", "[true, false]", "[false, true]"] {
        let periodic = format!("grid.periodic={periodic}");
        same_answer(
            &[&periodic, "run.layout=[[1, 1], [1, 2], [2, 2]]"],
            &[
                &["grid.halo=1", "run.exchange_every=1"],
                &["grid.halo=2", "run.exchange_every=2"],
                &["grid.halo=3", "run.exchange_every=3"],
                &["grid.halo=5", "run.exchange_every=5"],
                &["grid.halo=3", "run.exchange_every=2"],
                &["grid.halo=[2, 4]", "run.exchange_every=1"],
                &["grid.halo=[3, 2]", "run.exchange_every=2", "comm.fabric=shm"],
            ],
        );
    }
}

/// Life beyond a boundary would come back in: with a width of k, kernels reach beyond it.
#[test]
fn nothing_lives_beyond_a_boundary_that_is_not_periodic() {
    let folder = Folder::new();
    // A row of three along the upper boundary would be a blinker if there were anything above it.
    folder.write("row.rle", "x = 3, y = 1\n3o!\n");
    let pattern = format!("app.pattern={:?}", folder.path().join("row.rle"));
    let set = [pattern.as_str(), "app.origin=[0, 18]", "grid.periodic=false", "grid.halo=4"];
    let play = |more: &[&str]| {
        let records = folder.records(SMALL, &[&set, more].concat());
        assert_verified(&records);
        records
            .iter()
            .map(|run| run["result"]["population"].as_u64().expect("is a number"))
            .collect::<Vec<_>>()
    };
    for every in [1, 2, 4] {
        let every = format!("run.exchange_every={every}");
        assert!(play(&["app.steps=1", &every]).iter().all(|population| *population == 2));
        assert!(play(&["app.steps=2", &every]).iter().all(|population| *population == 0));
    }
}

#[test]
fn grids_that_do_not_divide() {
    for (cells, layout) in [("[23, 41]", "[[1, 1], [2, 1], [2, 2]]"), ("[7, 5]", "[[1, 1], [1, 2], [4, 1]]")]
    {
        let (cells, layout) = (format!("grid.cells={cells}"), format!("run.layout={layout}"));
        same_answer(&[&cells], &[&[&layout], &[&layout, "comm.fabric=shm"]]);
    }
    // As thin as its halo: allowed.
    same_answer(
        &["grid.cells=[8, 8]"],
        &[&["grid.halo=2", "run.exchange_every=2", "run.layout=[[1, 1], [1, 2], [1, 4]]"]],
    );
    // Grids of one cell, which is its own neighbour eight times.
    same_answer(&["grid.cells=[1, 4]"], &[&["run.layout=[[1, 1], [1, 2], [1, 4]]"]]);
}

#[test]
fn threads_and_threaded_streams() {
    for fabric in FABRICS {
        let fabric = format!("comm.fabric={fabric}");
        same_answer(
            &[&fabric],
            &[
                &["device.threads=3"],
                &["device.stream=threaded"],
                &["device.stream=threaded", "device.threads=2", "grid.halo=2", "run.exchange_every=2"],
                &["run.pin=true"],
            ],
        );
    }
}

#[test]
fn cells_of_either_type_live_the_same_life() {
    for fabric in FABRICS {
        let set = ["app.cells_as=f64", &format!("comm.fabric={fabric}")];
        same_answer(
            &[],
            &[
                &set,
                &[&set[..], &["grid.halo=3", "run.exchange_every=3"]].concat(),
                &[&set[..], &["device.stream=threaded", "device.threads=2"]].concat(),
            ],
        );
    }
    let folder = Folder::new();
    let bytes = folder.records(SMALL, &["app.cells_as=u8"]);
    let last = folder.read_out("final.rle");
    let doubles = folder.records(SMALL, &["app.cells_as=f64"]);
    assert_eq!(folder.read_out("final.rle"), last);
    for (bytes, doubles) in bytes.iter().zip(&doubles) {
        let [sent, of_doubles] = [bytes, doubles].map(|run| run["bytes_per_exchange"].as_u64());
        assert_eq!(sent.map(|sent| 8 * sent), of_doubles);
        assert_eq!(bytes["result"], doubles["result"]);
    }
}

#[test]
fn no_steps_are_the_first_generation() {
    let folder = Folder::new();
    let records = folder.records(SMALL, &["app.steps=0"]);
    assert_verified(&records);
    assert!(records.iter().all(|run| run["compute_s"] == 0.0 && run["halo_s"] == 0.0));
}

#[test]
fn without_verification_nobody_looks() {
    let folder = Folder::new();
    let records = folder.records(SMALL, &["run.verify=false"]);
    assert!(records.iter().all(|run| run["verified"].is_null()));
    assert!(folder.read_out("final.rle").contains("x = 40, y = 24, rule = B3/S23"));
}
