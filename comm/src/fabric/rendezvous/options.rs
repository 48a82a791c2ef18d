//! Where ranks meet, as a launcher or a person says it: options and their environment.

use super::key::JobKey;
use crate::error::{Error, Result};
use crate::fabric::MOST_RANKS;
use crate::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};
use std::time::Duration;

/// Where rank 0 listens, as `HOST:PORT`.
pub const ADDRESS_VARIABLE: &str = "STREAMHALO_RENDEZVOUS";
/// The key of the job, as hexadecimal digits.
pub const KEY_VARIABLE: &str = "STREAMHALO_JOB_KEY";
/// A file with the key of the job, as hexadecimal digits.
pub const KEY_FILE_VARIABLE: &str = "STREAMHALO_JOB_KEY_FILE";

/// How to make a key, for who has none.
const HOW_TO_MAKE_A_KEY: &str = "make one with `head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > job.key`, \
     let nobody else read the file, and name it to every rank in STREAMHALO_JOB_KEY_FILE, or give its text in STREAMHALO_JOB_KEY";

/// Where ranks meet.
#[derive(Debug, Clone)]
pub struct RendezvousOptions {
    /// `HOST:PORT` of rank 0. If HOST is an address, rank 0 listens on it alone; if it is a name, on
    /// all its addresses, because the own name is often one of the loopback interface.
    pub address: String,
    /// This rank, from 0.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// What all of them know.
    pub key: JobKey,
    /// After how long it fails if not all have come; never if `None`.
    pub timeout: Option<Duration>,
}

impl RendezvousOptions {
    /// What a launcher or a person has set for this process: `STREAMHALO_RENDEZVOUS` (HOST:PORT),
    /// `STREAMHALO_RANK`, `STREAMHALO_SIZE`, and either `STREAMHALO_JOB_KEY` or
    /// `STREAMHALO_JOB_KEY_FILE`. `None` without the first. The time-out is a minute.
    ///
    /// # Errors
    /// [`Error::BadEnvironment`] if one of the others is missing or cannot be used.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_variables(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    pub(super) fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(address) = variable(ADDRESS_VARIABLE) else { return Ok(None) };
        if let Err(reason) = check_address(&address) {
            return Err(Error::BadEnvironment { variable: ADDRESS_VARIABLE, value: address, reason });
        }
        let number = |name: &'static str, wanted: &str| {
            let value = variable(name).unwrap_or_default();
            value.parse::<usize>().map_err(|_| Error::BadEnvironment {
                variable: name,
                value,
                reason: format!("{ADDRESS_VARIABLE} is set, so this must be {wanted}"),
            })
        };
        let size = number(SIZE_VARIABLE, "the number of ranks, the same for all")?;
        if size > MOST_RANKS {
            return Err(Error::BadEnvironment {
                variable: SIZE_VARIABLE,
                value: size.to_string(),
                reason: format!(
                    "no more than {MOST_RANKS} ranks can meet; set it to the number of processes"
                ),
            });
        }
        let rank = number(RANK_VARIABLE, "the rank of this process, from 0")?;
        if rank >= size {
            return Err(Error::BadEnvironment {
                variable: RANK_VARIABLE,
                value: rank.to_string(),
                reason: format!("ranks run from 0 and {SIZE_VARIABLE} is {size}"),
            });
        }
        let key = key_from(variable)?;
        Ok(Some(Self { address, rank, size, key, timeout: Some(Duration::from_secs(60)) }))
    }
}

fn check_address(address: &str) -> Result<(), String> {
    let wanted = "it must be HOST:PORT, where rank 0 listens, with a port from 1 to 65535";
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        _ => Err(wanted.into()),
    }
}

fn key_from(variable: &dyn Fn(&str) -> Option<String>) -> Result<JobKey> {
    // The text of a key is a secret, and stays out of the message.
    let bad_key = |reason: String| Error::BadEnvironment {
        variable: KEY_VARIABLE,
        value: if variable(KEY_VARIABLE).is_some() { "(not shown)" } else { "" }.into(),
        reason,
    };
    let digits = 2 * JobKey::BYTES;
    match (variable(KEY_VARIABLE), variable(KEY_FILE_VARIABLE)) {
        (Some(text), None) => JobKey::from_hex(&text)
            .ok_or_else(|| bad_key(format!("a key has {digits} hexadecimal digits; {HOW_TO_MAKE_A_KEY}"))),
        (None, Some(file)) => {
            let bad_file =
                |reason| Error::BadEnvironment { variable: KEY_FILE_VARIABLE, value: file.clone(), reason };
            let text = std::fs::read_to_string(&file)
                .map_err(|error| bad_file(format!("it cannot be read: {error}; {HOW_TO_MAKE_A_KEY}")))?;
            JobKey::from_hex(&text).ok_or_else(|| {
                bad_file(format!("it does not hold {digits} hexadecimal digits alone; {HOW_TO_MAKE_A_KEY}"))
            })
        }
        (Some(_), Some(_)) => Err(bad_key(format!("{KEY_FILE_VARIABLE} is set as well; set one of them"))),
        (None, None) => {
            Err(bad_key(format!("ranks that meet over a network need a key; {HOW_TO_MAKE_A_KEY}")))
        }
    }
}
