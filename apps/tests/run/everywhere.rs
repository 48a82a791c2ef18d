//! Every application at 1, 2, 4 and 8 ranks over every fabric, with every backend that serves it: one answer.

use super::launchers::first_launcher;
use super::rendezvous::has_libfabric;
use super::{BACKENDS, FABRICS, Folder, assert_verified, checksums, text};
use crate::pipeline::PRIMITIVES;
use serde_json::Value;
use streamhalo_apps::app::APPLICATIONS;

/// A few steps of each application on a grid that 8 ranks can share, by its name, with the backends that serve it.
pub(super) const CONFIGS: &[(&str, &str, &[&str])] = &[
    ("life", "app = { steps = 6, pattern = 'random:7' }\ngrid = { cells = [24, 40] }", &BACKENDS),
    (
        "faces",
        "app = { name = 'faces', order = 2, steps = 2, outer = 1, middle = 1 }\ngrid = { cells = [4, 4, 4] }",
        &BACKENDS,
    ),
    ("stencil3d", "app = { name = 'stencil3d', steps = 3 }\ngrid = { cells = [9, 10, 11] }", &BACKENDS),
    ("pipeline", "app = { name = 'pipeline', steps = 2 }\ngrid = { cells = [12, 17] }", &PRIMITIVES),
    ("tree", "app = { name = 'tree', arity = 2, elements = 3, steps = 2 }\ngrid.cells = 19", &PRIMITIVES),
    ("cholesky", "app = { name = 'cholesky', tile = 4, steps = 2 }\ngrid.cells = 24", &PRIMITIVES),
    ("comb", "app = { name = 'comb', steps = 2, variables = 2 }\ngrid = { cells = [6, 8, 10] }", &BACKENDS),
];

const RANKS: [u64; 4] = [1, 2, 4, 8];

/// What a configuration comes to over a fabric.
fn config(app: &str, fabric: &str) -> String {
    format!(
        "{app}\nrun = {{ ranks = [1, 2, 4, 8], trials = 1, warmup = 0, pin = false }}\n\
         comm = {{ fabric = '{fabric}', timeout_s = 60 }}\n"
    )
}

/// The records are of all ranks and backends, right, and of that answer, or of one if that is the first.
fn check(records: &[Value], backends: &[&str], answer: &mut Option<String>, what: &str) {
    assert_verified(records);
    let of = |key: &str| records.iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    let ranks: Vec<_> = RANKS.iter().flat_map(|ranks| backends.iter().map(|_| Value::from(*ranks))).collect();
    let all = [backends; RANKS.len()].concat();
    assert_eq!((of("ranks"), of("backend")), (ranks, all.into_iter().map(Value::from).collect()), "{what}");
    let found = checksums(records);
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    let answer = answer.get_or_insert_with(|| found[0].to_owned());
    assert_eq!(answer, found[0], "{what}");
}

#[test]
fn every_application_gives_one_answer_everywhere() {
    let named: Vec<_> = CONFIGS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(named, APPLICATIONS.iter().map(|row| row.name).collect::<Vec<_>>(), "all of them are tried");
    let of_its_own = if has_libfabric() { &["ofi", "shm+ofi"][..] } else { &[] };
    for (name, app, backends) in CONFIGS {
        let (folder, mut answer) = (Folder::new(), None);
        for fabric in FABRICS.iter().chain(of_its_own) {
            let records = folder.records(&config(app, fabric), &[]);
            check(&records, backends, &mut answer, &format!("{name} over {fabric}"));
        }
        first_launcher(|launcher| {
            for fabric in ["mpi", "shm+mpi"] {
                let file = folder.write("config.toml", &config(app, fabric));
                let [file, out] = [file, folder.out()].map(|path| path.display().to_string());
                let output = launcher.streamhalo(&folder, 8, &["run".into(), file, "--out".into(), out]);
                assert_eq!(output.status.code(), Some(0), "{name} over {fabric}: {}", text(&output.stderr));
                let results: Value = serde_json::from_str(&folder.read_out("results.json")).expect("is JSON");
                let records = results["runs"].as_array().expect("is a list");
                check(records, backends, &mut answer, &format!("{name} over {fabric}"));
            }
        });
    }
}
