//! How a rank that lets go of its packets tells its peers.
//!
//! Its goodbye is a packet behind all that it has sent, for which no room is needed: nothing comes after it. It says
//! how many of the peer's packets the rank has read, which is exact from then on, and how many bulk transfers to the
//! peer it has begun. These may still be under way, and are carried to their end without the rank; only once they
//! have come has it left, as somebody may wait for what they bring.

use super::Messaging;
use super::state::State;
use crate::error::Result;
use crate::fabric::packet::{Header, Payload};

/// The kind of a goodbye. Others are below 256.
pub(super) const GOODBYE: u16 = u16::MAX;

/// What a peer has said when it let go. Both numbers wrap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goodbye {
    /// How many of this rank's packets it has read.
    read: u32,
    /// How many bulk transfers to this rank it has begun.
    bulks: u32,
}

impl<M: Messaging> State<M> {
    /// Queues a goodbye to each peer that the wire reaches.
    pub(super) fn say_goodbye(&mut self) -> Result<()> {
        if self.library.is_lost() {
            return Ok(());
        }
        for index in 0..self.far.len() {
            let to = self.far[index];
            let peer = self.peers[to];
            let header = Header { kind: GOODBYE, tag: peer.read, ticket: peer.bulks[0], ..Header::default() };
            self.queue(to, header, Payload::None)?;
        }
        Ok(())
    }

    pub(super) fn hear_goodbye(&mut self, source: usize, header: Header) {
        self.peers[source].goodbye = Some(Goodbye { read: header.tag, bulks: header.ticket });
        self.leaving.push(source);
    }

    /// A peer that has let go and of which all has come, each once.
    pub(super) fn next_departed(&mut self) -> Option<usize> {
        let has_come = |peer: &usize| {
            let peer = &self.peers[*peer];
            peer.goodbye.is_some_and(|goodbye| goodbye.bulks == peer.bulks[1])
        };
        let index = self.leaving.iter().position(has_come)?;
        Some(self.leaving.swap_remove(index))
    }

    /// How many packets that were sent to it a peer had not read when it let go, if it has.
    pub(super) fn unread(&self, peer: usize) -> u32 {
        let peer = &self.peers[peer];
        peer.sent.wrapping_sub(peer.goodbye.map_or(0, |goodbye| goodbye.read))
    }
}
