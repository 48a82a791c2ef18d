//! Which of the devices of a kind is meant.

use crate::error::{Error, Result};

/// A device of a list.
pub(super) trait Choosable {
    /// As lists show it.
    fn label(&self) -> String;
    /// Texts of which a part chooses it, whatever the case of its letters.
    fn names(&self) -> Vec<&str>;
    /// What those that are alike have in common.
    fn model(&self) -> String;
    /// What tells it from others that are alike, whichever of them a process sees; `None` if only its number does.
    fn address(&self) -> Option<&str> {
        None
    }
    /// Why streams cannot use it, if so.
    fn unusable(&self) -> Option<String>;
}

/// The numbers of all that `select` means: the one of the list with that number, or those of which a name contains it.
fn meant(select: &str, found: &[impl Choosable]) -> Vec<usize> {
    if let Ok(index) = select.parse::<usize>() {
        return (index < found.len()).then_some(index).into_iter().collect();
    }
    let wanted = select.to_lowercase();
    let is_meant = |one: &usize| found[*one].names().iter().any(|name| name.to_lowercase().contains(&wanted));
    (0..found.len()).filter(is_meant).collect()
}

/// A device that ranks may take, by its number and by what tells it from others on its machine.
pub(super) type Numbered = (usize, String);

/// The device of [`index_of`], and those that are meant as well, can be used, and are of the same model.
///
/// # Errors
/// As [`index_of`].
pub(super) fn alike(asked: &str, select: &str, found: &[impl Choosable]) -> Result<Vec<Numbered>> {
    let model = found[index_of(asked, select, found)?].model();
    let is_alike = |one: &usize| found[*one].unusable().is_none() && found[*one].model() == model;
    let alike = meant(select, found).into_iter().filter(is_alike);
    Ok(alike.map(|one| (one, found[one].address().map_or_else(|| one.to_string(), String::from))).collect())
}

/// The number of the device that `select` means, which can be used: a number of the list, or the first of which a
/// name contains it.
///
/// # Errors
/// [`Error::DeviceUnavailable`] for `asked`, with what there is, or why the one that is meant cannot be used.
pub(super) fn index_of(asked: &str, select: &str, found: &[impl Choosable]) -> Result<usize> {
    let refused = |reason: String| Error::DeviceUnavailable { device: asked.into(), reason };
    let meant = meant(select, found);
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
