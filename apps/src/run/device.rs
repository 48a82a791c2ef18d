//! The device that a configuration names.

use streamhalo::{Device, Waits};

use crate::app::Application;
use crate::config::{DeviceConfig, RunConfig, Signal};
use crate::error::AppError;

/// The device, opened.
///
/// # Errors
///
/// That there is no such device on this machine, or that it lacks what streams need.
pub(crate) fn device(config: &RunConfig) -> Result<Device, AppError> {
    let DeviceConfig { kind, select, waits, .. } = &config.device;
    let waits = waits.as_deref().and_then(Waits::from_name).unwrap_or_default();
    Ok(match kind.as_str() {
        "opencl" => Device::opencl(select.as_deref().unwrap_or_default())?.with_waits(waits),
        _ => Device::host(),
    })
}

/// Whether an application can be run on the device of a configuration, before there are ranks.
///
/// # Errors
///
/// What does not fit, and what to choose instead; as [`device`].
pub(super) fn check(config: &RunConfig, application: &dyn Application) -> Result<(), AppError> {
    let kind = &config.device.kind;
    if kind == "host" {
        return Ok(());
    }
    let refused = |flag: &str, message: String| Err(AppError::Usage { flag: flag.to_owned(), message });
    if !application.has_device_kernels() {
        let name = &config.app.name;
        return refused("device.kind", format!("`{name}` has kernels for `host` only, not for `{kind}`"));
    }
    if config.comm.fabric != "local" {
        let fabric = &config.comm.fabric;
        return refused(
            "device.kind",
            format!(
                "over the fabric `{fabric}` ranks do not reach memory of `{kind}`; choose the fabric `local`"
            ),
        );
    }
    if config.comm.signal == Some(Signal::Memop) {
        let message = format!("streams of `{kind}` have no memory operations; choose `kernel`");
        return refused("comm.signal", message);
    }
    device(config).map(|_| ())
}
