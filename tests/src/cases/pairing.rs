//! Who meets whom among messages of one tag between two ranks: enqueued operations in their order, and matched
//! requests nobody but each other.

use super::Done;
use super::queues::{Checks, Payload, SIZES};
use crate::{Scenario, stream_of};
use std::time::{Duration, Instant};
use streamhalo::comm::queue::{
    MatchRequest, OperationQueue, Queue, imatch_all, imatch_one, match_all, match_one,
};
use streamhalo::comm::{Communicator, Error, PersistentRequest, Source, Status, Tag};
use streamhalo::{HaloError, Stream, World};

const TAG: u32 = 5;
/// How long a match may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The ranks behind this one and before it in a ring.
fn neighbours(world: &World) -> [usize; 2] {
    let (rank, size) = (world.rank(), world.size());
    [(rank + 1) % size, (rank + size - 1) % size]
}

/// Short and long sends of one tag, which the sender starts in other batches than its peer starts the receives: the
/// k-th of them meets the k-th receive (2022, section III-A).
pub fn enqueued_in_order(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let queue = OperationQueue::new(&stream, &communicator)?;
    let checks = Checks::default();
    // Longest first, so that whoever overtakes has the time to.
    let sizes: Vec<usize> = SIZES.iter().rev().chain(&SIZES).copied().collect();
    let room = SIZES.into_iter().max().expect("there are sizes");
    let payloads = |elements: &dyn Fn(usize) -> usize| -> Result<Vec<Payload>, HaloError> {
        (0..sizes.len()).map(|number| Payload::new(world, &stream, elements(number))).collect()
    };
    let mut outs = payloads(&|number| sizes[number])?;
    for epoch in 1..=2 {
        // Each as long as the longest: one that takes another's message would not be refused.
        let arrived = payloads(&|_| room)?;
        for (number, out) in outs.iter_mut().enumerate() {
            out.fill(world.rank(), number, epoch)?;
        }
        let mut receives = Vec::new();
        for (number, (out, arrived)) in outs.iter().zip(&arrived).enumerate() {
            queue.enqueue_send(&out.section()?, next, TAG)?;
            if number == 2 {
                queue.enqueue_start()?;
            }
            receives.push(queue.enqueue_recv(&arrived.section()?, previous, TAG)?);
        }
        queue.enqueue_start()?;
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number, epoch), sizes[number])?;
        }
        queue.wait()?;
        for (receive, elements) in receives.iter().zip(&sizes) {
            assert_eq!(receive.wait()?.bytes, 8 * elements, "{way:?}");
        }
    }
    Ok(checks.done(&way))
}

/// Numbers of messages.
const MATCHED: usize = 1;
const ORDINARY: usize = 2;

/// A matched receive and a matched send of a ring, with what an ordinary message between the same ranks is sent from and
/// received into.
struct Beside {
    /// The receive, then the send.
    requests: [PersistentRequest; 2],
    matched_in: Payload,
    matched_out: Payload,
    arrived: Payload,
    out: Payload,
}

impl Beside {
    fn new(communicator: &Communicator, stream: &Stream, elements: usize) -> Result<Self, HaloError> {
        let (world, [next, previous]) = (communicator.world(), neighbours(communicator.world()));
        let payload = || Payload::new(world, stream, elements);
        let [matched_in, matched_out, arrived, out] = [payload()?, payload()?, payload()?, payload()?];
        let receive = communicator.recv_init(&matched_in.section()?, previous, TAG)?;
        let mut requests = [receive, communicator.send_init(&matched_out.section()?, next, TAG)?];
        match_all(&mut requests)?;
        Ok(Self { requests, matched_in, matched_out, arrived, out })
    }

    /// Fills what is sent.
    fn fill(&mut self, stream: &Stream, rank: usize, epoch: usize) -> Result<(), HaloError> {
        self.matched_out.fill(rank, MATCHED, epoch)?;
        self.out.fill(rank, ORDINARY, epoch)?;
        Ok(stream.synchronize()?)
    }
}

/// Ordinary messages beside matched requests with the same peer and tag: a receive from any rank and of any tag that
/// was there before does not take what was matched, nor does a matched receive what came before its own.
pub fn beside_messages(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let (queue, checks) = (Queue::new(&stream), Checks::default());
    let mut beside = Beside::new(&communicator, &stream, elements)?;
    let arrived = beside.arrived.section()?;
    let receive = || communicator.irecv(&arrived, Source::Any, Tag::Any).map_err(HaloError::from);
    for epoch in 1..=4 {
        beside.fill(&stream, world.rank(), epoch)?;
        let early = if epoch % 2 == 0 { Some(receive()?) } else { None };
        let mut send = communicator.isend(&beside.out.section()?, next, TAG)?;
        world.barrier()?;
        queue.enqueue_start_all(&mut beside.requests)?;
        queue.enqueue_wait_all(&mut beside.requests)?;
        beside.matched_in.check(&checks, (previous, MATCHED, epoch), elements)?;
        queue.wait()?;
        let status = early.map_or_else(receive, Ok)?.wait()?;
        assert_eq!((status.source, status.tag, status.bytes), (previous, TAG, 8 * elements), "{way:?}");
        send.wait()?;
        beside.arrived.check(&checks, (previous, ORDINARY, epoch), elements)?;
        stream.synchronize()?;
    }
    Ok(checks.done(&(way, elements)))
}

/// Matched requests that the host starts are ordinary messages, and matched ones again when a queue starts them: a receive
/// meets whatever has its tag, and a send whoever receives that.
pub fn started_by_the_host(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let (queue, checks) = (Queue::new(&stream), Checks::default());
    let mut beside = Beside::new(&communicator, &stream, elements)?;
    let check = |status: Status, payload: &Payload, number: usize, epoch: usize| {
        assert_eq!((status.source, status.tag, status.bytes), (previous, TAG, 8 * elements), "{way:?}");
        payload.check(&checks, (previous, number, epoch), elements)
    };
    for epoch in 1..=3 {
        beside.fill(&stream, world.rank(), epoch)?;
        let Beside { requests, matched_in, arrived, out, .. } = &mut beside;
        let [receive, send] = requests;
        receive.start()?;
        communicator.isend(&out.section()?, next, TAG)?.wait()?;
        check(receive.wait()?, matched_in, ORDINARY, epoch)?;

        let mut taken = communicator.irecv(&arrived.section()?, previous, TAG)?;
        send.start()?;
        check(taken.wait()?, arrived, MATCHED, epoch)?;
        send.wait()?;

        assert!(requests.iter().all(|request| request.is_matched()), "{way:?}");
        queue.enqueue_start_all(requests)?;
        queue.enqueue_wait_all(requests)?;
        matched_in.check(&checks, (previous, MATCHED, epoch), elements)?;
        queue.wait()?;
    }
    Ok(checks.done(&(way, elements)))
}

/// What a match comes to that is tested until it is decided.
fn tested(matching: &mut MatchRequest) -> Result<(), Error> {
    let since = Instant::now();
    while !matching.test()? {
        assert!(since.elapsed() < PATIENCE, "both ranks match, and nothing comes of it");
        std::thread::yield_now();
    }
    Ok(())
}

/// Requests that are matched one by one in the background (`MPI_Imatch`), and tested: not before the peer has its own,
/// then both, and with a message that does not fit neither.
pub fn matched_one_by_one(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let queue = Queue::new(&stream);
    let checks = Checks::default();
    let (mut out, arrived) = (Payload::new(world, &stream, 4)?, Payload::new(world, &stream, 4)?);
    let mut send = communicator.send_init(&out.section()?, next, TAG)?;
    let mut receive = communicator.recv_init(&arrived.section()?, previous, TAG)?;

    let mut sending = imatch_one(&mut send)?;
    world.barrier()?;
    assert_eq!(sending.test(), Ok(false), "nobody has matched the receive");
    assert!(!send.is_matched() && !receive.is_matched());
    let again = imatch_one(&mut send).map(drop).expect_err("once is enough");
    assert!(
        matches!(&again, Error::OutOfOrder { reason, .. } if reason.contains("is being matched")),
        "{again}"
    );
    world.barrier()?;

    let mut receiving = imatch_one(&mut receive)?;
    tested(&mut sending)?;
    tested(&mut receiving)?;
    assert!(send.is_matched() && receive.is_matched());
    assert_eq!((sending.test(), receiving.wait()), (Ok(true), Ok(())), "it stays so");
    let again = imatch_one(&mut send).map(drop).expect_err("it lasts until it is freed");
    assert!(matches!(&again, Error::OutOfOrder { reason, .. } if reason.contains("is matched")), "{again}");

    let mut longer = communicator.send_init(&out.section()?, next, TAG + 1)?;
    let shorter = Payload::new(world, &stream, 3)?;
    let mut shorter = communicator.recv_init(&shorter.section()?, previous, TAG + 1)?;
    let mut both = [imatch_one(&mut longer)?, imatch_one(&mut shorter)?];
    let found = both.each_mut().map(|one| tested(one).expect_err("it does not fit"));
    let mismatch = |sender, receiver| Error::Mismatch {
        sender,
        receiver,
        tag: TAG + 1,
        sent: "4 i64".into(),
        expected: "receives at most 3 i64".into(),
    };
    assert_eq!(found, [mismatch(world.rank(), next), mismatch(previous, world.rank())]);
    assert_eq!(both.each_mut().map(|one| one.test().expect_err("it still does not")), found);
    assert!(!longer.is_matched() && !shorter.is_matched());

    out.fill(world.rank(), 0, 1)?;
    let mut requests = [receive, send];
    queue.enqueue_start_all(&mut requests)?;
    queue.enqueue_wait_all(&mut requests)?;
    arrived.check(&checks, (previous, 0, 1), 4)?;
    queue.wait()?;
    Ok(checks.done(&way))
}

/// Requests are not known to be matched before the peer matches its own, and then are, and may be started, before anybody
/// has tested what waits for the match.
pub fn known_to_be_matched(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let (queue, checks) = (Queue::new(&stream), Checks::default());
    let (mut out, arrived) = (Payload::new(world, &stream, 4)?, Payload::new(world, &stream, 4)?);
    out.fill(world.rank(), 0, 1)?;
    // What comes first of each rank, a send or a receive, has no partner yet.
    for receives_first in [false, true] {
        let send = communicator.send_init(&out.section()?, next, TAG)?;
        let receive = communicator.recv_init(&arrived.section()?, previous, TAG)?;
        let mut requests = [send, receive];
        if receives_first {
            requests.reverse();
        }
        let [first, second] = &mut requests;
        let are_matched = |requests: [&PersistentRequest; 2]| requests.map(PersistentRequest::is_matched);

        let mut early = imatch_all(std::slice::from_mut(first))?;
        world.barrier()?;
        for _ in 0..100 {
            assert_eq!(
                are_matched([first, second]),
                [false; 2],
                "no peer has matched the other one, {way:?}"
            );
        }
        world.barrier()?;

        let mut late = imatch_one(second)?;
        let since = Instant::now();
        while are_matched([first, second]) != [true; 2] {
            assert!(since.elapsed() < PATIENCE, "all ranks match, and nothing comes of it, {way:?}");
            std::thread::yield_now();
        }
        queue.enqueue_start_all(&mut requests)?;
        queue.enqueue_wait_all(&mut requests)?;
        arrived.check(&checks, (previous, 0, 1), 4)?;
        queue.wait()?;
        assert_eq!([early.wait(), late.wait()], [Ok(()), Ok(())], "{way:?}");
        assert!(requests.iter().all(PersistentRequest::is_matched), "it lasts, {way:?}");
    }
    Ok(checks.done(&way))
}

/// Two requests that are matched together, of which one has its partner before the other: they are not complete until both
/// have.
pub fn matched_together(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let [out, arrived] = [Payload::new(world, &stream, 4)?, Payload::new(world, &stream, 4)?];
    for soon in [0, 1] {
        let send = |tag| Ok::<_, HaloError>(communicator.send_init(&out.section()?, next, tag)?);
        let receive = |tag| Ok::<_, HaloError>(communicator.recv_init(&arrived.section()?, previous, tag)?);
        let mut sends = [send(TAG)?, send(TAG + 1)?];
        let mut receives = [receive(TAG)?, receive(TAG + 1)?];
        let mut together = imatch_all(&mut sends)?;
        let mut first = imatch_one(&mut receives[soon])?;
        let since = Instant::now();
        while !sends[soon].is_matched() {
            assert!(since.elapsed() < PATIENCE, "the peer matches it, and nothing comes of it, {way:?}");
            std::thread::yield_now();
        }
        for _ in 0..10 {
            assert_eq!(together.test(), Ok(false), "one has no partner, {way:?}");
        }
        assert!(!sends[1 - soon].is_matched(), "{way:?}");
        tested(&mut first)?;
        world.barrier()?;
        match_one(&mut receives[1 - soon])?;
        tested(&mut together)?;
        assert!(sends.iter().chain(&receives).all(PersistentRequest::is_matched), "{way:?}");
    }
    Ok(Done::default())
}

/// A request that is freed before its partner comes has used it up: that one is told, in the same words on every fabric,
/// and is matched with the next.
pub fn freed_before_its_partner(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    let (queue, checks) = (Queue::new(&stream), Checks::default());
    let (mut out, arrived) = (Payload::new(world, &stream, 4)?, Payload::new(world, &stream, 4)?);
    for (epoch, frees_send) in [(1, true), (2, false)] {
        let send = || Ok::<_, HaloError>(communicator.send_init(&out.section()?, next, TAG)?);
        let receive = || Ok::<_, HaloError>(communicator.recv_init(&arrived.section()?, previous, TAG)?);
        let mut freed = if frees_send { send()? } else { receive()? };
        drop(imatch_one(&mut freed)?);
        drop(freed);
        // No partner has come before.
        world.barrier()?;
        let (mut alone, peer, side) = match frees_send {
            true => (receive()?, previous, format!("receive from rank {previous}")),
            false => (send()?, next, format!("send to rank {next}")),
        };
        let operation = format!("it has dropped its request without a match for a {side} with tag {TAG}");
        let gone = Error::PeerFailed { rank: peer, operation };
        assert_eq!(match_one(&mut alone), Err(gone), "{way:?}");
        assert!(!alone.is_matched(), "{way:?}");

        let other = if frees_send { send()? } else { receive()? };
        let mut requests = [alone, other];
        match_all(&mut requests)?;
        out.fill(world.rank(), 0, epoch)?;
        queue.enqueue_start_all(&mut requests)?;
        queue.enqueue_wait_all(&mut requests)?;
        arrived.check(&checks, (previous, 0, epoch), 4)?;
        queue.wait()?;
    }
    Ok(checks.done(&way))
}

/// Requests, sections and communicator are gone as soon as the match is complete, while the peer has been told of them
/// and has not looked: it finds its partner all the same.
pub fn freed_at_once(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let (stream, communicator) = (stream_of(world, way.kind)?, Communicator::new(world)?);
    for round in 0..4 {
        let [out, arrived] = [Payload::new(world, &stream, 5)?, Payload::new(world, &stream, 5)?];
        let receive = communicator.recv_init(&arrived.section()?, previous, TAG)?;
        let mut requests = [receive, communicator.send_init(&out.section()?, next, TAG)?];
        let mut matching = imatch_all(&mut requests)?;
        if (world.rank() + round).is_multiple_of(2) {
            std::thread::sleep(Duration::from_millis(20));
        }
        matching.wait()?;
    }
    Ok(Done::default())
}

/// Matches that were begun go on whatever the rank waits for meanwhile: collective calls, or those of another communicator,
/// in another order than its peer.
pub fn going_on_meanwhile(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let [next, previous] = neighbours(world);
    let stream = stream_of(world, way.kind)?;
    let communicators = [Communicator::new(world)?, Communicator::new(world)?];
    let [out, arrived] = [Payload::new(world, &stream, 4)?, Payload::new(world, &stream, 4)?];
    let requests = |communicator: &Communicator| {
        let receive = communicator.recv_init(&arrived.section()?, previous, TAG)?;
        Ok::<_, HaloError>([communicator.send_init(&out.section()?, next, TAG)?, receive])
    };
    let until_matched = |requests: &[PersistentRequest]| {
        let since = Instant::now();
        while !requests.iter().all(PersistentRequest::is_matched) {
            assert!(since.elapsed() < PATIENCE, "all ranks have begun to match, {way:?}");
            std::thread::yield_now();
        }
    };
    // The others answer from within a barrier.
    let waits = !world.rank().is_multiple_of(2);
    for is_dropped in [false, true] {
        let mut requests = requests(&communicators[0])?;
        let mut matching = imatch_all(&mut requests)?;
        match is_dropped {
            true => drop(matching),
            false if waits => matching.wait()?,
            false => {}
        }
        if waits {
            until_matched(&requests);
        }
        world.barrier()?;
        communicators[1].barrier()?;
        until_matched(&requests);
    }
    let [mut here, mut there] = [requests(&communicators[0])?, requests(&communicators[1])?];
    let mut matching = [imatch_all(&mut here)?, imatch_all(&mut there)?];
    if waits {
        matching.reverse();
    }
    matching.iter_mut().try_for_each(MatchRequest::wait)?;
    Ok(Done::default())
}
