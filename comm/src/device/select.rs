//! Which of the devices of a kind is meant.

use crate::error::{Error, Result};

/// A device of a list.
pub(super) trait Choosable {
    /// As lists show it.
    fn label(&self) -> String;
    /// Texts of which a part chooses it, whatever the case of its letters.
    fn names(&self) -> Vec<&str>;
    /// Why streams cannot use it, if so.
    fn unusable(&self) -> Option<String>;
}

/// The number of the device that `select` means, which can be used: a number of the list, or the first of which a
/// name contains it.
///
/// # Errors
/// [`Error::DeviceUnavailable`] for `asked`, with what there is, or why the one that is meant cannot be used.
pub(super) fn index_of(asked: &str, select: &str, found: &[impl Choosable]) -> Result<usize> {
    let refused = |reason: String| Error::DeviceUnavailable { device: asked.into(), reason };
    let wanted = select.to_lowercase();
    let meant: Vec<usize> = match select.parse::<usize>() {
        Ok(index) => (index < found.len()).then_some(index).into_iter().collect(),
        Err(_) => {
            let is_meant =
                |one: &usize| found[*one].names().iter().any(|name| name.to_lowercase().contains(&wanted));
            (0..found.len()).filter(is_meant).collect()
        }
    };
    if let Some(usable) = meant.iter().find(|index| found[**index].unusable().is_none()) {
        return Ok(*usable);
    }
    match meant.first() {
        None => {
            let listed: Vec<String> =
                found.iter().enumerate().map(|(index, one)| format!("{index}: {}", one.label())).collect();
            Err(refused(format!("no device is meant by it; the devices are {}", listed.join(", "))))
        }
        Some(first) => {
            let reason = found[*first].unusable().expect("no device that is meant can be used");
            let label = found[*first].label();
            Err(refused(format!("{label}: {reason}")))
        }
    }
}
