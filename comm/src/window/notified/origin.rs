//! What an origin does: accesses to the parts of other ranks, most of which notify their targets.

use super::arrivals::{ACCUMULATE, FETCH, FLUSH, GET, LAST, NOTIFY, PART_BITS, PUT, SWAP, flags_of};
use super::{Notified, State};
use crate::element::Op;
use crate::error::Result;
use crate::fabric::{Header, INLINE_BYTES, Memory, Packets, Payload, Role, store_fence};
use crate::window::Target;

/// Where puts to a target may still be on their way: in packets that it may not have taken. Accesses that do not
/// go through packets must not overtake them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OnTheWay {
    start: usize,
    end: usize,
    /// What had been sent after the last of them.
    sent: u32,
}

impl OnTheWay {
    #[inline(always)]
    fn add(&mut self, start: usize, bytes: usize, sent: u32) {
        if self.end == 0 {
            self.start = start;
        }
        self.start = self.start.min(start);
        self.end = self.end.max(start + bytes);
        self.sent = sent;
    }

    /// Whether some may be within those bytes.
    #[inline]
    fn meets(&mut self, start: usize, bytes: usize, peer: usize, packets: &mut Packets) -> bool {
        if self.end == 0 || start + bytes <= self.start || self.end <= start {
            return false;
        }
        self.are_any(peer, packets)
    }

    /// Whether there may be some.
    fn are_any(&mut self, peer: usize, packets: &mut Packets) -> bool {
        if self.end > 0 && packets.has_read(peer, self.sent) {
            *self = Self::default();
        }
        self.end > 0
    }
}

/// An access to a part of a window, whose arguments have been checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    pub(crate) part: &'a Target,
    pub(crate) target: usize,
    /// The first byte.
    pub(crate) start: usize,
    pub(crate) tag: u32,
    /// Whether the target is told of it.
    pub(crate) notifies: bool,
}

impl Access<'_> {
    /// The flags of its last packet.
    fn last_flag(&self) -> u16 {
        if self.notifies { LAST } else { 0 }
    }

    fn header(&self, kind: u16, flags: u16, start: usize, bytes: usize) -> Header {
        header((kind, flags, self.tag), start, bytes)
    }
}

/// The header of a packet about bytes from there on.
#[inline(always)]
fn header((kind, flags, tag): (u16, u16, u32), start: usize, bytes: usize) -> Header {
    // Tells nobody how much it was if that is more than can be said.
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Header { kind, flags, tag, bytes, ticket: 0, offset: start as u64 }
}

/// How many parts of a get are asked for ahead of their answers.
const ASKED_AHEAD: usize = 8;

impl Notified {
    /// Puts bytes into the target's part.
    #[inline(always)]
    pub(crate) fn put(&self, access: Access<'_>, data: &[u8]) -> Result<()> {
        let Access { part, target, start, tag, .. } = access;
        match self.put_at_once(target, start, tag, data) {
            Some(false) => Ok(()),
            Some(true) => self.have_put(target, start, tag, data),
            None => self.put_otherwise(part, target, start, tag, data),
        }
    }

    /// What nearly every put comes to, and nothing that it does not need, for the target waits for it: bytes that fit into
    /// a packet's cell, to a ring that has room; whether somebody else is to be told of them. `None` if nothing was sent.
    #[inline(always)]
    fn put_at_once(&self, target: usize, start: usize, tag: u32, data: &[u8]) -> Option<bool> {
        let state = &mut *self.state.borrow_mut();
        let ring = state.packets.ring_to(target)?;
        // The header is made where it is needed: on the way to a ring with room it stays in registers.
        let put = (PUT, LAST, tag);
        if data.len() > INLINE_BYTES || !ring.try_send(header(put, start, data.len()), Payload::Bytes(data)) {
            return None;
        }
        let (sent, is_watched) = (ring.sent(), ring.is_watched());
        state.on_the_way[target].add(start, data.len(), sent);
        Some(is_watched)
    }

    #[cold]
    fn have_put(&self, target: usize, start: usize, tag: u32, data: &[u8]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        self.have_sent(state, target, header((PUT, LAST, tag), start, data.len()), Payload::Bytes(data))
    }

    /// As [`Notified::put`], of what is long, or has no room, or no ring.
    #[inline(never)]
    fn put_otherwise(&self, part: &Target, target: usize, start: usize, tag: u32, data: &[u8]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let access = Access { part, target, start, tag, notifies: true };
        match &part.memory {
            Some(memory)
                if data.len() > INLINE_BYTES
                    && !state.on_the_way[target].meets(start, data.len(), target, &mut state.packets) =>
            {
                self.write(state, memory, (target, start), data)?;
                self.send(state, target, access.header(NOTIFY, LAST, start, data.len()), Payload::None)
            }
            _ => self.send_in_parts(state, access, (PUT, 0), data),
        }
    }

    /// As [`Notified::put`], of what the target is not told of.
    pub(crate) fn put_silently(&self, access: Access<'_>, data: &[u8]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let Access { part, target, start, .. } = access;
        match &part.memory {
            Some(memory)
                if !state.on_the_way[target].meets(start, data.len(), target, &mut state.packets) =>
            {
                state.stored[target] = true;
                self.write(state, memory, (target, start), data)
            }
            _ => self.send_in_parts(state, access, (PUT, 0), data),
        }
    }

    /// Stores into the target's part, which is mapped.
    fn write(
        &self,
        state: &mut State,
        memory: &Memory,
        (target, start): (usize, usize),
        data: &[u8],
    ) -> Result<()> {
        let write = || memory.write(start, data, "a put into a window");
        state.packets.reach(target, write).unwrap_or_else(|| Err(self.left(Some(target))))?;
        if let Some(observer) = state.packets.observer(target) {
            observer.stored(target, data.len());
        }
        Ok(())
    }

    /// Combines elements with those of the target's part.
    pub(crate) fn accumulate(&self, access: Access<'_>, data: &[u8], op: Op) -> Result<()> {
        self.send_in_parts(&mut self.state.borrow_mut(), access, (ACCUMULATE, flags_of(op)), data)
    }

    /// Sends packets with the data, of which the last one notifies, if the access does.
    fn send_in_parts(
        &self,
        state: &mut State,
        access: Access<'_>,
        (kind, flags): (u16, u16),
        data: &[u8],
    ) -> Result<()> {
        let target = access.target;
        let part_bytes = whole_elements(state.packets.largest(target));
        let mut sent = 0;
        loop {
            let part = &data[sent..data.len().min(sent + part_bytes)];
            let start = access.start + sent;
            sent += part.len();
            let is_last = sent == data.len();
            let last = if is_last { access.last_flag() } else { 0 };
            let header = access.header(kind, flags | last, start, part.len());
            self.send(state, target, header, Payload::Bytes(part))?;
            state.unflushed[target] |= !access.notifies;
            // Part by part: those that have gone are on their way, though the next may find no room.
            let packets = state.packets.sent(target);
            state.on_the_way[target].add(start, part.len(), packets);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Reads bytes of the target's part.
    pub(crate) fn get(&self, access: Access<'_>, data: &mut [u8]) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let (target, start) = (access.target, access.start);
        match &access.part.memory {
            _ if data.is_empty() => {}
            Some(memory)
                if !state.on_the_way[target].meets(start, data.len(), target, &mut state.packets) =>
            {
                let read = || memory.read(start, data, "a get from a window");
                state.packets.reach(target, read).unwrap_or_else(|| Err(self.left(Some(target))))?;
            }
            _ => return self.ask_for(state, access, data),
        }
        if !access.notifies {
            return Ok(());
        }
        self.send(state, target, access.header(NOTIFY, LAST, start, data.len()), Payload::None)
    }

    /// Reads bytes of the target's part by asking for them, part by part, of which a call has a limited number.
    fn ask_for(&self, state: &mut State, access: Access<'_>, data: &mut [u8]) -> Result<()> {
        let part_bytes = whole_elements(state.packets.largest(access.target));
        let (most, calls) = (part_bytes << PART_BITS, data.len().div_ceil(part_bytes << PART_BITS));
        for (call, data) in data.chunks_mut(most).enumerate() {
            let start = access.start + call * most;
            let ends = call + 1 == calls;
            self.ask_for_parts(state, &Access { start, ..access }, (data, ends), part_bytes)?;
        }
        Ok(())
    }

    /// One call of those, which may end the access.
    fn ask_for_parts(
        &self,
        state: &mut State,
        access: &Access<'_>,
        (data, ends): (&mut [u8], bool),
        part_bytes: usize,
    ) -> Result<()> {
        let target = access.target;
        let parts = data.len().div_ceil(part_bytes);
        let call = state.next_call();
        let (mut asked, mut answered) = (0, 0);
        let what = || format!("the answer, in {parts} parts, to a get from its window");
        self.wait(state, (Some(target), true), &what, &mut |state| {
            while asked < parts.min(answered + ASKED_AHEAD) {
                let start = asked * part_bytes;
                let bytes = part_bytes.min(data.len() - start);
                let last = if ends && asked + 1 == parts { access.last_flag() } else { 0 };
                let header = access.header(GET, last, access.start + start, bytes);
                let header = Header { ticket: call << PART_BITS | asked as u32, ..header };
                if !state.packets.try_send(target, header, Payload::None)? {
                    break;
                }
                asked += 1;
            }
            state.take_answers((target, call), &mut |answer| {
                let part = answer.header.ticket % (1 << PART_BITS);
                answer.copy_into(&mut data[part as usize * part_bytes..]);
                answered += 1;
            })?;
            Ok(answered == parts)
        })?;
        state.has_taken_all(target);
        Ok(())
    }

    /// Combines one element of the target's part and gives what it was in `value`.
    pub(crate) fn fetch(&self, access: Access<'_>, value: &mut [u8], op: Op) -> Result<()> {
        let operand = value.to_vec();
        self.exchange(access, (FETCH, flags_of(op)), &operand, value)
    }

    /// Replaces one element of the target's part if it is as expected, and gives what it was in `found`.
    pub(crate) fn swap(&self, access: Access<'_>, expected_and_new: &[u8], found: &mut [u8]) -> Result<()> {
        self.exchange(access, (SWAP, 0), expected_and_new, found)
    }

    fn exchange(
        &self,
        access: Access<'_>,
        (kind, flags): (u16, u16),
        data: &[u8],
        value: &mut [u8],
    ) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        let header = access.header(kind, flags | access.last_flag(), access.start, data.len());
        self.call(state, (access.target, header, data), "an atomic access to its window", value)
    }

    /// Sends a packet that is answered, and waits for the answer.
    fn call(
        &self,
        state: &mut State,
        (target, header, data): (usize, Header, &[u8]),
        name: &str,
        value: &mut [u8],
    ) -> Result<()> {
        let call = state.next_call();
        let header = Header { ticket: call << PART_BITS, ..header };
        self.send(state, target, header, Payload::Bytes(data))?;
        state.unflushed[target] |= header.flags & LAST == 0;
        if !data.is_empty() {
            let sent = state.packets.sent(target);
            state.on_the_way[target].add(header.offset as usize, data.len(), sent);
        }
        let mut is_answered = false;
        let what = || format!("the answer to {name}");
        self.wait(state, (Some(target), true), &what, &mut |state| {
            state.take_answers((target, call), &mut |answer| {
                answer.copy_into(value);
                is_answered = true;
            })?;
            // A flush needs no answer of a target that has left: what it has read is known then.
            Ok(is_answered || header.kind == FLUSH && state.packets.has_left(target))
        })?;
        state.has_taken_all(target);
        Ok(())
    }

    /// Sends a packet; blocks while there is no room.
    #[inline(never)]
    fn send(&self, state: &mut State, target: usize, header: Header, payload: Payload<'_>) -> Result<()> {
        if !state.packets.try_send(target, header, payload)? {
            self.send_late(state, target, header, payload)?;
        }
        self.have_sent(state, target, header, payload)
    }

    /// Looks whether anybody reads a packet that has been sent, and tells who observes it.
    #[inline(never)]
    fn have_sent(
        &self,
        state: &mut State,
        target: usize,
        header: Header,
        payload: Payload<'_>,
    ) -> Result<()> {
        if state.packets.has_left(target) {
            self.check_read(state, target)?;
        }
        if let Some(observer) = state.packets.observer(target) {
            if let Payload::Bytes(bytes @ [_, ..]) = payload {
                observer.stored(target, bytes.len());
            }
            if header.flags & LAST != 0 {
                observer.signalled(Role::Notification, target);
            }
        }
        Ok(())
    }

    /// Serves other ranks until there is room: two that send to each other would wait for ever otherwise.
    #[cold]
    fn send_late(
        &self,
        state: &mut State,
        target: usize,
        header: Header,
        payload: Payload<'_>,
    ) -> Result<()> {
        let what = || "room for one more access".to_string();
        self.wait(state, (Some(target), false), &what, &mut |state| {
            state.serve()?;
            state.packets.try_send(target, header, payload)
        })
    }

    /// Blocks until nothing of this rank's accesses to a target is left to do here, and until the target has taken those that
    /// do not notify it, or `all`.
    pub(crate) fn flush(&self, target: usize, all: bool) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        state.failure()?;
        if !state.packets.is_mapped(target) {
            // Over a wire a goodbye is read before it is known.
            state.serve()?;
        }
        if std::mem::take(&mut state.stored[target]) {
            // What this rank reads next is read behind what it has stored there.
            store_fence();
        }
        if all && state.on_the_way[target].are_any(target, &mut state.packets) {
            state.unflushed[target] = true;
        }
        if !state.unflushed[target] || state.packets.has_left(target) {
            return if state.packets.has_left(target) { self.check_read(state, target) } else { Ok(()) };
        }
        let header = Header { kind: FLUSH, ..Header::default() };
        match self.call(state, (target, header, &[]), "a flush of accesses to its window", &mut []) {
            _ if state.packets.has_left(target) => {
                // It may have taken all but that, which is the last: or that as well, and was not there to answer.
                state.unread_flushes[target] = state.packets.unread(target)?.min(1);
                self.check_read(state, target)
            }
            answered => answered,
        }
    }

    /// Nobody reads what a peer has not read before it has left.
    #[cold]
    fn check_read(&self, state: &mut State, target: usize) -> Result<()> {
        let is_read = state.packets.unread(target)? <= state.unread_flushes[target];
        if is_read { Ok(()) } else { Err(self.left(Some(target))) }
    }
}

impl State {
    /// A target has answered what was sent last, and so has taken all before.
    fn has_taken_all(&mut self, target: usize) {
        self.on_the_way[target] = OnTheWay::default();
        self.unflushed[target] = false;
    }

    /// The number of a call that asks for answers, modulo what a ticket holds.
    fn next_call(&mut self) -> u32 {
        self.asked = (self.asked + 1) % (1 << (u32::BITS - PART_BITS));
        self.asked
    }
}

/// As many bytes as are whole elements of every type.
fn whole_elements(bytes: usize) -> usize {
    bytes / 8 * 8
}
