//! Persistent requests on queues, and enqueued operations: payloads that are filled and checked by kernels, so
//! that no epoch waits for the host.

use super::Done;
use crate::random::mix;
use crate::{Random, Scenario, delay, stream_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use streamhalo::comm::backend::Route;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable, Section};
use streamhalo::comm::queue::{OperationQueue, Queue, imatch_all, match_all};
use streamhalo::comm::{Communicator, PersistentRequest};
use streamhalo::{ElementType, HaloError, Op, Rows, RowsMut, Stream, StreamKind, Tile, World};

/// Elements of messages: none, some that fit a line, a packet and a buffer of a library, and one that does not.
pub const SIZES: [usize; 5] = [0, 1, 3, 400, 12_000];

/// What checks on a stream have found.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    wrong: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
}

impl Checks {
    /// The sum over all values that were right.
    ///
    /// # Panics
    /// If one was wrong.
    pub fn done(&self, context: &dyn std::fmt::Debug) -> Done {
        assert_eq!(self.wrong.load(Ordering::SeqCst), 0, "wrong values: {context:?}");
        Done { checksum: self.sum.load(Ordering::SeqCst), ..Done::default() }
    }

    fn compare(&self, found: i64, expected: i64) {
        if found != expected {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
        self.sum.fetch_add(mix(found as u64), Ordering::SeqCst);
    }
}

/// What element `index` of message `number` from `sender` is in an epoch.
pub fn element(sender: usize, number: usize, epoch: usize, index: usize) -> i64 {
    (((sender * 64 + number) * 1000 + epoch) * 100_000 + index) as i64
}

/// A message of its own memory.
#[derive(Debug)]
pub struct Payload {
    buffer: Buffer<i64>,
    elements: usize,
}

impl Payload {
    /// Zeroed.
    pub fn new(world: &World, stream: &Stream, elements: usize) -> Result<Self, HaloError> {
        let extents = Extents { points: [1, 1, elements.max(1)], components: 1 };
        Ok(Self { buffer: Buffer::zeros(world, stream, extents)?, elements })
    }

    /// All of it.
    pub fn section(&self) -> Result<Section, HaloError> {
        Ok(self.buffer.section(0..self.elements)?)
    }

    fn whole(&self) -> Tile {
        self.buffer.extents().whole()
    }

    /// Enqueues filling it.
    pub fn fill(&mut self, sender: usize, number: usize, epoch: usize) -> Result<(), HaloError> {
        let (stream, tile) = (self.buffer.stream().clone(), self.whole());
        let writer = self.buffer.writer(tile)?;
        stream.launch_on_host("fill", tile, (writer,), move |_, (mut out,): (RowsMut<'_, i64>,)| {
            for (index, value) in out.row(0, 0).iter_mut().enumerate() {
                *value = element(sender, number, epoch, index);
            }
        })?;
        Ok(())
    }

    /// What it holds, when all that was enqueued before has been done.
    pub fn read(&self) -> Result<Vec<i64>, HaloError> {
        self.buffer.stream().synchronize()?;
        let mut all = self.buffer.copy_out(self.whole())?;
        all.truncate(self.elements);
        Ok(all)
    }

    /// Enqueues comparing the first elements with what was sent, and the others with 0.
    pub fn check(
        &self,
        checks: &Checks,
        (sender, number, epoch): (usize, usize, usize),
        elements: usize,
    ) -> Result<(), HaloError> {
        let (tile, checks) = (self.whole(), checks.clone());
        let reader = self.buffer.reader(tile)?;
        let stream = self.buffer.stream();
        stream.launch_on_host("check", tile, (reader,), move |_, (found,): (Rows<'_, i64>,)| {
            for (index, value) in found.row(0, 0).iter().enumerate() {
                let expected = if index < elements { element(sender, number, epoch, index) } else { 0 };
                checks.compare(*value, expected);
            }
        })?;
        Ok(())
    }
}

/// One of two sets of requests that are used in turn, with what packs and unpacks their buffers.
#[derive(Debug)]
struct Phase {
    /// Receives, then sends, by direction.
    requests: Vec<PersistentRequest>,
    pack: Arc<MoveTable>,
    unpack: Arc<MoveTable>,
    _staging: Vec<Buffer<i64>>,
}

/// A field of cells over periodic axes, one layer of ghosts deep.
#[derive(Debug)]
struct Field {
    cells: Buffer<i64>,
    /// Of this rank, without ghosts.
    owned: [usize; 2],
    /// Its place among the ranks, and how many there are along each axis.
    at: [usize; 2],
    plane: [usize; 2],
}

const DIRECTIONS: [[isize; 2]; 8] = [[-1, -1], [-1, 0], [-1, 1], [0, -1], [0, 1], [1, -1], [1, 0], [1, 1]];

impl Field {
    fn new(world: &World, stream: &Stream, plane: [usize; 2], owned: [usize; 2]) -> Result<Self, HaloError> {
        let extents = Extents { points: [1, owned[0] + 2, owned[1] + 2], components: 1 };
        let at = [world.rank() / plane[1], world.rank() % plane[1]];
        Ok(Self { cells: Buffer::zeros(world, stream, extents)?, owned, at, plane })
    }

    fn stream(&self) -> Stream {
        self.cells.stream().clone()
    }

    /// The rank in that direction.
    fn neighbor(&self, direction: [isize; 2]) -> usize {
        let along = |axis: usize| {
            (self.at[axis] + self.plane[axis]).wrapping_add_signed(direction[axis]) % self.plane[axis]
        };
        along(0) * self.plane[1] + along(1)
    }

    /// Figure 2 of the paper: receives and sends for all neighbours, matched.
    fn requests(&self, communicator: &Communicator, ready: bool) -> Result<Phase, HaloError> {
        let (world, stream) = (communicator.world(), self.stream());
        let row_bytes = (self.owned[1] + 2) * 8;
        let (mut receives, mut sends, mut staging) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pack, mut unpack) = (Vec::new(), Vec::new());
        for (tag, direction) in DIRECTIONS.into_iter().enumerate() {
            // Where a box lies along an axis: of what is owned, of the ghosts, and how long it is.
            let range = |axis: usize| match direction[axis] {
                -1 => (1, 0, 1),
                0 => (1, 1, self.owned[axis]),
                _ => (self.owned[axis], self.owned[axis] + 1, 1),
            };
            let [(owned_i, ghost_i, rows), (owned_j, ghost_j, columns)] = [range(0), range(1)];
            let mut buffer = || -> Result<_, HaloError> {
                let extents = Extents { points: [1, rows, columns], components: 1 };
                let buffer = Buffer::<i64>::zeros(world, &stream, extents)?;
                let staged = (buffer.section(0..rows * columns)?, buffer.place([0; 3])?);
                staging.push(buffer);
                Ok(staged)
            };
            let boxed = |[(source, from), (destination, to)]: [(_, usize); 2]| Move {
                source,
                source_strides: [0, from],
                destination,
                destination_strides: [0, to],
                counts: [1, rows],
                run_bytes: columns * 8,
                element: ElementType::I64,
                op: Op::Replace,
            };
            let peer = self.neighbor(direction);
            let (section, place) = buffer()?;
            pack.push(boxed([(self.cells.place([0, owned_i, owned_j])?, row_bytes), (place, columns * 8)]));
            sends.push(match ready {
                true => communicator.rsend_init(&section, peer, tag as u32)?,
                false => communicator.send_init(&section, peer, tag as u32)?,
            });
            let (section, place) = buffer()?;
            unpack.push(boxed([(place, columns * 8), (self.cells.place([0, ghost_i, ghost_j])?, row_bytes)]));
            // The neighbour there sends in the opposite direction.
            receives.push(communicator.recv_init(&section, peer, (DIRECTIONS.len() - 1 - tag) as u32)?);
        }
        receives.append(&mut sends);
        match_all(&mut receives)?;
        let [pack, unpack] = [pack, unpack].map(|moves| MoveTable::new(&[moves]).map(Arc::new));
        Ok(Phase { requests: receives, pack: pack?, unpack: unpack?, _staging: staging })
    }

    /// What a cell holds in an epoch, by its place among those of this rank; -1 and beyond are ghosts.
    fn value(&self, epoch: usize) -> impl Fn(isize, isize) -> i64 + Send + Sync + use<> {
        let (owned, at, plane) = (self.owned, self.at, self.plane);
        move |i, j| {
            let global = |axis: usize, index: isize| {
                let size = plane[axis] * owned[axis];
                (at[axis] * owned[axis] + size).wrapping_add_signed(index) % size
            };
            element(global(0, i), 0, epoch, global(1, j))
        }
    }

    /// Enqueues setting what is owned, and whatever is around it to nothing.
    fn fill(&mut self, epoch: usize) -> Result<(), HaloError> {
        let (stream, value, owned) = (self.stream(), self.value(epoch), self.owned);
        let tile = self.cells.extents().whole();
        stream.launch_on_host(
            "fill",
            tile,
            (self.cells.writer(tile)?,),
            move |_, (mut out,): (RowsMut<'_, i64>,)| {
                for (i, row) in out.rows().enumerate() {
                    for (j, cell) in row.iter_mut().enumerate() {
                        let is_owned = (1..=owned[0]).contains(&i) && (1..=owned[1]).contains(&j);
                        *cell = if is_owned { value(i as isize - 1, j as isize - 1) } else { -1 };
                    }
                }
            },
        )?;
        Ok(())
    }

    /// Enqueues comparing all cells with what they must be.
    fn check(&self, checks: &Checks, epoch: usize) -> Result<(), HaloError> {
        let (value, checks, rows) = (self.value(epoch), checks.clone(), self.owned[0] + 2);
        let tile = self.cells.extents().whole();
        let reader = self.cells.reader(tile)?;
        self.cells.stream().launch_on_host(
            "check",
            tile,
            (reader,),
            move |_, (found,): (Rows<'_, i64>,)| {
                for i in 0..rows {
                    for (j, cell) in found.row(0, i).iter().enumerate() {
                        checks.compare(*cell, value(i as isize - 1, j as isize - 1));
                    }
                }
            },
        )?;
        Ok(())
    }
}

/// Figures 2 and 3 of 2026, for many epochs without a wait of the host. Ready sends use two sets of requests in
/// turn: a neighbour that has sent has started its receives of the epoch that follows.
pub fn halo(
    world: &World,
    way: Scenario,
    plane: [usize; 2],
    (owned, epochs, ready): ([usize; 2], usize, bool),
) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = Queue::new(&stream, &communicator)?;
    let mut field = Field::new(world, &stream, plane, owned)?;
    let mut phases = (0..1 + usize::from(ready)).map(|_| field.requests(&communicator, ready));
    let mut phases = phases.by_ref().collect::<Result<Vec<_>, _>>()?;
    let (checks, sends) = (Checks::default(), DIRECTIONS.len());
    let mut random = Random::new(world.rank() as u64);
    if ready {
        queue.enqueue_start_all(&mut phases[0].requests[..sends])?;
        queue.wait()?;
        world.barrier()?;
    }
    for epoch in 1..=epochs {
        delay(&stream, &mut random);
        let next = if ready { epoch % 2 } else { 0 };
        queue.enqueue_start_all(&mut phases[next].requests[..sends])?;
        let phase = &mut phases[if ready { 1 - next } else { 0 }];
        field.fill(epoch)?;
        stream.enqueue_move(&phase.pack);
        queue.enqueue_start_all(&mut phase.requests[sends..])?;
        queue.enqueue_wait_all(&mut phase.requests)?;
        stream.enqueue_move(&phase.unpack);
        field.check(&checks, epoch)?;
    }
    queue.wait()?;
    // The receives that were started for an epoch that does not come are not waited for.
    world.barrier()?;
    let requests = phases.iter().flat_map(|phase| &phase.requests);
    // What a rank tells itself says nothing of the fabric.
    let is_other = |route: &Route| route.peer != world.rank();
    let routes: Vec<Route> = requests.filter_map(PersistentRequest::route).filter(is_other).collect();
    let done = checks.done(&(way, plane, owned, ready));
    Ok(Done::of_routes(done.checksum, &routes))
}

/// Two queues on streams of their own, which even and odd ranks use in opposite orders; one starts its sends
/// before its receives.
pub fn opposite_orders(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut ends = Vec::new();
    for number in 0..2_usize {
        let stream = stream_of(world, way.kind)?;
        let (out, arrived) =
            (Payload::new(world, &stream, elements)?, Payload::new(world, &stream, elements)?);
        let mut requests = [
            communicator.send_init(&out.section()?, next, number as u32)?,
            communicator.recv_init(&arrived.section()?, previous, number as u32)?,
        ];
        match_all(&mut requests)?;
        ends.push((Queue::new(&stream, &communicator)?, requests, out, arrived, number));
    }
    if rank % 2 == 1 {
        ends.reverse();
    }
    for epoch in 1..=6 {
        for (queue, requests, out, _, number) in &mut ends {
            out.fill(rank, *number, epoch)?;
            let [send, receive] = requests;
            queue.enqueue_start(send)?;
            queue.enqueue_start(receive)?;
        }
        for (queue, [send, receive], _, arrived, number) in &mut ends {
            queue.enqueue_wait(receive)?;
            queue.enqueue_wait(send)?;
            arrived.check(&checks, (previous, *number, epoch), elements)?;
        }
    }
    ends.iter().try_for_each(|(queue, ..)| queue.wait())?;
    Ok(checks.done(&(way, elements)))
}

/// Messages of every size between all pairs of ranks, one's own among them: several with one tag, which match in
/// the order of the calls, into receives that have room for more; begun in any order, and matched in the
/// background.
pub fn many_messages(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = Queue::new(&stream, &communicator)?;
    let checks = Checks::default();
    let (rank, room) = (world.rank(), 2);
    let (mut sends, mut receives, mut matches) = (Vec::new(), Vec::new(), Vec::new());
    for peer in 0..world.size() {
        for (number, elements) in SIZES.into_iter().enumerate() {
            // Two tags, each used twice.
            let tag = (number / 2) as u32;
            let (out, arrived) =
                (Payload::new(world, &stream, elements)?, Payload::new(world, &stream, elements + room)?);
            let mut pair = [
                communicator.send_init(&out.section()?, peer, tag)?,
                communicator.recv_init(&arrived.section()?, peer, tag)?,
            ];
            matches.push(imatch_all(&mut pair)?);
            let [send, receive] = pair;
            sends.push((send, out, number));
            receives.push((receive, arrived, peer, number, elements));
        }
    }
    matches.iter_mut().try_for_each(|one| one.wait())?;
    assert!(receives.iter().all(|(receive, ..)| receive.is_matched()));
    let mut random = Random::new(7 + rank as u64);
    for epoch in 1..=4 {
        let mut order: Vec<usize> = (0..2 * sends.len()).collect();
        while !order.is_empty() {
            let one = order.swap_remove(random.below(order.len()));
            if one < sends.len() {
                let (send, out, number) = &mut sends[one];
                out.fill(rank, *number, epoch)?;
                queue.enqueue_start(send)?;
            } else {
                queue.enqueue_start(&mut receives[one - sends.len()].0)?;
            }
        }
        delay(&stream, &mut random);
        for (receive, arrived, peer, number, elements) in &mut receives {
            queue.enqueue_wait(receive)?;
            arrived.check(&checks, (*peer, *number, epoch), *elements)?;
        }
        sends.iter_mut().try_for_each(|(send, ..)| queue.enqueue_wait(send))?;
    }
    queue.wait()?;
    Ok(checks.done(&way))
}

/// Requests that are dropped as soon as their wait is enqueued, alone and in a batch, and one that never ends.
pub fn freed_early(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = Queue::new(&stream, &communicator)?;
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mut out, arrived) = (Payload::new(world, &stream, 300)?, Payload::new(world, &stream, 300)?);
    let matched = || -> Result<_, HaloError> {
        let send = communicator.send_init(&out.section()?, next, 1)?;
        let mut requests = [communicator.recv_init(&arrived.section()?, previous, 1)?, send];
        match_all(&mut requests)?;
        Ok(requests)
    };
    let [mut batch, mut alone, mut left] = [matched()?, matched()?, matched()?];
    out.fill(rank, 0, 1)?;
    queue.enqueue_start_all(&mut batch)?;
    queue.enqueue_wait_all(&mut batch)?;
    drop(batch);
    arrived.check(&checks, (previous, 0, 1), 300)?;
    out.fill(rank, 0, 2)?;
    alone.iter_mut().try_for_each(|request| queue.enqueue_start(request))?;
    alone.iter_mut().try_for_each(|request| queue.enqueue_wait(request))?;
    drop(alone);
    arrived.check(&checks, (previous, 0, 2), 300)?;
    queue.wait()?;
    // Nobody sends what is received, nor waits for it.
    queue.enqueue_start(&mut left[0])?;
    queue.wait()?;
    world.barrier()?;
    drop(left);
    assert!(arrived.buffer.reader(arrived.whole()).is_err(), "it may still be written");
    Ok(checks.done(&way))
}

/// Figure 7 of 2022: batches of sends whose payloads kernels write after they were enqueued, which meet a queue,
/// or ordinary receives, on the other side; and back from ordinary sends.
pub fn operations(world: &World, way: Scenario, elements: usize) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let stream = stream_of(world, way.kind)?;
    let queue = OperationQueue::new(&stream, &communicator)?;
    let checks = Checks::default();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let tags = [123, 126, 125, 124];
    let make = |_| Payload::new(world, &stream, elements);
    let mut outs = tags.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    let arrived = tags.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    for epoch in 1..=4 {
        // A queue on both sides.
        for ((out, arrived), tag) in outs.iter().zip(&arrived).zip(tags) {
            queue.enqueue_send(&out.section()?, next, tag)?;
            queue.enqueue_recv(&arrived.section()?, previous, tag)?;
        }
        for (number, out) in outs.iter_mut().enumerate() {
            out.fill(rank, number, epoch)?;
        }
        queue.enqueue_start()?;
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number, epoch), elements)?;
        }
        queue.wait()?;
        // Ordinary receives meet a queue.
        let mut receives = Vec::new();
        for (arrived, tag) in arrived.iter().zip(tags) {
            receives.push(communicator.irecv(&arrived.section()?, previous, tag)?);
        }
        for (number, (out, tag)) in outs.iter_mut().zip(tags).enumerate() {
            queue.enqueue_send(&out.section()?, next, tag)?;
            out.fill(rank, number + 8, epoch)?;
        }
        queue.enqueue_start()?;
        for mut receive in receives {
            receive.wait()?;
        }
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number + 8, epoch), elements)?;
        }
        queue.wait()?;
        // Ordinary sends, to a queue.
        let mut handles = Vec::new();
        for (arrived, tag) in arrived.iter().zip(tags) {
            handles.push(queue.enqueue_recv(&arrived.section()?, previous, tag)?);
        }
        queue.enqueue_start()?;
        for (number, out) in outs.iter_mut().enumerate() {
            out.fill(rank, number + 16, epoch)?;
        }
        stream.synchronize()?;
        let mut sends = Vec::new();
        for (out, tag) in outs.iter().zip(tags) {
            sends.push(communicator.isend(&out.section()?, next, tag)?);
        }
        for handle in &handles {
            assert_eq!(handle.wait()?.source, previous);
        }
        for mut send in sends {
            send.wait()?;
        }
        queue.enqueue_wait()?;
        for (number, arrived) in arrived.iter().enumerate() {
            arrived.check(&checks, (previous, number + 16, epoch), elements)?;
        }
        queue.wait()?;
    }
    Ok(checks.done(&(way, elements)))
}

/// A kernel, on a threaded stream or a device's, that writes the payload long after its send was started.
pub fn late_payload(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let communicator = Communicator::new(world)?;
    let kind = if way.kind == StreamKind::Inline { StreamKind::Threaded } else { way.kind };
    let stream = stream_of(world, kind)?;
    let queue = OperationQueue::new(&stream, &communicator)?;
    let (rank, size) = (world.rank(), world.size());
    let (mut out, arrived) = (Payload::new(world, &stream, 9)?, Payload::new(world, &stream, 9)?);
    let checks = Checks::default();
    let receive = queue.enqueue_recv(&arrived.section()?, (rank + 1) % size, 1)?;
    let send = queue.enqueue_send(&out.section()?, (rank + size - 1) % size, 1)?;
    stream.enqueue_host("a long kernel", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(())
    });
    out.fill(rank, 1, 1)?;
    queue.enqueue_start()?;
    assert_eq!((receive.test()?, send.test()?), (None, None), "the stream is not there yet");
    queue.enqueue_wait()?;
    arrived.check(&checks, ((rank + 1) % size, 1, 1), 9)?;
    queue.wait()?;
    assert!(receive.test()?.is_some_and(|status| status.bytes == 72));
    Ok(checks.done(&"late"))
}
