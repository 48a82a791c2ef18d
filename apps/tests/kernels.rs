//! Whether the kernels of all applications, and those of fields of any type, compile for GPUs, which needs none.

use std::collections::BTreeSet;
use std::path::Path;

use streamhalo::comm::Error;
use streamhalo::comm::device::{Capability, compile_for_cuda};
use streamhalo::{KernelText, Mirrored, Reducible};
use streamhalo_apps::app::ApplicationRow;
use streamhalo_apps::config::{KnownNames, Overrides, RunConfig};

/// Settings that make an application launch each of its kernels.
const SETTINGS: [&str; 9] = [
    "name = 'life'\npattern = 'random:1'\ncells_as = 'u8'",
    "name = 'life'\npattern = 'random:1'\ncells_as = 'f64'",
    "name = 'faces'\nextra_compute = 1",
    "name = 'stencil3d'\nequation = 'jacobi'\npoints = 7\nelement = 'f32'\nresidual_every = 1",
    "name = 'stencil3d'\nequation = 'jacobi'\npoints = 7\nelement = 'f64'\nresidual_every = 1",
    "name = 'stencil3d'\nequation = 'jacobi'\npoints = 27\nelement = 'f32'\nresidual_every = 1",
    "name = 'stencil3d'\nequation = 'jacobi'\npoints = 27\nelement = 'f64'\nresidual_every = 1",
    "name = 'comb'\nelement = 'f32'",
    "name = 'comb'\nelement = 'f64'",
];

/// The kernels that the library has for fields of any type.
fn kernels_of_fields() -> impl Iterator<Item = &'static KernelText> {
    let of_reductions = [u8::texts(), i32::texts(), i64::texts(), f32::texts(), f64::texts()];
    let of_boundaries = [u8::text(), i32::text(), i64::text(), f32::text(), f64::text()];
    of_reductions.into_iter().flatten().chain(of_boundaries)
}

/// The kernels of all applications, each once.
fn kernels() -> Vec<&'static KernelText> {
    let names = KnownNames { backends: &["st-send"], fabrics: &["local"], devices: &["host"] };
    let mut seen = BTreeSet::new();
    let kernels = SETTINGS.iter().flat_map(|settings| {
        let text = format!("[app]\n{settings}\n");
        let config = RunConfig::parse("f.toml", &text, &Overrides::default(), &names);
        let application = ApplicationRow::open(&config.unwrap_or_else(|error| panic!("{error}")));
        application.unwrap_or_else(|error| panic!("{error}")).device_kernels()
    });
    kernels.filter(|kernel| seen.insert((kernel.name, kernel.source))).collect()
}

/// The files of kernels below a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is a folder of this package");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let of_path = |path: &Path| match path.extension() {
        Some(extension) if extension == "cl" => vec![std::fs::read_to_string(path).expect("it is text")],
        _ if path.is_dir() => files(path),
        _ => Vec::new(),
    };
    paths.flat_map(|path| of_path(&path)).collect()
}

#[test]
fn no_kernel_is_left_out() {
    let (kernels, files) = (kernels(), files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
    assert!(files.len() > 1, "applications have kernels");
    for file in files {
        assert!(
            kernels.iter().any(|kernel| kernel.source.contains(&file)),
            "in none of the settings:\n{file}"
        );
    }
}

/// Compiles all of them for each of the targets.
fn compile(targets: &[&str], compile: impl Fn(&KernelText, &str) -> Result<Vec<u8>, Error>) {
    for (kernel, target) in kernels()
        .into_iter()
        .chain(kernels_of_fields())
        .flat_map(|kernel| targets.iter().map(move |target| (kernel, target)))
    {
        match compile(kernel, target) {
            Ok(code) => assert!(!code.is_empty(), "{}: {target}", kernel.name),
            Err(Error::DeviceUnavailable { device, reason }) => {
                println!("skipped: compiling kernels of applications for {device}: {reason}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn cuda_compiles_the_kernels_of_all_applications() {
    compile(&["7.0", "8.0", "9.0"], |kernel, target| {
        let [major, minor] = [0, 2].map(|at| target[at..=at].parse().expect("a digit"));
        compile_for_cuda(kernel, Capability { major, minor })
    });
}

/// Two architectures of the data centre's, with waves of 64 threads, and one with waves of 32.
#[cfg(feature = "hip")]
#[test]
fn hip_compiles_the_kernels_of_all_applications() {
    compile(&["gfx908", "gfx90a", "gfx1030"], streamhalo::comm::device::compile_for_hip);
}
