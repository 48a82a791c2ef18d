//! What libfabric's providers are and can do here.

use super::choice::fitting;
use super::library::{Library, text, written};
use super::sys::{self, FiInfo};
use crate::error::Result;

/// One provider, with all that it offers on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its name, as in `tcp;ofi_rxm` where one is built upon another.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The networks and interfaces that it sees, as `fabric/domain`.
    pub domains: Vec<String>,
    /// What its endpoints can do.
    pub capabilities: Vec<&'static str>,
    /// Why it cannot be used, if so.
    pub unusable: Option<String>,
}

/// The capability that only some providers have.
pub(crate) const TRIGGERED: &str = "triggered";

/// What a bit, or several together, stand for.
const CAPABILITIES: [(u64, &str); 5] = [
    (sys::FI_MSG, "messages"),
    (sys::FI_TAGGED, "tagged"),
    (sys::FI_RMA, "RMA"),
    (sys::FI_ATOMIC, "atomics"),
    (sys::FI_TRIGGER | sys::FI_RMA_EVENT, TRIGGERED),
];

/// The parts of an offer that are looked at, copied out.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) provider: String,
    pub(crate) version: u32,
    pub(crate) domain: String,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) mr_mode: i32,
    pub(crate) remote_data_bytes: usize,
    pub(crate) longest_message: usize,
}

impl Offer {
    pub(crate) fn of(info: &FiInfo) -> Self {
        // SAFETY: every offer has all its parts, for as long as it is borrowed.
        let fabric = unsafe { &*info.fabric_attr };
        // SAFETY: as above.
        let domain = unsafe { &*info.domain_attr };
        // SAFETY: as above.
        let endpoint = unsafe { &*info.ep_attr };
        let name = |pointer| text(pointer).unwrap_or_else(|| "?".into());
        Self {
            provider: name(fabric.prov_name),
            version: fabric.prov_version,
            domain: format!("{}/{}", name(fabric.name), name(domain.name)),
            caps: info.caps,
            mode: info.mode,
            mr_mode: domain.mr_mode,
            remote_data_bytes: domain.cq_data_size,
            longest_message: endpoint.max_msg_size,
        }
    }

    /// An offer of that domain.
    #[cfg(test)]
    pub(super) fn on(domain: &str) -> Self {
        Self {
            provider: domain.split('/').next().unwrap_or_default().into(),
            version: sys::version(117, 0),
            domain: domain.into(),
            caps: 0,
            mode: 0,
            mr_mode: 0,
            remote_data_bytes: 0,
            longest_message: 1 << 30,
        }
    }

    /// The capabilities, in the words of [`Provider`].
    fn capabilities(&self) -> Vec<&'static str> {
        let has = |(bits, name): &(u64, &'static str)| (self.caps & bits == *bits).then_some(*name);
        let mut capabilities: Vec<_> = CAPABILITIES.iter().filter_map(has).collect();
        if self.remote_data_bytes >= 4 {
            capabilities.push("remote data");
        }
        capabilities
    }

    /// Why it cannot be used, if so.
    fn unusable(&self) -> Option<String> {
        if self.mode != 0 {
            return Some(format!("it wants contexts or buffers of its own making (mode {:#x})", self.mode));
        }
        let unknown = self.mr_mode & !sys::MR_MODES;
        if unknown != 0 {
            return Some(format!(
                "it wants memory registered in a way that is not known here ({unknown:#x})"
            ));
        }
        let needed = ["RMA", "tagged"];
        let capabilities = self.capabilities();
        let lacking: Vec<_> = needed.into_iter().filter(|name| !capabilities.contains(name)).collect();
        (!lacking.is_empty()).then(|| format!("it lacks {}", lacking.join(" and ")))
    }
}

/// All providers that offer reliable endpoints here, in libfabric's order.
///
/// # Errors
/// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) if libfabric is not there or too old;
/// [`Error::Libfabric`](crate::Error::Libfabric).
pub fn providers() -> Result<Vec<Provider>> {
    let library = Library::load()?;
    let mut hints = library.hints()?;
    let info = hints.info();
    // Offers that want more of their user than is done here are to be seen, and refused with the reason.
    info.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
    // SAFETY: hints have all their parts.
    unsafe { (*info.ep_attr).r#type = sys::FI_EP_RDM };
    // SAFETY: as above.
    unsafe { (*info.domain_attr).mr_mode = sys::MR_MODES };
    let offers = library.offers(&hints, None)?;
    let mut providers = gathered(offers.iter().map(Offer::of));
    refuse_all_but(&fitting(library)?, &mut providers);
    Ok(providers)
}

/// Says why providers that seem to be usable have no endpoint as they are asked for.
fn refuse_all_but(fitting: &[String], providers: &mut [Provider]) {
    for one in providers.iter_mut().filter(|one| one.unusable.is_none() && !fitting.contains(&one.name)) {
        one.unusable =
            Some("none of its endpoints keeps messages in order and takes calls of any thread".into());
    }
}

/// Offers by provider: what any of its offers can do, unusable if all are.
fn gathered(offers: impl Iterator<Item = Offer>) -> Vec<Provider> {
    let mut providers: Vec<Provider> = Vec::new();
    for offer in offers {
        let (capabilities, unusable) = (offer.capabilities(), offer.unusable());
        let Some(known) = providers.iter_mut().find(|known| known.name == offer.provider) else {
            providers.push(Provider {
                version: written(offer.version),
                name: offer.provider,
                domains: vec![offer.domain],
                capabilities,
                unusable,
            });
            continue;
        };
        if !known.domains.contains(&offer.domain) {
            known.domains.push(offer.domain);
        }
        // A usable offer stands for the provider, before any that is not.
        if known.unusable.is_some() && unusable.is_none() {
            known.capabilities = capabilities;
            known.unusable = None;
        } else if known.unusable.is_some() == unusable.is_some() {
            for capability in capabilities {
                if !known.capabilities.contains(&capability) {
                    known.capabilities.push(capability);
                }
            }
        }
    }
    providers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(provider: &str, domain: &str, caps: u64, mode: u64) -> Offer {
        Offer { provider: provider.into(), caps, mode, ..Offer::on(domain) }
    }

    #[test]
    fn a_provider_is_what_its_usable_offers_can_do() {
        let basic = sys::FI_MSG | sys::FI_TAGGED | sys::FI_RMA;
        let offers = [
            offer("a", "one", basic | sys::FI_ATOMIC, sys::FI_CONTEXT),
            offer("b", "one", basic, 0),
            offer("a", "two", basic, 0),
            offer("b", "one", basic | sys::FI_TRIGGER | sys::FI_RMA_EVENT, 0),
            offer("c", "one", sys::FI_MSG, 0),
        ];
        let found = gathered(offers.into_iter());
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(found[0].domains, ["one", "two"]);
        assert_eq!(found[0].capabilities, ["messages", "tagged", "RMA"]);
        assert_eq!(found[0].unusable, None);
        assert_eq!(found[1].capabilities, ["messages", "tagged", "RMA", TRIGGERED]);
        assert_eq!(found[2].unusable.as_deref(), Some("it lacks RMA and tagged"));
    }

    #[test]
    fn a_provider_of_which_no_endpoint_fits_is_not_usable() {
        let basic = sys::FI_MSG | sys::FI_TAGGED | sys::FI_RMA;
        let mut found = gathered([offer("a", "one", basic, 0), offer("b", "one", basic, 0)].into_iter());
        refuse_all_but(&["b".into()], &mut found);
        assert!(found[0].unusable.as_ref().is_some_and(|reason| reason.contains("in order")), "{found:?}");
        assert_eq!(found[1].unusable, None);
    }

    #[test]
    fn only_some_of_the_providers_here_are_triggered() {
        let known = match providers() {
            Ok(known) => known,
            Err(error) => return println!("skipped: {error}"),
        };
        for one in &known {
            println!("{one:?}");
            assert!(!one.domains.is_empty());
            let triggered = one.capabilities.contains(&TRIGGERED);
            match one.name.as_str() {
                "sockets" | "cxi" => assert!(triggered, "{one:?}"),
                "shm" | "tcp" | "tcp;ofi_rxm" => assert!(!triggered, "{one:?}"),
                _ => {}
            }
        }
    }
}
