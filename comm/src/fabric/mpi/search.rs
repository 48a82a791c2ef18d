//! Where MPI libraries are looked for, in which order.

use super::launcher::{Family, Launcher};
use std::fmt;
use std::path::{Path, PathBuf};

/// The names under which libraries are known to the loader. The standard ABI comes first: it is the one
/// that is promised to stay.
pub(crate) const SONAMES: [&str; 4] = ["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40"];

/// What Cray MPICH is called, which has a name for each compiler. The last is in the folder of each.
pub(crate) const CRAY_SONAMES: [&str; 9] = [
    "libmpi_cray.so.12",
    "libmpi_gnu.so.12",
    "libmpi_gnu_123.so.12",
    "libmpi_gnu_112.so.12",
    "libmpi_gnu_91.so.12",
    "libmpi_amd.so.12",
    "libmpi_intel.so.12",
    "libmpi_nvidia.so.12",
    "libmpich.so",
];

/// A library that may be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) place: Place,
    /// Why it is one.
    because: String,
}

/// Where a library is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file.
    File(PathBuf),
    /// Wherever the loader finds this name.
    Name(String),
}

impl Place {
    /// What the loader is told.
    pub(crate) fn name(&self) -> &Path {
        match self {
            Place::File(path) => path,
            Place::Name(name) => Path::new(name),
        }
    }
}

impl Candidate {
    /// Where it is looked for, without the name of the library.
    pub(crate) fn folder(&self) -> String {
        match &self.place {
            Place::File(path) => path.parent().unwrap_or(path).display().to_string(),
            Place::Name(_) => "the loader's path".to_owned(),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.place.name().display(), self.because)
    }
}

/// The names of the libraries of a family, the preferred first.
fn names(family: Option<Family>) -> Vec<&'static str> {
    match family {
        None => SONAMES.to_vec(),
        Some(Family::Mpich) => SONAMES[..3].to_vec(),
        // Its own name comes first: beside it, the standard's name may be that of another family's library.
        Some(Family::OpenMpi) => vec!["libmpi.so.40", "libmpi_abi.so.1"],
    }
}

/// As [`names`], of what is looked for in folders.
fn files(family: Option<Family>) -> Vec<&'static str> {
    let cray = if family == Some(Family::OpenMpi) { &[] } else { CRAY_SONAMES.as_slice() };
    [&names(family), cray].concat()
}

/// The folder of libraries that a distribution has for several architectures.
fn multiarch() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// The folders in which an installation has its libraries.
fn folders(prefix: &Path) -> Vec<PathBuf> {
    let distribution = Path::new("lib").join(multiarch());
    ["lib".as_ref(), "lib64".as_ref(), "lib/mpi".as_ref(), "lib/release".as_ref(), distribution.as_path()]
        .iter()
        .map(|folder: &&Path| prefix.join(folder))
        .collect()
}

/// All libraries that may be meant, in the order in which they are tried. Files need not exist.
pub(crate) fn candidates(asked: Option<&Path>, launcher: &Launcher) -> Vec<Candidate> {
    let mut found = Vec::new();
    if let Some(asked) = asked {
        let because = super::library::VARIABLE;
        // A folder; what is not there is named as one too, so that the message says what would have done.
        if asked.is_dir() || (asked.is_absolute() && !asked.exists() && !is_library(asked)) {
            let folders = std::iter::once(asked.to_owned()).chain(folders(asked)).collect::<Vec<_>>();
            add(&mut found, &folders, &files(launcher.family), because);
            // An installation of the other family is found as well: the launcher is then the one to change.
            add(&mut found, &folders, &files(None), because);
        } else if asked.components().count() > 1 || asked.exists() {
            // Absolute, as the loader looks for a name without a slash elsewhere.
            let path = std::path::absolute(asked).unwrap_or_else(|_| asked.to_owned());
            found.push(Candidate { place: Place::File(path), because: because.to_owned() });
        } else {
            let place = Place::Name(asked.to_string_lossy().into_owned());
            found.push(Candidate { place, because: because.to_owned() });
        }
        return found;
    }
    let files = files(launcher.family);
    for program in &launcher.programs {
        if let Some(prefix) = program.parent().and_then(Path::parent) {
            add(&mut found, &folders(prefix), &files, &format!("beside {}", program.display()));
        }
    }
    let roots: [(&str, Option<Family>); 3] = [
        ("I_MPI_ROOT", Some(Family::Mpich)),
        ("CRAY_MPICH_DIR", Some(Family::Mpich)),
        ("OPAL_PREFIX", Some(Family::OpenMpi)),
    ];
    for (variable, family) in roots {
        if let Some(prefix) = std::env::var_os(variable)
            && (launcher.family.is_none() || launcher.family == family)
        {
            add(&mut found, &folders(Path::new(&prefix)), &files, variable);
        }
    }
    for name in names(launcher.family) {
        let place = Place::Name(name.to_owned());
        found.push(Candidate { place, because: "the loader's path".to_owned() });
    }
    let system = [
        Path::new("/usr/lib").join(multiarch()),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
        "/opt/cray/pe/lib64".into(),
    ];
    add(&mut found, &system, &files, "a folder of the system");
    if launcher.evidence.is_none() {
        for program in installed_launchers() {
            if let Some(prefix) = program.parent().and_then(Path::parent) {
                add(&mut found, &folders(prefix), &files, &format!("beside {}", program.display()));
            }
        }
    }
    found
}

fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"))
}

fn add(found: &mut Vec<Candidate>, folders: &[PathBuf], names: &[&str], because: &str) {
    for folder in folders {
        for name in names {
            let place = Place::File(folder.join(name));
            if !found.iter().any(|one| one.place == place) {
                found.push(Candidate { place, because: because.to_owned() });
            }
        }
    }
}

/// The launchers on the search path of programs.
fn installed_launchers() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs: Vec<PathBuf> = std::env::split_paths(&path)
        .filter_map(|folder| std::fs::canonicalize(folder.join("mpiexec")).ok())
        .collect();
    programs.dedup();
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(family: Option<Family>, program: &str) -> Launcher {
        Launcher {
            family,
            programs: vec![program.into()],
            evidence: Some("X=1".into()),
            ..Launcher::default()
        }
    }

    fn position(found: &[Candidate], place: &Place) -> usize {
        found
            .iter()
            .position(|one| one.place == *place)
            .unwrap_or_else(|| panic!("{place:?} is not looked at"))
    }

    #[test]
    fn the_launchers_own_library_comes_first_and_the_standard_abi_before_others() {
        let found = candidates(None, &launcher(Some(Family::Mpich), "/opt/mpich/bin/hydra_pmi_proxy"));
        assert_eq!(found[0].place, Place::File("/opt/mpich/lib/libmpi_abi.so.1".into()));
        assert_eq!(found[1].place, Place::File("/opt/mpich/lib/libmpi.so.12".into()));
        let by_loader = position(&found, &Place::Name("libmpi_abi.so.1".into()));
        let by_system = position(&found, &Place::File(Path::new("/usr/lib64").join("libmpi.so.12")));
        assert!(by_loader < by_system);
        assert!(!found.iter().any(|one| one.place.name().ends_with("libmpi.so.40")), "is of another family");
    }

    #[test]
    fn an_open_mpi_launcher_gets_open_mpi() {
        let found = candidates(None, &launcher(Some(Family::OpenMpi), "/usr/bin/orterun"));
        assert_eq!(found[0].place, Place::File("/usr/lib/libmpi.so.40".into()));
        position(&found, &Place::File(Path::new("/usr/lib").join(multiarch()).join("libmpi.so.40")));
        assert!(!found.iter().any(|one| one.place.name().ends_with("libmpich.so.12")));
        assert!(!found.iter().any(|one| one.place.name().ends_with("libmpich.so")));
    }

    #[test]
    fn a_cray_has_its_own_names_behind_those_of_all() {
        let found = candidates(None, &Launcher::default());
        let folder = Path::new("/opt/cray/pe/lib64");
        let [common, own] = ["libmpi.so.12", "libmpi_cray.so.12"]
            .map(|name| position(&found, &Place::File(folder.join(name))));
        assert!(common < own);
        let installation = candidates(Some(Path::new("/opt/cray/mpich")), &Launcher::default());
        position(&installation, &Place::File("/opt/cray/mpich/lib/libmpi_gnu_123.so.12".into()));
        position(&installation, &Place::File("/opt/cray/mpich/lib/libmpich.so".into()));
    }

    #[test]
    fn what_is_asked_for_is_the_only_candidate() {
        let only = |asked: &str| candidates(Some(Path::new(asked)), &Launcher::default());
        let file = only("/opt/x/libmpi.so.12.1");
        assert_eq!(file.len(), 1);
        assert_eq!(file[0].place, Place::File("/opt/x/libmpi.so.12.1".into()));
        let name = only("libmpi_cray.so.12");
        assert_eq!((name.len(), &name[0].place), (1, &Place::Name("libmpi_cray.so.12".into())));
        let installation = only("/opt/mpi");
        position(&installation, &Place::File("/opt/mpi/lib/libmpi_abi.so.1".into()));
        position(&installation, &Place::File("/opt/mpi/libmpi.so.40".into()));
        assert!(installation.iter().all(|one| one.place.name().starts_with("/opt/mpi")));
    }
}
