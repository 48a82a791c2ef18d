//! Collective calls of the host, and reductions and barriers that are enqueued on streams.

use super::answers::{self, Answers, given};
use super::figure::Figure;
use super::micro::MicroBench;
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use ndarray::ArrayViewMut4;
use std::borrow::Cow;
use std::time::{Duration, Instant};
use streamhalo::comm::Communicator;
use streamhalo::comm::backend::Route;
use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::{HaloError, Op, Stream, StreamKind, World};

use crate::error::AppError;
use crate::run::executors_of_all;

pub(super) const ROW: Row = Row {
    name: "collectives",
    title: "collectives of the host and on streams",
    value: Value::Time,
    note: "Times are the slowest rank's. Those on a stream are enqueued one behind the other.",
    varies: None,
    run: Run::Operations(measure),
};

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
fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    bytes: usize,
) -> Result<Vec<Figure>, AppError> {
    let (stream, mut names) = (bench.stream(world)?, Vec::new());
    let mut collectives: Vec<Box<dyn Collective>> = Vec::new();
    for name in bench.contestants.iter().filter(|name| can_do(name, operation)) {
        let contestant = format!("{operation} by {name}");
        let answers = bench.answers(world, &contestant);
        collectives.push(match (name.as_str(), operation) {
            (HOST, "barrier") => barrier_checked(Calls::new(world, &stream, operation, 0)?, answers)?,
            (HOST, _) => Box::new(Calls::checked(&stream, operation, bytes, answers)?),
            (backend, "barrier") => {
                let barrier = Barrier::with_backend(world, &stream, backend)?;
                barrier_checked(Barriers { stream: stream.clone(), barrier }, answers)?
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

/// A line of doubles.
fn zeros(world: &World, stream: &Stream, elements: usize) -> Result<Buffer<f64>, HaloError> {
    let line = Extents { points: [1, 1, elements], components: 1 };
    Ok(Buffer::zeros(world, stream, line)?)
}

/// Has each element of a line be the value at its index.
fn fill(line: &mut Buffer<f64>, value: impl Fn(usize) -> f64) -> Result<(), HaloError> {
    let fill = |line: ArrayViewMut4<'_, f64>| {
        line.into_iter().enumerate().for_each(|(index, one)| *one = value(index));
    };
    Ok(line.with_host_mut(line.extents().whole(), fill)?)
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
    doubles: Doubles,
    /// The one before this rank in a ring, and the one behind it.
    neighbours: [usize; 2],
}

/// What calls are given, and what they leave. Those that work in place do so on the first.
enum Doubles {
    /// Slices.
    OfHost { given: Vec<f64>, gathered: Vec<f64> },
    /// Memory of a device and sections of it.
    OfDevice { buffers: [Buffer<f64>; 2], sections: [Section; 2] },
}

impl Doubles {
    /// So many that are given, and so many that are gathered.
    fn zeros(world: &World, stream: &Stream, elements: [usize; 2]) -> Result<Self, HaloError> {
        let [given, gathered] = elements;
        if stream.kind() != StreamKind::Device {
            return Ok(Self::OfHost { given: answers::zeros(given)?, gathered: answers::zeros(gathered)? });
        }
        let buffers = [zeros(world, stream, given)?, zeros(world, stream, gathered)?];
        let sections = [buffers[0].section(0..given)?, buffers[1].section(0..gathered)?];
        Ok(Self::OfDevice { buffers, sections })
    }

    fn give(&mut self, value: impl Fn(usize) -> f64) -> Result<(), HaloError> {
        match self {
            Self::OfHost { given, .. } => {
                given.iter_mut().enumerate().for_each(|(index, one)| *one = value(index));
                Ok(())
            }
            Self::OfDevice { buffers, .. } => fill(&mut buffers[0], value),
        }
    }

    fn left(&mut self, in_place: bool) -> Result<Cow<'_, [f64]>, HaloError> {
        match self {
            Self::OfHost { given, gathered } => Ok(Cow::Borrowed(if in_place { given } else { gathered })),
            Self::OfDevice { buffers, .. } => {
                let buffer = &mut buffers[usize::from(!in_place)];
                Ok(buffer.copy_out(buffer.extents().whole())?.into())
            }
        }
    }
}

impl Calls {
    fn new(world: &World, stream: &Stream, operation: &str, elements: usize) -> Result<Self, HaloError> {
        let (rank, size) = (world.rank(), world.size());
        // Of both neighbours, or of all.
        let gathered = if operation == NEIGHBOURS { elements } else { elements * size };
        Ok(Self {
            communicator: Communicator::new(world)?,
            operation: operation.to_owned(),
            doubles: Doubles::zeros(world, stream, [elements, gathered])?,
            neighbours: [(rank + size - 1) % size, (rank + 1) % size],
        })
    }

    fn checked(
        stream: &Stream,
        operation: &str,
        bytes: usize,
        answers: Answers<'_>,
    ) -> Result<Self, AppError> {
        let world = answers.world;
        let (rank, size, elements) = (world.rank(), world.size(), bytes / 8);
        // Each neighbour is given its own elements.
        let sent = if operation == NEIGHBOURS { 2 * elements } else { elements };
        let mut calls = Self::new(world, stream, operation, sent)?;
        let (in_place, neighbours) = (!["allgather", NEIGHBOURS].contains(&operation), calls.neighbours);
        for round in 0..3 {
            calls.doubles.give(|index| given(value(rank, round, index)))?;
            calls.repeat(1)?;
            let expected = |index| match operation {
                "broadcast" => value(0, round, index),
                "allgather" => value(index / elements, round, index % elements),
                // What comes first is from behind, which has sent it ahead.
                NEIGHBOURS => value(neighbours[usize::from(index < elements)], round, index),
                _ => (0..size).map(|rank| value(rank, round, index)).sum(),
            };
            // A reduction is of the root alone.
            let is_left = operation != "reduce" || rank == 0;
            let left = if is_left { calls.doubles.left(in_place)? } else { Cow::default() };
            answers.compare_all(&left, expected)?;
        }
        Ok(calls)
    }
}

impl Subject for Calls {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        let Self { communicator, operation, doubles, neighbours: [before, behind] } = self;
        let (to, from) = ([*before, *behind], [*behind, *before]);
        for _ in 0..times {
            match (operation.as_str(), &mut *doubles) {
                ("barrier", _) => communicator.barrier()?,
                ("allgather", Doubles::OfHost { given, gathered }) => {
                    communicator.allgather(given, gathered)?;
                }
                (NEIGHBOURS, Doubles::OfHost { given, gathered }) => {
                    communicator.neighbour_alltoall(&to, given, &from, gathered)?;
                }
                // These work in place. A copy before each would be timed with it: sums grow instead.
                (operation, Doubles::OfHost { given, .. }) => match operation {
                    "broadcast" => communicator.broadcast(given, 0)?,
                    "reduce" => communicator.reduce(given, Op::Sum, 0)?,
                    _ => communicator.allreduce(given, Op::Sum)?,
                },
                (operation, Doubles::OfDevice { sections: [given, gathered], .. }) => match operation {
                    "allgather" => communicator.allgather_section(given, gathered)?,
                    NEIGHBOURS => communicator.neighbour_alltoall_section(&to, given, &from, gathered)?,
                    "broadcast" => communicator.broadcast_section(given, 0)?,
                    "reduce" => communicator.reduce_section(given, Op::Sum, 0)?,
                    _ => communicator.allreduce_section(given, Op::Sum)?,
                },
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
        let (input, output) = (zeros(world, stream, elements)?, zeros(world, stream, elements)?);
        let sections = (&input.section(0..elements)?, &output.section(0..elements)?);
        let allreduce = AllReduce::with_backend(world, stream, backend, sections, Op::Sum)?;
        let mut sums = Self { stream: stream.clone(), input, output, allreduce };
        for round in 0..3 {
            fill(&mut sums.input, |index| given(value(world.rank(), round, index)))?;
            sums.repeat(1)?;
            let found = sums.output.copy_out(sums.output.extents().whole())?;
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
    use streamhalo::{Device, WorldOptions};

    #[test]
    fn calls_on_a_device_are_given_its_memory() {
        let world = World::alone().expect("a world of one rank");
        let is_of_device = |device: &Device| {
            let stream = device.stream(&world).expect("a stream");
            matches!(Doubles::zeros(&world, &stream, [1, 1]), Ok(Doubles::OfDevice { .. }))
        };
        assert!(!is_of_device(&Device::host()));
        match Device::opencl("") {
            Ok(device) => assert!(is_of_device(&device)),
            Err(reason) => println!("skipped: collective calls on a device: {reason}"),
        }
    }

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
