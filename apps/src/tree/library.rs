//! The library's allreduce of the same contributions.

use streamhalo::Op;
use streamhalo::comm::Result;
use streamhalo::comm::collective::AllReduce;

use crate::app::{Line, Trial};

/// An allreduce on the rank's stream, for which the host waits.
pub(super) struct Library {
    input: Line,
    output: Line,
    allreduce: AllReduce,
}

impl Library {
    /// For so many values. Collective; blocks.
    pub(super) fn connect(trial: &Trial<'_>, elements: usize) -> Result<Self> {
        let (input, output) = (Line::zeros(trial, elements)?, Line::zeros(trial, elements)?);
        let allreduce =
            AllReduce::new(trial.world, trial.stream, &input.whole()?, &output.whole()?, Op::Sum)?;
        Ok(Self { input, output, allreduce })
    }

    /// The sum of all ranks' values. Collective; blocks.
    pub(super) fn sum(&mut self, own: &[f64], total: &mut [f64]) -> Result<()> {
        self.input.lay_out(0, own)?;
        self.allreduce.enqueue()?;
        self.output.read(total)
    }
}
