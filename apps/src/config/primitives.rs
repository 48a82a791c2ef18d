//! Applications that exchange no ghosts: what the names of backends stand for there, and what they refuse.

use super::fault::{Fault, Origin};
use super::grid::Grid;
use super::names::one_of;
use super::section::Section;
use super::value::{Node, Value};

/// How values get from rank to rank in an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// By exchanges of ghosts: every backend, on streams of any kind.
    Exchanges,
    /// By a [`Primitive`], which the host calls between what it computes itself.
    Primitives,
}

/// What the host calls to get values from rank to rank in an application without ghosts: those that the paper on
/// notified access compares (2015, section VI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// Two-sided messages of a communicator.
    Messages,
    /// Active target epochs: post, start, put, complete and wait.
    ActiveTarget,
    /// Puts with notification.
    NotifiedAccess,
}

impl Primitive {
    /// Each with the backend that is named after it, or made of it.
    pub const BACKENDS: [(&'static str, Self); 3] = [
        ("standard", Self::Messages),
        ("active-rma", Self::ActiveTarget),
        ("notified", Self::NotifiedAccess),
    ];

    /// The primitive that a backend's name stands for, if it does for one.
    pub fn of_backend(name: &str) -> Option<Self> {
        Self::BACKENDS.into_iter().find(|(backend, _)| *backend == name).map(|(_, primitive)| primitive)
    }

    /// What it is, in some words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Messages => "two-sided messages",
            Self::ActiveTarget => "post, start, put, complete, wait",
            Self::NotifiedAccess => "puts with notification",
        }
    }
}

/// Those of `known` that stand for a primitive.
pub(super) fn backends<'n>(known: &[&'n str]) -> Vec<&'n str> {
    known.iter().copied().filter(|name| Primitive::of_backend(name).is_some()).collect()
}

/// Refuses backends that are there, but do nothing that `app` could use.
pub(super) fn check_backends(section: &Section<'_>, app: &str, known: &[&str]) -> Result<(), Fault> {
    let served = backends(known);
    let check = |subject: &str, text: &str, origin: &Origin| {
        if !known.contains(&text) || served.contains(&text) {
            return Ok(());
        }
        let message = format!("{subject} is `{text}`, which exchanges ghosts; `{app}` has none");
        let meanings: Vec<String> = Primitive::BACKENDS
            .iter()
            .map(|(name, primitive)| format!("`{name}` for {}", primitive.summary()))
            .collect();
        Err(Fault::new(origin, message).expected(one_of(&served)).hint(meanings.join("; ")))
    };
    let read = |subject: &str, node: &Node| match &node.value {
        Value::String(text) => check(subject, text, &node.origin),
        _ => Ok(()),
    };
    section.list("backend", &one_of(&served), read).map(|_| ())
}

/// Refuses what only streams would have a use for.
pub(super) fn check_device(section: &Section<'_>, app: &str) -> Result<(), Fault> {
    let own = format!("`{app}` computes on the thread of each rank, between the host's calls");
    if let Some(stream) = section.name("stream", &["inline", "threaded"])?
        && stream.value == "threaded"
    {
        return Err(Fault::new(&stream.origin, format!("`device.stream` is `threaded`, but {own}"))
            .expected("`inline`"));
    }
    if let Some(threads) = section.integer::<usize>("threads", 1)?
        && threads.value > 1
    {
        let message = format!("`device.threads` is {}, but {own}", threads.value);
        return Err(Fault::new(&threads.origin, message).expected("`1`; more ranks use more cores"));
    }
    Ok(())
}

/// Refuses grids of another number of axes than `cells` names, and what only ghosts would have a use for.
pub(super) fn check_grid(grid: &Grid, app: &str, cells: &str, axes: usize) -> Result<(), Fault> {
    grid.check_axes(app, axes, cells)?;
    if grid.config.periodic.contains(&true) {
        let message = format!("`grid.periodic` is set, but no axis of `{app}` wraps around");
        return Err(Fault::new(&grid.periodic_origin, message).expected("`false`"));
    }
    if grid.config.halo.iter().any(|width| *width != 1) {
        let message = format!("`grid.halo` is {:?}, but `{app}` has no ghosts", grid.config.halo);
        return Err(Fault::new(&grid.halo_origin, message).expected("`1`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use streamhalo::comm::backend::backend_names;

    #[test]
    fn every_primitive_goes_by_the_name_of_a_backend() {
        for (name, primitive) in Primitive::BACKENDS {
            assert!(backend_names().any(|known| known == name), "{name}");
            assert_eq!(Primitive::of_backend(name), Some(primitive));
        }
        assert_eq!(Primitive::of_backend("st-send"), None);
    }
}
