//! Where packets of all channels come in: how many receives a provider takes is limited, and so all packets
//! of an endpoint come to the same ones.

use super::hub::{Hub, Number};
use super::target::register;
use crate::error::Result;
use crate::fabric::messaging::{CREDIT_BYTES, Envelope, Label, PACKET_BYTES};
use crate::fabric::ofi::{LocalSlice, PeerAddress, Posted};
use crate::fabric::{Fabric, LocalFabric, Place};
use crate::locks::{lock, try_lock};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of tags: that the message is one of this module's, or of bulk transfers.
pub(super) const PACKETS: u64 = 1 << 47;
/// Which kind.
const CREDITS: u64 = 1 << 45;
pub(super) const BULKS: u64 = 2 << 45;
/// Receives for packets, and for credits.
const RECEIVES: [usize; 2] = [48, 16];
/// How often receives are looked at that were asked to end.
const TRIES: usize = 1000;

/// The receives, and what has come.
#[derive(Debug)]
pub(super) struct Office {
    hub: Arc<Hub>,
    memory: Arc<LocalFabric>,
    desks: Mutex<[Desk; 2]>,
    /// Channels that nobody reads any more, for who is at the desks next to throw away; and whether there may be any.
    closed: Mutex<Vec<u16>>,
    has_closed: AtomicBool,
}

/// The messages of one label.
#[derive(Debug)]
struct Desk {
    tag: u64,
    bytes: usize,
    receives: usize,
    /// In the order of posting, which is that of arrival.
    posted: VecDeque<Tray>,
    free: Vec<Tray>,
    /// What has come and was not taken, by channel.
    arrived: HashMap<u16, VecDeque<Tray>>,
}

/// Memory of one message.
#[derive(Debug)]
struct Tray {
    place: Place,
    slice: LocalSlice,
    done: Number,
    /// How often a receive was posted to it.
    uses: u32,
}

/// The tag of messages that come in here.
pub(super) fn tag(label: Label) -> u64 {
    PACKETS | if label == Label::Packet { 0 } else { CREDITS }
}

fn desk(label: Label) -> usize {
    usize::from(label != Label::Packet)
}

impl Office {
    pub(super) fn new(hub: &Arc<Hub>, rank: usize) -> Result<Arc<Self>> {
        let desk = |label, bytes| Desk {
            tag: tag(label),
            bytes,
            receives: RECEIVES[desk(label)],
            posted: VecDeque::new(),
            free: Vec::new(),
            arrived: HashMap::new(),
        };
        let desks = [desk(Label::Packet, PACKET_BYTES), desk(Label::Credit, CREDIT_BYTES)];
        let memory = LocalFabric::alone(rank)?;
        let (desks, closed, has_closed) = (Mutex::new(desks), Mutex::default(), AtomicBool::new(false));
        Ok(Arc::new(Self { hub: hub.clone(), memory, desks, closed, has_closed }))
    }

    /// The desks, unless another thread is at them.
    fn desks(&self) -> Option<MutexGuard<'_, [Desk; 2]>> {
        try_lock(&self.desks)
    }

    /// Has messages of a channel kept until they are taken, and posts the receives.
    pub(super) fn open(&self, channel: u16) -> Result<()> {
        let mut desks = lock(&self.desks);
        for desk in desks.iter_mut() {
            desk.arrived.insert(channel, VecDeque::new());
        }
        desks.iter_mut().try_for_each(|desk| self.post(desk))
    }

    /// Throws away what has come to a channel and what will: at once, unless another thread is at the desks. After a failure
    /// that one may be there for ever, so nobody waits for it.
    pub(super) fn close(&self, channel: u16) {
        lock(&self.closed).push(channel);
        self.has_closed.store(true, Ordering::Release);
        if let Some(mut desks) = self.desks() {
            self.throw_away(&mut desks);
        }
    }

    /// Takes back what is of channels that nobody reads any more.
    fn throw_away(&self, desks: &mut [Desk; 2]) {
        if !self.has_closed.load(Ordering::Relaxed) || !self.has_closed.swap(false, Ordering::Acquire) {
            return;
        }
        for channel in lock(&self.closed).drain(..) {
            for desk in desks.iter_mut() {
                desk.free.extend(desk.arrived.remove(&channel).into_iter().flatten());
            }
        }
    }

    /// Sorts what has come. Another thread may be at it, and then this one has nothing to do.
    pub(super) fn sort(&self) -> Result<()> {
        self.hub.poll()?;
        let Some(mut desks) = self.desks() else { return Ok(()) };
        self.throw_away(&mut desks);
        for desk in desks.iter_mut() {
            while desk.posted.front().is_some_and(|tray| tray.done.count() == tray.uses) {
                let tray = desk.posted.pop_front().expect("was looked at");
                // SAFETY: a message has come to this place, and both kinds begin so.
                let envelope = unsafe { tray.place.pointer().cast::<Envelope>().read() };
                match desk.arrived.get_mut(&envelope.channel) {
                    Some(queue) => queue.push_back(tray),
                    // Nobody reads it any more.
                    None => desk.free.push(tray),
                }
            }
            self.post(desk)?;
        }
        Ok(())
    }

    /// Posts receives as far as the provider takes them.
    fn post(&self, desk: &mut Desk) -> Result<()> {
        while desk.posted.len() < desk.receives {
            let mut tray = match desk.free.pop() {
                Some(tray) => tray,
                None => self.tray(desk.bytes)?,
            };
            // SAFETY: the tray is kept until the receive has completed, and not read before.
            let posted = unsafe {
                let endpoint = self.hub.endpoint();
                endpoint.receive_tagged(&tray.slice, PeerAddress::ANYBODY, desk.tag, tray.done.number)
            }?;
            if posted == Posted::NoRoom {
                desk.free.push(tray);
                break;
            }
            tray.uses = tray.uses.wrapping_add(1);
            desk.posted.push_back(tray);
        }
        Ok(())
    }

    fn tray(&self, bytes: usize) -> Result<Tray> {
        let place = self.memory.allocate(bytes)?.place(0, bytes, "the memory of a packet")?;
        let region = register(self.hub.endpoint(), &place, bytes, None)?;
        let slice = region.slice(0, bytes, "a packet")?;
        Ok(Tray { place, slice, done: self.hub.number(), uses: 0 })
    }

    /// Copies the next message of a channel, if there is one.
    pub(super) fn take(&self, channel: u16, label: Label, into: &Place) -> bool {
        let Some(mut desks) = self.desks() else { return false };
        let desk = &mut desks[desk(label)];
        let Some(tray) = desk.arrived.get_mut(&channel).and_then(VecDeque::pop_front) else { return false };
        let from = tray.place.pointer().cast_const();
        // SAFETY: a message has come to this place, and both kinds begin so.
        let envelope = unsafe { from.cast::<Envelope>().read() };
        let bytes = match label {
            // What lies between the envelope and the payload is of every packet.
            Label::Packet => (super::packets::FRAME_BYTES + usize::from(envelope.length)).min(desk.bytes),
            _ => desk.bytes,
        };
        // SAFETY: both are as long as a message of this label is at most, and not the same memory.
        unsafe { std::ptr::copy_nonoverlapping(from, into.pointer(), bytes) };
        desk.free.push(tray);
        true
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let desks = self.desks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let trays = || desks.iter().flat_map(|desk| &desk.posted);
        trays().for_each(|tray| self.hub.endpoint().cancel(PeerAddress::ANYBODY, tray.done.number));
        let has_ended = |tray: &Tray| tray.done.count() == tray.uses;
        for _ in 0..TRIES {
            if trays().all(has_ended) || self.hub.poll().is_err() {
                break;
            }
            std::thread::yield_now();
        }
        for desk in desks {
            let posted = std::mem::take(&mut desk.posted).into_iter();
            // The provider may still write there.
            posted.filter(|tray| !has_ended(tray)).for_each(|tray| std::mem::forget(tray.place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::ofi::{Endpoint, EndpointOptions};
    use std::time::{Duration, Instant};

    const CHANNEL: u16 = 3;

    /// One endpoint that sends itself packets.
    fn office() -> Option<(Arc<Hub>, Arc<Office>, PeerAddress)> {
        let source = Some("127.0.0.1".into());
        let options = |provider: &str| EndpointOptions {
            provider: Some(provider.into()),
            source: source.clone(),
            ..EndpointOptions::default()
        };
        let opened = ["tcp", "sockets"].iter().find_map(|provider| Endpoint::open(&options(provider)).ok());
        let Some(endpoint) = opened else {
            println!("skipped: no provider of libfabric can be opened");
            return None;
        };
        let own = endpoint.insert(&endpoint.address()).expect("its own address is good");
        let hub = Hub::new(endpoint);
        let office = Office::new(&hub, 0).expect("there is memory");
        Some((hub, office, own))
    }

    fn kept(office: &Office) -> Option<usize> {
        lock(&office.desks)[0].arrived.get(&CHANNEL).map(VecDeque::len)
    }

    #[test]
    fn a_channel_that_is_closed_while_another_thread_is_at_the_desks_keeps_nothing() {
        let Some((hub, office, own)) = office() else { return };
        office.open(CHANNEL).expect("receives can be posted");
        let tray = office.tray(PACKET_BYTES).expect("there is memory");
        let envelope = Envelope { source: 0, length: 0, channel: CHANNEL };
        // SAFETY: a tray has room for a packet, which begins so, and nobody else uses this one.
        unsafe { tray.place.pointer().cast::<Envelope>().write(envelope) };
        let end = Instant::now() + Duration::from_secs(20);
        let mut is_sent = false;
        while kept(&office) != Some(1) {
            assert!(Instant::now() < end, "it does not come");
            if !is_sent {
                let number = tray.done.number;
                // SAFETY: the tray lives until the test ends, and nobody writes to it.
                let sent =
                    unsafe { hub.endpoint().send_tagged(&tray.slice, own, tag(Label::Packet), number) };
                is_sent = sent.expect("it can be sent") == Posted::Yes;
            }
            office.sort().expect("nothing has failed");
        }
        let at_the_desks = lock(&office.desks);
        office.close(CHANNEL);
        drop(at_the_desks);
        office.sort().expect("nothing has failed");
        assert_eq!(kept(&office), None);
        assert_eq!(lock(&office.desks)[0].free.len(), 1, "it serves others");
    }
}
