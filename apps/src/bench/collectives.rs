//! Collective calls of the host, and reductions and barriers that are enqueued on streams.

use super::figure::Figure;
use super::micro::MicroBench;
use super::turns::{Subject, in_turns};
use streamhalo::comm::Communicator;
use streamhalo::comm::backend::Route;
use streamhalo::comm::collective::{AllReduce, Barrier};
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{HaloError, Op, Stream, World};

use crate::error::AppError;
use crate::run::executors_of_all;

/// What can be measured. The host can do all of it, streams the first two.
pub(crate) const OPERATIONS: [&str; 5] = ["barrier", "allreduce", "broadcast", "reduce", "allgather"];

/// The contestant that is no backend: the calls of a communicator.
pub(crate) const HOST: &str = "host";

/// Measures an operation, of so many bytes a rank, by the host and by backends. Collective.
pub(super) fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    bytes: usize,
) -> Result<Vec<Figure>, AppError> {
    let mut names = Vec::new();
    let mut collectives: Vec<Box<dyn Collective>> = Vec::new();
    for name in &bench.contestants {
        let stream = bench.stream(world)?;
        collectives.push(match (name.as_str(), operation) {
            (HOST, _) => Box::new(Calls::checked(world, operation, bytes)?),
            (backend, "barrier") => {
                let barrier = Barrier::with_backend(world, &stream, backend)?;
                Box::new(Barriers { stream, barrier })
            }
            (backend, "allreduce") => Box::new(Sums::checked(world, &stream, backend, bytes)?),
            _ => continue,
        });
        names.push(name);
    }
    let mut subjects: Vec<&mut dyn Subject> = Vec::new();
    for one in &mut collectives {
        subjects.push(&mut **one);
    }
    let timings = in_turns(world, bench.seconds, subjects)?;
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

/// A collective call of the host, on doubles.
struct Calls {
    communicator: Communicator,
    operation: String,
    given: Vec<f64>,
    own: Vec<f64>,
    gathered: Vec<f64>,
}

impl Calls {
    fn checked(world: &World, operation: &str, bytes: usize) -> Result<Self, HaloError> {
        let (communicator, size) = (Communicator::new(world)?, world.size());
        let zeros = || vec![0.0; bytes / 8];
        let operation = operation.to_owned();
        let mut calls =
            Self { communicator, operation, given: zeros(), own: zeros(), gathered: zeros().repeat(size) };
        for round in 0..3 {
            calls
                .given
                .iter_mut()
                .enumerate()
                .for_each(|(index, one)| *one = value(world.rank(), round, index));
            calls.repeat(1)?;
            let sum = |index| (0..size).map(|rank| value(rank, round, index)).sum::<f64>();
            let of_all = |rank: usize| (0..bytes / 8).map(move |index| value(rank, round, index));
            let right = match calls.operation.as_str() {
                "barrier" => true,
                "broadcast" => calls.own.iter().copied().eq(of_all(0)),
                "reduce" if world.rank() > 0 => true,
                "allgather" => calls.gathered.iter().copied().eq((0..size).flat_map(of_all)),
                _ => calls.own.iter().enumerate().all(|(index, one)| *one == sum(index)),
            };
            assert!(right, "{}: a wrong value on rank {}", calls.operation, world.rank());
        }
        Ok(calls)
    }
}

impl Subject for Calls {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        let Self { communicator, given, own, gathered, .. } = self;
        for _ in 0..times {
            match self.operation.as_str() {
                "barrier" => communicator.barrier()?,
                "allgather" => communicator.allgather(given, gathered)?,
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
    fn checked(world: &World, stream: &Stream, backend: &str, bytes: usize) -> Result<Self, HaloError> {
        let elements = bytes / 8;
        let line = Extents { points: [1, 1, elements], components: 1 };
        let (input, output) = (Buffer::zeros(world, stream, line)?, Buffer::zeros(world, stream, line)?);
        let sections = (&input.section(0..elements)?, &output.section(0..elements)?);
        let allreduce = AllReduce::with_backend(world, stream, backend, sections, Op::Sum)?;
        let mut sums = Self { stream: stream.clone(), input, output, allreduce };
        for round in 0..3 {
            let mut view = sums.input.view_mut(line.whole())?;
            view.iter_mut().enumerate().for_each(|(index, one)| *one = value(world.rank(), round, index));
            sums.repeat(1)?;
            let found = sums.output.copy_out(line.whole())?;
            let expected = |index| (0..world.size()).map(|rank| value(rank, round, index)).sum::<f64>();
            let wrong = (0..elements).find(|index| found[*index] != expected(*index));
            assert!(wrong.is_none(), "backend {backend}: sum {wrong:?} of {elements} is wrong");
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
