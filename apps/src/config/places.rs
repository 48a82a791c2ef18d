//! Where the keys of a configuration were set, for what turns out to be wrong with them once all of it is known.

use super::fault::{ConfigError, Fault, Place};
use super::value::{Table, Value};
use crate::checkpoint::CheckpointError;
use crate::error::AppError;
use crate::life::pattern::InitialError;
use streamhalo::HaloError;
use streamhalo::comm::Error;
use streamhalo::grid::GridError;

/// The place of every key that a file or a flag has set, by its dotted name.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<(String, Place)>);

impl Places {
    pub(super) fn of(root: &Table, file: &str, text: &str) -> Self {
        let mut places = Vec::new();
        for section in &root.entries {
            let Value::Table(keys) = &section.node.value else { continue };
            places.extend(keys.entries.iter().map(|entry| {
                let located = Fault::new(&entry.node.origin, "").locate(file, text);
                (format!("{}.{}", section.key, entry.key), located.place)
            }));
        }
        Self(places)
    }

    /// The same error, at the place of the key that it is about, where somebody has set that.
    pub(crate) fn locate(&self, error: AppError) -> AppError {
        // The first that was set.
        let about: &[&str] = match &error {
            AppError::Usage { flag, .. } => &[flag.as_str()],
            AppError::Pattern(InitialError::OriginOutside { .. } | InitialError::CrossesBoundary { .. }) => {
                &["app.origin", "app.pattern"]
            }
            AppError::Pattern(_) => &["app.pattern"],
            AppError::Checkpoint(source) => match **source {
                CheckpointError::InTheWay { .. } => &["output.dir", "output.checkpoint_every"],
                _ => &["run.restart"],
            },
            AppError::Measured { .. } => &["comm.measured"],
            AppError::NoRoomToVerify { .. } => &["grid.cells", "app.elements", "app.order", "app.variables"],
            AppError::Halo(source) => match **source {
                HaloError::Grid(_) => &["grid.cells"],
                HaloError::Communication(Error::DeviceUnavailable { .. }) => {
                    &["device.select", "device.kind"]
                }
                _ => &[],
            },
            AppError::Split { source, .. } => match **source {
                GridError::SubdomainTooThin { .. } => &["grid.halo", "run.layout", "run.ranks"],
                GridError::LayoutAxis { .. } | GridError::LayoutProduct { .. } => {
                    &["run.layout", "run.ranks"]
                }
                GridError::NoLayout { .. } => &["run.ranks", "grid.cells"],
                _ => &["grid.cells"],
            },
            _ => &[],
        };
        let place = about.iter().find_map(|key| self.0.iter().find(|(name, _)| name == key));
        let Some((_, place)) = place else { return error };
        let (place, message, hint) = (place.clone(), error.to_string(), error.hint());
        AppError::Config(Box::new(ConfigError { place, message, expected: None, hint }))
    }
}
