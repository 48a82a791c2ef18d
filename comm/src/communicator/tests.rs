//! The engines of some ranks against a sequential model, one step after the other in one thread.

use super::Communicator;
use super::engine::{AHEAD, EAGER_BYTES, Engine, MOST_AHEAD, UNTOLD};
use super::request::Kind;
use super::slots::Ticket;
use super::tickets::{Contents, Found};
use crate::device::{Buffer, Device, Extents, left_of};
use crate::element::ElementType::{self, F64, I32};
use crate::error::{Error, Result};
use crate::fabric::{Place, WaitPolicy};
use crate::locks::lock;
use crate::source::{Source, Status, Tag};
use crate::world::{World, WorldOptions};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The engines of all ranks, with some memory of each.
struct Ranks {
    engines: Vec<Engine>,
    memory: Vec<Place>,
}

impl Engine {
    fn isend_place(
        &mut self,
        place: &Place,
        bytes: usize,
        element: Option<ElementType>,
        destination: usize,
        tag: u32,
    ) -> Result<Ticket> {
        self.begin(Kind::Send { destination, tag }, Contents::Place(place, bytes, element))
    }

    fn irecv_place(
        &mut self,
        place: &Place,
        bytes: usize,
        element: Option<ElementType>,
        source: Source,
        tag: Tag,
    ) -> Result<Ticket> {
        self.begin(Kind::Recv { source, tag }, Contents::Place(place, bytes, element))
    }
}

const SLOT_BYTES: usize = 24_000;
const SLOTS: usize = 80;

impl Ranks {
    fn new(size: usize) -> Self {
        Self::waiting(size, WorldOptions::default())
    }

    fn waiting(size: usize, options: WorldOptions) -> Self {
        let ranks = World::threads(size, options, |world| {
            let engine = Engine::connect(&world)?;
            let region = world.fabric().allocate(SLOT_BYTES * SLOTS)?;
            Ok::<_, Error>((engine, region.place(0, SLOT_BYTES * SLOTS, "memory of a test")?))
        });
        let ranks = ranks.expect("threads start").into_iter().map(|rank| rank.expect("ranks connect"));
        let (engines, memory) = ranks.unzip();
        Self { engines, memory }
    }

    fn slot(&self, rank: usize, slot: usize) -> Place {
        self.memory[rank].advance(slot * SLOT_BYTES, SLOT_BYTES, "memory of a test").expect("there are slots")
    }

    fn read(&self, rank: usize, slot: usize, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.slot(rank, slot).read(&mut read).expect("it is in the slot");
        read
    }

    fn settle(&mut self) {
        for _ in 0..8 * SLOTS {
            self.engines.iter_mut().for_each(|engine| engine.progress().expect("rings do not fail"));
        }
    }
}

/// What a message of a test looks like.
fn payload(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect()
}

/// A step of one rank.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send { from: usize, to: usize, tag: u32, bytes: usize, element: ElementType },
    Recv { at: usize, source: Option<usize>, tag: Option<u32>, room: usize, element: ElementType },
    Progress { at: usize },
    Cancel { at: usize, which: usize },
}

fn steps(ranks: usize) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop::sample::select(vec![0, 8, 32, 40, 1000, EAGER_BYTES, EAGER_BYTES + 8, 20_000]);
    let room = prop::sample::select(vec![0, 8, EAGER_BYTES, 24_000, 24_000, 24_000, 24_000]);
    let element = || prop::sample::select(vec![F64, F64, F64, I32]);
    let tag = || prop::sample::select(vec![0, 1, 2]);
    let step = prop_oneof![
        4 => (0..ranks, 0..ranks, tag(), bytes, element())
            .prop_map(|(from, to, tag, bytes, element)| Step::Send { from, to, tag, bytes, element }),
        4 => (0..ranks, prop::option::of(0..ranks), prop::option::of(tag()), room, element()).prop_map(
            |(at, source, tag, room, element)| Step::Recv { at, source, tag, room, element }
        ),
        2 => (0..ranks).prop_map(|at| Step::Progress { at }),
        1 => (0..ranks, 0..8_usize).prop_map(|(at, which)| Step::Cancel { at, which }),
    ];
    prop::collection::vec(step, 1..60)
}

/// A message in the model.
#[derive(Debug, Clone, Copy)]
struct Sent {
    number: usize,
    from: usize,
    tag: u32,
    bytes: usize,
    element: ElementType,
}

/// A receive in the model.
#[derive(Debug, Clone, Copy)]
struct Posted {
    number: usize,
    source: Option<usize>,
    tag: Option<u32>,
    room: usize,
    element: ElementType,
}

impl Posted {
    fn accepts(&self, sent: &Sent) -> bool {
        self.source.is_none_or(|source| source == sent.from) && self.tag.is_none_or(|tag| tag == sent.tag)
    }
}

/// What a rank of the model knows.
#[derive(Debug, Default)]
struct ModelRank {
    /// On their way here, by source.
    coming: Vec<VecDeque<Sent>>,
    early: Vec<Sent>,
    posted: Vec<Posted>,
    /// Which receive got which message.
    matched: Vec<(Posted, Sent)>,
}

impl ModelRank {
    /// Takes what has come, from those sources one after the other: which of several is served first is for
    /// the engine to say.
    fn look(&mut self, sources: Vec<usize>) {
        for source in sources {
            let sent = self.coming[source].pop_front().expect("the source has sent it");
            match self.posted.iter().position(|posted| posted.accepts(&sent)) {
                Some(index) => self.matched.push((self.posted.remove(index), sent)),
                None => self.early.push(sent),
            }
        }
    }

    fn post(&mut self, posted: Posted) {
        match self.early.iter().position(|sent| posted.accepts(sent)) {
            Some(index) => self.matched.push((posted, self.early.remove(index))),
            None => self.posted.push(posted),
        }
    }
}

fn run(size: usize, steps: &[Step]) {
    let mut ranks = Ranks::new(size);
    let coming = || (0..size).map(|_| VecDeque::new()).collect();
    let mut model: Vec<ModelRank> =
        (0..size).map(|_| ModelRank { coming: coming(), ..ModelRank::default() }).collect();
    let mut tickets: Vec<Vec<(usize, Ticket)>> = vec![Vec::new(); size];
    let mut sends: Vec<(usize, Sent, Ticket)> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Send { from, to, tag, bytes, element } => {
                let place = ranks.slot(from, number);
                place.write(&payload(number, bytes)).expect("it fits the slot");
                let engine = &mut ranks.engines[from];
                let ticket = engine.isend_place(&place, bytes, Some(element), to, tag).expect("it begins");
                let sent = Sent { number, from, tag, bytes, element };
                model[to].coming[from].push_back(sent);
                sends.push((to, sent, ticket));
            }
            Step::Recv { at, source, tag, room, element } => {
                let place = ranks.slot(at, number);
                let sources = source.map_or(Source::Any, Source::Rank);
                let tags = tag.map_or(Tag::Any, Tag::Value);
                let engine = &mut ranks.engines[at];
                let ticket = engine.irecv_place(&place, room, Some(element), sources, tags);
                tickets[at].push((number, ticket.expect("it begins")));
                model[at].post(Posted { number, source, tag, room, element });
            }
            Step::Progress { at } => {
                ranks.engines[at].progress().expect("rings do not fail");
                model[at].look(std::mem::take(&mut ranks.engines[at].core.sources));
            }
            Step::Cancel { at, which } => {
                // One that nothing has matched: only those can be taken back.
                let Some(posted) = model[at].posted.get(which).copied() else { continue };
                model[at].posted.remove(which);
                let index = tickets[at].iter().position(|(number, _)| *number == posted.number);
                let (_, ticket) = tickets[at].remove(index.expect("it has a ticket"));
                ranks.engines[at].free(ticket);
                assert!(!ranks.engines[at].is_known(ticket), "nothing has matched it");
            }
        }
    }
    ranks.settle();
    for (rank, engine) in model.iter_mut().zip(&mut ranks.engines) {
        rank.look(std::mem::take(&mut engine.core.sources));
        assert!(rank.coming.iter().all(VecDeque::is_empty), "everything comes");
    }
    check(&mut ranks, &model, tickets, sends);
}

fn check(
    ranks: &mut Ranks,
    model: &[ModelRank],
    tickets: Vec<Vec<(usize, Ticket)>>,
    sends: Vec<(usize, Sent, Ticket)>,
) {
    for (rank, tickets) in tickets.into_iter().enumerate() {
        for (number, ticket) in tickets {
            let outcome = ranks.engines[rank].outcome(ticket);
            let matched = model[rank].matched.iter().find(|(posted, _)| posted.number == number);
            let expected = matched.map(|(posted, sent)| outcome_of(posted, sent));
            assert_eq!(outcome, expected, "receive {number} of rank {rank}");
            if let (Some(Ok(status)), Some((_, sent))) = (outcome, matched) {
                let read = ranks.read(rank, number, status.bytes);
                assert!(read == payload(sent.number, sent.bytes), "the bytes of message {}", sent.number);
            }
        }
    }
    for (to, sent, ticket) in sends {
        let is_taken = model[to].matched.iter().any(|(_, matched)| matched.number == sent.number);
        let expected = (is_taken || sent.bytes <= EAGER_BYTES).then_some(Ok(Status {
            source: sent.from,
            tag: sent.tag,
            bytes: sent.bytes,
        }));
        assert_eq!(ranks.engines[sent.from].outcome(ticket), expected, "{sent:?}");
    }
}

fn outcome_of(posted: &Posted, sent: &Sent) -> Result<Status> {
    let &Sent { from, tag, bytes, element, .. } = sent;
    if posted.element != element {
        let (asked, found) = (posted.element, element);
        return Err(Error::MessageMismatch { sender: from, tag, asked, found });
    }
    if bytes > posted.room {
        return Err(Error::Truncated { sender: from, tag, message_bytes: bytes, room_bytes: posted.room });
    }
    Ok(Status { source: from, tag, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]

    #[test]
    fn messages_match_as_in_a_sequential_model((size, steps) in (1..=3_usize).prop_flat_map(|size| {
        (Just(size), steps(size))
    })) {
        run(size, &steps);
    }
}

/// A sender that is far ahead announces its messages, and all of them arrive in order.
#[test]
#[cfg_attr(miri, ignore = "a fifth of it is not done in four minutes there")]
fn a_sender_that_is_far_ahead_is_held_back() {
    let mut ranks = Ranks::new(2);
    let all = 10 * AHEAD as usize;
    let place = ranks.slot(0, 0);
    place.write(&payload(5, 8)).expect("it fits");
    let mut sends = Vec::new();
    for number in 0..all {
        sends.push(ranks.engines[0].isend_place(&place, 8, None, 1, number as u32).expect("it begins"));
        ranks.engines[1].progress().expect("rings do not fail");
    }
    ranks.settle();
    let kept = |ranks: &Ranks| sends.iter().filter(|send| ranks.engines[0].is_complete(**send)).count();
    assert_eq!(kept(&ranks), MOST_AHEAD as usize, "no more is kept for a receiver that does not receive");
    for number in 0..all {
        let into = ranks.slot(1, 1);
        let tag = Tag::Value(number as u32);
        let receive = ranks.engines[1].irecv_place(&into, 8, None, Source::Rank(0), tag).expect("it begins");
        ranks.settle();
        let status = Status { source: 0, tag: number as u32, bytes: 8 };
        assert_eq!(ranks.engines[1].outcome(receive), Some(Ok(status)));
        assert_eq!(ranks.read(1, 1, 8), payload(5, 8));
    }
    assert_eq!(kept(&ranks), all);
    // Who is told again that its messages are taken sends them at once again.
    let again = ranks.engines[0].isend_place(&place, 8, None, 1, 0).expect("it begins");
    assert!(ranks.engines[0].is_complete(again));
}

/// However many its receiver has taken before, of which it has not said so.
#[test]
fn as_many_early_messages_are_kept_as_is_promised() {
    for taken in [0, 1, UNTOLD - 1, UNTOLD] {
        let mut ranks = Ranks::new(2);
        let into = ranks.slot(1, 0);
        let send = |ranks: &mut Ranks, tag| {
            let sent = ranks.engines[0].try_send_bytes(&[7; 8], None, 1, tag).expect("rings do not fail");
            ranks.engines[1].progress().expect("rings do not fail");
            sent
        };
        for _ in 0..taken {
            assert!(send(&mut ranks, 1));
            let source = Source::Rank(0);
            let receive = ranks.engines[1].irecv_place(&into, 8, None, source, Tag::Value(1));
            assert!(ranks.engines[1].outcome(receive.expect("it begins")).is_some());
        }
        ranks.settle();
        let kept = (0..2 * AHEAD).take_while(|_| send(&mut ranks, 2)).count() as u32;
        assert!((AHEAD..=MOST_AHEAD).contains(&kept), "{kept} are kept where {taken} had been taken");
    }
}

/// Other ranks may need one that waits, and packets of theirs do not wake it.
#[test]
fn who_waits_for_one_rank_does_not_sleep_for_long() {
    let policy = Some(WaitPolicy { spins: 1, yields: 0, sleeps: true });
    let ranks = Ranks::waiting(3, WorldOptions { policy, ..WorldOptions::default() });
    let nap = Duration::from_millis(300);
    let slept = (0..3).map(|_| {
        let begun = Instant::now();
        ranks.engines[0].sleep(Some(1), nap);
        begun.elapsed()
    });
    let shortest = slept.min().expect("there are some");
    assert!(shortest < nap, "nobody has woken it, and it has slept for {shortest:?}");
}

/// As a longer one: it would be complete otherwise, and lost.
#[test]
fn a_short_message_to_a_rank_that_has_left_is_never_complete() {
    let mut ranks = Ranks::new(2);
    let small = ranks.slot(0, 0);
    ranks.engines.remove(1);
    let engine = &mut ranks.engines[0];
    let send = engine.isend_place(&small, 8, None, 1, 4).expect("it begins");
    assert_eq!(engine.look_for(send), Ok(Found::Leaver(1)));
}

/// What a peer may still write is not lent again; the stream that works on it ends all the same.
#[test]
#[cfg_attr(miri, ignore = "it waits until it is late")]
fn a_communicator_that_gives_a_receive_up_keeps_no_stream() {
    const LONG: usize = 20_000;
    let options = WorldOptions { timeout: Some(Duration::from_secs(2)), ..WorldOptions::default() };
    // While the sender waits for it, it does not answer.
    let is_over = Barrier::new(2);
    let ranks = World::threads(2, options, |world| {
        let give_up = || {
            let communicator = Communicator::new(&world)?;
            let stream = Device::host().stream(&world)?;
            let line = Extents { points: [1, 1, LONG], components: 1 };
            let buffer = Buffer::<u8>::zeros(&world, &stream, line)?;
            let section = buffer.section(0..LONG)?;
            if world.rank() == 0 {
                return Ok((None, Some(communicator.isend(&section, 1, 4)?)));
            }
            communicator.probe(0, 4)?;
            drop(communicator.irecv(&section, 0, 4)?);
            drop(communicator);
            Ok::<_, Error>((Some(left_of(stream, buffer, section)), None))
        };
        let told = give_up();
        // The sender has its end until then.
        is_over.wait();
        told.map(|(told, _)| told)
    });
    let told = ranks.expect("threads start").remove(1).expect("a message");
    assert!(matches!(told, Some((Err(Error::InUse { .. }), false))), "{told:?}");
}

/// Records of any length arrive whole and in order, and before the messages behind them.
#[test]
fn records_come_in_order() {
    let mut ranks = Ranks::new(2);
    let largest = 100_000;
    let lengths = [0, 1, 32, 33, 5000, largest, 7];
    for (number, length) in lengths.into_iter().enumerate() {
        ranks.engines[0].tell(1, payload(number, length)).expect("it is told");
        ranks.engines[1].tell(1, payload(number + 9, length / 2)).expect("it is told");
    }
    assert!(ranks.engines[0].has_untold(1), "there is no room for all of them");
    ranks.settle();
    assert!(!ranks.engines[0].has_untold(1));
    let told = ranks.engines[1].take_told();
    for source in [0, 1] {
        let from: Vec<&Vec<u8>> =
            told.iter().filter(|(from, _)| *from == source).map(|(_, record)| record).collect();
        assert_eq!(from.len(), lengths.len());
        for (number, (record, length)) in from.into_iter().zip(lengths).enumerate() {
            let expected =
                if source == 0 { payload(number, length) } else { payload(number + 9, length / 2) };
            assert!(*record == expected, "record {number} of rank {source}");
        }
    }
    assert!(ranks.engines[1].take_told().is_empty());
}

/// What ends a receive of a peer, or refuses its send, has left this rank before this rank may let go.
#[test]
#[cfg_attr(miri, ignore = "not done in four minutes there")]
fn what_a_peer_waits_for_has_left_before_a_request_is_complete() {
    const LONG: usize = 20_000;
    let mut ranks = Ranks::new(2);
    let [from, to, small] = [ranks.slot(0, 0), ranks.slot(1, 0), ranks.slot(0, 1)];
    from.write(&payload(3, LONG)).expect("it fits");
    for room in [LONG, LONG - 1] {
        let send = ranks.engines[0].isend_place(&from, LONG, None, 1, 4).expect("it begins");
        let (source, tag) = (Source::Rank(0), Tag::Value(4));
        // The rank that is to answer has no room to do so: what it has sent before was not read.
        let answers = usize::from(room < LONG);
        let mut before = Vec::new();
        let mut fill = |ranks: &mut Ranks| {
            for _ in 0..AHEAD {
                let small = ranks.engines[answers].isend_place(&small, 8, None, 1 - answers, 9);
                before.push(small.expect("it begins"));
            }
        };
        if answers == 1 {
            fill(&mut ranks);
        }
        let receive = ranks.engines[1].irecv_place(&to, room, None, source, tag).expect("it begins");
        if answers == 0 {
            ranks.engines[1].progress().expect("rings do not fail");
            fill(&mut ranks);
        }
        ranks.engines[answers].progress().expect("rings do not fail");
        let answered = [send, receive][answers];
        assert!(!ranks.engines[answers].is_complete(answered), "{room}: its peer knows nothing of it");
        ranks.settle();
        let outcome = ranks.engines[1].outcome(receive).expect("it has ended");
        match answers {
            0 => assert_eq!(outcome, Ok(Status { source: 0, tag: 4, bytes: LONG })),
            _ => assert!(matches!(outcome, Err(Error::Truncated { .. })), "{outcome:?}"),
        }
        assert!(matches!(ranks.engines[0].outcome(send), Some(Ok(_))));
        for small in before {
            let into = ranks.slot(1 - answers, 1);
            let engine = &mut ranks.engines[1 - answers];
            engine.irecv_place(&into, 8, None, Source::Any, Tag::Value(9)).expect("it begins");
            ranks.settle();
            assert!(ranks.engines[answers].outcome(small).is_some());
        }
    }
}

/// A send that was dropped may come or not. Its peer does not wait for the end that found no room before its rank let go.
#[test]
#[cfg_attr(miri, ignore = "not done in four minutes there")]
fn a_dropped_send_whose_end_had_no_room_is_not_waited_for() {
    const LONG: usize = 20_000;
    let mut ranks = Ranks::new(2);
    let [from, to, small] = [ranks.slot(0, 0), ranks.slot(1, 0), ranks.slot(0, 1)];
    let send = ranks.engines[0].isend_place(&from, LONG, None, 1, 4).expect("it begins");
    let receive = ranks.engines[1].irecv_place(&to, LONG, None, Source::Any, Tag::Value(4));
    let receive = receive.expect("it begins");
    ranks.engines[1].progress().expect("rings do not fail");
    for _ in 0..AHEAD {
        ranks.engines[0].isend_place(&small, 8, None, 1, 9).expect("it begins");
    }
    ranks.engines[0].progress().expect("rings do not fail");
    assert!(!ranks.engines[0].is_complete(send), "its peer knows nothing of it");
    ranks.engines[0].free(send);
    drop(ranks.engines.remove(0));
    let looked = ranks.engines[0].look_for(receive);
    assert_eq!(looked, Ok(Found::Leaver(0)));
}

/// Who has left need not be told, though there is no room to tell it.
#[test]
fn what_nobody_waits_for_any_more_ends_without_room() {
    const LONG: usize = 20_000;
    let mut ranks = Ranks::new(2);
    let [from, to, small] = [ranks.slot(0, 0), ranks.slot(1, 0), ranks.slot(1, 1)];
    ranks.engines[0].isend_place(&from, LONG, None, 1, 4).expect("it begins");
    ranks.engines.remove(0);
    let engine = &mut ranks.engines[0];
    for _ in 0..AHEAD {
        engine.isend_place(&small, 8, None, 0, 9).expect("it begins");
    }
    let receive = engine.irecv_place(&to, LONG - 1, None, Source::Any, Tag::Any).expect("it begins");
    engine.progress().expect("rings do not fail");
    let outcome = engine.outcome(receive).expect("it has ended");
    assert!(matches!(outcome, Err(Error::Truncated { .. })), "{outcome:?}");
}

/// However many others send as well: packets are looked at in turn, a limited number at a time.
#[test]
fn all_that_a_rank_had_sent_is_heard_once_it_has_left() {
    let mut ranks = Ranks::new(3);
    let into = ranks.slot(0, 0);
    for source in [1, 2] {
        let from = ranks.slot(source, 0);
        for tag in 0..16 {
            ranks.engines[source].isend_place(&from, 8, None, 0, tag).expect("it begins");
        }
    }
    ranks.engines.remove(1);
    let engine = &mut ranks.engines[0];
    let last = engine.irecv_place(&into, 8, None, Source::Rank(1), Tag::Value(15)).expect("it begins");
    let status = Status { source: 1, tag: 15, bytes: 8 };
    assert_eq!(engine.look_for(last), Ok(Found::Outcome(Ok(status))));
}

/// A dropped request that a peer is about to write keeps its memory, and is forgotten once it is written.
#[test]
#[cfg_attr(miri, ignore = "not done in four minutes there")]
fn what_cannot_be_taken_back_ends_by_itself() {
    let mut ranks = Ranks::new(2);
    let (from, to) = (ranks.slot(0, 0), ranks.slot(1, 0));
    from.write(&payload(3, 20_000)).expect("it fits");
    let send = ranks.engines[0].isend_place(&from, 20_000, None, 1, 4).expect("it begins");
    let receive = ranks.engines[1].irecv_place(&to, 20_000, None, Source::Any, Tag::Any).expect("it begins");
    ranks.engines[1].progress().expect("rings do not fail");
    assert!(ranks.engines[1].is_in_transfer(receive), "rank 0 has been told where it is");
    ranks.engines[1].free(receive);
    ranks.engines[0].free(send);
    assert!(ranks.engines[1].is_known(receive) && ranks.engines[0].is_known(send));
    ranks.settle();
    assert!(!ranks.engines[1].is_known(receive) && !ranks.engines[0].is_known(send));
    assert_eq!(ranks.read(1, 0, 20_000), payload(3, 20_000));
    let idle = |engine: &Engine| !engine.is_active();
    assert!(ranks.engines.iter().all(idle));
}

/// Engines are used by one thread after another.
#[test]
fn engines_go_from_thread_to_thread() {
    let ranks = Ranks::new(2);
    let place = ranks.slot(0, 0);
    let engines = Mutex::new(ranks.engines);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut engines = lock(&engines);
            engines[0].isend_place(&place, 8, Some(F64), 1, 0).map(|_| ())
        });
    });
    let mut engines = engines.into_inner().unwrap_or_else(PoisonError::into_inner);
    engines[1].progress().expect("rings do not fail");
    assert_eq!(engines[1].find(Source::Any, Tag::Any), Some(Status { source: 0, tag: 0, bytes: 8 }));
    assert_eq!(engines[1].find(Source::Any, Tag::Value(1)), None);
}
