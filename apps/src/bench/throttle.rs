//! Epochs on a stream that run ahead of it, over how many entries for triggered operations there are (2023,
//! section 5.2).

use super::answers::{Answers, given, said};
use super::figure::Figure;
use super::micro::MicroBench;
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents, Section};
use streamhalo::comm::fabric::Throttling;
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, Stream, World};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "throttle",
    title: "epochs on a stream over entries for operations and signals",
    value: Value::Time,
    note: "Times are per epoch: post, start, put, complete, wait, enqueued as far ahead as there is room.",
    varies: Some("entries"),
    run: Run::Entries(measure),
};

/// The names of all policies.
pub(crate) fn policy_names() -> Vec<&'static str> {
    Throttling::ALL.iter().map(|policy| policy.name()).collect()
}

/// Measures all policies with so many entries. Collective over two ranks.
fn measure(bench: &MicroBench, world: &World, bytes: usize, entries: usize) -> Result<Vec<Figure>, AppError> {
    let (stream, mut epochs) = (bench.stream(world)?, Vec::new());
    for name in &bench.contestants {
        let throttling = bench.named(name, Throttling::from_name)?;
        let options = ActiveOptions { throttling, entries };
        let mut one = Epochs::new(world, &stream, bytes, options)?;
        one.check(bench.answers(world, name))?;
        epochs.push(one);
    }
    let timings = in_turns(world, bench.seconds, &mut epochs)?;
    let figures = bench.contestants.iter().zip(&epochs).zip(timings).map(|((name, one), timing)| {
        let executor = one.window.executor(one.peer, Mode::Stream).to_string();
        timing.figure(bench, (name, executor), bytes).with("entries", entries as f64)
    });
    Ok(figures.collect())
}

/// Epochs in which each of two ranks puts into the other's part.
struct Epochs {
    stream: Stream,
    window: Window,
    own: Buffer<u8>,
    theirs: Buffer<u8>,
    from: Section,
    group: Group,
    peer: usize,
}

impl Epochs {
    fn new(world: &World, stream: &Stream, bytes: usize, options: ActiveOptions) -> Result<Self, HaloError> {
        let line = Extents { points: [1, 1, bytes], components: 1 };
        let (own, theirs) = (Buffer::zeros(world, stream, line)?, Buffer::zeros(world, stream, line)?);
        let window = Window::active(world, &theirs.section(0..bytes)?, options)?;
        let (from, peer) = (own.section(0..bytes)?, 1 - world.rank());
        let group = Group::new(world, &[peer])?;
        Ok(Self { stream: stream.clone(), window, own, theirs, from, group, peer })
    }

    fn check(&mut self, answers: Answers<'_>) -> Result<(), AppError> {
        let whole = self.own.extents().whole();
        for round in 1..=2 {
            self.own.with_host_mut(whole, |own| {
                let own = own.into_iter().enumerate();
                own.for_each(|(index, byte)| *byte = given(said(1 - self.peer, round, index)));
            })?;
            self.repeat(5)?;
            let found = self.theirs.copy_out(whole)?;
            answers.compare_all(&found, |index| said(self.peer, round, index))?;
        }
        Ok(())
    }

    /// Calls again once the stream was synchronised, where that is left to the application.
    fn with_room(&self, call: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        match call() {
            // More than there are at all cannot be had by waiting.
            Err(Error::Throttled { entries, limit, .. }) if entries <= limit => {
                self.stream.synchronize()?;
                call()
            }
            done => done,
        }
    }
}

impl Subject for Epochs {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        let Self { stream, window, group, .. } = &*self;
        for _ in 0..times {
            self.with_room(|| window.post_stream(group, stream))?;
            window.start(group, Mode::Stream)?;
            window.put(&self.from, self.peer, 0)?;
            self.with_room(|| window.complete_stream(stream))?;
            window.wait_stream(stream)?;
        }
        Ok(stream.synchronize()?)
    }
}
