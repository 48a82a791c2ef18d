//! Rank 0's part: it has a link to every other rank, gathers what they say, and tells all.
//!
//! Everything happens as frames come, on the threads that read them, so that the others need not wait
//! for what rank 0's own thread is doing.

use super::frame::{self, Call, Frame, Head, Round, Verdict};
use super::gathering::Gathering;
use super::handshake::{self, Candidate, Stranger};
use super::inbox::{Failure, Inbox, Outcome};
use super::key::JobKey;
use super::link::Link;
use crate::error::in_seconds;
use crate::fabric::Parted;
use crate::locks::lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What rank 0 knows. The threads that read share it.
#[derive(Debug)]
pub(super) struct Centre {
    size: usize,
    key: JobKey,
    inbox: Arc<Inbox>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// By rank; rank 0 has none.
    links: Vec<Option<Arc<Link>>>,
    /// Who has said goodbye.
    left: Vec<bool>,
    failed: bool,
    gatherings: HashMap<u64, Gathering>,
    strangers: Vec<Stranger>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joining,
    Started,
    Closed,
}

/// More strangers are counted as that many, so that they cannot fill the memory.
const STRANGERS_MOST: usize = 10_000;
/// How long a verdict may take to be written to who is refused.
const FAREWELL: Duration = Duration::from_secs(1);

impl Centre {
    /// `listens_on` is the address of rank 0 if no connection shows a better one.
    pub(super) fn new(size: usize, key: JobKey, inbox: Arc<Inbox>, listens_on: IpAddr) -> Arc<Self> {
        let state = State {
            phase: Phase::Joining,
            links: vec![None; size],
            left: vec![false; size],
            failed: false,
            gatherings: HashMap::new(),
            strangers: Vec::new(),
        };
        let centre = Arc::new(Self { size, key, inbox, state: Mutex::new(state) });
        centre.start_if_complete(&mut centre.lock(), listens_on);
        centre
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn key(&self) -> &JobKey {
        &self.key
    }

    pub(super) fn count_stranger(&self, stranger: Stranger) {
        let mut state = self.lock();
        if state.strangers.len() < STRANGERS_MOST {
            state.strangers.push(stranger);
        }
    }

    /// Lets a rank in that has proved that it is of this job, and gives its link. A rank that does not
    /// fit to the others is told why, and so are they: the job cannot start as it was meant to.
    pub(super) fn admit(&self, candidate: &Candidate, stream: Arc<TcpStream>) -> Option<(usize, Arc<Link>)> {
        let mut state = self.lock();
        let refused = match self.check(&state, candidate, &stream) {
            Ok(rank) => match Link::start(stream.clone()) {
                Ok(link) => {
                    // First in line, so that it comes before any frame.
                    link.send(candidate.verdict(&self.key, Ok(())).into());
                    state.links[rank] = Some(link.clone());
                    let fallback = IpAddr::V4(Ipv4Addr::LOCALHOST);
                    self.start_if_complete(&mut state, fallback);
                    return Some((rank, link));
                }
                Err(error) => format!("rank 0 could not start a thread for rank {rank}: {error}"),
            },
            Err(reason) => reason,
        };
        if state.phase == Phase::Joining {
            self.refuse_all(&mut state, &refused);
        }
        drop(state);
        let verdict = candidate.verdict(&self.key, Err(&refused));
        // In vain if it has gone.
        let _ = handshake::write_by(&stream, &verdict, Instant::now() + FAREWELL);
        None
    }

    fn check(&self, state: &State, candidate: &Candidate, stream: &TcpStream) -> Result<usize, String> {
        let Candidate { rank, size, .. } = *candidate;
        let from = |stream: &TcpStream| {
            stream.peer_addr().map_or_else(|_| "an unknown address".into(), |address| address.to_string())
        };
        if size != self.size as u64 {
            return Err(format!(
                "rank {rank} at {} was started as one of {size} ranks, but rank 0 as one of {}; give all the same size",
                from(stream),
                self.size
            ));
        }
        if rank == 0 {
            return Err(format!(
                "two processes claim rank 0: the one that listens, and one at {}",
                from(stream)
            ));
        }
        if rank >= size {
            return Err(format!(
                "a process at {} claims rank {rank}, but the ranks run from 0 to {}",
                from(stream),
                self.size - 1
            ));
        }
        let rank = rank as usize;
        if let Some(first) = &state.links[rank] {
            return Err(format!(
                "two processes claim rank {rank}: one at {} and one at {}; give every process a rank of its own",
                from(first.stream()),
                from(stream)
            ));
        }
        if state.phase != Phase::Joining {
            return Err("this job has ended before all of its ranks had come".into());
        }
        Ok(rank)
    }

    fn start_if_complete(&self, state: &mut State, fallback: IpAddr) {
        if state.phase != Phase::Joining || state.links.iter().skip(1).any(Option::is_none) {
            return;
        }
        state.phase = Phase::Started;
        // A rank on this machine may have come over the loopback interface, which the others cannot.
        let addresses = state.links.iter().flatten().filter_map(|link| link.stream().local_addr().ok());
        let addresses: Vec<IpAddr> = addresses.map(|address| address.ip().to_canonical()).collect();
        let outside = addresses.iter().find(|address| !address.is_loopback());
        let address = *outside.or(addresses.first()).unwrap_or(&fallback);
        self.send_to_all(state, &frame::encode(&Head::Start { address }, &[]));
        self.inbox.start(Ok(address));
    }

    fn refuse_all(&self, state: &mut State, reason: &str) {
        state.phase = Phase::Closed;
        self.send_to_all(state, &frame::encode(&Head::Closed { reason: reason.into() }, &[]));
        self.inbox.start(Err(reason.into()));
    }

    /// A rank has waited that long for the others to come, and does not any more.
    pub(super) fn give_up_joining(&self, rank: usize, waited: Duration) {
        let mut state = self.lock();
        if state.phase != Phase::Joining {
            return;
        }
        let missing = (1..self.size).filter(|rank| state.links[*rank].is_none());
        let who = if rank == 0 { String::new() } else { format!(", and rank {rank} waits no longer") };
        let mut reason = format!(
            "{} did not come within {} s{who}; are they started, with this address, and can they reach it?",
            name_ranks(missing),
            in_seconds(&waited)
        );
        for told in tell_of_strangers(&state.strangers) {
            reason.push_str("; ");
            reason.push_str(&told);
        }
        self.refuse_all(&mut state, &reason);
    }

    fn send_to_all(&self, state: &State, bytes: &Arc<[u8]>) {
        state.links.iter().flatten().for_each(|link| link.send(bytes.clone()));
    }

    /// Takes a frame of another rank.
    pub(super) fn take(&self, rank: usize, frame: Frame) {
        match frame.head {
            Head::Arrive { round, ranks, call } => self.arrive(rank, round, ranks as usize, call, frame.body),
            Head::LeftMeeting { meeting, ranks } => self.leave_meeting(rank, meeting, ranks as usize),
            Head::Late { round, waited } => self.late(round, waited),
            Head::GaveUp { waited } => self.give_up_joining(rank, waited),
            Head::Failed { rank, text } => self.fail(Failure { rank: rank as usize, text }),
            Head::Parted { to, parted, .. } => self.tell_parting(rank, to as usize, &parted),
            Head::Goodbye => self.leave(rank),
            // Those are from rank 0.
            Head::Start { .. } | Head::Closed { .. } | Head::Verdict { .. } => {}
        }
    }

    /// A rank has come to a collective call.
    pub(super) fn arrive(&self, rank: usize, round: Round, ranks: usize, call: Call, data: Vec<u8>) {
        let mut state = self.lock();
        // After a failure no call succeeds, for whoever comes to it.
        if state.failed || rank >= ranks || ranks > self.size {
            return;
        }
        let gathering = state.gatherings.entry(round.meeting).or_insert_with(|| Gathering::new(ranks));
        // A call that has its verdict needs no more data.
        if !gathering.is_open(round.sequence) || gathering.ranks() != ranks {
            return;
        }
        match gathering.arrive(rank, call, data) {
            Some(outcome) => self.tell_verdict(&state, round, ranks, outcome),
            None => self.end_if_vain(&mut state, round.meeting),
        }
    }

    /// A rank has let go of a meeting. Who waits for it there need not wait for the time-out.
    pub(super) fn leave_meeting(&self, rank: usize, meeting: u64, ranks: usize) {
        let mut state = self.lock();
        if rank >= ranks || ranks > self.size {
            return;
        }
        let gathering = state.gatherings.entry(meeting).or_insert_with(|| Gathering::new(ranks));
        if gathering.ranks() == ranks && gathering.leave(rank) {
            state.gatherings.remove(&meeting);
        } else {
            self.end_if_vain(&mut state, meeting);
        }
    }

    /// Ends the current call of a meeting if some have come to it and another one never will.
    fn end_if_vain(&self, state: &mut State, meeting: u64) {
        let State { gatherings, left, failed: false, .. } = state else { return };
        let Some(gathering) = gatherings.get(&meeting).filter(|gathering| gathering.is_awaited()) else {
            return;
        };
        if let Some(rank) = gathering.gone(left) {
            let round = Round { meeting, sequence: gathering.sequence() };
            self.end_round(state, round, Verdict::Left { rank });
        }
    }

    /// A rank has waited too long for the verdict of a call.
    pub(super) fn late(&self, round: Round, waited: Duration) {
        let mut state = self.lock();
        let Some(gathering) = state.gatherings.get(&round.meeting) else { return };
        if gathering.is_open(round.sequence) && !state.failed {
            let verdict =
                Verdict::Late { missing: gathering.missing(), ranks: gathering.ranks() as u32, waited };
            self.end_round(&mut state, round, verdict);
        }
    }

    fn end_round(&self, state: &mut State, round: Round, verdict: Verdict) {
        if let Some(gathering) = state.gatherings.get_mut(&round.meeting) {
            let ranks = gathering.ranks();
            let outcome = gathering.end(verdict);
            self.tell_verdict(state, round, ranks, outcome);
        }
    }

    fn tell_verdict(&self, state: &State, round: Round, ranks: usize, outcome: Outcome) {
        let (verdict, body) = &outcome;
        if ranks > 1 {
            let bytes = frame::encode(&Head::Verdict { round, verdict: verdict.clone() }, body);
            state.links[..ranks].iter().flatten().for_each(|link| link.send(bytes.clone()));
        }
        self.inbox.deliver(round, outcome);
    }

    /// A rank has failed: all are told. Only the first failure counts.
    pub(super) fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.failed, true) {
            return;
        }
        if state.phase == Phase::Joining {
            self.refuse_all(&mut state, &format!("rank {} failed: {}", failure.rank, failure.text));
        }
        let head = Head::Failed { rank: failure.rank as u32, text: failure.text.clone() };
        self.send_to_all(&state, &frame::encode(&head, &[]));
        drop(state);
        self.inbox.fail(failure);
    }

    /// A rank lets go of what another one may wait for.
    pub(super) fn tell_parting(&self, from: usize, to: usize, parted: &Parted) {
        if to == 0 {
            return self.inbox.partings.hear(from, parted);
        }
        // Who has left waits for nothing.
        if let Some(Some(link)) = self.lock().links.get(to) {
            let (from, to) = (from as u32, to as u32);
            link.send(frame::encode(&Head::Parted { from, to, parted: parted.clone() }, &[]));
        }
    }

    /// A rank has said goodbye. Who waits for it need not wait for the time-out.
    fn leave(&self, rank: usize) {
        let mut state = self.lock();
        state.left[rank] = true;
        let meetings: Vec<u64> = state.gatherings.keys().copied().collect();
        meetings.into_iter().for_each(|meeting| self.end_if_vain(&mut state, meeting));
    }

    /// The connection to a rank has ended.
    pub(super) fn ended(&self, rank: usize) {
        let state = self.lock();
        if state.left[rank] || state.phase == Phase::Closed || self.inbox.is_closing() {
            return;
        }
        let when = if state.phase == Phase::Joining { " before all ranks had come" } else { "" };
        drop(state);
        let text = format!("it is gone: its connection to rank 0 ended{when}");
        self.fail(Failure { rank, text });
    }

    /// Says goodbye to all, and gives the links, for the caller to wait for their ends.
    pub(super) fn say_goodbye(&self) -> Vec<Arc<Link>> {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        let links: Vec<Arc<Link>> = state.links.iter().flatten().cloned().collect();
        links.iter().for_each(|link| link.say_goodbye());
        links
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.lock().links.iter().flatten().cloned().collect()
    }
}

/// "rank 3", "ranks 3 and 5", "ranks 3, 5 and 7".
pub(super) fn name_ranks(ranks: impl Iterator<Item = usize>) -> String {
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    match ranks.as_slice() {
        [] => "no rank".into(),
        [one] => format!("rank {one}"),
        [others @ .., last] => format!("ranks {} and {last}", others.join(", ")),
    }
}

fn tell_of_strangers(strangers: &[Stranger]) -> Vec<String> {
    let why = [
        (Stranger::OtherKey, "the job key differs"),
        (Stranger::OtherVersion, "it speaks another version of the rendezvous"),
        (Stranger::NoHandshake, "it said nothing, or nothing that a rank says"),
    ];
    why.into_iter()
        .filter_map(|(kind, why)| match strangers.iter().filter(|stranger| **stranger == kind).count() {
            0 => None,
            1 => Some(format!("1 stranger was refused: {why}")),
            count => Some(format!("{count} strangers were refused: {}", why.replace("it ", "they "))),
        })
        .collect()
}
