//! The whole exchange by triggered operations, as the papers describe it: nobody but the two
//! counters that a stream adds to starts anything, and nobody but the provider carries it out.

use super::two::{Meeting, has, run_two};
use super::*;
use crate::fabric::ofi::work::{DeferredAtomic, DeferredCounterAdd, DeferredWrite};

const WORDS: usize = 64;

/// One direction of an exchange with clear-to-send, seen from both its ends; each rank has one of
/// each. What the names mean is in [`Exchange::new`].
struct Exchange {
    payload: Words,
    send_flag: Words,
    trigger: Counter,
    _clear: Words,
    sent: Counter,
    flagged: Counter,
    write: DeferredWrite,
    flag_sent: DeferredAtomic,

    ghost: Words,
    receive_flag: Words,
    ready: Counter,
    arrived: Counter,
    noticed: Counter,
    cleared: Counter,
    flag_received: DeferredAtomic,
    clear_to_send: DeferredAtomic,
}

impl Exchange {
    fn new(meeting: &Meeting, endpoint: &Endpoint, peer: PeerAddress) -> Exchange {
        let counter = || Counter::open(endpoint).expect("a counter can be made");
        let own = PeerAddress(meeting.rank as u64);
        let word = |region: &Words| region.region.remote(own, 0);

        // The sender's: its trigger counts the stream's additions and, through the region bound to
        // it, the receiver's atomics; so it comes to 2·i when both have been there for epoch i.
        let trigger = counter();
        let clear = Words::new(endpoint, 1, Some(&trigger));
        // The receiver's: the region counts what arrives in it.
        let arrived = counter();
        let ghost = Words::new(endpoint, WORDS, Some(&arrived));
        clear.tell(meeting, "clear");
        ghost.tell(meeting, "ghost");
        let clear_there = hear(meeting, "clear", peer);
        let ghost_there = hear(meeting, "ghost", peer);

        let payload = Words::new(endpoint, WORDS, None);
        let (send_flag, receive_flag) = (Words::new(endpoint, 1, None), Words::new(endpoint, 1, None));
        let (sent, flagged, ready) = (counter(), counter(), counter());
        let (noticed, cleared) = (counter(), counter());
        let whole = payload.region.slice(0, 8 * WORDS, "a payload").expect("in bounds");
        let set = |target, trigger: &Counter, completion: &Counter| {
            DeferredAtomic::new(target, trigger, completion).expect("an entry")
        };
        Exchange {
            write: DeferredWrite::new(&whole, ghost_there, &trigger, &sent).expect("an entry"),
            flag_sent: set(word(&send_flag), &sent, &flagged),
            flag_received: set(word(&receive_flag), &arrived, &noticed),
            clear_to_send: set(clear_there, &ready, &cleared),
            payload,
            send_flag,
            trigger,
            _clear: clear,
            sent,
            flagged,
            ghost,
            receive_flag,
            ready,
            arrived,
            noticed,
            cleared,
        }
    }

    /// Queues all of an epoch, before any of it is triggered.
    fn arm(&mut self, epoch: u64, start: u64) {
        let all = [
            self.write.arm(start + 2 * epoch, start + epoch),
            self.flag_sent.arm(start + epoch, epoch),
            self.flag_received.arm(start + epoch, epoch),
            self.clear_to_send.arm(start + epoch, epoch),
        ];
        for posted in all {
            queued(posted);
        }
    }

    /// An epoch, in the order in which a stream would come to its parts; `number` is told apart
    /// from all others by the payload and the flags.
    fn epoch(&mut self, rank: usize, number: u64, epoch: u64, start: u64) {
        // A flag is seen before the entry that has changed it is counted.
        wait("the last epoch's entries", || self.is_done());
        for word in 0..WORDS {
            self.payload.store(word, contents(rank, number, word));
        }
        for atomic in [&mut self.flag_sent, &mut self.flag_received, &mut self.clear_to_send] {
            atomic.set_value(number as u32).expect("not armed");
        }
        self.arm(epoch, start);
        self.ready.add(1).expect("clear to send");
        self.trigger.add(1).expect("triggered");
        self.receive_flag.wait(0, number, "the flag of what is received");
        for word in 0..WORDS {
            assert_eq!(
                self.ghost.load(word),
                contents(1 - rank, number, word),
                "epoch {number}, word {word}"
            );
        }
        self.send_flag.wait(0, number, "the flag of what is sent");
    }

    fn is_done(&self) -> bool {
        self.write.is_done()
            && self.flag_sent.is_done()
            && self.flag_received.is_done()
            && self.clear_to_send.is_done()
    }

    /// All counters to where a run starts: those that trigger something to `start`, the others to 0.
    fn set_back(&mut self, start: u64) {
        wait("all entries to complete", || self.is_done());
        self.write.settle().expect("quiet");
        self.flag_sent.settle().expect("quiet");
        self.flag_received.settle().expect("quiet");
        self.clear_to_send.settle().expect("quiet");
        for counter in [&self.trigger, &self.sent, &self.arrived, &self.ready] {
            counter.set(start).expect("a counter can be set");
        }
        for counter in [&self.flagged, &self.noticed, &self.cleared] {
            counter.set(0).expect("a counter can be set");
        }
    }
}

fn contents(rank: usize, epoch: u64, word: usize) -> u64 {
    epoch << 32 | (rank as u64) << 16 | word as u64
}

#[test]
fn a_triggered_exchange_needs_nobody_after_the_trigger() {
    if has("sockets", true) {
        run_two("sockets::exchange");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn exchange() {
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let mut exchange = Exchange::new(&meeting, &endpoint, peer);
    meet(&meeting, &endpoint, "start");
    for epoch in 1..=300 {
        exchange.epoch(meeting.rank, epoch, epoch, 0);
    }
    wait("the last entries", || exchange.is_done());
    assert_eq!((exchange.trigger.read(), exchange.sent.read(), exchange.arrived.read()), (600, 300, 300));
    meet(&meeting, &endpoint, "end");
}

#[test]
fn counters_are_set_back_before_their_end() {
    if has("sockets", true) {
        run_two("sockets::set_back");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn set_back() {
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let mut exchange = Exchange::new(&meeting, &endpoint, peer);
    let epochs = 5;
    let mut number = 0;
    let largest = exchange.trigger.largest();
    // Twice up to the end, and once from zero as every world begins.
    for (round, start) in [largest - 2 * epochs, largest - 2 * epochs, 0].into_iter().enumerate() {
        exchange.set_back(start);
        // Nobody may add to a counter that its owner has still to set back.
        meet(&meeting, &endpoint, &format!("round {round}"));
        for epoch in 1..=epochs {
            number += 1;
            exchange.epoch(meeting.rank, number, epoch, start);
        }
        wait("the last entries", || exchange.is_done());
        assert_eq!(exchange.trigger.read(), start + 2 * epochs);
        meet(&meeting, &endpoint, &format!("quiet {round}"));
    }
}

#[test]
fn ready_sends_share_a_trigger() {
    if has("sockets", true) {
        run_two("sockets::ready_sends");
    }
}

/// Messages of a batch; all wait for one trigger at threshold i, and complete into one counter.
const BATCH: usize = 6;

#[test]
#[ignore = "a rank of the test above"]
fn ready_sends() {
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let counter = || Counter::open(&endpoint).expect("a counter can be made");
    let (trigger, sent, arrived) = (counter(), counter(), counter());
    let (flagged, noticed) = (counter(), counter());
    // The two phases alternate, so that a rank that is one epoch ahead writes over nothing unread.
    let ghost = Words::new(&endpoint, 2 * BATCH, Some(&arrived));
    let payload = Words::new(&endpoint, 2 * BATCH, None);
    let flags = Words::new(&endpoint, 2, None);
    ghost.tell(&meeting, "ghost");
    let there = hear(&meeting, "ghost", peer);
    let mut writes: Vec<DeferredWrite> = (0..2 * BATCH)
        .map(|word| {
            let source = payload.region.slice(8 * word, 8, "a message").expect("in bounds");
            DeferredWrite::new(&source, at(there, word), &trigger, &sent).expect("an entry")
        })
        .collect();
    let own = |word: usize| flags.region.remote(PeerAddress(meeting.rank as u64), 8 * word);
    let mut flag_sent = DeferredAtomic::new(own(0), &sent, &flagged).expect("an entry");
    let mut flag_received = DeferredAtomic::new(own(1), &arrived, &noticed).expect("an entry");
    meet(&meeting, &endpoint, "start");
    for epoch in 1..=100u64 {
        let phase = (epoch % 2) as usize * BATCH;
        let counted = epoch * BATCH as u64;
        wait("the last epoch's entries", || flag_received.is_done() && flag_sent.is_done());
        // The value that the flag is set to need not be the epoch: any word that a stream waits for.
        flag_received.set_value(1000 + epoch as u32).expect("not armed");
        flag_sent.set_value(epoch as u32).expect("not armed");
        queued(flag_sent.arm(counted, epoch));
        queued(flag_received.arm(counted, epoch));
        for message in 0..BATCH {
            queued(writes[phase + message].arm(epoch, counted));
            payload.store(phase + message, contents(meeting.rank, epoch, message));
        }
        trigger.add(1).expect("triggered");
        flags.wait(1, 1000 + epoch, "the flag of what is received");
        for message in 0..BATCH {
            assert_eq!(ghost.load(phase + message), contents(1 - meeting.rank, epoch, message));
        }
        flags.wait(0, epoch, "the flag of what is sent");
    }
    meet(&meeting, &endpoint, "end");
}

#[test]
fn triggers_chain_over_counters() {
    if has("sockets", true) {
        run_two("sockets::chain");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn chain() {
    let Some(meeting) = Meeting::join() else { return };
    let (endpoint, peer) = connected(&meeting, &sockets());
    let counter = || Counter::open(&endpoint).expect("a counter can be made");
    let (first, second, sent) = (counter(), counter(), counter());
    let words = Words::new(&endpoint, 2, None);
    words.tell(&meeting, "words");
    let there = hear(&meeting, "words", peer);
    words.store(0, 7 + meeting.rank as u64);
    let mut add = DeferredCounterAdd::new(&second, 3, &first).expect("an entry");
    let source = words.region.slice(0, 8, "a message").expect("in bounds");
    let mut write = DeferredWrite::new(&source, at(there, 1), &second, &sent).expect("an entry");
    assert!(DeferredCounterAdd::new(&first, 1, &first).is_err(), "a counter that adds to itself is refused");
    queued(write.arm(3, 1));
    queued(add.arm(2, 3));
    first.add(1).expect("added");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((second.read(), add.is_done(), write.is_done()), (0, false, false), "nothing fires early");
    assert!(write.arm(3, 1).is_err(), "an armed entry is not armed again");
    first.add(1).expect("added");
    wait("the chain", || write.is_done() && add.is_done());
    words.wait(1, 8 - meeting.rank as u64, "the peer's message");
    meet(&meeting, &endpoint, "end");
}
