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
use crate::fabric::{Bells, FarExchange, Keep, Sides, Terms, Told, Word, phase, tell};
use crate::world::World;
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

impl Proxied {
    /// Registers the memory, and exchanges where it is. Collective.
    pub(super) fn open(
        world: &World,
        hub: &Arc<Hub>,
        peers: &[PeerAddress],
        exchange: FarExchange,
        bells: &Bells,
        keep: &Keep<Vec<MemoryRegion>>,
    ) -> Result<Self> {
        let sides = Sides::of(&exchange);
        let FarExchange { terms, sends, recvs, counts } = exchange;
        let group = if terms.waits_for_group {
            sends.iter().map(|send| send.clear.clone()).collect()
        } else {
            Vec::new()
        };
        let endpoint = hub.endpoint();
        let mut kept = Vec::new();
        let mut own = || -> Result<_> {
            let mut heard = Vec::new();
            for word in &bells.hearing {
                let region = register_word(endpoint, word, None)?;
                let told = hub.number();
                heard.push((vec![Target::of(&region, told.number)], told));
                kept.push(region);
            }
            let mut came = Vec::new();
            for recv in &recvs {
                let mut targets = Vec::new();
                let mut numbers = Vec::new();
                for slot in &recv.slots[..terms.buffers] {
                    let region = register(endpoint, slot, recv.bytes, None)?;
                    let number = hub.number();
                    targets.push(Target::of(&region, number.number));
                    numbers.push(number);
                    kept.push(region);
                }
                came.push((targets, numbers));
            }
            Ok((heard, came))
        };
        let own = own();
        let targets = own.as_ref().map_err(Clone::clone).map(|(heard, came)| {
            let sends = heard.iter().map(|(targets, _)| targets.clone()).collect();
            Told { sends, recvs: came.iter().map(|(targets, _)| targets.clone()).collect() }
        });
        let Told { sends: buffers, recvs: ears } =
            tell(world, "opening an exchange over libfabric", &sides, targets)?;
        let (heard, came) = own?;
        let whole = |place, bytes| register(endpoint, place, bytes, None)?.slice(0, bytes, "a message");
        let made_sends =
            sends.iter().zip(heard).zip(buffers).enumerate().map(|(index, ((send, heard), to))| {
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
                    told: heard.1,
                    noted: 0,
                })
            });
        let made_sends = made_sends.collect::<Result<Vec<_>>>()?;
        let saying = register_word(endpoint, &bells.saying, None)?;
        let made_recvs = recvs.iter().zip(came).zip(ears).map(|((recv, came), ears)| {
            let source = saying.slice(0, saying.bytes(), "an announcement")?;
            let put = |to: &Target| Put { source, target: to.at(peers[recv.peer]), data: to.number };
            Ok(Recv {
                arrivals: recv.arrivals.clone(),
                noted: vec![0; came.1.len()],
                came: came.1,
                announcement: if recv.announces { ears.first().map(put) } else { None },
                announced: 0,
                done: hub.number(),
            })
        });
        let recvs = made_recvs.collect::<Result<Vec<_>>>()?;
        let (hub, start) = (hub.clone(), bells.start.clone());
        let (sends, kept) = (made_sends, Arc::new(kept));
        keep.add(world.size(), kept.clone());
        Ok(Self { hub, terms, counts, group, start, started: 0, sends, recvs, _regions: kept })
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
            || self.recvs.iter().any(|recv| {
                let arrived: u32 = recv.noted.iter().fold(0, |sum, noted| sum.wrapping_add(*noted));
                open(arrived) || (recv.announcement.is_some() && open(recv.done.count()))
            }))
    }

    fn is_quiet(&self) -> bool {
        // The last readiness of a receiver is waited for by nobody, and comes to memory of this side.
        let has_heard = |send: &Send| !send.awaits || send.told.count() == self.started;
        !self.has_started()
            && self.sends.iter().all(|send| send.done.count() == send.sent && has_heard(send))
            && self.recvs.iter().all(|recv| {
                let has_told = recv.announcement.is_none() || recv.announced == self.started;
                has_told && recv.done.count() == recv.announced
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Role;

    fn terms(buffers: usize, last_epoch: u32) -> Terms {
        Terms {
            readiness: Role::Credit,
            announced: |epoch| epoch,
            needed: |epoch| epoch,
            waits_for_group: false,
            buffers,
            counts: false,
            last_epoch,
        }
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
