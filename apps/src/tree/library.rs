//! The library's allreduce of the same contributions.

use streamhalo::Op;
use streamhalo::comm::Result;
use streamhalo::comm::collective::AllReduce;
use streamhalo::comm::device::{Buffer, Extents};

use crate::app::Trial;

/// An allreduce on the rank's stream, for which the host waits.
pub(super) struct Library {
    input: Buffer<f64>,
    output: Buffer<f64>,
    allreduce: AllReduce,
}

impl Library {
    /// For so many values. Collective; blocks.
    pub(super) fn connect(trial: &Trial<'_>, elements: usize) -> Result<Self> {
        let (world, stream) = (trial.world, trial.stream);
        let line = Extents { points: [1, 1, elements], components: 1 };
        let (input, output) = (Buffer::zeros(world, stream, line)?, Buffer::zeros(world, stream, line)?);
        let (from, to) = (input.section(0..elements)?, output.section(0..elements)?);
        let allreduce = AllReduce::new(world, stream, &from, &to, Op::Sum)?;
        Ok(Self { input, output, allreduce })
    }

    /// The sum of all ranks' values. Collective; blocks.
    pub(super) fn sum(&mut self, own: &[f64], total: &mut [f64]) -> Result<()> {
        let whole = self.input.extents().whole();
        for (place, value) in self.input.view_mut(whole)?.iter_mut().zip(own) {
            *place = *value;
        }
        self.allreduce.enqueue()?;
        for (total, value) in total.iter_mut().zip(self.output.view(whole)?.iter()) {
            *total = *value;
        }
        Ok(())
    }
}
