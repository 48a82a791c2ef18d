//! Collective calls of the host, and reductions and barriers that are enqueued on streams.

use super::answers::{Answers, given};
use super::figure::Figure;
use super::micro::MicroBench;
use super::turns::{Subject, in_turns};
use std::time::{Duration, Instant};
use streamhalo::comm::Communicator;
use streamhalo::comm::backend::Route;
use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{HaloError, Op, Stream, World};

use crate::error::AppError;
use crate::run::executors_of_all;

/// What can be measured.
pub(crate) const OPERATIONS: [&str; 6] =
    ["barrier", "allreduce", "broadcast", "reduce", "allgather", NEIGHBOURS];

/// What backends can enqueue on a stream.
pub(crate) const ON_STREAMS: [&str; 2] = ["barrier", "allreduce"];

/// With both neighbours of a ring.
const NEIGHBOURS: &str = "neighbour-alltoall";

/// The contestant that is no backend: the calls of a communicator.
pub(crate) const HOST: &str = "host";

/// Whether a contestant can do an operation: the host can do all.
pub(crate) fn can_do(contestant: &str, operation: &str) -> bool {
    contestant == HOST || ON_STREAMS.contains(&operation)
}

/// For how long one rank keeps the others waiting in a barrier.
const LATE: Duration = Duration::from_millis(2);

/// Measures an operation, of so many bytes a rank, or a neighbour, by the host and by backends. Collective.
pub(super) fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    bytes: usize,
) -> Result<Vec<Figure>, AppError> {
    let mut names = Vec::new();
    let mut collectives: Vec<Box<dyn Collective>> = Vec::new();
    for name in bench.contestants.iter().filter(|name| can_do(name, operation)) {
        let stream = bench.stream(world)?;
        let contestant = format!("{operation} by {name}");
        let answers = bench.answers(world, &contestant);
        collectives.push(match (name.as_str(), operation) {
            (HOST, "barrier") => barrier_checked(Calls::new(world, operation, 0)?, answers)?,
            (HOST, _) => Box::new(Calls::checked(operation, bytes, answers)?),
            (backend, "barrier") => {
                let barrier = Barrier::with_backend(world, &stream, backend)?;
                barrier_checked(Barriers { stream, barrier }, answers)?
            }
            (backend, _) => Box::new(Sums::checked(&stream, backend, bytes, answers)?),
        });
        names.push(name);
    }
    let timings = in_turns(world, bench.seconds, collectives.iter_mut().map(|one| &mut **one))?;
    let bytes = if operation == "barrier" { 0 } else { bytes };
    let mut figures = Vec::new();
    for ((backend, one), timing) in names.into_iter().zip(&collectives).zip(timings) {
        let executor = match backend.as_str() {
            HOST => HOST.to_owned(),
            _ => executors_of_all(world, backend, &one.routes())?,
        };
        let figure = timing.figure(bench, (backend, executor), bytes);
        figures.push(Figure { operation: Some(operation.to_owned()), ..figure });
    }
    Ok(figures)
}

trait Collective: Subject {
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }
}

/// Whole numbers, whose sums are exact.
fn value(rank: usize, round: usize, index: usize) -> f64 {
    (index + 3 * rank * rank + round) as f64
}

/// A barrier that nobody leaves before all have come, whoever is late. Collective.
fn barrier_checked<C: Collective + 'static>(
    mut barrier: C,
    answers: Answers<'_>,
) -> Result<Box<dyn Collective>, AppError> {
    let world = answers.world;
    for late in 0..world.size() {
        // By no other rank's clock: who is late has seen all others begin, and then lets the time pass.
        let begun = Instant::now();
        world.barrier()?;
        if world.rank() == late {
            std::thread::sleep(LATE);
        }
        barrier.repeat(1)?;
        let is_early = begun.elapsed() < LATE;
        answers.agree(is_early.then(|| format!("left before rank {late} had come")))?;
    }
    Ok(Box::new(barrier))
}

/// A collective call of the host, on doubles.
struct Calls {
    communicator: Communicator,
    operation: String,
    given: Vec<f64>,
    /// Of both neighbours, or of all.
    own: Vec<f64>,
    gathered: Vec<f64>,
    /// The one before this rank in a ring, and the one behind it.
    neighbours: [usize; 2],
}

impl Calls {
    fn new(world: &World, operation: &str, elements: usize) -> Result<Self, HaloError> {
        let (rank, size) = (world.rank(), world.size());
        Ok(Self {
            communicator: Communicator::new(world)?,
            operation: operation.to_owned(),
            given: vec![0.0; elements],
            own: vec![0.0; elements],
            gathered: vec![0.0; if operation == NEIGHBOURS { elements } else { elements * size }],
            neighbours: [(rank + size - 1) % size, (rank + 1) % size],
        })
    }

    fn checked(operation: &str, bytes: usize, answers: Answers<'_>) -> Result<Self, AppError> {
        let world = answers.world;
        let (rank, size, elements) = (world.rank(), world.size(), bytes / 8);
        // Each neighbour is given its own elements.
        let sent = if operation == NEIGHBOURS { 2 * elements } else { elements };
        let mut calls = Self::new(world, operation, sent)?;
        for round in 0..3 {
            let own = calls.given.iter_mut().enumerate();
            own.for_each(|(index, one)| *one = given(value(rank, round, index)));
            calls.repeat(1)?;
            let sum = |index| (0..size).map(|rank| value(rank, round, index)).sum::<f64>();
            match operation {
                "broadcast" => answers.compare_all(&calls.own, |index| value(0, round, index))?,
                // Of the root alone.
                "reduce" if rank > 0 => answers.agree(None)?,
                "allgather" => answers
                    .compare_all(&calls.gathered, |index| value(index / elements, round, index % elements))?,
                // What comes first is from behind, which has sent it ahead.
                NEIGHBOURS => answers.compare_all(&calls.gathered, |index| {
                    value(calls.neighbours[usize::from(index < elements)], round, index)
                })?,
                _ => answers.compare_all(&calls.own, sum)?,
            }
        }
        Ok(calls)
    }
}

impl Subject for Calls {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        let Self { communicator, given, own, gathered, neighbours: [before, behind], .. } = self;
        for _ in 0..times {
            match self.operation.as_str() {
                "barrier" => communicator.barrier()?,
                "allgather" => communicator.allgather(given, gathered)?,
                NEIGHBOURS => {
                    let (to, from) = ([*before, *behind], [*behind, *before]);
                    communicator.neighbour_alltoall(&to, given, &from, gathered)?;
                }
                operation => {
                    // These work in place.
                    own.copy_from_slice(given);
                    match operation {
                        "broadcast" => communicator.broadcast(own, 0)?,
                        "reduce" => communicator.reduce(own, Op::Sum, 0)?,
                        _ => communicator.allreduce(own, Op::Sum)?,
                    }
                }
            }
        }
        Ok(())
    }
}

impl Collective for Calls {}

struct Barriers {
    stream: Stream,
    barrier: Barrier,
}

impl Subject for Barriers {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            self.barrier.enqueue()?;
        }
        Ok(self.stream.synchronize()?)
    }
}

impl Collective for Barriers {
    fn routes(&self) -> Vec<Route> {
        self.barrier.routes()
    }
}

/// A sum of doubles over all ranks.
struct Sums {
    stream: Stream,
    input: Buffer<f64>,
    output: Buffer<f64>,
    allreduce: AllReduce,
}

impl Sums {
    fn checked(stream: &Stream, backend: &str, bytes: usize, answers: Answers<'_>) -> Result<Self, AppError> {
        let world = answers.world;
        let elements = bytes / 8;
        let line = Extents { points: [1, 1, elements], components: 1 };
        let (input, output) = (Buffer::zeros(world, stream, line)?, Buffer::zeros(world, stream, line)?);
        let sections = (&input.section(0..elements)?, &output.section(0..elements)?);
        let allreduce = AllReduce::with_backend(world, stream, backend, sections, Op::Sum)?;
        let mut sums = Self { stream: stream.clone(), input, output, allreduce };
        for round in 0..3 {
            sums.input.with_host_mut(line.whole(), |own| {
                let own = own.into_iter().enumerate();
                own.for_each(|(index, one)| *one = given(value(world.rank(), round, index)));
            })?;
            sums.repeat(1)?;
            let found = sums.output.copy_out(line.whole())?;
            let sum = |index| (0..world.size()).map(|rank| value(rank, round, index)).sum::<f64>();
            answers.compare_all(&found, sum)?;
        }
        Ok(sums)
    }
}

impl Subject for Sums {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            self.allreduce.enqueue()?;
        }
        Ok(self.stream.synchronize()?)
    }
}

impl Collective for Sums {
    fn routes(&self) -> Vec<Route> {
        self.allreduce.routes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::on_threads;
    use streamhalo::WorldOptions;

    /// It waits for nobody.
    struct Open;

    impl Subject for Open {
        fn repeat(&mut self, _times: usize) -> Result<(), HaloError> {
            Ok(())
        }
    }

    impl Collective for Open {}

    #[test]
    fn a_barrier_that_is_left_early_is_found() {
        let found = |_| {
            let done = on_threads(2, WorldOptions::default(), |world| {
                let answers = Answers { world, bench: "collectives", contestant: "barrier by nobody" };
                barrier_checked(Open, answers).map(|_| ())
            });
            done.is_err_and(|error| error.to_string().contains(": left before rank "))
        };
        // A rank that gets no core may come as late as the one that is late.
        assert!((0..100).any(found), "nobody has left early");
    }
}
