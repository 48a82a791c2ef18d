//! Throttling: what to do when all entries for triggered operations are in use (Namashivayam et al.
//! 2023, section 5.2).

use crate::error::{Error, Result};
use crate::fabric::ofi::Budget;
use std::sync::Arc;

/// Names the policy.
pub const THROTTLING_VARIABLE: &str = "STREAMHALO_OFI_THROTTLING";
/// How many entries may be outstanding, in place of what the provider has.
pub const ENTRIES_VARIABLE: &str = "STREAMHALO_OFI_ENTRIES";
/// Where counters start, to see what happens near their end.
pub const COUNTER_START_VARIABLE: &str = "STREAMHALO_OFI_COUNTER_START";

/// Who makes room, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Throttling {
    /// The application: without room a start is refused, and may be tried again once the stream was
    /// synchronised.
    Application,
    /// The host waits until all that was queued has completed.
    Static,
    /// The host waits until the oldest epoch has completed.
    Adaptive,
}

/// What the exchanges of an endpoint share.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    pub(super) throttling: Throttling,
    pub(super) budget: Arc<Budget>,
    /// The value that counters start with.
    pub(super) counter_start: u64,
}

impl Allowance {
    /// As the environment says, for that provider.
    pub(super) fn from_env(provider: &str) -> Result<Self> {
        let throttling = match std::env::var(THROTTLING_VARIABLE).as_deref() {
            Err(_) | Ok("adaptive") => Throttling::Adaptive,
            Ok("static") => Throttling::Static,
            Ok("application") => Throttling::Application,
            Ok(other) => {
                return Err(Error::BadEnvironment {
                    variable: THROTTLING_VARIABLE,
                    value: other.into(),
                    reason: "it must be `adaptive`, `static` or `application`".into(),
                });
            }
        };
        let budget = match number(ENTRIES_VARIABLE)? {
            Some(entries) => Budget::new(entries as usize),
            None => Budget::of_provider(provider),
        };
        let counter_start = number(COUNTER_START_VARIABLE)?.unwrap_or(0);
        Ok(Self { throttling, budget: Arc::new(budget), counter_start })
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
