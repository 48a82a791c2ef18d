//! Completions: what the endpoint's queue says of immediate operations, of arrivals, and of
//! anything that failed.

use super::call::{failed, function};
use super::endpoint::{Endpoint, PeerAddress};
use super::library::text;
use super::sys::{self, FiCqErrEntry, FiCqTaggedEntry, Zeroed};
use crate::error::{Error, Result};
use std::ffi::c_void;

/// What an operation is known by until it completes: whom it is with, and a number of the caller's.
///
/// The word that libfabric carries for its user holds both, so that nothing needs to be looked up.
/// Its first bit tells it from the addresses that entries of deferred work are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token(u64);

const TOKEN: u64 = 1 << 63;

impl Token {
    /// For an operation with `peer`; `number` is the caller's.
    pub(crate) fn new(peer: PeerAddress, number: u32) -> Self {
        Self(TOKEN | (peer.0 & 0x7fff_ffff) << 32 | u64::from(number))
    }

    /// The peer.
    pub(crate) fn peer(self) -> PeerAddress {
        PeerAddress(self.0 >> 32 & 0x7fff_ffff)
    }

    /// The caller's number.
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn context(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    fn of(context: *mut c_void) -> Option<Self> {
        let word = context.addr() as u64;
        (word & TOKEN != 0).then_some(Self(word))
    }
}

/// Something that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// An operation of this side is done: its source may be written again.
    Done(Token),
    /// A tagged message has been received.
    Received {
        /// Of the receive that took it.
        token: Token,
        /// Its size.
        bytes: usize,
        /// Its tag.
        tag: u64,
    },
    /// A peer has written to this side's memory, with data.
    Arrived {
        /// The data that came with it.
        data: u64,
    },
    /// A receive has ended without a message, as it was asked to.
    Cancelled(Token),
    /// Nothing that anybody waits for.
    Nothing,
}

impl Endpoint {
    /// Makes progress, and takes what has completed: fills the front of `completions`, and returns
    /// how many there were; none if another thread is at it where that matters ([`super::turns`]). Does
    /// not block. Providers without a thread of their own move nothing, in either direction, unless this
    /// is called.
    ///
    /// # Errors
    /// [`Error::Libfabric`] for an operation that failed, of whatever kind, with its peer; what has
    /// completed besides comes with the next call.
    pub(crate) fn poll(&self, completions: &mut [Completion]) -> Result<usize> {
        const AT_ONCE: usize = 16;
        let opened = &self.inner;
        let Some(_turn) = opened.turns.take() else { return Ok(0) };
        // SAFETY: the endpoint keeps its queue open.
        let table = unsafe { (*opened.queue).ops };
        let read = function!("fi_cq_read", table, sys::FiOpsCq, read)?;
        let mut entries = [const { EMPTY }; AT_ONCE];
        let room = completions.len().min(AT_ONCE);
        // SAFETY: at least `room` entries of the format that the queue was opened with.
        let code = unsafe { read(opened.queue, entries.as_mut_ptr().cast(), room) };
        match code {
            code if code == -(sys::FI_EAGAIN as isize) => Ok(0),
            code if code == -(sys::FI_EAVAIL as isize) => {
                let failed = self.failure();
                match (failed, completions.first_mut()) {
                    (Ok(token), Some(completion)) => {
                        *completion = Completion::Cancelled(token);
                        Ok(1)
                    }
                    (Ok(_), None) => Ok(0),
                    (Err(error), _) => Err(error),
                }
            }
            code if code < 0 => {
                Err(failed(opened.library, "fi_cq_read", code as i64, "when polling for completions"))
            }
            count => {
                let count = count as usize;
                for (completion, entry) in completions.iter_mut().zip(&entries[..count]) {
                    *completion = read_entry(entry);
                }
                Ok(count)
            }
        }
    }

    /// Takes the first failure from the queue, which is none where an operation was to be cancelled.
    fn failure(&self) -> Result<Token> {
        let opened = &self.inner;
        // SAFETY: the endpoint keeps its queue open.
        let table = unsafe { (*opened.queue).ops };
        let read = function!("fi_cq_readerr", table, sys::FiOpsCq, readerr)?;
        let mut entry = FiCqErrEntry::zeroed();
        // SAFETY: one entry, without room for the provider's own data.
        let code = unsafe { read(opened.queue, &mut entry, 0) };
        if code != 1 {
            let code = if code < 0 { code as i64 } else { -i64::from(sys::FI_EAVAIL) };
            return Err(failed(opened.library, "fi_cq_readerr", code, "when asking what has failed"));
        }
        let token = Token::of(entry.op_context);
        // So fails also what was queued on a connection that has broken, and has not been sent.
        if let Some(token) = token
            && entry.err == sys::FI_ECANCELED
            && opened.take_cancelled(token)
        {
            return Ok(token);
        }
        let what = match token {
            Some(token) => format!("{} {}", kind(entry.flags), token.peer()),
            None => {
                let known = opened.deferred().get(&entry.op_context.addr()).cloned();
                known.unwrap_or_else(|| "an operation of a peer, or one that is unknown here".into())
            }
        };
        let mut detail = self.detail(&entry);
        if !detail.is_empty() {
            detail = format!(", {detail}");
        }
        Err(Error::Libfabric {
            call: "fi_cq_read",
            reason: format!(
                "{what} failed: {} (error {}{detail}); the peer may have ended, or its memory may have been withdrawn",
                opened.library.describe(entry.err),
                entry.err
            ),
        })
    }

    /// What the provider itself says of a failure.
    fn detail(&self, entry: &FiCqErrEntry) -> String {
        let queue = self.inner.queue;
        // SAFETY: the endpoint keeps its queue open.
        let table = unsafe { (*queue).ops };
        let Ok(describe) = function!("fi_cq_strerror", table, sys::FiOpsCq, strerror) else {
            return String::new();
        };
        let mut buffer = [0; 256];
        // SAFETY: the buffer has that many bytes, the last of which stays zero.
        let said = unsafe {
            describe(queue, entry.prov_errno, entry.err_data, buffer.as_mut_ptr(), buffer.len() - 1)
        };
        text(said).unwrap_or_default()
    }
}

const EMPTY: FiCqTaggedEntry = FiCqTaggedEntry {
    op_context: std::ptr::null_mut(),
    flags: 0,
    len: 0,
    buf: std::ptr::null_mut(),
    data: 0,
    tag: 0,
};

fn read_entry(entry: &FiCqTaggedEntry) -> Completion {
    let is = |bits: u64| entry.flags & bits != 0;
    let token = Token::of(entry.op_context);
    // The flag for data is also on what the writer itself sees, on some providers.
    if is(sys::FI_REMOTE_CQ_DATA) && (is(sys::FI_REMOTE_WRITE) || token.is_none()) {
        return Completion::Arrived { data: entry.data };
    }
    let Some(token) = token else { return Completion::Nothing };
    if is(sys::FI_RECV) {
        Completion::Received { token, bytes: entry.len, tag: entry.tag }
    } else {
        Completion::Done(token)
    }
}

/// What the flags of an entry say that it was.
fn kind(flags: u64) -> &'static str {
    let is = |bits: u64| flags & bits != 0;
    if is(sys::FI_RECV) {
        "a receive from"
    } else if is(sys::FI_TAGGED) || is(sys::FI_MSG) {
        "a message to"
    } else if is(sys::FI_ATOMIC) {
        "an atomic operation on a word of"
    } else if is(sys::FI_RMA) {
        "a write to"
    } else {
        "an operation with"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_carries_its_peer_and_number() {
        let token = Token::new(PeerAddress(0x1234_5678), 0xffff_fff0);
        assert_eq!((token.peer().0, token.number()), (0x1234_5678, 0xffff_fff0));
        assert_eq!(Token::of(token.context()), Some(token));
        assert_eq!(Token::new(PeerAddress::ANYBODY, 7).peer().to_string(), "any rank");
        assert_eq!(Token::new(PeerAddress(7), 3).peer().to_string(), "rank 7");
        let on_the_heap = Box::new(0u64);
        assert_eq!(Token::of((&raw const *on_the_heap).cast_mut().cast()), None);
    }
}
