//! The key of a job: what its ranks know and strangers do not.

use crate::error::{Error, Result};
use std::fmt;

/// A secret of 32 random bytes that all ranks of a job know. Whoever has it can join the job.
///
/// It is never shown in messages or by `Debug`; [`JobKey::to_hex`] is for handing it on, by an
/// environment variable or a file. Arguments of a command are no place for it: every user of the
/// machine can list them.
#[derive(Clone)]
pub struct JobKey([u8; JobKey::BYTES]);

impl JobKey {
    /// Its length.
    pub const BYTES: usize = 32;

    /// A new key, from the randomness of the operating system.
    ///
    /// # Errors
    /// [`Error::System`] if the system has none.
    pub fn generate() -> Result<Self> {
        random().map(Self)
    }

    /// The key as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Reads what [`JobKey::to_hex`] writes; white space around it is ignored. `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text.trim()).ok().map(|hash| Self(hash.into()))
    }

    /// What only who has the key can say about `parts`. All but the last must have a fixed length, or
    /// different parts could run together to the same text.
    pub(super) fn sign(&self, parts: &[&[u8]]) -> [u8; JobKey::BYTES] {
        *self.hash(parts).as_bytes()
    }

    /// Whether `claimed` is what the key says about `parts`, in a time that does not depend on where
    /// they differ.
    pub(super) fn verify(&self, parts: &[&[u8]], claimed: &[u8; JobKey::BYTES]) -> bool {
        // This comparison of hashes takes a constant time.
        self.hash(parts) == *claimed
    }

    fn hash(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(not shown)")
    }
}

/// Bytes that nobody can guess.
pub(super) fn random() -> Result<[u8; JobKey::BYTES]> {
    let mut bytes = [0; JobKey::BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::System {
        call: "taking randomness from the operating system",
        reason: error.to_string(),
    })?;
    Ok(bytes)
}
