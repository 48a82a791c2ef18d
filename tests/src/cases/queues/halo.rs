//! The exchange of ghosts as the 2026 paper writes it, with persistent requests on a queue.

use super::{Checks, element};
use crate::cases::Done;
use crate::{Random, Scenario, delay, stream_of};
use std::sync::Arc;
use streamhalo::comm::backend::Route;
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::queue::{Queue, match_all};
use streamhalo::comm::{Communicator, PersistentRequest};
use streamhalo::{ElementType, HaloError, Op, Rows, RowsMut, Stream, World};

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
    let queue = Queue::new(&stream);
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
        stream.enqueue_move(&phase.pack)?;
        queue.enqueue_start_all(&mut phase.requests[sends..])?;
        queue.enqueue_wait_all(&mut phase.requests)?;
        stream.enqueue_move(&phase.unpack)?;
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
