//! The device that a configuration names.

use streamhalo::comm::fabric::{Executor, FABRICS, FabricRow};
use streamhalo::{Device, Peers, Signals, Waits, Wires, World};

use crate::app::Application;
use crate::config::{DeviceConfig, RunConfig};
use crate::error::AppError;
use crate::ranks::are_started_by_others;

/// The device, opened: of a world's rank its own. Collective if there is a world.
///
/// # Errors
///
/// That there is no such device on this machine, or that it lacks what streams need.
pub(crate) fn device(config: &RunConfig, world: Option<&World>) -> Result<Device, AppError> {
    let DeviceConfig { kind, select, memory, peers, wires, waits, .. } = &config.device;
    let select = select.as_deref().unwrap_or_default();
    let opened =
        world.map_or_else(|| Device::open(kind, select), |world| Device::of_rank(world, kind, select));
    let device = opened?
        .with_waits(waits.unwrap_or_default())
        .with_signals(config.comm.signal.unwrap_or_default())
        .with_peers(peers.unwrap_or_default())
        .with_wires(wires.unwrap_or_default());
    Ok(device.with_memory(memory.unwrap_or_default())?)
}

/// The device before there are ranks. `None` of GPUs on ranks that a launcher has started: each starts the one that it
/// takes, and no other.
///
/// # Errors
///
/// As [`device`].
fn ahead(config: &RunConfig) -> Result<Option<Device>, AppError> {
    let DeviceConfig { kind, select, .. } = &config.device;
    if are_started_by_others() && ["cuda", "hip"].contains(&kind.as_str()) {
        Device::check(kind, select.as_deref().unwrap_or_default())?;
        return Ok(None);
    }
    device(config, None).map(Some)
}

/// Why ranks tell each other of messages of the configured device in the host's memory, whoever the peer is, if they do.
/// Payloads go through it too, unless a wire takes them: see [`has_wire`].
pub(super) fn unreached_because(config: &RunConfig) -> Option<String> {
    if config.device.kind == "host" {
        return None;
    }
    if config.device.peers == Some(Peers::Staged) {
        return Some("`device.peers` is `staged`".to_owned());
    }
    let name = &config.comm.fabric;
    let row = FABRICS.iter().find(|row: &&FabricRow| row.name == *name).filter(|row| !row.reaches_devices)?;
    let unreached = format!("the fabric `{name}` does not reach the device's");
    if !row.takes_handles {
        return Some(unreached);
    }
    // One that cannot be opened is an error elsewhere.
    ahead(config).ok()??.unreached_by_processes().map(|reason| format!("{unreached}: {reason}"))
}

/// Whether messages between some ranks go over a wire, which takes the device's memory or not: only ranks know.
pub(super) fn has_wire(config: &RunConfig) -> bool {
    let row = FABRICS.iter().find(|row: &&FabricRow| row.name == config.comm.fabric);
    row.is_some_and(|row| row.executor != Executor::Stream)
}

/// That no stream of a kind of device signals by memory operations, if so, and what to choose instead.
pub(crate) fn no_memory_operations(kind: &str) -> Option<String> {
    let has_some = ["cuda", "hip"].contains(&kind);
    (!has_some).then(|| format!("streams of `{kind}` have no memory operations; choose `kernel` or `merged`"))
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
    let refused = |flag: &str, message: String| Err(AppError::usage(flag, message));
    if application.device_kernels().is_empty() {
        let message = format!(
            "`{}` has kernels for `host` only, not for `{kind}`: the host calls its primitives between what it computes; \
             choose `host`, or an application that exchanges ghosts",
            config.app.name
        );
        return refused("device.kind", message);
    }
    if config.device.wires == Some(Wires::Direct) && !has_wire(config) {
        let message = format!(
            "messages of the fabric `{}` go over no wire that could take the device's memory; choose `auto`, or a \
             fabric with `mpi` or `ofi`",
            config.comm.fabric
        );
        return refused("device.wires", message);
    }
    if config.device.wires == Some(Wires::Direct) && config.device.peers == Some(Peers::Staged) {
        let message = "`direct` gives wires the device's memory, but `device.peers` is `staged`, which has all messages go \
                       through the host's; choose `auto` or `staged`, or leave `device.peers` out";
        return refused("device.wires", message.to_owned());
    }
    if let Some(reason) = unreached_because(config) {
        let unreached = |instead: &str| {
            format!(
                "kernels of `{kind}` do not reach what ranks tell each other, because {reason}; choose {instead}, or \
                 the fabric `local`"
            )
        };
        if config.device.waits == Some(Waits::Kernel) {
            return refused("device.waits", unreached("`auto` or `proxy`"));
        }
        if matches!(config.comm.signal, Some(Signals::Merged | Signals::Memop)) {
            return refused("comm.signal", unreached("`kernel`"));
        }
    }
    if config.comm.signal == Some(Signals::Memop)
        && let Some(message) = no_memory_operations(kind)
    {
        return refused("comm.signal", message);
    }
    let Some(device) = ahead(config)? else { return Ok(()) };
    if config.device.wires == Some(Wires::Direct)
        && let Some(reason) = device.unknown_to_wires()
    {
        let message =
            format!("wires cannot be given the device's memory: {reason}; choose `auto` or `staged`");
        return refused("device.wires", message);
    }
    Ok(())
}
