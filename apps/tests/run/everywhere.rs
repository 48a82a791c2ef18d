//! Every application at 1, 2, 4 and 8 ranks over every fabric, with every backend that serves it, on the host and on a device:
//! one answer.

use super::launchers::{Launcher, any_launcher};
use super::opencl::is_there;
use super::rendezvous::has_libfabric;
use super::{BACKENDS, FABRICS, Folder, assert_verified, checksums, text};
use crate::pipeline::PRIMITIVES;
use serde_json::Value;
use streamhalo_apps::app::APPLICATIONS;

/// A few steps of each application, and of its kernels of other kinds, on a grid that 8 ranks can share, by its name, with
/// the backends that serve it.
pub(super) const CONFIGS: &[(&str, &str, &[&str])] = &[
    ("life", "app = { steps = 6, pattern = 'random:7' }\ngrid = { cells = [24, 40] }", &BACKENDS),
    (
        "life",
        "app = { steps = 5, pattern = 'random:3', cells_as = 'f64' }\ngrid = { cells = [16, 24] }",
        &BACKENDS,
    ),
    ("life", "app = { steps = 6, pattern = 'random:7' }\ngrid = { cells = [24, 40] }", &["auto"]),
    (
        "faces",
        "app = { name = 'faces', order = 2, steps = 2, outer = 1, middle = 1 }\ngrid = { cells = [4, 4, 4] }",
        &BACKENDS,
    ),
    ("stencil3d", "app = { name = 'stencil3d', steps = 3 }\ngrid = { cells = [9, 10, 11] }", &BACKENDS),
    (
        "stencil3d",
        "app = { name = 'stencil3d', equation = 'jacobi', points = 27, element = 'f32', steps = 3 }\n\
         grid = { cells = [8, 9, 10], periodic = false }",
        &BACKENDS,
    ),
    ("pipeline", "app = { name = 'pipeline', steps = 2 }\ngrid = { cells = [12, 17] }", &PRIMITIVES),
    ("tree", "app = { name = 'tree', arity = 2, elements = 3, steps = 2 }\ngrid.cells = 19", &PRIMITIVES),
    ("cholesky", "app = { name = 'cholesky', tile = 4, steps = 2 }\ngrid.cells = 24", &PRIMITIVES),
    ("comb", "app = { name = 'comb', steps = 2, variables = 2 }\ngrid = { cells = [6, 8, 10] }", &BACKENDS),
];

const RANKS: [u64; 4] = [1, 2, 4, 8];

/// What a configuration comes to over a fabric.
fn config(app: &str, fabric: &str, backends: &[&str], ranks: &[u64]) -> String {
    format!(
        "{app}\nrun = {{ ranks = {ranks:?}, trials = 1, warmup = 0, pin = false }}\n\
         comm = {{ fabric = '{fabric}', backend = {backends:?}, timeout_s = 60 }}\n"
    )
}

/// The records are of all ranks and backends, right, and of that answer, or of one if that is the first.
fn check(records: &[Value], ranks: &[u64], backends: &[&str], answer: &mut Option<String>, what: &str) {
    assert_verified(records);
    let of = |key: &str| records.iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    let all = backends.repeat(ranks.len());
    let ranks: Vec<_> = ranks.iter().flat_map(|ranks| backends.iter().map(|_| Value::from(*ranks))).collect();
    assert_eq!((of("ranks"), of("backend")), (ranks, all.into_iter().map(Value::from).collect()), "{what}");
    let found = checksums(records);
    assert_eq!(found.len(), 1, "{what}: {found:?}");
    let answer = answer.get_or_insert_with(|| found[0].to_owned());
    assert_eq!(answer, found[0], "{what}");
}

#[test]
fn every_application_gives_one_answer_everywhere() {
    let mut named: Vec<_> = CONFIGS.iter().map(|(name, ..)| *name).collect();
    named.dedup();
    assert_eq!(named, APPLICATIONS.iter().map(|row| row.name).collect::<Vec<_>>(), "all of them are tried");
    // Ranks that a launcher has started are there once for all their numbers: setting up libfabric is what takes time.
    let launcher = any_launcher();
    let over_libfabric = if has_libfabric() { &["ofi", "shm+ofi"][..] } else { &[] };
    let (of_its_own, by_launcher) = match launcher {
        Some(_) => (&[][..], [&["mpi", "shm+mpi"][..], over_libfabric].concat()),
        None => (over_libfabric, Vec::new()),
    };
    let mut before = "";
    for (turn, (name, app, backends)) in CONFIGS.iter().enumerate() {
        let (folder, mut answer) = (Folder::new(), None);
        for fabric in FABRICS {
            let records = folder.records(&config(app, fabric, backends, &RANKS), &[]);
            check(&records, &RANKS, backends, &mut answer, &format!("{name} over {fabric}"));
        }
        // A wire carries the bytes of an application whatever they mean: of its other kernels at one number of ranks.
        let one = [RANKS[(turn + 1) % RANKS.len()]];
        let ranks = if std::mem::replace(&mut before, name) == *name { &one[..] } else { &RANKS };
        for fabric in of_its_own {
            let records = folder.records(&config(app, fabric, backends, ranks), &[]);
            check(&records, ranks, backends, &mut answer, &format!("{name} over {fabric}"));
        }
        for (launcher, fabric) in
            launcher.iter().flat_map(|one| by_launcher.iter().map(move |fabric| (one, fabric)))
        {
            let records =
                launched(launcher, &folder, &config(app, fabric, backends, ranks), ranks[ranks.len() - 1]);
            check(&records, ranks, backends, &mut answer, &format!("{name} over {fabric}"));
        }
    }
}

/// What comes of a configuration under a launcher of so many ranks.
fn launched(launcher: &Launcher, folder: &Folder, config: &str, ranks: u64) -> Vec<Value> {
    let file = folder.write("config.toml", config);
    let [file, out] = [file, folder.out()].map(|path| path.display().to_string());
    let output = launcher.streamhalo(folder, ranks as usize, &["run".into(), file, "--out".into(), out]);
    assert_eq!(output.status.code(), Some(0), "{config}: {}", text(&output.stderr));
    folder.records_there()
}

/// Over each fabric once, at a number of ranks that goes round from one to the next: so every fabric meets every number of
/// ranks, and so does every application.
#[test]
fn every_application_gives_the_answer_of_the_host_on_a_device_over_every_fabric() {
    if !is_there() {
        return;
    }
    let launcher = any_launcher();
    let of_its_own = if has_libfabric() { &["ofi", "shm+ofi"][..] } else { &[] };
    let on_devices = CONFIGS.iter().filter(|(.., backends)| **backends == BACKENDS);
    for (turn, (name, app, backends)) in on_devices.enumerate() {
        let folder = Folder::new();
        let on_host = folder.records(&config(app, "local", &["standard"], &[1]), &[]);
        let mut answer = Some(checksums(&on_host)[0].to_owned());
        let ranks = |place: usize| RANKS[(turn + place) % RANKS.len()];
        let config =
            |fabric: &str, ranks: u64| format!("{}\n{DEVICE}\n", config(app, fabric, backends, &[ranks]));
        let mut check = |records: &[Value], fabric: &str, ranks: u64| {
            let what = format!("{name} over {fabric} at {ranks} ranks");
            check(records, &[ranks], backends, &mut answer, &what);
            let on_devices = records.iter().all(|run| run["device"] == "opencl" && run["fabric"] == fabric);
            assert!(on_devices, "{what}");
        };
        for (place, fabric) in ["shm"].iter().chain(of_its_own).enumerate() {
            let records = folder.records(&config(fabric, ranks(place)), &[]);
            check(&records, fabric, ranks(place));
        }
        let by_launcher = [(3, "mpi"), (4, "shm+mpi")];
        for (launcher, (place, fabric)) in launcher.iter().flat_map(|one| by_launcher.map(|how| (one, how))) {
            let records = launched(launcher, &folder, &config(fabric, ranks(place)), ranks(place));
            check(&records, fabric, ranks(place));
        }
    }
}

/// What chooses a device that computes on the host's cores.
const DEVICE: &str = "device.kind = 'opencl'";
