//! Operations that go out at once, on the providers that a progress thread serves.

use super::two::{Meeting, has, run_two};
use super::*;

#[test]
fn tcp_writes_with_data_and_sends_tagged() {
    if has("tcp", false) {
        run_two("immediate::tcp");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn tcp() {
    both_ways("tcp", Some("127.0.0.1"));
}

#[test]
fn shm_writes_with_data_and_sends_tagged() {
    if has("shm", false) {
        run_two("immediate::shm");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn shm() {
    both_ways("shm", None);
}

#[test]
fn sockets_writes_with_data_and_sends_tagged() {
    if has("sockets", false) {
        run_two("immediate::plain_sockets");
    }
}

#[test]
#[ignore = "a rank of the test above"]
fn plain_sockets() {
    both_ways("sockets", Some("127.0.0.1"));
}

/// As the parts of a message have.
#[test]
fn receives_of_one_number_all_end_when_each_is_cancelled() {
    if !has("tcp", false) {
        return;
    }
    let (provider, source) = (Some("tcp".into()), Some("127.0.0.1".into()));
    let options = EndpointOptions { provider, source, ..EndpointOptions::default() };
    let endpoint = Endpoint::open(&options).expect("the endpoint opens");
    let own = endpoint.insert(&endpoint.address()).expect("an address is good");
    let words = Words::new(&endpoint, 2, None);
    for word in 0..2 {
        let part = words.region.slice(8 * word, 8, "a part").expect("in bounds");
        // SAFETY: the words live as long as the endpoint, and nobody reads them.
        post(&endpoint, || unsafe { endpoint.receive_tagged(&part, own, 5, 7) });
    }
    for _ in 0..2 {
        endpoint.cancel(own, 7);
    }
    let ended = Completion::Cancelled(Token::new(own, 7));
    Awaited { endpoint: &endpoint, seen: Vec::new() }.all(vec![ended, ended]);
}

/// Collects completions until all of some have come, in whatever order.
struct Awaited<'a> {
    endpoint: &'a Endpoint,
    seen: Vec<Completion>,
}

impl Awaited<'_> {
    fn poll(&mut self) {
        let mut completions = [Completion::Nothing; 4];
        let count = self.endpoint.poll(&mut completions).expect("nothing has failed");
        self.seen.extend(&completions[..count]);
    }

    fn all(&mut self, mut wanted: Vec<Completion>) {
        let end = Instant::now() + PATIENCE;
        while !wanted.is_empty() {
            assert!(Instant::now() < end, "waited too long for {wanted:?}; have {:?}", self.seen);
            self.poll();
            wanted.retain(|one| match self.seen.iter().position(|seen| seen == one) {
                Some(found) => {
                    self.seen.swap_remove(found);
                    false
                }
                None => true,
            });
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Each round: a payload by a write with data, and its answer as a tagged message.
fn both_ways(provider: &str, source: Option<&str>) {
    const WORDS: usize = 1 << 17;
    const ROUNDS: u64 = 20;
    let Some(meeting) = Meeting::join() else { return };
    let options = EndpointOptions {
        provider: Some(provider.into()),
        source: source.map(Into::into),
        ..EndpointOptions::default()
    };
    let (endpoint, peer) = connected(&meeting, &options);
    let ghost = Words::new(&endpoint, WORDS, None);
    let payload = Words::new(&endpoint, WORDS, None);
    let answers = Words::new(&endpoint, 2, None);
    ghost.tell(&meeting, "ghost");
    let there = hear(&meeting, "ghost", peer);
    let mut awaited = Awaited { endpoint: &endpoint, seen: Vec::new() };
    let tag = |from: usize, round: u64| (from as u64) << 32 | round;
    for round in 1..=ROUNDS {
        // From one word to a megabyte.
        let words = if round % 5 == 0 { WORDS } else { 1 << (round % 5) };
        for word in 0..words {
            payload.store(word, round << 32 | (meeting.rank as u64) << 24 | word as u64);
        }
        let answer = answers.region.slice(0, 8, "an answer").expect("in bounds");
        // SAFETY: the word is read only after the message has come.
        post(&endpoint, || unsafe {
            endpoint.receive_tagged(&answer, peer, tag(1 - meeting.rank, round), 1)
        });
        let source = payload.region.slice(0, 8 * words, "a payload").expect("in bounds");
        // SAFETY: nothing is stored to the payload before the write has completed.
        post(&endpoint, || unsafe { endpoint.write_with_data(&source, there, 0x4000_0000 | round, 2) });
        awaited.all(vec![
            Completion::Done(Token::new(peer, 2)),
            Completion::Arrived { data: 0x4000_0000 | round },
        ]);
        let sum: u64 = (0..words).map(|word| ghost.load(word)).fold(0, u64::wrapping_add);
        let from = 1 - meeting.rank as u64;
        let one = |word: usize| round << 32 | from << 24 | word as u64;
        assert_eq!(sum, (0..words).map(one).fold(0, u64::wrapping_add), "round {round}");

        answers.store(1, sum);
        let reply = answers.region.slice(8, 8, "an answer").expect("in bounds");
        // SAFETY: nothing is stored there before the message has gone.
        post(&endpoint, || unsafe { endpoint.send_tagged(&reply, peer, tag(meeting.rank, round), 3) });
        awaited.all(vec![
            Completion::Done(Token::new(peer, 3)),
            Completion::Received { token: Token::new(peer, 1), bytes: 8, tag: tag(1 - meeting.rank, round) },
        ]);
        let mine: u64 = (0..words).map(|word| payload.load(word)).fold(0, u64::wrapping_add);
        assert_eq!(answers.load(0), mine, "round {round}: the peer has seen what was sent");

        // The peer may already have gone on to the next round: nothing that comes may be lost.
        meeting.tell(&format!("round {round}"), b"here");
        wait("the other rank", || {
            awaited.poll();
            meeting.has_told(&format!("round {round}"))
        });
    }
}
