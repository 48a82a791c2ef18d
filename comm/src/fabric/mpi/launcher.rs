//! Which launcher started this process, as far as the environment and the parent processes tell.

use std::path::{Path, PathBuf};

/// Launchers and libraries that belong together: a library asks its own family's launcher for its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// MPICH, Intel MPI, Cray MPICH, MVAPICH, ParaStation MPI.
    Mpich,
    /// Open MPI, and what is built on its run-time system.
    OpenMpi,
}

impl Family {
    /// The name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Mpich => "MPICH (or Intel, Cray, MVAPICH)",
            Family::OpenMpi => "Open MPI",
        }
    }

    /// The family of a library by what it says of itself; `None` for one that is not known.
    pub(crate) fn of_library(version: &str) -> Option<Self> {
        let version = version.to_ascii_lowercase();
        if version.contains("open mpi") {
            Some(Family::OpenMpi)
        } else if ["mpich", "intel", "mvapich", "parastation"].iter().any(|name| version.contains(name)) {
            Some(Family::Mpich)
        } else {
            None
        }
    }
}

/// What started this process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Launcher {
    /// The family, where only one is possible.
    pub(crate) family: Option<Family>,
    /// By what it is known: a variable with its value, or a program.
    pub(crate) evidence: Option<String>,
    /// How many ranks it started, with the variable that says so.
    pub(crate) size: Option<(&'static str, usize)>,
    /// Which of them this process is.
    pub(crate) rank: Option<usize>,
    /// The launching programs among the parent processes, the nearest first.
    pub(crate) programs: Vec<PathBuf>,
}

/// What an MPI launcher has told this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// How many ranks it has started, where it says so.
    pub ranks: Option<usize>,
    /// Which of them this process is, where it says so.
    pub rank: Option<usize>,
    /// By what it is known: a variable with its value, or a program.
    pub evidence: String,
}

/// What the MPI launcher of this process has told it, if one has started it. Neither opens a library nor
/// communicates.
pub fn launched() -> Option<Launched> {
    let Launcher { family, evidence, size, rank, .. } = Launcher::of_this_process();
    // A Slurm batch script has a variable of its own, but is no rank.
    if family.is_none() && size.is_none() {
        return None;
    }
    let ranks = size.map(|(_, ranks)| ranks);
    let evidence = match size {
        Some((variable, ranks)) => format!("{variable}={ranks}"),
        None => evidence.unwrap_or_default(),
    };
    Some(Launched { ranks, rank, evidence })
}

impl Launcher {
    /// The launcher of this process.
    pub(crate) fn of_this_process() -> Self {
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self::detect(&variables, &parents())
    }

    /// The launcher by the environment and the programs of the parent processes, the nearest first.
    pub(crate) fn detect(variables: &[(String, String)], parents: &[PathBuf]) -> Self {
        let value =
            |name: &str| variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let starting = |prefix: &str| variables.iter().find(|(name, _)| name.starts_with(prefix));
        let said = |name: &str| value(name).map(|value| format!("{name}={value}"));

        let programs: Vec<PathBuf> = parents.iter().filter(|path| is_launcher(path)).cloned().collect();
        let nearest = programs.iter().find_map(|path| Some((program_family(path)?, path)));
        let open_mpi = said("OMPI_COMM_WORLD_SIZE");
        let hydra = ["HYDI_", "HYDRA_BSTRAP_"]
            .iter()
            .find_map(|prefix| starting(prefix))
            .map(|(name, value)| format!("{name}={value}"));
        // These serve every family by their own PMI and PMIx, so that the variables of those tell nothing there.
        let manager = said("SLURM_PROCID").or_else(|| said("FLUX_TASK_RANK"));
        let pmi = said("PMI_RANK").or_else(|| said("PMI_SIZE")).filter(|_| manager.is_none());
        let pmix = said("PMIX_RANK").filter(|_| manager.is_none());

        let (family, evidence) = match (open_mpi, hydra) {
            // A launcher inside the ranks of another one inherits its variables.
            (Some(_), Some(_)) if nearest.is_some() => {
                let (family, path) = nearest.expect("checked");
                (Some(family), Some(path.display().to_string()))
            }
            (Some(evidence), _) => (Some(Family::OpenMpi), Some(evidence)),
            (None, Some(evidence)) => (Some(Family::Mpich), Some(evidence)),
            (None, None) => match (pmi, pmix) {
                (Some(evidence), _) => (Some(Family::Mpich), Some(evidence)),
                (None, Some(evidence)) => (Some(Family::OpenMpi), Some(evidence)),
                (None, None) => (None, manager),
            },
        };
        let sizes: &[&'static str] = match family {
            Some(Family::OpenMpi) => &["OMPI_COMM_WORLD_SIZE"],
            Some(Family::Mpich) => &["PMI_SIZE"],
            None => &["PMI_SIZE", "SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE"],
        };
        let size = sizes.iter().find_map(|name| Some((*name, value(name)?.parse().ok()?)));
        let ranks: &[&str] = match family {
            Some(Family::OpenMpi) => &["OMPI_COMM_WORLD_RANK", "PMIX_RANK"],
            Some(Family::Mpich) => &["PMI_RANK"],
            None => &["PMI_RANK", "SLURM_PROCID"],
        };
        let rank = ranks.iter().find_map(|name| value(name)?.parse().ok());
        Self { family, evidence, size, rank, programs }
    }

    /// Why a library of this version must not be initialised under this launcher, if so. It would find
    /// nobody to ask for its rank, and every process would become a world of its own.
    pub(crate) fn mismatch(&self, library: &Path, version: &str) -> Option<String> {
        let (ours, theirs) = (self.family?, Family::of_library(version)?);
        (ours != theirs).then(|| {
            format!(
                "the launcher is of the family {} ({}), but the library {} is of the family {} (`{}`), \
                 so that every rank would be alone; start with the `mpiexec` of that library, \
                 or set {} to a library of the launcher",
                ours.name(),
                self.evidence.as_deref().unwrap_or("by its program"),
                library.display(),
                theirs.name(),
                first_line(version),
                super::library::VARIABLE,
            )
        })
    }

    /// Why the world of an initialised library is not the launcher's, if so.
    pub(crate) fn wrong_size(&self, library: &Path, found: usize) -> Option<String> {
        let (variable, started) = self.size?;
        (started != found).then(|| {
            format!(
                "the launcher started {started} ranks ({variable}={started}), but the library {} sees {found}; \
                 launcher and library do not belong together: start with the `mpiexec` of that library \
                 (under Slurm with `srun --mpi=pmi2` or `--mpi=pmix`, as the library was built), \
                 or set {} to another library",
                library.display(),
                super::library::VARIABLE,
            )
        })
    }
}

/// The first line of a version text, which can have dozens.
pub(crate) fn first_line(version: &str) -> &str {
    version.lines().next().unwrap_or_default().trim()
}

fn program_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_launcher(path: &Path) -> bool {
    let name = program_name(path);
    ["mpiexec", "mpirun", "hydra_", "orterun", "orted", "prterun", "prted"]
        .iter()
        .any(|start| name.starts_with(start))
}

fn program_family(path: &Path) -> Option<Family> {
    let name = program_name(path);
    if name.contains("hydra") || name.ends_with(".mpich") {
        Some(Family::Mpich)
    } else if name.starts_with("orte") || name.starts_with("prte") || name.ends_with(".openmpi") {
        Some(Family::OpenMpi)
    } else {
        None
    }
}

/// The programs of the parent processes, the nearest first; those that may not be looked at are left out.
fn parents() -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut process = std::process::id();
    // Process tables have no loops, but a process may end and its number be used again meanwhile.
    for _ in 0..64 {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { break };
        // The program's name is in parentheses and may itself contain blanks and parentheses.
        let fields = status.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let Some(Ok(parent)) = fields.split_whitespace().nth(1).map(str::parse::<u32>) else { break };
        if parent <= 1 {
            break;
        }
        if let Ok(program) = std::fs::read_link(format!("/proc/{parent}/exe")) {
            programs.push(program);
        }
        process = parent;
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)], parents: &[&str]) -> Launcher {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Launcher::detect(&variables, &parents.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let open_mpi = detect(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")], &[]);
        assert_eq!(open_mpi.family, Some(Family::OpenMpi));
        assert_eq!(open_mpi.size, Some(("OMPI_COMM_WORLD_SIZE", 4)));
        let hydra = detect(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("HYDI_CONTROL_FD", "7")], &[]);
        assert_eq!((hydra.family, hydra.size), (Some(Family::Mpich), Some(("PMI_SIZE", 2))));
        assert_eq!((open_mpi.rank, hydra.rank), (Some(0), Some(1)));
        assert_eq!(detect(&[("PMIX_RANK", "0")], &[]).family, Some(Family::OpenMpi));
        // Users set this one for a shell; it starts nothing.
        assert_eq!(detect(&[("I_MPI_ROOT", "/opt/intel")], &[]), Launcher::default());
    }

    #[test]
    fn a_resource_manager_serves_every_family() {
        let step = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8")];
        for more in [("PMI_RANK", "0"), ("PMIX_RANK", "0"), ("PMI_FD", "5")] {
            let slurm = detect(&[&step[..], &[more]].concat(), &[]);
            assert_eq!((slurm.family, slurm.size), (None, Some(("SLURM_STEP_NUM_TASKS", 8))));
        }
        let flux = detect(&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "8"), ("PMI_RANK", "0")], &[]);
        assert_eq!((flux.family, flux.size), (None, Some(("FLUX_JOB_SIZE", 8))));
        let inside = [("PMI_RANK", "0"), ("PMI_SIZE", "16"), ("HYDRA_BSTRAP_LAUNCHER", "slurm")];
        let hydra = detect(&[&step[..], &inside].concat(), &[]);
        assert_eq!((hydra.family, hydra.size), (Some(Family::Mpich), Some(("PMI_SIZE", 16))));
    }

    #[test]
    fn the_nearest_program_decides_between_two_launchers() {
        let both = [("OMPI_COMM_WORLD_SIZE", "1"), ("HYDI_CONTROL_FD", "7"), ("PMI_SIZE", "2")];
        let parents = ["/bin/sh", "/m/bin/hydra_pmi_proxy", "/m/bin/mpiexec", "/o/bin/prterun"];
        let inner = detect(&both, &parents);
        assert_eq!((inner.family, inner.size), (Some(Family::Mpich), Some(("PMI_SIZE", 2))));
        assert_eq!(inner.programs, parents[1..].iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(detect(&both, &parents[3..]).family, Some(Family::OpenMpi));
    }

    #[test]
    fn a_library_of_another_family_is_refused() {
        let hydra = detect(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &[]);
        let library = Path::new("/usr/lib/libmpi.so.40");
        let message = hydra.mismatch(library, "Open MPI v4.1.4, package: Debian").expect("they differ");
        for part in ["PMI_RANK=0", "/usr/lib/libmpi.so.40", "Open MPI v4.1.4", "STREAMHALO_MPI"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(hydra.mismatch(library, "Intel(R) MPI Library 2021.18"), None);
        assert_eq!(hydra.mismatch(library, "CRAY MPICH version 8.1.28.15"), None);
        assert_eq!(hydra.mismatch(library, "a library that nobody knows"), None);
        assert_eq!(Launcher::default().mismatch(library, "Open MPI"), None);
    }

    #[test]
    fn a_world_of_the_wrong_size_is_refused() {
        let hydra = detect(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &[]);
        let message = hydra.wrong_size(Path::new("/x/libmpi.so.12"), 1).expect("2 is not 1");
        for part in ["started 2 ranks", "PMI_SIZE=2", "/x/libmpi.so.12", "sees 1", "srun"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(hydra.wrong_size(Path::new("/x"), 2), None);
        assert_eq!(Launcher::default().wrong_size(Path::new("/x"), 1), None);
    }
}
