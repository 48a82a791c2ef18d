//! What a target does with the packets of a window as it takes them.

use super::State;
use super::unexpected::{Entry, Wanted};
use crate::element::{Element, ElementType, Op, with_type};
use crate::error::{Error, Result};
use crate::fabric::{Arrived, Header, Memory, Opening, Payload, bytes_of, bytes_of_mut};
use std::collections::VecDeque;

/// What a packet is for. The payload of a put that was copied already is not in it.
pub(super) const NOTIFY: u16 = 1;
pub(super) const PUT: u16 = 2;
pub(super) const ACCUMULATE: u16 = 3;
/// Asks for `bytes` bytes, which come in one answer.
pub(super) const GET: u16 = 4;
/// Combines one element, and asks for what it was.
pub(super) const FETCH: u16 = 5;
/// Replaces one element if it is as expected, and asks for what it was.
pub(super) const SWAP: u16 = 6;
pub(super) const ANSWER: u16 = 7;
/// Asks to be told that all before it has been taken.
pub(super) const FLUSH: u16 = 8;

/// The lower bits of a ticket say which part of what a call has asked for, the others which call it was.
pub(super) const PART_BITS: u32 = if cfg!(test) { 2 } else { 20 };

/// Flags: the access ends with this packet, which notifies.
pub(super) const LAST: u16 = 1;
/// Flags: where the operation begins.
const OP_SHIFT: u16 = 1;

pub(super) fn flags_of(op: Op) -> u16 {
    let op = match op {
        Op::Replace => 0,
        Op::Sum => 1,
        Op::Min => 2,
        Op::Max => 3,
    };
    op << OP_SHIFT
}

fn op_of(flags: u16) -> Op {
    [Op::Replace, Op::Sum, Op::Min, Op::Max][usize::from(flags >> OP_SHIFT) & 3]
}

/// Something that another rank has asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    to: usize,
    ticket: u32,
    what: Asked,
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    /// Bytes of the window; then this rank is notified, since they may be overwritten.
    Bytes { offset: usize, bytes: usize, notification: Option<Entry> },
    /// An element as it was.
    Element { value: [u8; 8], bytes: usize },
}

/// Up to how many notifications nobody asks for are taken by a rank that waits for something else than an answer. Then
/// the rings fill up, peers over the wire are told of no more room, and the origins wait.
pub(super) const UNEXPECTED_LIMIT: usize = 1 << 16;

/// Up to how many packets such a rank takes before it looks after what it waits for.
const PACKETS_AT_ONCE: usize = 256;

/// What taking a packet may leave behind.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// What other ranks have asked for and the packets have had no room for.
    answers: VecDeque<Answer>,
    /// What went wrong, for the next call to tell: errors are large, and seldom.
    failed: Option<Error>,
}

impl Aside {
    #[cold]
    pub(super) fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
}

/// Carries out what a packet asks for; its notification, if it has one.
#[inline(always)]
fn carry_out(packet: Arrived<'_>, memory: &Memory, element: ElementType, aside: &mut Aside) -> Option<Entry> {
    let Header { kind, flags, tag, offset, .. } = packet.header;
    let is_done = match kind {
        PUT => packet.store(memory, offset as usize),
        kind => kind == NOTIFY,
    };
    if is_done {
        return (flags & LAST != 0).then_some(Entry::new(packet.source as u32, tag));
    }
    carry_out_rarer(packet, memory, element, &mut aside.answers).unwrap_or_else(|error| {
        aside.fail(error);
        None
    })
}

#[inline(never)]
fn carry_out_rarer(
    packet: Arrived<'_>,
    memory: &Memory,
    element: ElementType,
    answers: &mut VecDeque<Answer>,
) -> Result<Option<Entry>> {
    let Header { kind, flags, tag, bytes, ticket, offset } = packet.header;
    let (to, offset, bytes) = (packet.source, offset as usize, bytes as usize);
    let notification = (flags & LAST != 0).then_some(Entry::new(to as u32, tag));
    match kind {
        PUT => Err(memory.out_of_bounds("a put into a window", offset, packet.length())),
        ACCUMULATE => {
            packet.combine(memory, offset, element, op_of(flags))?;
            Ok(notification)
        }
        GET => {
            // Notified once the bytes have been read.
            answers.push_back(Answer { to, ticket, what: Asked::Bytes { offset, bytes, notification } });
            Ok(None)
        }
        FETCH | SWAP => {
            let mut value = [0; 8];
            let bytes = element.bytes();
            memory.read(offset, &mut value[..bytes], "a fetch from a window")?;
            answers.push_back(Answer { to, ticket, what: Asked::Element { value, bytes } });
            if kind == FETCH {
                packet.combine(memory, offset, element, op_of(flags))?;
            } else {
                swap(&packet, memory, offset, element)?;
            }
            Ok(notification)
        }
        FLUSH => {
            answers.push_back(Answer { to, ticket, what: Asked::Element { value: [0; 8], bytes: 0 } });
            Ok(None)
        }
        // To a call that has given up waiting.
        ANSWER => Ok(None),
        other => unreachable!("packets of kind {other} are not sent"),
    }
}

/// The payload of a swap: what is expected, and what comes in its place.
fn swap(packet: &Arrived<'_>, memory: &Memory, offset: usize, element: ElementType) -> Result<()> {
    fn swap<T: Element>(packet: &Arrived<'_>, memory: &Memory, offset: usize) -> Result<()> {
        let (mut expected_and_new, mut found) = ([T::default(); 2], [T::default()]);
        packet.copy_into(bytes_of_mut(&mut expected_and_new));
        memory.read(offset, bytes_of_mut(&mut found), "a swap in a window")?;
        let [expected, new] = expected_and_new;
        if bytes_of(&found) == bytes_of(&[expected]) {
            memory.write(offset, bytes_of(&[new]), "a swap in a window")?;
        }
        Ok(())
    }
    with_type!(element, T => swap::<T>(packet, memory, offset))
}

impl State {
    /// Takes the next packet of those whose memory is mapped, from any or from that rank: whether there was one, and its
    /// notification.
    #[inline(always)]
    fn take_packet(&mut self, from: Option<usize>) -> (bool, Option<Entry>) {
        let Self { packets, memory, element, aside, .. } = self;
        let Some(source) = from else {
            let mut notification = None;
            let any = packets.take_next(|packet| notification = carry_out(packet, memory, *element, aside));
            return (any, notification);
        };
        let Some((ring, back)) = packets.rings_with(source) else { return (false, None) };
        let Some(packet) = ring.peek() else {
            ring.tell_ahead();
            back.look_ahead();
            return (false, None);
        };
        back.expect_to_send();
        // What is known of the source need not be compared again.
        let packet = packet.known_from(source);
        let notification = carry_out(packet, memory, *element, aside);
        ring.release(packet.length(), back);
        (true, notification)
    }

    /// Takes what has come over the wire, if there is one; whether peers are to find no more room there.
    fn receive_far(&mut self, is_held: bool) -> Result<()> {
        let Self { unexpected, packets, memory, element, aside, .. } = self;
        packets.hold_back_far(is_held);
        packets.receive_far(&mut |packet| {
            if let Some(entry) = carry_out(packet, memory, *element, aside) {
                unexpected.push(entry);
            }
        })
    }

    /// Waits, for so many looks if it is not there, for what a wait mostly ends with: a short put of that rank with that tag,
    /// which one word of it says. `None` if it has not come, or something else has, a put beyond the window among it, which
    /// stays for [`State::next_arrival`]. [`super::unexpected::ANY`] is no tag of a put.
    #[inline(always)]
    pub(super) fn await_put(
        &mut self,
        source: usize,
        tag: u32,
        looks: impl FnOnce() -> u32,
    ) -> Option<Entry> {
        let (ring, back) = self.packets.rings_with(source)?;
        let opening = Opening::new(PUT, LAST, tag);
        let packet = ring.await_short(opening, looks, back)?;
        if !packet.store(&self.memory, packet.header.offset as usize) {
            return None;
        }
        ring.release_short(back);
        Some(Entry::new(source as u32, tag))
    }

    /// Takes the next matching notification of those that come; others go to the queue.
    ///
    /// What goes wrong is told by [`State::failure`].
    #[inline(always)]
    pub(super) fn next_arrival(&mut self, (wanted, from): (Wanted, Option<usize>)) -> Option<Entry> {
        loop {
            match self.take_packet(from) {
                (_, Some(entry)) if wanted.matches(entry) => return Some(entry),
                (_, Some(entry)) => self.unexpected.push(entry),
                (true, None) => {}
                (false, None) => break,
            }
        }
        if self.packets.has_far() || !self.aside.answers.is_empty() { self.next_other(wanted) } else { None }
    }

    /// As [`State::next_arrival`], of what comes over the wire.
    #[inline(never)]
    fn next_other(&mut self, wanted: Wanted) -> Option<Entry> {
        if let Err(error) = self.receive_far(false).and_then(|()| self.answer()) {
            self.aside.fail(error);
        }
        self.unexpected.take(wanted)
    }

    /// Whether something has gone wrong that nobody has been told of.
    #[inline(always)]
    pub(super) fn has_failed(&self) -> bool {
        self.aside.failed.is_some()
    }

    /// What has gone wrong since it was asked last.
    ///
    /// # Errors
    /// That.
    #[inline(always)]
    pub(super) fn failure(&mut self) -> Result<()> {
        if self.has_failed() { self.aside.failed.take().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Takes what has come and answers what was asked, for a rank that waits for something else; whether there
    /// was any, or is more to do.
    pub(super) fn serve(&mut self) -> Result<bool> {
        let mut any = false;
        for _ in 0..PACKETS_AT_ONCE {
            if self.unexpected.length() >= UNEXPECTED_LIMIT {
                break;
            }
            let (came, notification) = self.take_packet(None);
            if !came {
                break;
            }
            any = true;
            if let Some(entry) = notification {
                self.unexpected.push(entry);
            }
        }
        // What peers have room for is taken still: behind it is the goodbye of one that has left.
        self.receive_far(self.unexpected.length() >= UNEXPECTED_LIMIT)?;
        self.answer()?;
        self.failure()?;
        Ok(any || !self.aside.answers.is_empty())
    }

    /// Answers what was asked, as long as there is room.
    fn answer(&mut self) -> Result<()> {
        while let Some(Answer { to, ticket, what }) = self.aside.answers.front().copied() {
            let header = Header { kind: ANSWER, ticket, ..Header::default() };
            let has_room = match &what {
                Asked::Bytes { offset, bytes, .. } => {
                    let place = self.memory.place().advance(*offset, *bytes, "a get from a window")?;
                    self.packets.try_send(to, header, Payload::Place(&place, *bytes))?
                }
                Asked::Element { value, bytes } => {
                    self.packets.try_send(to, header, Payload::Bytes(&value[..*bytes]))?
                }
            };
            if !has_room {
                break;
            }
            self.aside.answers.pop_front();
            if let Asked::Bytes { notification: Some(entry), .. } = what {
                self.unexpected.push(entry);
            }
        }
        Ok(())
    }

    /// Takes what has come; answers of that target to that call go to `answered`. There is no limit: an answer may lie behind any number of
    /// notifications, and where ranks wait for each other's answers none may leave what the others ask for unread.
    pub(super) fn take_answers(
        &mut self,
        (target, call): (usize, u32),
        answered: &mut dyn FnMut(&Arrived<'_>),
    ) -> Result<()> {
        let Self { unexpected, packets, memory, element, aside, .. } = self;
        packets.hold_back_far(false);
        packets.receive(&mut |packet| {
            let is_answer = packet.header.kind == ANSWER && packet.source == target;
            if is_answer && packet.header.ticket >> PART_BITS == call {
                answered(&packet);
            } else if let Some(entry) = carry_out(packet, memory, *element, aside) {
                unexpected.push(entry);
            }
        })?;
        self.answer()?;
        self.failure()
    }
}
