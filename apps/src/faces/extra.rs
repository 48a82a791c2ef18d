//! The extra kernel that overlaps with communication: 2023, section 6.7, "a separate compute kernel
//! launched on an independent GPU stream".

use streamhalo::comm::device::Event;
use streamhalo::{Array, Entity, KernelText, LocalGrid, RowsMut, Stream, Tile, World};

use crate::app::Trial;
use crate::error::AppError;

/// The kernel for devices that compile it.
pub(super) static SWEEPS: KernelText =
    KernelText { name: "extra_compute", source: include_str!("extra.cl"), reach: [0; 3] };

/// Work that has nothing to do with the exchange, on a stream and an array of its own.
pub(super) struct Extra {
    stream: Stream,
    work: Array<f64, 3>,
    sweeps: u32,
}

impl Extra {
    /// As many values as the block has points. A stream of the same device as that of the exchange.
    pub(super) fn new(
        world: &World,
        beside: &Stream,
        grid: &LocalGrid<3>,
        sweeps: u32,
    ) -> Result<Self, AppError> {
        let stream = beside.another(world)?;
        stream.join_timeline(beside)?;
        let work = Array::zeros(grid, Entity::Cell, &stream)?;
        Ok(Self { stream, work, sweeps })
    }

    /// Begins anew, from zeros.
    pub(super) fn reset(&mut self) -> Result<(), AppError> {
        Ok(self.work.fill(|_, _| 0.0)?)
    }

    /// Enqueues the sweeps of one step, for when `beside` has come to here: each adds one to every value.
    pub(super) fn launch(&mut self, beside: &Stream) -> Result<(), AppError> {
        // Without it, this stream would be steps ahead: it has nothing to wait for.
        let begun = Event::default();
        beside.record(&begun);
        self.stream.wait_event(&begun);
        let (tile, sweeps) = (self.work.owned_box().tile(), self.sweeps);
        let kernel = move |_: Tile, (mut work,): (RowsMut<'_, f64>,)| {
            for row in work.rows() {
                for _ in 0..sweeps {
                    row.iter_mut().for_each(|value| *value += 1.0);
                }
            }
        };
        let numbers = [i64::from(sweeps).into()];
        Ok(self.stream.launch_either_with(&SWEEPS, tile, (self.work.writer()?,), &numbers, kernel)?)
    }

    /// Waits for what was enqueued.
    pub(super) fn synchronize(&self) -> Result<(), AppError> {
        Ok(self.stream.synchronize()?)
    }

    /// What all values are; not a number where they differ. Waits.
    pub(super) fn value(&self) -> Result<f64, AppError> {
        Ok(self.work.with_owned(|owned| {
            let first = owned.iter().next().copied().unwrap_or(f64::NAN);
            if owned.iter().all(|value| *value == first) { first } else { f64::NAN }
        })?)
    }
}

/// The value of every rank, if it is the same; else not a number. Collective.
pub(super) fn all_equal(trial: &Trial<'_>, value: f64) -> Result<f64, AppError> {
    let all = trial.world.all_gather(&value)?;
    Ok(if all.iter().all(|other| *other == all[0]) { all[0] } else { f64::NAN })
}
