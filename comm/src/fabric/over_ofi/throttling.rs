//! What the environment says of the entries for triggered operations of an endpoint.

use crate::error::{Error, Result};
use crate::fabric::throttling::{Budget, Throttling};
use std::sync::Arc;

/// Names the policy.
pub const THROTTLING_VARIABLE: &str = "STREAMHALO_OFI_THROTTLING";
/// How many entries may be outstanding, in place of what the provider has.
pub const ENTRIES_VARIABLE: &str = "STREAMHALO_OFI_ENTRIES";
/// Where counters start, to see what happens near their end.
pub const COUNTER_START_VARIABLE: &str = "STREAMHALO_OFI_COUNTER_START";

/// What the exchanges of an endpoint share.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    pub(super) throttling: Throttling,
    pub(super) budget: Arc<Budget>,
    /// The value that counters start with.
    pub(super) counter_start: u64,
}

impl Allowance {
    /// As the environment says, for that provider, whose interface `sharing` ranks have together.
    pub(super) fn from_env(provider: &str, sharing: usize) -> Result<Self> {
        let throttling = match std::env::var(THROTTLING_VARIABLE) {
            Err(_) => Throttling::default(),
            Ok(value) => Throttling::from_name(&value).ok_or_else(|| Error::BadEnvironment {
                variable: THROTTLING_VARIABLE,
                value,
                reason: "it must be `adaptive`, `static` or `application`".into(),
            })?,
        };
        let entries = match number(ENTRIES_VARIABLE)? {
            Some(entries) => entries as usize,
            None => usual_entries(provider, sharing),
        };
        let counter_start = number(COUNTER_START_VARIABLE)?.unwrap_or(0);
        Ok(Self { throttling, budget: Arc::new(Budget::new(entries)), counter_start })
    }
}

/// How many entries a rank may have, where nobody says.
fn usual_entries(provider: &str, sharing: usize) -> usize {
    match provider {
        // An interface has some 500 for all processes of a job step. A few are left for the provider's own use.
        "cxi" => (480 / sharing).max(1),
        // `sockets` keeps its entries in a list; the number keeps it short, because each change of a counter walks
        // over all entries that wait for that counter.
        _ => 4096,
    }
}

fn number(variable: &'static str) -> Result<Option<u64>> {
    let Ok(value) = std::env::var(variable) else { return Ok(None) };
    let number = value.parse().map_err(|_| Error::BadEnvironment {
        variable,
        value,
        reason: "it must be a whole number".into(),
    })?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_share_an_interface_share_its_entries() {
        assert_eq!([1, 4, 64, 1000].map(|sharing| usual_entries("cxi", sharing)), [480, 120, 7, 1]);
        assert_eq!(usual_entries("sockets", 64), 4096);
    }
}
