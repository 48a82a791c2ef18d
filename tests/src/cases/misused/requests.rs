//! Matched requests on queues: every rule of the 2026 paper, sections III-C and III-D, down to the exact error, with
//! nothing enqueued, so that the right call still works afterwards.

use super::refused;
use crate::cases::Done;
use crate::{Scenario, stream_of};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::queue::{Queue, match_all, match_one};
use streamhalo::comm::{Communicator, Error, PersistentRequest, Source, Tag, start_all};
use streamhalo::{HaloError, Stream, StreamKind, World};

/// A row of elements.
pub fn line(elements: usize) -> Extents {
    Extents { points: [1, 1, elements], components: 1 }
}

/// A rank with a communicator, a stream, and memory to send from and to receive into.
#[derive(Debug)]
pub struct Rank {
    /// Of the world that it was made with.
    pub communicator: Communicator,
    /// Of the kind that was asked for.
    pub stream: Stream,
    /// Eight elements, each one more than the number of the rank.
    pub out: Buffer<f64>,
    /// Eight elements.
    pub arrived: Buffer<f64>,
}

impl Rank {
    /// Collective.
    pub fn new(world: &World, kind: StreamKind) -> Result<Self, HaloError> {
        let stream = stream_of(world, kind)?;
        let mut out = Buffer::<f64>::zeros(world, &stream, line(8))?;
        out.with_host_mut(line(8).whole(), |mut all| all.fill(1.0 + world.rank() as f64))?;
        let arrived = Buffer::zeros(world, &stream, line(8))?;
        Ok(Self { communicator: Communicator::new(world)?, stream, out, arrived })
    }

    /// A queue on its stream.
    pub fn queue(&self) -> Queue {
        Queue::new(&self.stream)
    }

    /// A receive from the rank before this one, and a send to the one behind it.
    pub fn ring(&self, tag: u32) -> Result<[PersistentRequest; 2], HaloError> {
        let (rank, size) = (self.communicator.rank(), self.communicator.size());
        Ok([
            self.communicator.recv_init(&self.arrived.section(0..8)?, (rank + size - 1) % size, tag)?,
            self.communicator.send_init(&self.out.section(0..8)?, (rank + 1) % size, tag)?,
        ])
    }

    /// The same, matched.
    pub fn matched(&self, tag: u32) -> Result<[PersistentRequest; 2], HaloError> {
        let mut ring = self.ring(tag)?;
        match_all(&mut ring)?;
        Ok(ring)
    }

    /// One exchange, which must be right.
    pub fn exchange(&mut self, queue: &Queue, requests: &mut [PersistentRequest]) -> Result<(), HaloError> {
        let (rank, size) = (self.communicator.rank(), self.communicator.size());
        queue.enqueue_start_all(requests)?;
        queue.enqueue_wait_all(requests)?;
        queue.wait()?;
        let expected = vec![1.0 + ((rank + size - 1) % size) as f64; 8];
        assert_eq!(self.arrived.copy_out(line(8).whole())?, expected);
        self.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
        Ok(())
    }
}

/// All that is refused.
pub fn requests(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let mut rank = Rank::new(world, way.kind)?;
    let misuses = [
        unmatched,
        wildcards,
        out_of_turn,
        by_the_host,
        elsewhere,
        of_a_queue_that_is_gone,
        sections_in_use,
        of_others,
        freed,
    ];
    misuses.into_iter().try_for_each(|misuse| misuse(world, &mut rank))?;
    Ok(Done::default())
}

/// A batch of which one request is not matched is refused as a whole.
fn unmatched(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let queue = rank.queue();
    let [matched, mut other] = rank.matched(1)?;
    let [unmatched, _] = rank.ring(2)?;
    let peer = (world.rank() + world.size() - 1) % world.size();
    let mut batch = [matched, unmatched];
    let expected = |call| Error::Unmatched { call, request: format!("receive from rank {peer} with tag 2") };
    assert_eq!(queue.enqueue_start_all(&mut batch), Err(expected("enqueue_start_all")));
    assert_eq!(queue.enqueue_start(&mut batch[1]), Err(expected("enqueue_start")));
    assert_eq!(queue.enqueue_wait(&mut batch[1]), Err(expected("enqueue_wait")));
    // The matched one was not started, or it could not be waited for by the host.
    refused(queue.enqueue_wait(&mut batch[0]), "enqueue_wait", "has not been started");
    assert!(!batch[0].is_active() && !batch[1].is_active());
    // Nor is its section held.
    rank.arrived.with_host_mut(line(8).whole(), |_| ())?;
    queue.enqueue_start(&mut batch[0])?;
    queue.enqueue_start(&mut other)?;
    assert_eq!(queue.enqueue_wait_all(&mut batch), Err(expected("enqueue_wait_all")));
    // Those that were started still have their waits before them.
    queue.enqueue_wait(&mut batch[0])?;
    queue.enqueue_wait(&mut other)?;
    queue.wait()?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    drop((batch, other));
    let mut right = rank.matched(3)?;
    rank.exchange(&queue, &mut right)
}

/// Receives from any source or of any tag are not matched, nor is what comes with them.
fn wildcards(_: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let section = rank.arrived.section(0..8)?;
    for (source, tag) in [(Source::Any, Tag::Value(1)), (Source::Rank(0), Tag::Any), (Source::Any, Tag::Any)]
    {
        let request = rank.communicator.recv_init(&section, source, tag)?;
        // Nobody is told of the others either.
        let [receive, send] = rank.ring(1)?;
        let mut batch = [receive, request, send];
        assert_eq!(match_all(&mut batch), Err(Error::WildcardRefused { call: "match_all" }));
        let started = rank.queue().enqueue_start(&mut batch[1]);
        assert!(matches!(started, Err(Error::Unmatched { .. })), "{started:?}");
    }
    let mut right = rank.matched(1)?;
    let queue = rank.queue();
    rank.exchange(&queue, &mut right)
}

/// A start needs a wait before the next one, and a wait a start.
fn out_of_turn(_: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let queue = rank.queue();
    let mut requests = rank.matched(1)?;
    for request in &mut requests {
        refused(queue.enqueue_wait(request), "enqueue_wait", "since its last wait");
    }
    queue.enqueue_start_all(&mut requests)?;
    for request in &mut requests {
        refused(queue.enqueue_start(request), "enqueue_start", "enqueue its wait first");
    }
    refused(queue.enqueue_start_all(&mut requests), "enqueue_start_all", "its wait");
    queue.enqueue_wait_all(&mut requests)?;
    // One that may be waited for, and one that may be started, are refused with the other.
    queue.enqueue_start(&mut requests[0])?;
    refused(queue.enqueue_wait_all(&mut requests), "enqueue_wait_all", "since its last wait");
    refused(queue.enqueue_start_all(&mut requests), "enqueue_start_all", "its wait");
    refused(queue.enqueue_wait(&mut requests[1]), "enqueue_wait", "since its last wait");
    queue.enqueue_start(&mut requests[1])?;
    queue.enqueue_wait_all(&mut requests)?;
    refused(queue.enqueue_wait_all(&mut requests), "enqueue_wait_all", "since its last wait");
    queue.wait()?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    rank.exchange(&queue, &mut requests)
}

/// What is enqueued is not the host's, and what the host has started is no queue's.
fn by_the_host(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let queue = rank.queue();
    let mut requests = rank.matched(1)?;
    queue.enqueue_start_all(&mut requests)?;
    for request in &mut requests {
        assert!(request.is_active());
        let route = request.route().expect("it is matched");
        assert_eq!(route.bytes, 64);
        if world.fabric().is_mapped(route.peer) {
            // Between copies on the host its stream's thread moves what is a device's.
            let is_on_device = rank.out.stream().kind() == StreamKind::Device;
            assert_eq!(route.executor, if is_on_device { Executor::Proxy } else { Executor::Stream });
        }
        refused(request.wait(), "PersistentRequest::wait", "enqueued on a queue");
        refused(request.test(), "PersistentRequest::test", "enqueued on a queue");
        refused(request.start(), "PersistentRequest::start", "enqueued on a queue");
        refused(match_one(request), "match_one", "matched already");
    }
    refused(start_all(&mut requests), "start_all", "enqueued on a queue");
    queue.enqueue_wait_all(&mut requests)?;
    queue.wait()?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    rank.exchange(&queue, &mut requests)?;
    // A request that the host has started is no queue's.
    requests.iter_mut().try_for_each(PersistentRequest::start)?;
    for request in &mut requests {
        refused(queue.enqueue_start(request), "enqueue_start", "started by the host");
    }
    for request in &mut requests {
        request.wait()?;
    }
    let [mut unmatched, mut its_send] = rank.ring(2)?;
    assert_eq!(unmatched.route(), None);
    unmatched.start()?;
    refused(match_one(&mut unmatched), "match_one", "has been started");
    its_send.start()?;
    unmatched.wait()?;
    its_send.wait()?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    rank.exchange(&queue, &mut requests)
}

/// A wait belongs to the queue of its start.
fn elsewhere(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let [queue, other] = [rank.queue(), rank.queue()];
    let mut requests = rank.matched(1)?;
    queue.enqueue_start_all(&mut requests)?;
    let peer = (world.rank() + world.size() - 1) % world.size();
    for (wait, call) in [
        (other.enqueue_wait(&mut requests[0]), "enqueue_wait"),
        (other.enqueue_wait_all(&mut requests), "enqueue_wait_all"),
    ] {
        let request = format!("receive from rank {peer} with tag 1");
        assert_eq!(wait, Err(Error::WrongQueue { call, request, owner: queue.id(), used: other.id() }));
    }
    queue.enqueue_wait_all(&mut requests)?;
    queue.wait()?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    // The next start may be on another one.
    rank.exchange(&other, &mut requests)
}

/// A queue that is dropped leaves its work on the stream. What was started on it and not waited for can neither be waited
/// for nor be started or freed any more, and keeps its section.
fn of_a_queue_that_is_gone(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    // Its sections are lost.
    let mut rank = Rank::new(world, rank.stream.kind())?;
    let mut requests = rank.matched(1)?;
    let queue = rank.queue();
    queue.enqueue_start_all(&mut requests)?;
    queue.enqueue_wait_all(&mut requests)?;
    drop(queue);
    rank.stream.synchronize()?;
    let peer = (world.rank() + world.size() - 1) % world.size();
    assert_eq!(rank.arrived.copy_out(line(8).whole())?, vec![1.0 + peer as f64; 8]);
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    let other = rank.queue();
    rank.exchange(&other, &mut requests)?;

    let queue = rank.queue();
    let owner = queue.id();
    queue.enqueue_start_all(&mut requests)?;
    drop(queue);
    let request = format!("receive from rank {peer} with tag 1");
    let wrong = Error::WrongQueue { call: "enqueue_wait", request, owner, used: other.id() };
    assert_eq!(other.enqueue_wait(&mut requests[0]), Err(wrong));
    for request in requests {
        let (mut request, error) = request.free().expect_err("it has been started");
        refused(Err::<(), _>(error), "PersistentRequest::free", "enqueue its wait");
        refused(other.enqueue_start(&mut request), "enqueue_start", "enqueue its wait first");
    }
    // Nor do their ends give the sections back.
    let receives = rank.arrived.copy_out(line(8).whole()).map(drop);
    assert!(matches!(receives, Err(Error::InUse { by: "a receive on a queue", .. })), "{receives:?}");
    let sends = rank.out.with_host_mut(line(8).whole(), |_| ());
    assert!(matches!(sends, Err(Error::InUse { by: "a send on a queue", .. })), "{sends:?}");
    Ok(world.barrier()?)
}

/// Sections are held from the start to the wait.
fn sections_in_use(_: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let queue = rank.queue();
    let mut requests = rank.matched(1)?;
    queue.enqueue_start_all(&mut requests)?;
    let in_use = |result: Result<(), Error>, expected: &str| {
        let error = result.expect_err("it is in use");
        assert!(matches!(&error, Error::InUse { by, .. } if *by == expected), "{error:?}");
    };
    in_use(rank.arrived.copy_out(line(8).whole()).map(drop), "a receive on a queue");
    in_use(rank.out.with_host_mut(line(8).whole(), |_| ()), "a send on a queue");
    // What is sent may be read.
    rank.out.copy_out(line(8).whole())?;
    queue.enqueue_wait_all(&mut requests)?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    rank.exchange(&queue, &mut requests)?;
    // Two receives into one section are refused together.
    let [receive, send] = requests;
    let [other_receive, other_send] = rank.matched(2)?;
    let mut batch = [receive, other_receive];
    in_use(queue.enqueue_start_all(&mut batch), "a receive on a queue");
    assert!(!batch[0].is_active());
    let [receive, _] = batch;
    drop(other_send);
    rank.exchange(&queue, &mut [receive, send])
}

/// Requests whose sections are of another stream, of the same world or of another one.
fn of_others(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let mut requests = rank.matched(1)?;
    let alone = World::alone()?;
    for elsewhere in [stream_of(world, StreamKind::Inline)?, stream_of(&alone, StreamKind::Inline)?] {
        let queue = Queue::new(&elsewhere);
        let (owner, used) = (rank.stream.id(), elsewhere.id());
        let what = "the section of a request";
        assert_eq!(queue.enqueue_start(&mut requests[0]), Err(Error::WrongStream { what, owner, used }));
    }
    let queue = rank.queue();
    rank.exchange(&queue, &mut requests)
}

/// A request is freed once the host knows that it is complete.
fn freed(world: &World, rank: &mut Rank) -> Result<(), HaloError> {
    let queue = rank.queue();
    let refuse = |request: PersistentRequest, says| {
        let (request, error) = request.free().expect_err("it may not be complete");
        refused(Err::<(), _>(error), "PersistentRequest::free", says);
        request
    };
    let mut requests = rank.matched(1)?;
    queue.enqueue_start_all(&mut requests)?;
    let mut requests = requests.map(|request| refuse(request, "enqueue its wait"));
    queue.enqueue_wait_all(&mut requests)?;
    let requests = requests.map(|request| refuse(request, "call `Queue::wait`"));
    // Nor is the wait of something else for what is on the stream one for this.
    let mut other = Buffer::<f64>::zeros(world, &rank.stream, line(8))?;
    rank.stream.launch_on_host("nothing", line(8).whole(), (other.writer(line(8).whole())?,), |_, _| ())?;
    drop(rank.communicator.isend(&other.section(0..8)?, world.rank(), 9)?);
    rank.communicator.recv(&mut [0.0; 8], world.rank(), 9)?;
    let requests = requests.map(|request| refuse(request, "call `Queue::wait`"));
    queue.wait()?;
    let free = |request: PersistentRequest| request.free().map_err(|(_, error)| HaloError::from(error));
    requests.into_iter().try_for_each(free)?;
    rank.arrived.with_host_mut(line(8).whole(), |mut all| all.fill(0.0))?;
    let mut requests = rank.matched(1)?;
    rank.exchange(&queue, &mut requests)?;
    // One that has never been matched, or never been started, may be freed at any time.
    rank.ring(1)?.into_iter().chain(rank.matched(1)?).try_for_each(free)
}
