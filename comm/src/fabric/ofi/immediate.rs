//! Operations that go out at once: what a progress thread posts for providers that have no
//! triggered operations, and what set-up needs on all of them.
//!
//! Each returns [`Posted::NoRoom`] while the provider's queue is full (a receive also while another
//! thread polls, where that matters: [`super::turns`]), and completes with its token through
//! [`Endpoint::poll`]. Nothing here blocks, except that `sockets` connects to a peer with the first
//! operation.

use super::call::{Posted, function, posted};
use super::completion::Token;
use super::endpoint::{Endpoint, PeerAddress};
use super::library::unavailable;
use super::memory::{LocalSlice, RemotePlace};
use super::sys;
use crate::error::Result;

/// The bits of a tag that all providers carry: those of Slingshot.
pub(crate) const TAG_BITS: u32 = 48;

impl Endpoint {
    /// Writes to a peer's memory. Complete when the source may be written again.
    ///
    /// # Safety
    /// Until then nothing may write to the source, and its region must be kept.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) unsafe fn write(
        &self,
        source: &LocalSlice,
        target: RemotePlace,
        number: u32,
    ) -> Result<Posted> {
        let endpoint = self.inner.endpoint;
        // SAFETY: open until the last clone is dropped.
        let table = unsafe { (*endpoint).rma };
        let write = function!("fi_write", table, sys::FiOpsRma, write)?;
        let context = Token::new(target.peer, number).context();
        // SAFETY: a slice lies within its region, which the caller keeps.
        let code = unsafe {
            write(
                endpoint,
                source.pointer(),
                source.bytes(),
                source.descriptor(),
                target.peer.0,
                target.address,
                target.key,
                context,
            )
        };
        posted(self.inner.library, "fi_write", code as i64, &to(target.peer))
    }

    /// As [`Endpoint::write`], and gives the peer `data` once the bytes are there. Data longer than
    /// [`Endpoint::remote_data_bytes`] are refused. Slingshot has no such writes (its data go with
    /// messages), and is reached by triggered operations instead.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`](crate::Error::FabricUnavailable) if the provider cannot carry so
    /// many bits; [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) unsafe fn write_with_data(
        &self,
        source: &LocalSlice,
        target: RemotePlace,
        data: u64,
        number: u32,
    ) -> Result<Posted> {
        let bits = 8 * self.remote_data_bytes() as u32;
        if bits < 64 && data >> bits != 0 {
            return Err(unavailable(format!(
                "provider `{}` carries {bits} bits with a write, and {data:#x} has more",
                self.provider()
            )));
        }
        let endpoint = self.inner.endpoint;
        // SAFETY: open until the last clone is dropped.
        let table = unsafe { (*endpoint).rma };
        let write = function!("fi_writedata", table, sys::FiOpsRma, writedata)?;
        let context = Token::new(target.peer, number).context();
        // SAFETY: a slice lies within its region, which the caller keeps.
        let code = unsafe {
            write(
                endpoint,
                source.pointer(),
                source.bytes(),
                source.descriptor(),
                data,
                target.peer.0,
                target.address,
                target.key,
                context,
            )
        };
        posted(self.inner.library, "fi_writedata", code as i64, &to(target.peer))
    }

    /// Sends a message to the receive of that tag, which has [`TAG_BITS`]. Complete when the source may be written again.
    ///
    /// # Safety
    /// As [`Endpoint::write`].
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) unsafe fn send_tagged(
        &self,
        source: &LocalSlice,
        peer: PeerAddress,
        tag: u64,
        number: u32,
    ) -> Result<Posted> {
        debug_assert!(tag >> TAG_BITS == 0, "tag {tag:#x} does not fit {TAG_BITS} bits");
        let endpoint = self.inner.endpoint;
        // SAFETY: open until the last clone is dropped.
        let table = unsafe { (*endpoint).tagged };
        let send = function!("fi_tsend", table, sys::FiOpsTagged, send)?;
        let context = Token::new(peer, number).context();
        // SAFETY: a slice lies within its region, which the caller keeps.
        let code = unsafe {
            send(endpoint, source.pointer(), source.bytes(), source.descriptor(), peer.0, tag, context)
        };
        posted(self.inner.library, "fi_tsend", code as i64, &to(peer))
    }

    /// Receives the next message with that tag, from whichever peer: a tag that says whose it is
    /// keeps them apart. `peer` is whom errors name. A longer message than the destination is an error.
    ///
    /// # Safety
    /// Until it completes nothing may read or write the destination, and its region must be kept.
    ///
    /// # Errors
    /// [`Error::Libfabric`](crate::Error::Libfabric).
    pub(crate) unsafe fn receive_tagged(
        &self,
        destination: &LocalSlice,
        peer: PeerAddress,
        tag: u64,
        number: u32,
    ) -> Result<Posted> {
        debug_assert!(tag >> TAG_BITS == 0, "tag {tag:#x} does not fit {TAG_BITS} bits");
        let endpoint = self.inner.endpoint;
        // SAFETY: open until the last clone is dropped.
        let table = unsafe { (*endpoint).tagged };
        let receive = function!("fi_trecv", table, sys::FiOpsTagged, recv)?;
        let context = Token::new(peer, number).context();
        let Some(_turn) = self.inner.turns.take() else { return Ok(Posted::NoRoom) };
        // SAFETY: a slice lies within its region, which the caller keeps.
        let code = unsafe {
            receive(
                endpoint,
                destination.pointer(),
                destination.bytes(),
                destination.descriptor(),
                sys::FI_ADDR_UNSPEC,
                tag,
                0,
                context,
            )
        };
        posted(self.inner.library, "fi_trecv", code as i64, &format!("when receiving from {peer}"))
    }
}

impl Endpoint {
    /// Asks for the end of one receive of those that were posted with that peer and number, which nothing is posted with
    /// again. Unless a message has come for it, it completes as [`Completion::Cancelled`](super::Completion::Cancelled).
    pub(crate) fn cancel(&self, peer: PeerAddress, number: u32) {
        let endpoint = self.inner.endpoint;
        // SAFETY: open until the last clone is dropped.
        let table = unsafe { (*endpoint).ops };
        let token = Token::new(peer, number);
        // One that is not cancelled just goes on.
        if let Ok(cancel) = function!("fi_cancel", table, sys::FiOpsEp, cancel) {
            self.inner.note_cancelled(token);
            // SAFETY: the context is a number, which the provider compares only.
            unsafe { cancel(endpoint.cast(), token.context()) };
        }
    }
}

fn to(peer: PeerAddress) -> String {
    format!("towards {peer}")
}
