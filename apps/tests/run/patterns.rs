//! Famous patterns, whose histories others have published, across the boundaries between ranks.

use serde_json::Value;

use super::{BACKENDS, FABRICS, Folder, SMALL, assert_verified, checksums, pattern};

fn populations(records: &[Value]) -> Vec<u64> {
    let population = |run: &Value| run["result"]["population"].as_u64().expect("is a number");
    records.iter().map(population).collect()
}

/// What has a pattern played on two by two ranks only.
const ON_FOUR: &str = "run.ranks=4";

/// Plays a pattern whose upper left cell sits in the lower right corner of the grid: on a torus of
/// two by two ranks it begins on all four of them and across both seams.
fn across_the_corner(name: &str, side: usize, generations: usize, set: &[&str]) -> Vec<Value> {
    let folder = Folder::new();
    let (steps, cells) = (format!("app.steps={generations}"), format!("grid.cells=[{side}, {side}]"));
    let origin = format!("app.origin=[{}, {}]", side - 1, side - 1);
    let pattern = pattern(name);
    let layout = match set.contains(&ON_FOUR) {
        true => "run.layout=[[2, 2]]",
        false => "run.layout=[[1, 1], [2, 1], [2, 2]]",
    };
    let always = [pattern.as_str(), &steps, &cells, &origin, layout];
    let records = folder.records(SMALL, &[&always, set].concat());
    assert_verified(&records);
    assert_eq!(checksums(&records).len(), 1, "{name}");
    records
}

#[test]
fn methuselahs_settle_when_published() {
    for (name, generations, population) in
        [("diehard", 129, 2), ("diehard", 130, 0), ("b-heptomino", 148, 28), ("pi-heptomino", 173, 55)]
    {
        let records = across_the_corner(name, 64, generations, &[]);
        assert_eq!(records.len(), 3 * BACKENDS.len());
        assert!(populations(&records).iter().all(|found| *found == population), "{name}: {records:?}");
    }
}

/// 1103 generations after which 116 cells are left, six gliders among them, which need this much
/// space not to meet. A debug build computes fifty times slower and plays it once.
#[test]
fn the_r_pentomino_settles_at_generation_1103() {
    let one = [ON_FOUR, "comm.backend=st-rsend"];
    let set: &[&str] = if cfg!(debug_assertions) { &one } else { &[] };
    let records = across_the_corner("r-pentomino", 480, 1103, set);
    assert_eq!(records.len(), if cfg!(debug_assertions) { 1 } else { 3 * BACKENDS.len() });
    assert!(populations(&records).iter().all(|found| *found == 116), "{records:?}");
}

/// After four generations per cell of the side a glider is where it began, whichever seams it has
/// crossed.
#[test]
fn a_glider_comes_back_around_the_torus() {
    for fabric in FABRICS {
        let fabric = format!("comm.fabric={fabric}");
        let around = across_the_corner("glider", 20, 80, &[&fabric]);
        let start = across_the_corner("glider", 20, 0, &[&fabric]);
        assert_eq!(checksums(&around), checksums(&start));
        assert!(populations(&around).iter().all(|found| *found == 5));
        let elsewhere = across_the_corner("glider", 20, 40, &[&fabric]);
        assert_ne!(checksums(&elsewhere), checksums(&start));
    }
}

#[test]
fn the_glider_field_repeats_after_32_generations() {
    let folder = Folder::new();
    let set = ["app.pattern=glider-field", "grid.cells=[24, 48]", "run.layout=[[1, 1], [1, 2], [2, 2]]"];
    let play = |generations: usize| {
        let steps = format!("app.steps={generations}");
        let records = folder.records(SMALL, &[&set[..], &[&steps]].concat());
        assert_verified(&records);
        assert!(populations(&records).iter().all(|found| *found == 5 * 3 * 6));
        assert_eq!(checksums(&records).len(), 1);
        checksums(&records)[0].to_owned()
    };
    let start = play(0);
    assert_ne!(play(31), start);
    assert_eq!(play(32), start);
}
