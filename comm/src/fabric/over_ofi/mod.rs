//! The fabric `ofi`: exchanges over libfabric.
//!
//! Over providers with triggered operations (`cxi`, `sockets`) the network interface carries an exchange
//! out ([`triggered`]); over others a progress thread does ([`proxied`]).

mod build;
mod entries;
mod half;
mod hub;
mod machine;
mod office;
mod packets;
mod proxied;
mod tagged;
mod target;
mod throttling;
mod triggered;
mod wire;

pub use throttling::{COUNTER_START_VARIABLE, ENTRIES_VARIABLE, THROTTLING_VARIABLE};

use super::met::Met;
use super::ofi::{Endpoint, EndpointOptions, Library};
use super::rendezvous::RendezvousOptions;
use super::spanning::{Bootstrap, Farewell, Spanning};
use super::{Fabric, over_mpi};
use crate::error::{Error, Result};
use crate::world::{World, WorldOptions};
use machine::Machine;
use std::sync::Arc;
use wire::OfiWire;

/// Names libfabric's provider; without it the best one is taken that reaches other machines.
pub const PROVIDER_VARIABLE: &str = "STREAMHALO_OFI_PROVIDER";

/// Names the network interface of this rank, as libfabric's domain; without it the provider chooses, or ranks of a machine
/// share out those of a network.
pub const DOMAIN_VARIABLE: &str = "STREAMHALO_OFI_DOMAIN";

/// Has the provider asked to register memory of GPUs: `1`.
pub const HMEM_VARIABLE: &str = "STREAMHALO_OFI_HMEM";

fn unavailable(reason: impl Into<String>) -> Error {
    super::unavailable("ofi", reason)
}

/// Why the fabric cannot be used here, if so.
pub(super) fn unusable() -> Option<String> {
    Library::load().err().map(|error| match error {
        Error::FabricUnavailable { reason, .. } => reason,
        other => other.to_string(),
    })
}

/// The fabric `ofi`, for the registry.
pub(super) fn join(options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    Ok(launched(options)?)
}

/// The fabric of the ranks that meet at a rendezvous, or that an MPI launcher has started. Collective.
///
/// # Errors
/// [`Error::FabricUnavailable`] if nobody has started ranks, or libfabric cannot be used; what it says.
pub(super) fn launched(options: &WorldOptions) -> Result<Arc<Spanning>> {
    let bootstrap: Arc<dyn Bootstrap> = match RendezvousOptions::from_env()? {
        Some(rendezvous) => Met::join(&RendezvousOptions { timeout: options.timeout, ..rendezvous })?,
        None => match super::mpi::launched() {
            Some(_) => over_mpi::bootstrap()?,
            None => {
                return Err(unavailable(
                    "nobody has started ranks for it: use `streamhalo run`, `mpiexec` or `srun`, or give every \
                     process a rendezvous (`--rank-zero HOST:PORT --world-size N --rank R`, or STREAMHALO_RENDEZVOUS \
                     beside the rank and the size)",
                ));
            }
        },
    };
    let strangers = Arc::new(Spanning::of_strangers(bootstrap.clone())?);
    let world = World::new(strangers, *options)?;
    let machine = Machine::of(&world)?;
    let wanted = |needs_hmem| EndpointOptions {
        provider: said(PROVIDER_VARIABLE),
        domain: said(DOMAIN_VARIABLE),
        share: machine.share(),
        source: bootstrap.local_address().map(|address| address.to_string()),
        needs_triggered: false,
        needs_hmem,
    };
    let endpoint = needs_hmem().and_then(|needs_hmem| open(&wanted(needs_hmem)));
    let wire = OfiWire::new(&world, &machine, endpoint)?;
    let executor = wire.executor();
    Ok(Arc::new(Spanning {
        name: "ofi",
        engine: Some(wire.engine()),
        farewell: Some(Farewell::new(bootstrap.clone(), options.timeout, |_, _| ())?),
        wire: Some(wire),
        executor,
        ..Spanning::of_strangers(bootstrap)?
    }))
}

/// What a variable names; one that is empty names nothing.
fn said(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|said| !said.is_empty())
}

/// An endpoint, with triggered operations where the provider has them, and without an interface of that name at this
/// rank's address on the network that ranks have met over if that is one of the provider's.
fn open(wanted: &EndpointOptions) -> Result<Endpoint> {
    let of = |provider: &str| EndpointOptions {
        provider: Some(provider.to_owned()),
        source: wanted.source.clone().filter(|_| wanted.domain.is_none() && is_of_addresses(provider)),
        needs_triggered: ["cxi", "sockets"].contains(&provider),
        ..wanted.clone()
    };
    if let Some(provider) = &wanted.provider {
        return Endpoint::open(&of(provider));
    }
    // The best one, which need not be of such addresses, or have such operations.
    let found = Endpoint::open(&EndpointOptions { source: None, ..wanted.clone() })?;
    let named = of(found.provider());
    if named.source.is_some() || named.needs_triggered { Endpoint::open(&named) } else { Ok(found) }
}

/// Whether memory of GPUs is to be registered.
fn needs_hmem() -> Result<bool> {
    match std::env::var(HMEM_VARIABLE).as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => Err(Error::BadEnvironment {
            variable: HMEM_VARIABLE,
            value: other.to_owned(),
            reason: "it is 1, or 0 as where it is not set".to_owned(),
        }),
    }
}

/// Whether a provider's interfaces are known by internet addresses.
fn is_of_addresses(provider: &str) -> bool {
    ["tcp", "sockets", "net", "udp"].contains(&provider.split(';').next().unwrap_or(provider))
}

/// Refuses messages that a provider does not take, before it is asked: it would say so of none of them by its rank.
fn refuse_too_long(endpoint: &Endpoint, messages: impl Iterator<Item = (usize, usize)>) -> Result<()> {
    refuse_longer(endpoint.longest_message(), endpoint.provider(), messages)
}

fn refuse_longer(
    longest: usize,
    provider: &str,
    mut messages: impl Iterator<Item = (usize, usize)>,
) -> Result<()> {
    let Some((peer, bytes)) = messages.find(|(_, bytes)| *bytes > longest) else { return Ok(()) };
    Err(unavailable(format!(
        "a message to rank {peer} has {bytes} bytes, and the provider {provider} takes no longer ones than {longest}: \
         use more ranks, of which each has less to send, or another fabric"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_refused_by_its_rank() {
        let messages = [(3, 100), (5, 101), (7, 102)];
        assert_eq!(refuse_longer(102, "cxi", messages.into_iter()), Ok(()));
        let Err(refused) = refuse_longer(100, "cxi", messages.into_iter()) else { panic!("it is too long") };
        let told = refused.to_string();
        for piece in ["rank 5", "101 bytes", "provider cxi", "than 100"] {
            assert!(told.contains(piece), "`{piece}` is not in `{told}`");
        }
    }
}
