//! `[comm]`: the backends to compare, the fabric they run over, and the limit of a wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamhalo::Signals;
use streamhalo::comm::backend::AUTO;

use super::device::{HOST, others};
use super::fault::{Fault, Located};
use super::names::{KnownNames, one_of};
use super::section::{Section, Shape, known_name};
use super::value::{Node, Value};

pub(super) const SHAPE: Shape<'static> =
    Shape { name: "comm", keys: &["backend", "fabric", "timeout_s", "signal", MEASURED] };

const MEASURED: &str = "measured";

/// What `standard` may be called on fabrics over MPI, and nowhere else.
const ALIAS: &str = "cray-mpich";
const STANDARD: &str = "standard";

fn is_over_mpi(fabric: &str) -> bool {
    fabric.ends_with("mpi")
}

/// A backend's own name, where it may be called [`ALIAS`] too.
///
/// # Errors
/// That it may not over this fabric.
pub(crate) fn own_name<'n>(backend: &'n str, fabric: &str) -> Result<&'n str, String> {
    match backend {
        ALIAS if is_over_mpi(fabric) => Ok(STANDARD),
        ALIAS => {
            Err(format!("`{ALIAS}` is a name of `{STANDARD}` on fabrics over MPI; here it is `{fabric}`"))
        }
        _ => Ok(backend),
    }
}

/// What stands for [`DEFAULT_BACKENDS`].
const ALL: &str = "all";

/// The backends of the five protocols, which a configuration compares where it names none.
const DEFAULT_BACKENDS: [&str; 5] = [STANDARD, "st-send", "st-rsend", "active-rma", "notified"];

/// How ghosts are exchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommConfig {
    /// Backends in the order of the runs, none twice, aliases resolved.
    pub backend: Vec<String>,
    /// The fabric.
    pub fabric: String,
    /// Limit of any wait in seconds; 0 for none.
    pub timeout_s: f64,
    /// How a GPU's stream signals; `None` on a host device, which has one way only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signals>,
    /// The file that keeps what `auto` measures from run to run, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<PathBuf>,
}

impl CommConfig {
    /// The limit of any wait, if there is one.
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout_s > 0.0).then(|| Duration::from_secs_f64(self.timeout_s))
    }
}

/// `folder` is the folder of the configuration file.
pub(super) fn read(
    section: &Section<'_>,
    names: &KnownNames<'_>,
    device: &str,
    folder: &Path,
) -> Result<CommConfig, Fault> {
    let fabric = section.name("fabric", names.fabrics)?;
    let fabric = fabric.map_or_else(|| "local".to_owned(), |fabric| fabric.value);
    let signal = section.named("signal", Signals::ALL, Signals::name)?.unwrap_or_default();
    if device == HOST {
        section.refuse_on(HOST, &["signal"], &others(names.devices))?;
    }
    let backend = read_backends(section, names.backends, &fabric)?;
    Ok(CommConfig {
        measured: read_measured(section, &backend, folder)?,
        backend,
        fabric,
        timeout_s: section.seconds("timeout_s")?.unwrap_or(60.0),
        signal: (device != HOST).then_some(signal),
    })
}

/// A relative path in a configuration file starts at that file's folder, one in a flag at the working directory.
fn read_measured(
    section: &Section<'_>,
    backends: &[String],
    folder: &Path,
) -> Result<Option<PathBuf>, Fault> {
    let Some(path) = section.string(MEASURED, "the path of a file for what `auto` measures")? else {
        return Ok(None);
    };
    if !backends.iter().any(|backend| backend == AUTO) {
        let message = format!("`comm.measured` is for the backend `{AUTO}`, which is not one of this run's");
        return Err(Fault::new(&path.origin, message).hint(format!("name `{AUTO}` in `comm.backend`")));
    }
    let found = path.origin.base(folder).join(&path.value);
    if found.file_name().is_none() {
        let message = format!("`comm.measured` is `{}`, which names no file", path.value);
        return Err(Fault::new(&path.origin, message).expected("the path of a file"));
    }
    Ok(Some(found))
}

fn read_backends(section: &Section<'_>, known: &[&str], fabric: &str) -> Result<Vec<String>, Fault> {
    let names = [known, &[ALL]].concat();
    let found = section
        .list("backend", &one_of(&names), |subject, node| read_backend(subject, node, &names, fabric))?;
    let found = found.filter(|found| !matches!(&found.values[..], [only] if only.value == ALL));
    let Some(found) = found else {
        let built_in = DEFAULT_BACKENDS.iter().filter(|name| known.contains(name));
        return Ok(built_in.map(|name| (*name).to_owned()).collect());
    };
    if let Some(all) = found.values.iter().find(|backend| backend.value == ALL) {
        let message = format!("`comm.backend` has `{ALL}` beside other names");
        return Err(Fault::new(&all.origin, message).expected(format!("`{ALL}`, or the names")));
    }
    let mut backends: Vec<String> = Vec::with_capacity(found.values.len());
    for backend in found.values {
        if backends.contains(&backend.value) {
            let message = format!("`comm.backend` names `{}` twice", backend.value);
            let fault = Fault::new(&backend.origin, message).expected("each backend once");
            return Err(match backend.value.as_str() {
                STANDARD if is_over_mpi(fabric) => fault.hint(format!("`{ALIAS}` is `{STANDARD}` too")),
                _ => fault,
            });
        }
        backends.push(backend.value);
    }
    Ok(backends)
}

/// One backend by its own name, or [`ALL`], which is among the known names here.
fn read_backend(subject: &str, node: &Node, known: &[&str], fabric: &str) -> Result<Located<String>, Fault> {
    match &node.value {
        Value::String(text) if text == ALIAS && known.contains(&STANDARD) => {
            let own = own_name(text, fabric).map_err(|message| {
                Fault::new(&node.origin, message)
                    .expected(one_of(known))
                    .hint(format!("write `{STANDARD}`, or choose the fabric `mpi` or `shm+mpi`"))
            })?;
            Ok(Located::new(own.to_owned(), node.origin.clone()))
        }
        _ => known_name(subject, node, known),
    }
}
