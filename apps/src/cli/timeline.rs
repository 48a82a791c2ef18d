//! What `--timeline` is told.

use std::num::NonZeroU64;
use std::str::FromStr;

/// Nothing, or `steps=K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineAsked {
    /// How many steps at the end are wanted, if somebody has said so.
    pub steps: Option<NonZeroU64>,
}

impl FromStr for TimelineAsked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self { steps: None });
        }
        match text.strip_prefix("steps=").map(str::parse) {
            Some(Ok(steps)) => Ok(Self { steps: Some(steps) }),
            _ => Err("expected `steps=K`, the last K steps with K from 1, or nothing for the last three exchanges; \
                      the configuration goes before the flag"
                .to_owned()),
        }
    }
}
