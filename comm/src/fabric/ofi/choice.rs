//! Which of libfabric's offers an endpoint is opened by, and why none fits.

use super::endpoint::EndpointOptions;
use super::library::{Library, Offers, unavailable};
use super::provider::{Offer, Provider, TRIGGERED, providers};
use super::sys;
use crate::error::Result;
use std::collections::BTreeSet;

/// How good a provider is where none was named, lower being better.
fn rank(provider: &str) -> usize {
    const GOOD: [&str; 3] = ["cxi", "verbs;ofi_rxm", "efa"];
    const ANYWHERE: [&str; 6] = ["tcp", "tcp;ofi_rxm", "net", "net;ofi_rxm", "udp;ofi_rxd", "sockets"];
    let place = |names: &[&str]| names.iter().position(|known| *known == provider);
    match (place(&GOOD), place(&ANYWHERE)) {
        (Some(place), _) => place,
        (_, Some(place)) => 10 + place,
        _ if stays_on_the_machine(provider) => usize::MAX,
        // One for a network that is not known here.
        _ => 9,
    }
}

/// Whether no other machine is reached by a provider.
fn stays_on_the_machine(provider: &str) -> bool {
    ["shm", "sm2"].contains(&provider)
}

/// What every endpoint can do.
const NEEDED: u64 = sys::FI_MSG | sys::FI_TAGGED | sys::FI_RMA;

/// The one offer that an endpoint is opened by.
pub(super) fn chosen(library: &'static Library, options: &EndpointOptions) -> Result<Offers> {
    best(library, options)?.map_or_else(|| Err(refusal(library, options)), Ok)
}

/// The names of the providers that an endpoint can be had of, without triggered operations.
pub(super) fn fitting(library: &'static Library) -> Result<Vec<String>> {
    let offers = offers(library, &EndpointOptions::default())?;
    Ok(offers.iter().map(|offer| Offer::of(offer).provider).collect())
}

/// The best offer.
fn best(library: &'static Library, options: &EndpointOptions) -> Result<Option<Offers>> {
    let offers = offers(library, options)?;
    let mut offers: Vec<_> = offers.iter().map(|info| (info, Offer::of(info))).collect();
    if let Some(domain) = &options.domain {
        offers.retain(|(_, offer)| is_domain(&offer.domain, domain));
    }
    if options.provider.is_none() {
        // Those of one machine register any memory, and are no network of that machine's.
        offers.retain(|(_, offer)| !options.needs_hmem || !stays_on_the_machine(&offer.provider));
        offers.sort_by_key(|(_, offer)| rank(&offer.provider));
    }
    let Some((first, best)) = offers.first() else { return Ok(None) };
    let of_the_best = offers.iter().map(|(_, offer)| offer).filter(|offer| offer.provider == best.provider);
    let domain = match options.domain {
        None if SPREAD.contains(&best.provider.as_str()) => spread(of_the_best, options.share),
        _ => &best.domain,
    };
    let is_it = |offer: &Offer| offer.provider == best.provider && offer.domain == *domain;
    let found = offers.iter().find(|(_, offer)| is_it(offer)).map_or(*first, |(info, _)| info);
    library.copy(found).map(Some)
}

/// Whether an offer's domain, `fabric/domain`, is the one that is asked for, by either name.
fn is_domain(offered: &str, asked: &str) -> bool {
    offered == asked || offered.rsplit('/').next() == Some(asked)
}

/// Providers of which all interfaces that a machine has are of one network, so that any of them reaches all peers.
const SPREAD: [&str; 2] = ["cxi", "efa"];

/// The domain of these offers, which are of one provider, that a rank takes: ranks of a machine share them out in
/// blocks, as launchers do with its cores.
fn spread<'a>(offers: impl Iterator<Item = &'a Offer>, (before, ranks): (usize, usize)) -> &'a str {
    let mut domains: Vec<&str> = Vec::new();
    for offer in offers {
        if !domains.contains(&offer.domain.as_str()) {
            domains.push(&offer.domain);
        }
    }
    domains[before * domains.len() / ranks.max(1)]
}

/// All offers that will do.
fn offers(library: &'static Library, options: &EndpointOptions) -> Result<Offers> {
    let mut hints = library.hints()?;
    let info = hints.info();
    let (caps_of_memory, modes_of_memory) = match options.needs_hmem {
        true => (sys::FI_HMEM, sys::FI_MR_HMEM),
        false => (0, 0),
    };
    // Messages of one peer are received in order; what arrives otherwise is counted. Words that the network interface
    // itself sets come to their last value only if it writes them in order.
    let (more_caps, order) = match options.needs_triggered {
        true => (sys::FI_ATOMIC | sys::FI_TRIGGER | sys::FI_RMA_EVENT, sys::FI_ORDER_SAS | sys::FI_ORDER_WAW),
        false => (0, sys::FI_ORDER_SAS),
    };
    info.caps = NEEDED | more_caps | caps_of_memory;
    let (endpoint, domain) = (info.ep_attr, info.domain_attr);
    let (sending, receiving) = (info.tx_attr, info.rx_attr);
    // SAFETY: hints have all their parts.
    unsafe { (*endpoint).r#type = sys::FI_EP_RDM };
    // SAFETY: as above.
    unsafe { (*domain).mr_mode = sys::MR_MODES | modes_of_memory };
    // SAFETY: as above.
    unsafe { (*domain).threading = sys::FI_THREAD_SAFE };
    // SAFETY: as above.
    unsafe { (*domain).av_type = sys::FI_AV_TABLE };
    // SAFETY: as above.
    unsafe { (*sending).msg_order = order };
    // SAFETY: as above.
    unsafe { (*receiving).msg_order = order };
    if let Some(provider) = &options.provider {
        hints.set_provider(provider)?;
    }
    library.offers(&hints, options.source.as_deref())
}

/// Why there is no such endpoint, and which there are.
fn refusal(library: &'static Library, options: &EndpointOptions) -> crate::Error {
    let known = match providers() {
        Ok(known) => known,
        Err(error) => return error,
    };
    let usable: Vec<_> = known.iter().filter(|one| one.unusable.is_none()).collect();
    let is_had = |options: EndpointOptions| matches!(best(library, &options), Ok(Some(_)));
    if let Some(domain) = &options.domain
        && is_had(EndpointOptions { domain: None, ..options.clone() })
    {
        let of =
            |one: &&Provider| options.provider.as_ref().is_none_or(|asked| is_provider(&one.name, asked));
        let domains: BTreeSet<_> = usable.iter().copied().filter(of).flat_map(|one| &one.domains).collect();
        return unavailable(format!(
            "no network interface of {} is called `{domain}`; there are {}",
            options.provider.as_ref().map_or("libfabric".into(), |name| format!("provider `{name}`")),
            domains.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ));
    }
    if options.needs_hmem && is_had(EndpointOptions { needs_hmem: false, ..options.clone() }) {
        let asked = options
            .provider
            .as_ref()
            .map_or("no provider that reaches other machines".into(), |name| format!("provider `{name}`"));
        let verb = if options.provider.is_some() { "does not offer" } else { "offers" };
        return unavailable(format!(
            "{asked} of libfabric {} {verb} to register memory of GPUs (FI_HMEM) here; do not ask for it, and messages \
             are staged",
            library.version()
        ));
    }
    let names = |triggered: bool| {
        let fits = usable.iter().filter(|one| !triggered || one.capabilities.contains(&TRIGGERED));
        let names: Vec<_> = fits.map(|one| format!("`{}`", one.name)).collect();
        if names.is_empty() {
            "none (those in files of their own are looked for where FI_PROVIDER_PATH says)".into()
        } else {
            names.join(", ")
        }
    };
    let of = format!("libfabric {}", library.version());
    let at = options.source.as_ref().map_or(String::new(), |source| format!(" at address `{source}`"));
    let Some(asked) = &options.provider else {
        return unavailable(format!(
            "no provider of {of}{at} has what is needed{}; those that have it elsewhere: {}",
            if options.needs_triggered {
                " (triggered operations, which only `cxi` and `sockets` have)"
            } else {
                ""
            },
            names(options.needs_triggered)
        ));
    };
    match known.iter().find(|one| is_provider(&one.name, asked)) {
        None => {
            unavailable(format!("{of} has no provider `{asked}` on this machine; it has {}", names(false)))
        }
        Some(found) if options.needs_triggered && !found.capabilities.contains(&TRIGGERED) => {
            unavailable(format!(
                "provider `{asked}` has no triggered operations; of those on this machine these have: {}",
                names(true)
            ))
        }
        Some(found) => unavailable(match &found.unusable {
            Some(reason) => format!("provider `{asked}`: {reason}; those that can be used: {}", names(false)),
            None => format!("provider `{asked}` has no endpoint{at}; it has {}", found.domains.join(", ")),
        }),
    }
}

/// Whether a provider is the one that is asked for: `tcp` also names `tcp;ofi_rxm`.
fn is_provider(name: &str, asked: &str) -> bool {
    name == asked || name.split(';').any(|part| part == asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::fabric::ofi::endpoint::Endpoint;

    /// The message of a refusal; nothing where there is no libfabric.
    fn refused(provider: &str, needs_triggered: bool) -> Option<String> {
        if let Err(error) = Library::load() {
            println!("skipped: {error}");
            return None;
        }
        let options =
            EndpointOptions { provider: Some(provider.into()), needs_triggered, ..Default::default() };
        match Endpoint::open(&options) {
            Err(Error::FabricUnavailable { reason, .. }) => Some(reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_unknown_provider_is_refused_with_those_there_are() {
        let Some(reason) = refused("carrier-pigeon", false) else { return };
        assert!(reason.contains("no provider `carrier-pigeon`"), "{reason}");
        assert!(reason.contains("it has `"), "{reason}");
    }

    #[test]
    fn the_best_provider_leaves_the_machine() {
        let best = |names: [&'static str; 3]| names.into_iter().min_by_key(|name| rank(name));
        assert_eq!(best(["shm", "tcp;ofi_rxm", "cxi"]), Some("cxi"));
        assert_eq!(best(["shm", "sockets", "tcp"]), Some("tcp"));
        assert_eq!(best(["udp;ofi_rxd", "psm3", "net"]), Some("psm3"));
        assert_eq!(best(["sm2", "tcp", "efa"]), Some("efa"));
        assert_eq!(best(["sm2", "sockets", "shm"]), Some("sockets"));
        assert_eq!(best(["shm", "sockets", "shm"]), Some("sockets"));
    }

    #[test]
    fn ranks_of_a_machine_share_out_its_interfaces() {
        let offers = ["cxi/cxi0", "cxi/cxi1", "cxi/cxi1", "cxi/cxi2", "cxi/cxi3"].map(Offer::on);
        let taken = |ranks| (0..ranks).map(|rank| spread(offers.iter(), (rank, ranks))).collect::<Vec<_>>();
        assert_eq!(taken(1), ["cxi/cxi0"]);
        assert_eq!(taken(2), ["cxi/cxi0", "cxi/cxi2"]);
        assert_eq!(taken(4), ["cxi/cxi0", "cxi/cxi1", "cxi/cxi2", "cxi/cxi3"]);
        let six = ["cxi/cxi0", "cxi/cxi0", "cxi/cxi1", "cxi/cxi2", "cxi/cxi2", "cxi/cxi3"];
        assert_eq!(taken(6), six);
        assert_eq!(spread(offers.iter(), EndpointOptions::default().share), "cxi/cxi0");
    }

    #[test]
    fn an_interface_is_known_by_its_name_or_with_that_of_its_network() {
        assert!(is_domain("127.0.0.0/8/lo", "lo") && is_domain("127.0.0.0/8/lo", "127.0.0.0/8/lo"));
        assert!(!is_domain("cxi/cxi0", "cxi") && !is_domain("cxi/cxi10", "cxi1"));
    }

    #[test]
    fn an_interface_is_chosen_by_its_name() {
        let on = |domain: &str| {
            let (provider, domain) = (Some("tcp".into()), Some(domain.into()));
            Endpoint::open(&EndpointOptions { provider, domain, ..Default::default() })
        };
        if !providers().is_ok_and(|known| known.iter().any(|one| is_provider(&one.name, "tcp"))) {
            return println!("skipped: no provider `tcp`");
        }
        let found = on("lo").expect("every machine has it");
        assert!(found.domain().ends_with("/lo"), "{}", found.domain());
        match on("wet-string") {
            Err(Error::FabricUnavailable { reason, .. }) => {
                assert!(reason.contains("provider `tcp` is called `wet-string`; there are "), "{reason}");
                assert!(reason.contains("/lo"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_said_to_be_usable_opens() {
        let known = match providers() {
            Ok(known) => known,
            Err(error) => return println!("skipped: {error}"),
        };
        let fitting = Library::load().and_then(fitting).expect("it was asked before");
        for one in known {
            assert_eq!(one.unusable.is_none(), fitting.contains(&one.name), "{one:?}");
        }
    }

    #[test]
    fn a_provider_that_registers_no_memory_of_gpus_is_refused() {
        let knows = |known: Vec<super::super::Provider>| known.iter().any(|one| one.name == "sockets");
        if !providers().is_ok_and(knows) {
            return println!("skipped: no provider `sockets`");
        }
        let options =
            EndpointOptions { provider: Some("sockets".into()), needs_hmem: true, ..Default::default() };
        match Endpoint::open(&options) {
            Err(Error::FabricUnavailable { reason, .. }) => {
                assert!(reason.contains("`sockets`") && reason.contains("FI_HMEM"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn memory_of_gpus_leads_to_no_provider_that_stays_on_the_machine() {
        if let Err(error) = Library::load() {
            return println!("skipped: {error}");
        }
        match Endpoint::open(&EndpointOptions { needs_hmem: true, ..Default::default() }) {
            Ok(endpoint) => assert!(!stays_on_the_machine(endpoint.provider()), "{}", endpoint.provider()),
            Err(Error::FabricUnavailable { reason, .. }) => {
                assert!(reason.starts_with("no provider that reaches other machines"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_provider_without_triggered_operations_is_refused_with_those_that_have_them() {
        if providers().is_ok_and(|known| known.iter().all(|one| one.name != "shm")) {
            println!("skipped: no provider `shm`");
            return;
        }
        let Some(reason) = refused("shm", true) else { return };
        assert!(reason.contains("`shm` has no triggered operations"), "{reason}");
    }
}
