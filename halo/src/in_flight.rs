//! A gather between its halves.

use crate::error::Result;
use crate::stream_halo::StreamHalo;
use std::ops::{Deref, DerefMut};
use streamhalo_comm::fabric::phase;
use streamhalo_grid::Fields;

/// A gather whose messages are on their way; the fields can be used through it: one field as itself
/// (`in_flight.now_and_next()`), and those of a tuple by one borrow (`let (u, m) = &mut *in_flight;`), since `in_flight.0` and
/// `in_flight.1` each borrow all of it. Dropped without
/// [`InFlight::finish`], as by a `?` in between, it is finished all the same, for other ranks need what this one sends;
/// what goes wrong then is the stream's error. Only a thread that panics leaves it as it is. One that was forgotten, or
/// finished within a [capture](streamhalo_comm::device::Stream::capture), is finished before the next call of its [`StreamHalo`],
/// or with it.
///
/// What needs no ghosts of other ranks ([`inner`](streamhalo_grid::Subdomain::inner)) is computed while they are on their way,
/// and the rest ([`without`](crate::IndexBox::without)) afterwards (`examples/heat.rs` does so on a plate with walls, whose
/// ghosts are made of its own cells):
///
/// ```
/// use streamhalo::WorldOptions;
/// use streamhalo::prelude::*;
///
/// type Views<'a> = (Rows<'a, i64>, RowsMut<'a, i64>, Rows<'a, u8>, RowsMut<'a, u8>);
///
/// /// u(x) becomes u(x - 1) + u(x + 1) where m(x) is 1, and m moves to the right.
/// fn step(tile: Tile, (u, mut next_u, m, mut next_m): Views<'_>) {
///     let around = tile.start[2] - 1..tile.end[2] + 1;
///     let (u, m) = (u.span(0, 0, around.clone()).windows(3), m.span(0, 0, around).windows(3));
///     let next = next_u.row(0, 0).iter_mut().zip(next_m.row(0, 0));
///     for ((next_u, next_m), (u, m)) in next.zip(u.zip(m)) {
///         *next_u = if m[1] == 1 { u[0] + u[2] } else { u[1] };
///         *next_m = m[0];
///     }
/// }
///
/// let ranks = World::threads(2, WorldOptions::default(), |world| -> Result<_, HaloError> {
///     let stream = Device::host().stream(&world)?;
///     let grid = GlobalGrid::new([8], [true])?.partition(&world)?.local(1)?;
///     let mut u = Alternating::<i64, 1>::zeros(&grid, Entity::Cell, &stream)?;
///     let mut m = Alternating::<u8, 1>::zeros(&grid, Entity::Cell, &stream)?;
///     u.now_mut().fill(|[x], _| x as i64)?;
///     m.now_mut().fill(|[x], _| u8::from(x == 3))?;
///     let mut fields = (u, m);
///     let mut halo = StreamHalo::new(&world, &stream, "st-send", Pattern::Faces, 1, &mut fields)?;
///     let inner = grid.inner(Entity::Cell, 1);
///
///     for _ in 0..2 {
///         let mut in_flight = halo.begin_gather(&mut fields)?;
///         let (u, m) = &mut *in_flight;
///         let ((u, next_u), (m, next_m)) = (u.now_and_next()?, m.now_and_next()?);
///         stream.launch("inner", inner.tile(), (u, next_u, m, next_m), step)?;
///         in_flight.finish()?;
///         let (u, m) = &mut fields;
///         for rim in grid.owned(Entity::Cell).without(inner) {
///             let ((u, next_u), (m, next_m)) = (u.now_and_next()?, m.now_and_next()?);
///             stream.launch("rim", rim.tile(), (u, next_u, m, next_m), step)?;
///         }
///         u.swap();
///         m.swap();
///     }
///     let (u, m) = &fields;
///     let (u, m) = (u.now().owned()?, m.now().owned()?);
///     Ok((u.iter().copied().collect::<Vec<_>>(), m.iter().copied().collect::<Vec<_>>()))
/// })?;
/// let ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(ranks[0], (vec![0, 1, 2, 2 + 4], vec![0; 4]));
/// assert_eq!(ranks[1], (vec![2 + 4 + 5, 5, 6, 7], vec![0, 1, 0, 0]));
/// # Ok::<(), HaloError>(())
/// ```
#[derive(Debug)]
#[must_use = "ghosts are undefined until the exchange is finished"]
pub struct InFlight<'a, F: Fields<D>, const D: usize> {
    halo: &'a mut StreamHalo,
    fields: &'a mut F,
    has_ended: bool,
}

impl<'a, F: Fields<D>, const D: usize> InFlight<'a, F, D> {
    /// Of the gather that has begun.
    pub(crate) fn new(halo: &'a mut StreamHalo, fields: &'a mut F) -> Self {
        Self { halo, fields, has_ended: false }
    }

    /// Enqueues the second half: the rest is sent, and the stream waits for all messages and
    /// unpacks them. Blocks as [`StreamHalo::enqueue_gather`] does.
    ///
    /// # Errors
    /// With `standard`, what went wrong; else errors surface at `Stream::synchronize`.
    /// [`HaloError::WrongGeneration`](crate::HaloError::WrongGeneration) or
    /// [`HaloError::OtherFields`](crate::HaloError::OtherFields) if the fields were swapped or replaced meanwhile: the exchange
    /// is finished, as other ranks need it, but the ghosts of what is there now are not those that it has filled.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.has_ended = true;
        let epoch = self.halo.gather.epoch();
        self.halo.end(phase(epoch), &mut |_| {})?;
        // Last: it asks the application for its fields.
        self.halo.check("finish", self.fields, epoch)
    }
}

impl<F: Fields<D>, const D: usize> Drop for InFlight<'_, F, D> {
    fn drop(&mut self) {
        if !self.has_ended && !std::thread::panicking() {
            // What it was asked for is gone with it; what went wrong on the stream stays there.
            let _ = self.end();
        }
    }
}

impl<F: Fields<D>, const D: usize> Deref for InFlight<'_, F, D> {
    type Target = F;

    fn deref(&self) -> &F {
        self.fields
    }
}

impl<F: Fields<D>, const D: usize> DerefMut for InFlight<'_, F, D> {
    fn deref_mut(&mut self) -> &mut F {
        self.fields
    }
}
