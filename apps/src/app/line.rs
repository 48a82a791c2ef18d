//! Values in a row that the host lays out for a primitive to send or to put.

use streamhalo::comm::Result;
use streamhalo::comm::device::{Buffer, Extents, Section, Tile};

use super::Trial;

/// Memory for values that primitives take from where the host has laid them out.
pub(crate) struct Line(Buffer<f64>);

impl Line {
    /// Zeros.
    pub(crate) fn zeros(trial: &Trial<'_>, elements: usize) -> Result<Self> {
        let extents = Extents { points: [1, 1, elements], components: 1 };
        Ok(Self(Buffer::zeros(trial.world, trial.stream, extents)?))
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Result<Section> {
        self.0.section(0..self.0.extents().points[2])
    }

    /// Copies values to where `start` is the first, and says where they are. An error if an operation that has
    /// begun still reads what was there.
    pub(crate) fn lay_out(&mut self, start: usize, values: &[f64]) -> Result<Section> {
        let end = start + values.len();
        let mut places = self.0.view_mut(Tile { start: [0, 0, start], end: [1, 1, end] })?;
        places.iter_mut().zip(values).for_each(|(place, value)| *place = *value);
        drop(places);
        self.0.section(start..end)
    }

    /// Copies all of it out.
    pub(crate) fn read(&self, values: &mut [f64]) -> Result<()> {
        let places = self.0.view(self.0.extents().whole())?;
        values.iter_mut().zip(places.iter()).for_each(|(value, place)| *value = *place);
        Ok(())
    }
}
