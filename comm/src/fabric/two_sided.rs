//! Two-sided messages over mapped memory: what `standard` is built on.
//!
//! Between two ranks there is a ring of cells each way, in the receiver's memory. Small messages
//! travel in a cell (*eager*: one copy in, one copy out). Larger ones send ready-to-send in a cell;
//! the receiver matches it and answers with clear-to-send and the place of its buffer, into which
//! the sender copies straight (*rendezvous*). Every message is matched by source and tag when it
//! arrives, as in a message-passing library; the host makes progress in its calls.

use super::progress::Engine;
use super::region::{Place, Region, Word};
use super::wait::{GaveUp, WaitContext};
use super::word::WordCell;
use super::{Futex, Role, shared_struct, store_fence};
use crate::error::{Error, Result};
use crate::world::World;
use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

/// Cells of a ring: what a sender may be ahead of its receiver.
const CELLS: u32 = 8;
const CELL_BYTES: usize = 8192;
const HEADER_BYTES: usize = 32;
/// The longest message that travels in a cell.
pub(crate) const EAGER_BYTES: usize = CELL_BYTES - HEADER_BYTES;
/// Where the count of freed cells lies, behind the ring of the other direction.
const FREED_OFFSET: usize = CELLS as usize * CELL_BYTES;
const CHANNEL_BYTES: usize = FREED_OFFSET + 64;

/// The beginning of a cell, in shared memory. The sender writes the rest before it sets `arrived`.
#[allow(dead_code, reason = "`arrived` is reached as the cell's first field")]
#[repr(C)]
struct CellHeader {
    /// The number of the message, counted from 1, once it is there.
    arrived: WordCell,
    tag: u32,
    kind: u32,
    bytes: u32,
    /// The request on the side that this is news for.
    ticket: u32,
    /// Clear-to-send: where in its region the receiver's buffer begins.
    offset: u64,
}

const EAGER: u32 = 1;
const READY_TO_SEND: u32 = 2;
const CLEAR_TO_SEND: u32 = 3;
const DATA: u32 = 4;

/// A persistent send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not started, or complete.
    Idle,
    /// A receive that nothing has matched yet.
    Posted,
    /// A receive whose clear-to-send has no free cell yet; the sender's ticket.
    Matched(u32),
    /// A send without a free cell for its message or ready-to-send.
    Queued,
    /// Waits for the peer: a send for its clear-to-send, a receive for its data.
    InTransfer,
    /// A send whose data is there, without a free cell to say so; the receiver's ticket.
    Delivered(u32),
}

#[derive(Debug)]
struct Request {
    is_send: bool,
    channel: usize,
    tag: u32,
    place: Place,
    bytes: usize,
    /// For a send: the peer's buffers, mapped.
    target: Option<Region>,
    state: State,
}

/// Both directions between this rank and a peer.
#[derive(Debug)]
struct Channel {
    peer: usize,
    /// Whether the peer's waits may sleep until they are woken.
    peer_sleeps: bool,
    /// The ring that this rank reads, in its own memory.
    incoming: Region,
    /// The ring that this rank writes, in the peer's memory.
    outgoing: Region,
    /// How many cells of `outgoing` the peer has freed.
    freed: Word,
    /// Tells the peer how many cells of `incoming` have been freed.
    free: Word,
    sent: u32,
    /// Cells of `incoming` that are read and freed, up to the first that is not.
    read: u32,
    /// Which of the cells from `read` on have been read out of order; bit 0 is `read` itself.
    read_ahead: u32,
    /// What the peer has been told.
    told: u32,
}

/// The two-sided engine of a rank.
#[derive(Debug)]
pub(crate) struct TwoSided {
    rank: usize,
    channels: Vec<Channel>,
    requests: Vec<Option<Request>>,
    /// A wait of its own makes progress already.
    is_waiting: bool,
}

impl Engine for RefCell<TwoSided> {
    fn progress(&self) -> bool {
        let mut engine = self.borrow_mut();
        if engine.is_waiting || !engine.is_active() {
            return false;
        }
        engine.progress();
        engine.is_active()
    }
}

impl TwoSided {
    /// The engine of a world of this thread.
    pub(crate) fn of_world(rank: usize) -> Rc<RefCell<Self>> {
        let engine = Rc::new(RefCell::new(Self {
            rank,
            channels: Vec::new(),
            requests: Vec::new(),
            is_waiting: false,
        }));
        super::progress::register(&engine);
        engine
    }

    fn is_active(&self) -> bool {
        self.requests.iter().flatten().any(|request| request.state != State::Idle)
    }

    /// Makes channels to those of `peers` that have none. Collective; peers name each other.
    pub(crate) fn connect(world: &World, peers: &[usize]) -> Result<()> {
        let engine = world.two_sided();
        let mut own: Vec<(usize, Region)> = Vec::new();
        let allocated = peers.iter().try_for_each(|&peer| {
            if engine.borrow().channel(peer).is_none() && !own.iter().any(|(known, _)| *known == peer) {
                own.push((peer, world.fabric().allocate(CHANNEL_BYTES)?));
            }
            Ok::<(), Error>(())
        });
        let keys: Vec<(usize, u64)> = own.iter().map(|(peer, region)| (*peer, region.key())).collect();
        let told = (world.wait_context().policy.sleeps, keys);
        let all = world.agree("connecting two-sided peers", allocated.map(|()| told))?;
        let mapped = own.into_iter().map(|(peer, incoming)| {
            let key = all[peer].1.iter().find(|(of, _)| *of == world.rank()).map(|(_, key)| *key);
            let key = key.ok_or_else(|| Error::BadExchange {
                rank: peer,
                reason: format!("it has no channel to rank {}", world.rank()),
            })?;
            let outgoing = world.fabric().map(peer, key, CHANNEL_BYTES)?;
            let freed = incoming.word(FREED_OFFSET, Role::Credit, peer, world.rank())?;
            let free = outgoing.word(FREED_OFFSET, Role::Credit, world.rank(), peer)?;
            Ok(Channel {
                peer,
                peer_sleeps: all[peer].0,
                incoming,
                outgoing,
                freed,
                free,
                sent: 0,
                read: 0,
                read_ahead: 0,
                told: 0,
            })
        });
        let mapped = mapped.collect::<Result<Vec<Channel>>>();
        world.agree("connecting two-sided peers", mapped.as_ref().map(|_| ()))?;
        engine.borrow_mut().channels.extend(mapped?);
        Ok(())
    }

    fn channel(&self, peer: usize) -> Option<usize> {
        self.channels.iter().position(|channel| channel.peer == peer)
    }

    /// A persistent receive of exactly `bytes` bytes into `place`.
    pub(crate) fn recv_init(&mut self, source: usize, tag: u32, place: Place, bytes: usize) -> Ticket {
        self.add(false, source, tag, place, bytes, None)
    }

    /// A persistent send from `place`; `target` is the region of the peer's receive buffers.
    pub(crate) fn send_init(
        &mut self,
        destination: usize,
        tag: u32,
        place: Place,
        bytes: usize,
        target: Region,
    ) -> Ticket {
        self.add(true, destination, tag, place, bytes, Some(target))
    }

    fn add(
        &mut self,
        is_send: bool,
        peer: usize,
        tag: u32,
        place: Place,
        bytes: usize,
        target: Option<Region>,
    ) -> Ticket {
        let channel = self.channel(peer).expect("peers are connected before requests are made");
        let request = Some(Request { is_send, channel, tag, place, bytes, target, state: State::Idle });
        match self.requests.iter().position(Option::is_none) {
            Some(free) => {
                self.requests[free] = request;
                Ticket(free)
            }
            None => {
                self.requests.push(request);
                Ticket(self.requests.len() - 1)
            }
        }
    }

    /// Forgets a request.
    pub(crate) fn free(&mut self, ticket: Ticket) {
        self.requests[ticket.0] = None;
    }

    fn request(&mut self, index: usize) -> &mut Request {
        self.requests[index].as_mut().expect("a ticket is used while its request lives")
    }

    /// Starts a request. A send's payload must be in its place, and stay until it is complete.
    pub(crate) fn start(&mut self, ticket: Ticket) {
        let request = self.request(ticket.0);
        request.state = if request.is_send { State::Queued } else { State::Posted };
        if request.is_send {
            self.advance(ticket.0);
        }
    }

    /// Blocks until all tickets are complete. The host makes progress on all requests of the rank
    /// meanwhile.
    pub(crate) fn wait(
        engine: &RefCell<TwoSided>,
        context: &WaitContext,
        tickets: &[Ticket],
        serve: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let done = |engine: &mut TwoSided| {
            engine.progress();
            tickets.iter().all(|ticket| engine.request(ticket.0).state == State::Idle)
        };
        if done(&mut engine.borrow_mut()) {
            return Ok(());
        }
        engine.borrow_mut().is_waiting = true;
        let waited = context.wait_until(&mut || done(&mut engine.borrow_mut()), serve, &mut |nap| {
            engine.borrow_mut().sleep(tickets, nap);
        });
        engine.borrow_mut().is_waiting = false;
        waited.map_err(|gave_up| engine.borrow().give_up(context, gave_up, tickets))
    }

    fn give_up(&self, context: &WaitContext, gave_up: GaveUp, tickets: &[Ticket]) -> Error {
        let late = tickets
            .iter()
            .filter_map(|ticket| self.requests[ticket.0].as_ref())
            .find(|request| request.state != State::Idle);
        match (gave_up, late) {
            (GaveUp::TimedOut(waited), Some(late)) => {
                let what = if late.is_send { "to receive" } else { "the message" };
                let channel = &self.channels[late.channel];
                Error::TimedOut {
                    rank: self.rank,
                    peer: channel.peer,
                    what: format!("{what} with tag {} ({} bytes)", late.tag, late.bytes),
                    wanted: channel.read.wrapping_add(1),
                    found: channel.read,
                    seconds: waited.as_secs(),
                }
            }
            _ => context.peer_failure(),
        }
    }

    /// Sleeps until something may have arrived for the first ticket that is not complete.
    fn sleep(&mut self, tickets: &[Ticket], nap: Duration) {
        let Some(late) = tickets
            .iter()
            .find(|ticket| self.requests[ticket.0].as_ref().is_some_and(|r| r.state != State::Idle))
        else {
            return;
        };
        // News for other tickets comes in other cells: a short sleep finds it soon enough.
        let nap = nap.min(Duration::from_micros(500));
        let (index, state) = {
            let request = self.request(late.0);
            (request.channel, request.state)
        };
        let channel = &self.channels[index];
        if matches!(state, State::Queued | State::Matched(_) | State::Delivered(_)) {
            let wanted = channel.sent.wrapping_sub(CELLS).wrapping_add(1);
            return channel.freed.cell().sleep_unless_reached(wanted, &Futex { nap });
        }
        let ahead = channel.read_ahead.trailing_ones().min(CELLS - 1);
        let next = channel.read.wrapping_add(ahead);
        arrived(&channel.incoming, next).sleep_unless_reached(next.wrapping_add(1), &Futex { nap });
    }

    /// Looks at what has arrived, and at what could not be sent before.
    fn progress(&mut self) {
        for index in 0..self.channels.len() {
            self.receive(index);
        }
        for index in 0..self.requests.len() {
            let waits = self.requests[index].as_ref().map(|request| request.state);
            if matches!(waits, Some(State::Queued | State::Matched(_) | State::Delivered(_))) {
                self.advance(index);
            }
        }
    }

    /// Reads the cells of a channel that have arrived and can be matched.
    fn receive(&mut self, index: usize) {
        for ahead in 0..CELLS {
            let channel = &self.channels[index];
            if channel.read_ahead & (1 << ahead) != 0 {
                continue;
            }
            let number = channel.read.wrapping_add(ahead);
            if !arrived(&channel.incoming, number).reached(number.wrapping_add(1)) {
                break;
            }
            if self.deliver(index, number) {
                self.channels[index].read_ahead |= 1 << ahead;
            }
        }
        let channel = &mut self.channels[index];
        let freed = channel.read_ahead.trailing_ones();
        channel.read = channel.read.wrapping_add(freed);
        channel.read_ahead = channel.read_ahead.checked_shr(freed).unwrap_or(0);
        if channel.read.wrapping_sub(channel.told) >= CELLS / 2 {
            // Flow control of the ring, once for several messages: not part of any of them.
            channel.told = channel.read;
            channel.free.cell().set(channel.told, &Futex::WAKER);
        }
    }

    /// Hands one arrived cell to its request; false if no request is there for it yet.
    fn deliver(&mut self, index: usize, number: u32) -> bool {
        let Fields { tag, kind, bytes, ticket, offset } = read_header(&self.channels[index].incoming, number);
        let bytes = bytes as usize;
        match kind {
            EAGER | READY_TO_SEND => {
                let matched = self.requests.iter().position(|request| {
                    request.as_ref().is_some_and(|r| {
                        !r.is_send && r.state == State::Posted && r.channel == index && r.tag == tag
                    })
                });
                let Some(matched) = matched else { return false };
                if kind == EAGER {
                    let payload = payload(&self.channels[index].incoming, number);
                    let request = self.request(matched);
                    assert_eq!(bytes, request.bytes, "matching has compared the sizes of the two sides");
                    // SAFETY: the cell holds `bytes` bytes, as does the receive's place, which was
                    // checked when the request was made; they are different regions.
                    unsafe { std::ptr::copy_nonoverlapping(payload, request.place.pointer(), bytes) };
                    request.state = State::Idle;
                } else {
                    self.request(matched).state = State::Matched(ticket);
                    self.advance(matched);
                }
            }
            CLEAR_TO_SEND => {
                let request = self.request(ticket as usize);
                let target = request.target.as_ref().expect("a send has a target");
                let place = target
                    .place(offset as usize, request.bytes, "a rendezvous")
                    .expect("the receiver's buffer lies in its region");
                // SAFETY: both places hold `bytes` bytes, and lie in different regions.
                unsafe {
                    std::ptr::copy_nonoverlapping(request.place.pointer(), place.pointer(), request.bytes)
                };
                if let Some(observer) = target.observer() {
                    observer.stored(target.owner(), request.bytes);
                }
                // The tag field carries the receiver's ticket.
                request.state = State::Delivered(tag);
                self.advance(ticket as usize);
            }
            DATA => self.request(ticket as usize).state = State::Idle,
            other => unreachable!("cells of kind {other} are not written"),
        }
        true
    }

    /// Sends what a request has to say next, if the ring has a free cell.
    fn advance(&mut self, index: usize) {
        let request = self.requests[index].as_mut().expect("a ticket is used while its request lives");
        let channel = &mut self.channels[request.channel];
        if !channel.freed.cell().reached(channel.sent.wrapping_sub(CELLS).wrapping_add(1)) {
            return;
        }
        let number = channel.sent;
        let pointer = cell_pointer(&channel.outgoing, number);
        let bytes = request.bytes as u32;
        let (header, next) = match request.state {
            State::Queued if request.bytes <= EAGER_BYTES => {
                // SAFETY: the message fits the cell, which the receiver has freed; the send's
                // place holds `bytes` bytes and is in another region.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        request.place.pointer(),
                        pointer.as_ptr().cast::<u8>().wrapping_add(HEADER_BYTES),
                        request.bytes,
                    )
                };
                ((request.tag, EAGER, index as u32, 0), State::Idle)
            }
            State::Queued => ((request.tag, READY_TO_SEND, index as u32, 0), State::InTransfer),
            State::Matched(senders) => {
                ((index as u32, CLEAR_TO_SEND, senders, request.place.offset() as u64), State::InTransfer)
            }
            State::Delivered(receivers) => ((request.tag, DATA, receivers, 0), State::Idle),
            State::Idle | State::Posted | State::InTransfer => return,
        };
        let (tag, kind, ticket, offset) = header;
        if let Some(observer) = channel.outgoing.observer() {
            match kind {
                EAGER => observer.stored(channel.peer, request.bytes),
                READY_TO_SEND => observer.signalled(Role::ReadyToSend, channel.peer),
                CLEAR_TO_SEND => observer.signalled(Role::ClearToSend, channel.peer),
                // Says that the payload, which was counted, is there: the end of the same message.
                _ => {}
            }
        }
        let fields = Fields { tag, kind, bytes, ticket, offset };
        // SAFETY: the cell is free, so that its reader does not look at it before `arrived`.
        unsafe { write_header(pointer, fields) };
        let arrived = arrived(&channel.outgoing, number);
        arrived.store(number.wrapping_add(1));
        if channel.peer_sleeps {
            store_fence();
            arrived.wake_sleepers(&Futex::WAKER);
        }
        channel.sent = number.wrapping_add(1);
        request.state = next;
    }
}

struct Fields {
    tag: u32,
    kind: u32,
    bytes: u32,
    ticket: u32,
    offset: u64,
}

/// # Safety
/// Nobody may read the cell meanwhile.
unsafe fn write_header(cell: NonNull<CellHeader>, fields: Fields) {
    let cell = cell.as_ptr();
    macro_rules! write {
        ($($field:ident),*) => {$(
            // SAFETY: by the caller; the pointer is to a cell of a mapped ring.
            unsafe { (&raw mut (*cell).$field).write(fields.$field) };
        )*};
    }
    write!(tag, kind, bytes, ticket, offset);
}

fn cell_pointer(ring: &Region, number: u32) -> NonNull<CellHeader> {
    let base = NonNull::new(ring.base()).expect("regions are never null");
    // SAFETY: a ring has `CELLS` cells.
    unsafe { base.add((number % CELLS) as usize * CELL_BYTES) }.cast()
}

/// The word that says which message a cell holds.
fn arrived(ring: &Region, number: u32) -> &WordCell {
    shared_struct(ring, (number % CELLS) as usize * CELL_BYTES)
}

/// The header of a cell that has arrived.
fn read_header(ring: &Region, number: u32) -> Fields {
    let cell = cell_pointer(ring, number).as_ptr();
    macro_rules! read {
        ($($field:ident),*) => {
            Fields {$(
                // SAFETY: the pointer is to a cell of a mapped ring, and its writer is done.
                $field: unsafe { (&raw const (*cell).$field).read() },
            )*}
        };
    }
    read!(tag, kind, bytes, ticket, offset)
}

fn payload(ring: &Region, number: u32) -> *const u8 {
    cell_pointer(ring, number).as_ptr().cast::<u8>().wrapping_add(HEADER_BYTES)
}
