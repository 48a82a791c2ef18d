//! Windows of messages, in the manner of the OSU suite: one way, of which the receiver says in a short message when all
//! are there, or both ways at once.

use super::figure::{Figure, gigabytes_per_second};
use super::micro::MicroBench;
use super::primitive::{Link, WINDOW, checked};
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value, What};
use streamhalo::{HaloError, Stream, World};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "bandwidth",
    title: "bandwidth of windows of 64 messages",
    value: Value::MegabytesPerSecond,
    note: "The receiver answers each window with one short message; 1 MB is 10^6 bytes.",
    varies: None,
    run: Run::Sizes(measure),
};

pub(super) const BOTH_WAYS: Row = Row {
    name: "bibandwidth",
    title: "bandwidth of windows of 64 messages, both ways at once",
    value: Value::MegabytesPerSecond,
    note: "Both ways together; 1 MB is 10^6 bytes.",
    varies: None,
    run: Run::Sizes(measure),
};

/// Measures all primitives at one size. Collective over two ranks.
fn measure(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let both = bench.what == What::Bibandwidth;
    let (stream, mut windows) = (bench.stream(world)?, Vec::new());
    for name in &bench.contestants {
        let one = Windows::checked(bench, (world, &stream), name, bytes, both)?;
        windows.extend(one.map(|one| (name, one)));
    }
    let timings = in_turns(world, bench.seconds, windows.iter_mut().map(|(_, window)| window))?;
    let figures = windows.iter().zip(timings).map(|((name, windows), timing)| {
        let figure = timing.figure(bench, (name, windows.link.executor()), bytes).divided_by(WINDOW as f64);
        let moved = if both { 2 * bytes } else { bytes } as f64;
        let rates = [figure.median_us, figure.min_us].map(|time| gigabytes_per_second(moved, time));
        figure.with("gb_per_s", rates[0]).with("best_gb_per_s", rates[1])
    });
    Ok(figures.collect())
}

/// Bytes of an answer. The OSU suite has 4; a word is what every primitive is made for.
const ANSWER_BYTES: usize = 8;

/// How long the answer to messages of that many bytes is.
pub(super) fn answer_bytes(bytes: usize) -> usize {
    bytes.min(ANSWER_BYTES)
}

/// A window of messages to the peer, and its answer; or windows both ways.
pub(super) struct Windows {
    pub(super) link: Box<dyn Link>,
    /// `None`: both ways, where each window says that the other may follow.
    pub(super) answer: Option<Box<dyn Link>>,
    pub(super) begins: bool,
}

impl Windows {
    /// Of a primitive, if it can be used for messages of that many bytes. Collective.
    pub(super) fn checked(
        bench: &MicroBench,
        on: (&World, &Stream),
        name: &str,
        bytes: usize,
        both: bool,
    ) -> Result<Option<Self>, AppError> {
        let Some(link) = checked(bench, on, name, bytes, true)? else { return Ok(None) };
        let answer = if both { None } else { checked(bench, on, name, answer_bytes(bytes), false)? };
        Ok(Some(Self { link, answer, begins: on.0.rank() == 0 }))
    }
}

impl Subject for Windows {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            match (&mut self.answer, self.begins) {
                (None, _) => self.link.swap_windows()?,
                (Some(answer), true) => {
                    self.link.send_window()?;
                    answer.recv()?;
                }
                (Some(answer), false) => {
                    self.link.recv_window()?;
                    answer.start()?;
                    answer.finish()?;
                }
            }
        }
        self.link.synchronize()
    }
}
