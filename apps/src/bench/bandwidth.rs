//! Windows of messages, in the manner of the OSU suite: one way, of which the receiver says when all are there,
//! or both ways at once.

use super::figure::{Figure, gigabytes_per_second};
use super::micro::{MicroBench, What};
use super::primitive::{Link, WINDOW, checked};
use super::turns::{Subject, in_turns};
use streamhalo::{HaloError, World};

use crate::error::AppError;

/// Measures all primitives at one size. Collective over two ranks.
pub(super) fn measure(bench: &MicroBench, world: &World, bytes: usize) -> Result<Vec<Figure>, AppError> {
    let both = bench.what == What::Bibandwidth;
    let mut windows = Vec::new();
    for name in &bench.contestants {
        let link = checked(bench, world, name, bytes)?;
        windows.extend(link.map(|link| (name, Windows { link, both, begins: world.rank() == 0 })));
    }
    let subjects = windows.iter_mut().map(|(_, window)| window as &mut dyn Subject).collect();
    let timings = in_turns(world, bench.seconds, subjects)?;
    let figures = windows.iter().zip(timings).map(|((name, windows), timing)| {
        let figure = timing.figure(bench, (name, windows.link.executor()), bytes).divided_by(WINDOW as f64);
        let moved = if both { 2 * bytes } else { bytes } as f64;
        let rates = [figure.median_us, figure.min_us].map(|time| gigabytes_per_second(moved, time));
        figure.with("gb_per_s", rates[0]).with("best_gb_per_s", rates[1])
    });
    Ok(figures.collect())
}

/// A window of messages to the peer, and its answer; or windows both ways.
pub(super) struct Windows {
    pub(super) link: Box<dyn Link>,
    pub(super) both: bool,
    pub(super) begins: bool,
}

impl Subject for Windows {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            match (self.both, self.begins) {
                (true, _) => self.link.swap_windows()?,
                (false, true) => {
                    self.link.send_window()?;
                    self.link.recv()?;
                }
                (false, false) => {
                    self.link.recv_window()?;
                    self.link.start()?;
                    self.link.finish()?;
                }
            }
        }
        self.link.synchronize()
    }
}
