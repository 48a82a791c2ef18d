//! The kernels as texts, for devices, and what they are launched with there and on the host.

use std::sync::Arc;

use fearless_simd::Level;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Reader, Scalar, StoreWay};
use streamhalo::prelude::{Alternating, Tile};
use streamhalo::{HaloError, KernelText, Stream, World};

use super::kernel::{Rule, Shape, step};
use crate::app::values::Real;
use crate::app::{Tables, of_real, real_texts};

/// A step of the cells of a tile, by 7 points and by 27.
static STEPS: [[KernelText; 2]; 2] = [
    real_texts!("stencil", [1; 3], "", "stencil.cl"),
    real_texts!("stencil", [1; 3], "#define FULL\n", "stencil.cl"),
];

/// Sums of squares of what the stencil gives.
static RESIDUALS: [[KernelText; 2]; 2] = [
    real_texts!("residual", [0; 3], "", "stencil.cl"),
    real_texts!("residual", [0; 3], "#define FULL\n", "stencil.cl"),
];

/// Adds such sums up.
pub(super) static FOLD: KernelText =
    KernelText { name: "fold", source: include_str!("fold.cl"), reach: [0; 3] };

/// The text that computes a step.
pub(super) fn step_text<T: Real>(is_full: bool) -> &'static KernelText {
    of_real::<T>(&STEPS[usize::from(is_full)])
}

/// The text that computes sums of squares.
pub(super) fn residual_text<T: Real>(is_full: bool) -> &'static KernelText {
    of_real::<T>(&RESIDUALS[usize::from(is_full)])
}

impl<T: Real> Rule<T> {
    /// Its numbers, as the texts have them.
    pub(super) fn scalars(&self) -> [Scalar; 9] {
        let [w000, w001, w010, w011, w100, w101, w110, w111] = self.weights;
        [w000, w001, w010, w011, w100, w101, w110, w111, self.source].map(Scalar::from)
    }
}

/// The shape of the source, for kernels of the host and for those of the stream's device.
#[derive(Debug)]
pub(crate) struct Factors<T> {
    pub(super) shape: Arc<Shape<T>>,
    tables: Tables<T>,
}

impl<T: Real> Factors<T> {
    /// For a stream. Blocks until the device has them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(world: &World, stream: &Stream, shape: Shape<T>) -> Result<Self, Error> {
        let tables = Tables::new(world, stream, shape.0.each_ref().map(Vec::as_slice))?;
        Ok(Self { shape: Arc::new(shape), tables })
    }

    /// Arguments for a text: along z, y and x.
    pub(super) fn readers(&self) -> Result<[Reader<'_, T>; 3], Error> {
        self.tables.readers()
    }
}

/// Enqueues a step of the cells of `tile`.
pub(crate) fn launch<T: Real>(
    stream: &Stream,
    rule: Rule<T>,
    factors: &Factors<T>,
    store_way: &StoreWay,
    tile: Tile,
    cells: &mut Alternating<T, 3>,
) -> Result<(), HaloError> {
    let scalars = rule.scalars();
    let shape = factors.shape.clone();
    let [along_z, along_y, along_x] = factors.readers()?;
    let (now, next) = cells.now_and_next()?;
    let (text, arguments) = (step_text::<T>(rule.is_full), (now, along_z, along_y, along_x, next));
    let store_way = store_way.clone();
    stream.launch_either_with(text, tile, arguments, &scalars, move |part, (now, _, _, _, next)| {
        store_way.store(tile, part, |way| {
            step(Level::new(), way, &rule, &shape, part, now, next);
        });
    })?;
    Ok(())
}
