//! Half of a round trip, in the manner of the OSU suite: rank 0 sends and receives, rank 1 receives and sends.

use super::figure::Figure;
use super::micro::{MicroBench, divided};
use super::primitive::{Link, checked};
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use streamhalo::{HaloError, World};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "latency",
    title: "latency of a message",
    value: Value::Time,
    note: "Times are half of a round trip.",
    varies: None,
    run: Run::Sizes(measure),
};

/// Measures all primitives at one size. Collective over two ranks.
fn measure(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let (stream, mut trips) = (bench.stream(world)?, Vec::new());
    for name in &bench.contestants {
        let link = checked(bench, (world, &stream), name, bytes, false)?;
        trips.extend(link.map(|link| (name, RoundTrip { link, begins: world.rank() == 0 })));
    }
    let timings = in_turns(world, bench.seconds, trips.iter_mut().map(|(_, trip)| trip))?;
    let figures = trips.iter().zip(timings).map(|((name, trip), timing)| {
        timing.figure(bench, (name, trip.link.executor()), bytes).divided_by(2.0)
    });
    Ok(divided("ratio_to_flag", "flag", figures.collect()))
}

/// A message to the peer and one back.
pub(super) struct RoundTrip {
    pub(super) link: Box<dyn Link>,
    pub(super) begins: bool,
}

impl Subject for RoundTrip {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        self.link.ping_pong(self.begins, times)
    }
}
