//! Copies between a device and memory of the host, by the kind of that memory (2023 paper on Intel GPUs, figure 4).

use super::answers::{Answers, given, said, zeros};
use super::figure::{Figure, gigabytes_per_second};
use super::micro::MicroBench;
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use streamhalo::comm::StagingMemory;
use streamhalo::comm::device::{Buffer, Copier, Extents, HostMemory, Section};
use streamhalo::{Device, HaloError, Stream, World};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "copies",
    title: "copies between a device and memory of the host",
    value: Value::Time,
    note: "Times are per copy that is waited for (2023 on Intel GPUs, figure 4).",
    varies: None,
    run: Run::Operations(measure),
};

/// What can be measured.
pub(crate) const OPERATIONS: [&str; 2] = ["to-host", "to-device"];

/// The kinds of memory on the command line.
pub(crate) fn memory_names() -> Vec<&'static str> {
    StagingMemory::ALL.map(StagingMemory::name).to_vec()
}

/// Measures all kinds at one size. Collective.
fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    bytes: usize,
) -> Result<Vec<Figure>, AppError> {
    let memories = bench.contestants.iter().map(|name| bench.named(name, StagingMemory::from_name));
    let memories = memories.collect::<Result<Vec<_>, _>>()?;
    let device = bench.streams.of_rank(world)?;
    let stream = device.stream(world)?;
    let mut copies = Vec::new();
    for (name, memory) in bench.contestants.iter().zip(memories) {
        let to_host = operation == OPERATIONS[0];
        copies.push(Copies::checked((&device, &stream), memory, bytes, to_host, bench.answers(world, name))?);
    }
    let timings = in_turns(world, bench.seconds, &mut copies)?;
    let figures = bench.contestants.iter().zip(timings).map(|(name, timing)| {
        let figure = timing.figure(bench, (name, device.name().to_owned()), bytes);
        let rate = gigabytes_per_second(bytes as f64, figure.median_us);
        let figure = Figure { operation: Some(operation.to_owned()), ..figure };
        figure.with("gb_per_s", rate)
    });
    Ok(figures.collect())
}

struct Copies {
    copier: Copier,
    section: Section,
    host: HostMemory,
    to_host: bool,
}

impl Copies {
    /// Copies that have brought every byte to the host and back.
    fn checked(
        (device, stream): (&Device, &Stream),
        memory: StagingMemory,
        bytes: usize,
        to_host: bool,
        answers: Answers<'_>,
    ) -> Result<Self, AppError> {
        let (world, line) = (answers.world, Extents { points: [1, 1, bytes], components: 1 });
        let mut copier = Copier::new(device)?;
        let mut host = copier.host_memory(bytes, memory)?;
        let (from, into) =
            (Buffer::<u8>::zeros(world, stream, line)?, Buffer::<u8>::zeros(world, stream, line)?);
        let mut found = zeros(bytes)?;
        for round in 0..2 {
            found.iter_mut().enumerate().for_each(|(index, byte)| *byte = given(said(0, round, index)));
            host.write(&found)?;
            copier.up(&host, &from.section(0..bytes)?)?;
            answers.compare_all(&from.copy_out(line.whole())?, |index| said(0, round, index))?;
            found.fill(0);
            host.write(&found)?;
            copier.down(&from.section(0..bytes)?, &mut host)?;
            host.read(&mut found)?;
            answers.compare_all(&found, |index| said(0, round, index))?;
        }
        Ok(Self { copier, section: into.section(0..bytes)?, host, to_host })
    }
}

impl Subject for Copies {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            match self.to_host {
                true => self.copier.down(&self.section, &mut self.host)?,
                false => self.copier.up(&self.host, &self.section)?,
            }
        }
        Ok(())
    }
}
