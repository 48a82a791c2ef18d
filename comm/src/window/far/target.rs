//! What a rank does with the packets that come: as a target what origins want, and as an origin what it has
//! asked for.

use super::origin::{Outgoing, op_of};
use super::{Credit, Desk, Expected, Peer, kind};
use crate::device::{Move, MoveTable};
use crate::error::{Error, Result};
use crate::fabric::{Arrived, Header, Place};

/// What an origin has begun.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// What is on its way from it, or to it because it has asked for it.
    unfinished: usize,
    /// The epoch that it has completed, apart from that.
    complete: Option<u32>,
}

impl Peer {
    /// Takes note that something is done that its epoch has to wait for.
    pub(super) fn origin_has_done_one(&mut self) {
        self.origin.unfinished -= 1;
        self.end_epoch();
    }

    /// Sets the completion word, if nothing is left.
    fn end_epoch(&mut self) {
        if self.origin.unfinished == 0
            && let Some(epoch) = self.origin.complete.take()
        {
            self.completion.set(epoch);
        }
    }
}

impl Desk {
    /// Does what a packet wants.
    pub(super) fn take(&mut self, packet: &Arrived<'_>) -> Result<()> {
        let Header { kind, flags, tag, bytes, ticket, offset } = packet.header;
        let (source, bytes, offset) = (packet.source, bytes as usize, offset as usize);
        match kind {
            kind::EXPOSURE => self.peers[source].exposure.set(tag),
            kind::COMPLETION => {
                self.peers[source].origin.complete = Some(tag);
                self.peers[source].end_epoch();
            }
            kind::PUT => packet.copy_to(&self.at(offset, packet.length())?)?,
            kind::PUT_BULK => {
                let (place, credit) = (self.at(offset, bytes)?, Credit::Origin(source));
                self.peers[source].origin.unfinished += 1;
                self.expected.push(Expected { source, number: tag, place, bytes, credit });
            }
            kind::ACCUMULATE => {
                packet.copy_to(&self.scratch)?;
                let length = packet.length();
                let combine = Move {
                    source: self.scratch.clone(),
                    source_strides: [length; 2],
                    destination: self.at(offset, length)?,
                    destination_strides: [length; 2],
                    counts: [1, 1],
                    run_bytes: length,
                    element: self.element,
                    op: op_of(flags),
                };
                MoveTable::with_accumulates(Vec::new(), &[combine])?.run();
            }
            kind::GET => {
                let (place, credit) = (self.at(offset, bytes)?, Credit::Origin(source));
                let header = Header { bytes: bytes as u32, ticket, ..Header::default() };
                let outgoing = if bytes > self.scratch_bytes() {
                    Outgoing::bulk(Header { kind: kind::GOT_BULK, ..header }, place, bytes, credit)
                } else {
                    Outgoing::packets(Header { kind: kind::GOT, ..header }, place, bytes, credit)
                };
                self.peers[source].origin.unfinished += 1;
                self.peers[source].outbox.push_back(outgoing);
            }
            kind::GOT => {
                let asked = self.asked.get_mut(ticket as usize).and_then(Option::as_mut);
                let length = packet.length();
                let asked =
                    asked.filter(|asked| length <= asked.left).ok_or_else(|| not_asked_for(source))?;
                packet.copy_to(&asked.place.advance(offset, length, "a get")?)?;
                asked.left -= length;
                if asked.left == 0 {
                    let credit = asked.credit;
                    self.asked[ticket as usize] = None;
                    self.done(credit);
                }
            }
            kind::GOT_BULK => {
                let asked = self.asked.get_mut(ticket as usize).and_then(Option::take);
                let asked = asked.ok_or_else(|| not_asked_for(source))?;
                let (place, credit) = (asked.place, asked.credit);
                self.expected.push(Expected { source, number: tag, place, bytes, credit });
            }
            other => {
                return Err(Error::System {
                    call: "reading the packets of a window",
                    reason: format!("rank {source} has sent one of kind {other}, which there is not"),
                });
            }
        }
        Ok(())
    }

    /// A place in this rank's part.
    fn at(&self, offset: usize, bytes: usize) -> Result<Place> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => self.part.advance(offset, bytes, "an operation of a peer"),
            end => Err(Error::OutOfBounds {
                what: "an operation of a peer",
                start: offset,
                end: end.unwrap_or(usize::MAX),
                region_bytes: self.bytes,
            }),
        }
    }

    /// Up to how many bytes are sent in packets rather than in bulk.
    fn scratch_bytes(&self) -> usize {
        self.scratch.region().bytes()
    }
}

fn not_asked_for(source: usize) -> Error {
    Error::System {
        call: "reading the packets of a window",
        reason: format!("rank {source} has sent what this rank has not asked for"),
    }
}
