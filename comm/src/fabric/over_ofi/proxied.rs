//! Exchanges that a progress thread carries, over providers without triggered operations.
//!
//! A payload is a write with remote completion data: the number by which the receiver's side matches
//! what has come to the word that a stream waits for. Readiness is told the same way, with a write of
//! one word.

use super::hub::{Hub, Number};
use super::target::{Target, register, register_word};
use crate::error::Result;
use crate::fabric::carrier::Carried;
use crate::fabric::ofi::{LocalSlice, MemoryRegion, PeerAddress, Posted, RemotePlace};
use crate::fabric::{Bells, Early, FarExchange, PerMessage, Terms, Word, phase};
use std::sync::Arc;

/// An exchange that a carrier goes round to.
#[derive(Debug)]
pub(super) struct Proxied {
    hub: Arc<Hub>,
    terms: Terms,
    counts: [Word; 2],
    group: Vec<Word>,
    start: Word,
    /// How many epochs have started.
    started: u32,
    sends: Vec<Send>,
    recvs: Vec<Recv>,
    stays_for_arrivals: bool,
    /// What peers write to.
    _regions: Arc<Vec<MemoryRegion>>,
}

#[derive(Debug)]
struct Put {
    source: LocalSlice,
    target: RemotePlace,
    data: u32,
}

impl Put {
    fn post(&self, hub: &Hub, done: &Number) -> Result<Posted> {
        // SAFETY: the source is written again only once this has completed: the stream waits for that.
        unsafe { hub.endpoint().write_with_data(&self.source, self.target, self.data.into(), done.number) }
    }
}

#[derive(Debug)]
struct Send {
    /// By buffer of the receiver.
    puts: Vec<Put>,
    trigger: Word,
    departure: Word,
    /// Messages sent, and how many have left.
    sent: u32,
    departed: u32,
    done: Number,
    clear: Word,
    awaits: bool,
    /// The receiver's readiness: how often it has been told, and how often that was noted.
    told: Number,
    noted: u32,
}

#[derive(Debug)]
struct Recv {
    arrivals: [Word; 2],
    /// By buffer: what has come, and how much of that was noted.
    came: Vec<Number>,
    noted: Vec<u32>,
    /// Tells the sender that this rank is ready; how often it did.
    announcement: Option<Put>,
    announced: u32,
    done: Number,
}

impl Recv {
    /// Messages that have come.
    fn arrived(&self) -> u32 {
        self.noted.iter().fold(0, |sum, noted| sum.wrapping_add(*noted))
    }
}

/// What has come to one buffer.
#[derive(Debug)]
pub(super) struct Arrivals {
    hub: Arc<Hub>,
    came: Number,
}

impl Early for Arrivals {
    fn come(&self) -> Result<u32> {
        self.hub.poll()?;
        Ok(self.came.count())
    }
}

/// One rank's side of an exchange: all that peers may reach.
#[derive(Debug)]
pub(super) struct ProxiedHalf {
    hub: Arc<Hub>,
    exchange: FarExchange,
    pub(super) bells: Bells,
    /// How often each send's receiver has told that it is ready.
    heard: Vec<Number>,
    /// What has come to each receive, by buffer.
    came: Vec<Vec<Number>>,
    regions: Vec<MemoryRegion>,
    /// Where peers write to.
    pub(super) told: PerMessage<Vec<Target>>,
}

impl ProxiedHalf {
    /// Registers what peers may write to. Does not communicate.
    pub(super) fn new(hub: &Arc<Hub>, exchange: FarExchange, bells: Bells) -> Result<Self> {
        let endpoint = hub.endpoint();
        let (mut regions, mut heard, mut came) = (Vec::new(), Vec::new(), Vec::new());
        let mut told = PerMessage { sends: Vec::new(), recvs: Vec::new() };
        for word in &bells.hearing {
            let region = register_word(endpoint, word, None)?;
            let number = hub.number();
            told.sends.push(vec![Target::of(&region, number.number)]);
            heard.push(number);
            regions.push(region);
        }
        for recv in &exchange.recvs {
            let mut targets = Vec::new();
            let mut numbers = Vec::new();
            for slot in &recv.slots[..exchange.terms.buffers] {
                let region = register(endpoint, slot, recv.bytes, None)?;
                let number = hub.number();
                targets.push(Target::of(&region, number.number));
                numbers.push(number);
                regions.push(region);
            }
            told.recvs.push(targets);
            came.push(numbers);
        }
        Ok(Self { hub: hub.clone(), exchange, bells, heard, came, regions, told })
    }

    /// What has come to the receive of a pair, if this is its receiver.
    pub(super) fn arrivals(&self) -> Option<Arrivals> {
        let came = self.came.first()?.first()?.clone();
        Some(Arrivals { hub: self.hub.clone(), came })
    }

    /// The exchange, with what the peers have told; and what they may write to, for as long as they may.
    pub(super) fn complete(
        self,
        peers: &[PeerAddress],
        theirs: PerMessage<Vec<Target>>,
    ) -> Result<(Proxied, Bells, Arc<Vec<MemoryRegion>>)> {
        let Self { hub, exchange, bells, heard, came, regions, .. } = self;
        let FarExchange { terms, sends, recvs, counts, .. } = exchange;
        let group = if terms.waits_for_group {
            sends.iter().map(|send| send.clear.clone()).collect()
        } else {
            Vec::new()
        };
        let endpoint = hub.endpoint();
        let whole = |place, bytes| register(endpoint, place, bytes, None)?.slice(0, bytes, "a message");
        let both = sends.iter().zip(heard).zip(theirs.sends).enumerate();
        let made_sends = both.map(|(index, ((send, told), to))| {
            let source = whole(&send.staging, send.bytes)?;
            let peer = peers[send.peer];
            let put = |to: &Target| Put { source: source.clone(), target: to.at(peer), data: to.number };
            Ok(Send {
                puts: to.iter().map(put).collect(),
                trigger: bells.triggers[index].clone(),
                departure: bells.departures[index].clone(),
                sent: 0,
                departed: 0,
                done: hub.number(),
                clear: send.clear.clone(),
                awaits: send.awaits,
                told,
                noted: 0,
            })
        });
        let made_sends = made_sends.collect::<Result<Vec<_>>>()?;
        let saying = register_word(endpoint, &bells.saying, None)?;
        let made_recvs = recvs.iter().zip(came).zip(theirs.recvs).map(|((recv, came), ears)| {
            let source = saying.slice(0, saying.bytes(), "an announcement")?;
            let put = |to: &Target| Put { source, target: to.at(peers[recv.peer]), data: to.number };
            Ok(Recv {
                arrivals: recv.arrivals.clone(),
                noted: vec![0; came.len()],
                came,
                announcement: if recv.announces { ears.first().map(put) } else { None },
                announced: 0,
                done: hub.number(),
            })
        });
        let recvs = made_recvs.collect::<Result<Vec<_>>>()?;
        let (start, regions) = (bells.start.clone(), Arc::new(regions));
        let made = Proxied {
            hub: hub.clone(),
            terms,
            counts,
            group,
            start,
            started: 0,
            sends: made_sends,
            recvs,
            stays_for_arrivals: false,
            _regions: regions.clone(),
        };
        Ok((made, bells, regions))
    }
}

impl Proxied {
    /// This exchange, which ends only when all has come that this rank has said it is ready for: nobody else keeps
    /// the memory that it comes to.
    pub(super) fn until_arrived(self) -> Self {
        Self { stays_for_arrivals: true, ..self }
    }

    fn epoch(&self, number: u32) -> u32 {
        self.terms.last_epoch.wrapping_add(number)
    }

    /// Whether the stream has started an epoch that was not noted yet.
    fn has_started(&self) -> bool {
        self.start.cell().reached((self.terms.announced)(self.epoch(self.started.wrapping_add(1))))
    }

    /// Notes what has come, and sets the words that the stream and its conditions look at.
    fn note(&mut self) {
        let terms = self.terms;
        let epoch = |number: u32| terms.last_epoch.wrapping_add(number);
        for send in &mut self.sends {
            while send.noted != send.told.count() {
                send.noted = send.noted.wrapping_add(1);
                send.clear.set((terms.announced)(epoch(send.noted)));
            }
            while send.departed != send.done.count() {
                send.departed = send.departed.wrapping_add(1);
                send.departure.set(epoch(send.departed));
            }
        }
        for recv in &mut self.recvs {
            for buffer in 0..recv.came.len() {
                while recv.noted[buffer] != recv.came[buffer].count() {
                    // Which message came here for the n-th time.
                    let number = nth_of_buffer(terms, buffer, recv.noted[buffer]);
                    recv.noted[buffer] = recv.noted[buffer].wrapping_add(1);
                    recv.arrivals[buffer].set(epoch(number));
                    if terms.counts {
                        self.counts[phase(epoch(number))].increment();
                    }
                }
            }
        }
    }
}

/// The number of the message that comes to a buffer after `before` others.
fn nth_of_buffer(terms: Terms, buffer: usize, before: u32) -> u32 {
    let first = phase(terms.last_epoch.wrapping_add(1)) % terms.buffers;
    let skipped = u32::from(buffer != first);
    before.wrapping_mul(terms.buffers as u32).wrapping_add(1 + skipped)
}

impl Carried for Proxied {
    fn progress(&mut self) -> Result<bool> {
        if self.has_started() {
            self.started = self.started.wrapping_add(1);
        }
        for recv in &mut self.recvs {
            if let Some(put) = &recv.announcement
                && recv.announced != self.started
                && recv.done.count() == recv.announced
                && put.post(&self.hub, &recv.done)? == Posted::Yes
            {
                recv.announced = recv.announced.wrapping_add(1);
            }
        }
        for index in 0..self.sends.len() {
            let send = &self.sends[index];
            let epoch = self.epoch(send.sent.wrapping_add(1));
            let needed = (self.terms.needed)(epoch);
            let is_clear = !send.awaits || send.clear.cell().reached(needed);
            let is_due = send.trigger.cell().reached(epoch)
                && is_clear
                && self.group.iter().all(|word| word.cell().reached(needed));
            let put = &send.puts[phase(epoch) % self.terms.buffers];
            if is_due && put.post(&self.hub, &send.done)? == Posted::Yes {
                self.sends[index].sent = self.sends[index].sent.wrapping_add(1);
            }
        }
        self.hub.poll()?;
        self.note();
        let open = |number: u32| number != self.started;
        Ok(self.sends.iter().any(|send| open(send.departed))
            || self
                .recvs
                .iter()
                .any(|recv| open(recv.arrived()) || (recv.announcement.is_some() && open(recv.done.count()))))
    }

    fn is_quiet(&self) -> bool {
        // The last readiness of a receiver is waited for by nobody, and comes to memory of this side.
        let has_heard =
            |send: &Send| !send.awaits || send.told.count().wrapping_sub(self.started).cast_signed() >= 0;
        !self.has_started()
            && self.sends.iter().all(|send| send.done.count() == send.sent && has_heard(send))
            && self.recvs.iter().all(|recv| {
                let has_told = recv.announcement.is_none() || recv.announced == self.started;
                let has_come = !self.stays_for_arrivals || recv.arrived() == self.started;
                has_told && has_come && recv.done.count() == recv.announced
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(buffers: usize, last_epoch: u32) -> Terms {
        Terms { buffers, last_epoch, ..Terms::READY }
    }

    #[test]
    fn the_messages_of_a_buffer_in_order() {
        let numbers = |buffers, last, buffer| {
            [0, 1, 2].map(|before| nth_of_buffer(terms(buffers, last), buffer, before))
        };
        assert_eq!(numbers(1, 0, 0), [1, 2, 3]);
        // Epoch 1 is odd, and the first.
        assert_eq!((numbers(2, 0, 1), numbers(2, 0, 0)), ([1, 3, 5], [2, 4, 6]));
        // Epoch 8 is even.
        assert_eq!((numbers(2, 7, 0), numbers(2, 7, 1)), ([1, 3, 5], [2, 4, 6]));
        // Epoch 0 follows the last one before the wrap.
        assert_eq!((numbers(2, u32::MAX, 0), numbers(2, u32::MAX, 1)), ([1, 3, 5], [2, 4, 6]));
    }
}
