//! What a rank sends: its operations as an origin, and what it was asked for as a target.

use super::{Credit, Desk, LONGEST, Operation, Peer, kind};
use crate::element::Op;
use crate::error::Result;
use crate::fabric::{Header, Packets, Payload, Place};
use crate::window::epoch::Kind;

/// An access epoch to one target.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) target: usize,
    pub(super) epoch: u32,
    /// What is to be sent once the target is exposed.
    operations: Option<Vec<Operation>>,
    /// What has been sent and is not done.
    unfinished: usize,
}

/// What this rank has asked a target for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) place: Place,
    pub(super) left: usize,
    pub(super) credit: Credit,
}

/// Something to be sent to a peer, in one packet, several, or a bulk transfer.
#[derive(Debug)]
pub(super) struct Outgoing {
    header: Header,
    /// Of the payload, if it has one.
    place: Option<Place>,
    bytes: usize,
    sent: usize,
    is_bulk: bool,
    credit: Credit,
}

impl Access {
    pub(super) fn new(target: usize, epoch: u32, operations: Vec<Operation>) -> Self {
        Self { target, epoch, operations: Some(operations), unfinished: 0 }
    }

    /// Takes note that one part is done; whether that was the last.
    pub(super) fn is_done_but_one(&mut self) -> bool {
        self.unfinished -= 1;
        self.unfinished == 0
    }
}

impl Outgoing {
    /// Something without a payload.
    pub(super) fn signal(header: Header, credit: Credit) -> Self {
        Self { header, place: None, bytes: 0, sent: 0, is_bulk: false, credit }
    }

    /// Bytes from a place, in packets: the offset of the header goes on with them.
    pub(super) fn packets(header: Header, place: Place, bytes: usize, credit: Credit) -> Self {
        Self { header, place: Some(place), bytes, sent: 0, is_bulk: false, credit }
    }

    /// Bytes from a place, in a bulk transfer that the header tells of.
    pub(super) fn bulk(header: Header, place: Place, bytes: usize, credit: Credit) -> Self {
        Self { header, place: Some(place), bytes, sent: 0, is_bulk: true, credit }
    }
}

/// How an operation is called in the flags of a packet.
fn flags_of(op: Op) -> u16 {
    match op {
        Op::Replace => 0,
        Op::Sum => 1,
        Op::Min => 2,
        Op::Max => 3,
    }
}

/// The operation that the flags of a packet name.
pub(super) fn op_of(flags: u16) -> Op {
    match flags {
        1 => Op::Sum,
        2 => Op::Min,
        3 => Op::Max,
        _ => Op::Replace,
    }
}

impl Desk {
    /// Whether an access cannot be done without its target. Not if all that remains are transfers that leave this rank:
    /// a target that has had them may let go before this rank knows that they are done.
    pub(super) fn needs_target(&self, access: &Access) -> bool {
        let Access { target, epoch, .. } = *access;
        let credit = Credit::Access { target, epoch };
        access.operations.is_some()
            || !self.peers[target].outbox.is_empty()
            || self.asked.iter().flatten().any(|asked| asked.credit == credit)
    }

    /// Puts the operations of epochs whose targets are exposed into the outbox.
    pub(super) fn begin_accesses(&mut self, packets: &Packets) {
        for index in 0..self.accesses.len() {
            let Access { target, epoch, .. } = self.accesses[index];
            if !self.peers[target].exposure.cell().reached(epoch) {
                continue;
            }
            let Some(operations) = self.accesses[index].operations.take() else { continue };
            let credit = Credit::Access { target, epoch };
            let mut unfinished = 1;
            for operation in operations {
                unfinished += self.begin_operation(packets, target, &operation, credit);
            }
            let header = Header { kind: kind::COMPLETION, tag: epoch, ..Header::default() };
            self.peers[target].outbox.push_back(Outgoing::signal(header, credit));
            self.accesses[index].unfinished = unfinished;
        }
    }

    /// Puts an operation into the outbox; in how many parts.
    fn begin_operation(
        &mut self,
        packets: &Packets,
        target: usize,
        operation: &Operation,
        credit: Credit,
    ) -> usize {
        let largest = packets.largest(target);
        let Operation { kind, offset, place, bytes } = operation;
        let mut parts = 0;
        for start in (0..*bytes).step_by(LONGEST) {
            let bytes = LONGEST.min(bytes - start);
            let place = place.advance(start, bytes, "an operation on a window").expect("it was checked");
            let header = Header { bytes: bytes as u32, offset: (offset + start) as u64, ..Header::default() };
            let outgoing = match kind {
                Kind::Put if bytes > largest => {
                    Outgoing::bulk(Header { kind: kind::PUT_BULK, ..header }, place, bytes, credit)
                }
                Kind::Put => Outgoing::packets(Header { kind: kind::PUT, ..header }, place, bytes, credit),
                Kind::Accumulate(op) => {
                    let header = Header { kind: kind::ACCUMULATE, flags: flags_of(*op), ..header };
                    Outgoing::packets(header, place, bytes, credit)
                }
                Kind::Get => {
                    let ticket = self.ask(Asked { place, left: bytes, credit });
                    Outgoing::signal(Header { kind: kind::GET, ticket, ..header }, Credit::None)
                }
            };
            self.peers[target].outbox.push_back(outgoing);
            parts += 1;
        }
        parts
    }

    /// A ticket for something to be asked for.
    fn ask(&mut self, asked: Asked) -> u32 {
        let free = self.asked.iter().position(Option::is_none).unwrap_or_else(|| {
            self.asked.push(None);
            self.asked.len() - 1
        });
        self.asked[free] = Some(asked);
        free as u32
    }

    /// Sends what there is room for.
    pub(super) fn send(&mut self, packets: &mut Packets, peer: usize) -> Result<()> {
        // Whole elements, for accumulates.
        let largest = packets.largest(peer) / 8 * 8;
        loop {
            let Peer { outbox, number, .. } = &mut self.peers[peer];
            let Some(next) = outbox.front_mut() else { return Ok(()) };
            if let (true, Some(place)) = (next.is_bulk, &next.place) {
                let header = Header { tag: *number, ..next.header };
                if !packets.try_send(peer, header, Payload::None)? {
                    return Ok(());
                }
                let bulk = packets.far().send_bulk(peer, *number, place, next.bytes)?;
                self.bulks.push((bulk, next.credit));
                *number = number.wrapping_add(1);
                outbox.pop_front();
                continue;
            }
            let length = largest.min(next.bytes - next.sent);
            let part = match &next.place {
                Some(place) => Some(place.advance(next.sent, length, "a packet of a window")?),
                None => None,
            };
            let payload = part.as_ref().map_or(Payload::None, |place| Payload::Place(place, length));
            let header = Header { offset: next.header.offset + next.sent as u64, ..next.header };
            if !packets.try_send(peer, header, payload)? {
                return Ok(());
            }
            next.sent += length;
            if next.sent == next.bytes {
                let credit = next.credit;
                outbox.pop_front();
                self.done(credit);
            }
        }
    }
}
