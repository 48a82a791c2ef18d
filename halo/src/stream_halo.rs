//! The exchange that applications use.

use crate::builder::{StreamHaloBuilder, values};
use crate::error::{HaloError, Result};
use crate::exchange::{Compiled, GatherStep};
use crate::in_flight::InFlight;
use crate::pattern::Pattern;
use crate::registered::Registered;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use streamhalo_comm::World;
use streamhalo_comm::backend::Route;
use streamhalo_comm::device::{HostState, Stream};
use streamhalo_comm::fabric::phase;
use streamhalo_grid::{Fields, PerAxis, ReadableGhosts};

/// A matched exchange of the ghosts of some fields: `gather` fills ghosts from the ranks that own
/// them, `scatter` combines ghosts with what their owners have.
///
/// Every step is enqueued on the stream: receives start, boxes are packed (or go straight into the
/// peers' ghosts), sends start, and the stream waits and unpacks. The host waits for none of it,
/// except with backend `standard` (2026, section IV, figures 2 and 3).
///
/// Views and kernels wait for what is enqueued, or are behind it. Messages and the like, which use a
/// [section](streamhalo_comm::device::Section) of a field outside of the stream, do not know of exchanges: with an exchange
/// enqueued `Stream::synchronize` has to come before one of them begins, or it may send ghosts that are not filled yet and
/// receive into entries that are not packed yet; and it is waited for before the next exchange is enqueued.
///
/// Steps that are always the same can be captured once, with their exchanges, and replayed with one call: two at a time,
/// since generations of fields and receive buffers are used in turn (see [`Stream::capture`]).
///
/// ```
/// use streamhalo::WorldOptions;
/// use streamhalo::prelude::*;
///
/// /// u(x) becomes u(x - 1).
/// fn shift(tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)) {
///     next.row(0, 0).copy_from_slice(now.span(0, 0, tile.start[2] - 1..tile.end[2] - 1));
/// }
///
/// let ranks = World::threads(2, WorldOptions::default(), |world| -> Result<Vec<i64>, HaloError> {
///     let stream = Device::host().stream(&world)?;
///     let grid = GlobalGrid::new([8], [true])?.partition(&world)?.local(1)?;
///     let mut cells = Alternating::<i64, 1>::zeros(&grid, Entity::Cell, &stream)?;
///     cells.now_mut().fill(|[x], _| x as i64)?;
///     let mut halo = StreamHalo::new(&world, &stream, "st-rsend", Pattern::Faces, 1, &mut cells)?;
///     let owned = grid.owned(Entity::Cell).tile();
///
///     let two_steps = stream.capture(|stream| -> Result<(), HaloError> {
///         for _ in 0..2 {
///             halo.enqueue_gather(&mut cells)?;
///             stream.launch("shift", owned, cells.now_and_next()?, shift)?;
///             cells.swap();
///         }
///         Ok(())
///     })?;
///     stream.replay(&two_steps, 5)?;
///     Ok(cells.now().owned()?.iter().copied().collect()) // waits for the stream
/// })?;
/// let ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(ranks.concat(), [6, 7, 0, 1, 2, 3, 4, 5]);
/// # Ok::<(), HaloError>(())
/// ```
#[derive(Debug)]
pub struct StreamHalo {
    pub(crate) stream: Stream,
    pub(crate) fields: Vec<Registered>,
    pub(crate) swaps: usize,
    pub(crate) offsets: Vec<Vec<i32>>,
    pub(crate) gather: Compiled,
    pub(crate) scatter: Option<Compiled>,
    /// Whether a gather has ever been begun by itself, so that it may be left without being finished.
    pub(crate) comes_in_halves: bool,
    /// Its number. Whatever enqueues a gather asks for it, periods too, so that it is there as long as that may be.
    pub(crate) exchange: HostState,
}

impl StreamHalo {
    /// Matches a gather of `width` layers (one number, or one for each axis, slowest first) of all
    /// `fields`, carried out on `stream` by `backend`. Collective over `world`; blocks. An axis of width 0 is left out, with
    /// the nodes along it that ranks share; a pattern of no offsets is an exchange that moves nothing.
    ///
    /// `fields` are an [`Array`](crate::Array) or an [`Alternating`](crate::Alternating) field, or a
    /// tuple of them; their element types may differ. An alternating field is swapped once between
    /// two exchanges, by kernels that write owned entries only; see
    /// [`StreamHaloBuilder::swaps_per_exchange`] for others.
    ///
    /// **Give it all that kernels read.** That ghosts are read before they are exchanged is an error, but not that an exchange
    /// does not fill them: layers beyond `width`, and those at corners (and edges) with [`Pattern::Faces`], may be read, and
    /// hold what they held. A kernel that reads two layers needs a width of 2, one that reads diagonally [`Pattern::All`].
    ///
    /// Of fields that all alternate it waits for what is on the stream, since peers
    /// may fill their ghosts from then on.
    ///
    /// # Errors
    /// The same on every rank: no such backend, a subdomain or the fields' own halo thinner than the width, a width of 0 along
    /// all axes ([`HaloError::NoLayers`]), no fields, fields on different grids or streams, one whose two generations differ or
    /// that is in flight, offsets of a pattern that are wrong or there twice, ranks that ask for different exchanges, or what
    /// [`match_exchange`](streamhalo_comm::backend::match_exchange) refuses.
    pub fn new<const D: usize>(
        world: &World,
        stream: &Stream,
        backend: &str,
        pattern: Pattern,
        width: impl PerAxis<D>,
        fields: &mut impl Fields<D>,
    ) -> Result<Self> {
        Self::builder(world, stream).backend(backend).pattern(pattern).build(width, fields)
    }

    /// A builder with backend `st-send`, pattern [`Pattern::All`], no scatter, and one swap of
    /// alternating fields between two exchanges.
    pub fn builder<'a>(world: &'a World, stream: &'a Stream) -> StreamHaloBuilder<'a> {
        StreamHaloBuilder::new(world, stream)
    }

    /// Enqueues filling the ghosts of `fields`, which must be those that the exchange was made for.
    /// Blocks only on an inline stream, with `standard`, and while there is no room for another one: on a
    /// [threaded stream or a device](crate::StreamKind::Threaded), or in a network interface that carries exchanges out.
    ///
    /// # Errors
    /// At once, with nothing enqueued, if the fields are others, in another generation or in another exchange that has begun
    /// and is not finished, if another exchange has to fill their ghosts first ([`HaloError::GhostsFilledAhead`]), or what
    /// [`Exchange::start_recvs`](streamhalo_comm::backend::Exchange::start_recvs) refuses. Errors of what is enqueued
    /// surface at `Stream::synchronize`: such as [`PeerFailed`](streamhalo_comm::Error::PeerFailed) if a neighbour has
    /// dropped its end of the exchange.
    pub fn enqueue_gather<const D: usize>(&mut self, fields: &mut impl Fields<D>) -> Result<()> {
        self.enqueue_gather_in_steps(fields, |_| {})
    }

    /// As [`StreamHalo::enqueue_gather`], and calls back as soon as each step has been enqueued: to enqueue a reading
    /// of the clock behind it, for instance. A panic of the callback goes on when all steps are enqueued.
    ///
    /// ```
    /// use streamhalo::GatherStep::{PostReceives, PostSends, Unpack, Wait};
    /// use streamhalo::prelude::*;
    ///
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let grid = GlobalGrid::new([4], [true])?.partition(&world)?.local(1)?;
    /// let mut heat = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
    /// let mut halo = StreamHalo::new(&world, &stream, "st-send", Pattern::Faces, 1, &mut heat)?;
    /// let mut steps = Vec::new();
    /// halo.enqueue_gather_in_steps(&mut heat, |step| steps.push(step))?;
    /// assert_eq!(steps, [PostReceives, PostSends, Wait, Unpack]);
    /// # Ok::<(), HaloError>(())
    /// ```
    ///
    /// # Errors
    /// As [`StreamHalo::enqueue_gather`].
    pub fn enqueue_gather_in_steps<const D: usize>(
        &mut self,
        fields: &mut impl Fields<D>,
        behind: impl FnMut(GatherStep),
    ) -> Result<()> {
        self.whole_gather("enqueue_gather", fields, behind)
    }

    fn whole_gather<const D: usize>(
        &mut self,
        call: &'static str,
        fields: &mut impl Fields<D>,
        mut behind: impl FnMut(GatherStep),
    ) -> Result<()> {
        let mut panicked = None;
        let mut behind = |step| {
            if panicked.is_none() {
                // Other ranks need the rest of the exchange.
                panicked = catch_unwind(AssertUnwindSafe(|| behind(step))).err();
            }
        };
        let enqueued = self.begin(call, fields, &mut behind).and_then(|phase| self.end(phase, &mut behind));
        match panicked {
            Some(panic) => resume_unwind(panic),
            None => enqueued,
        }
    }

    /// As [`StreamHalo::enqueue_gather`], and waits for the stream.
    ///
    /// # Errors
    /// As [`StreamHalo::enqueue_gather`], and what went wrong on the stream.
    pub fn gather<const D: usize>(&mut self, fields: &mut impl Fields<D>) -> Result<()> {
        self.whole_gather("gather", fields, |_| {})?;
        Ok(self.stream.synchronize()?)
    }

    /// Enqueues the first half of a gather: receives start, and what is clear to be sent is sent.
    /// Until [`InFlight::finish`] the ghosts that other ranks fill are undefined, and kernels may not read
    /// them; those along axes that the rank has to itself are filled already, beside its own entries.
    /// Kernels write owned entries only, beside the ghosts beyond boundaries, and none that are sent: those of the pattern's
    /// [send boxes](streamhalo_grid::Subdomain::send_box) to other ranks, which are packed only when these are ready.
    ///
    /// Of two generations the next one is in no exchange, and a step can write all of it. It computes what needs no ghosts
    /// meanwhile, and the rest afterwards:
    ///
    /// ```
    /// use streamhalo::WorldOptions;
    /// use streamhalo::prelude::*;
    ///
    /// /// u(x) becomes u(x - 1) + u(x + 1).
    /// fn add(tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    ///     let around = now.span(0, 0, tile.start[2] - 1..tile.end[2] + 1);
    ///     for (cell, near) in next.row(0, 0).iter_mut().zip(around.windows(3)) {
    ///         *cell = near[0] + near[2];
    ///     }
    /// }
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| -> Result<Vec<i64>, HaloError> {
    ///     let stream = Device::host().stream(&world)?;
    ///     let grid = GlobalGrid::new([8], [true])?.partition(&world)?.local(1)?;
    ///     let mut cells = Alternating::<i64, 1>::zeros(&grid, Entity::Cell, &stream)?;
    ///     cells.now_mut().fill(|[x], _| x as i64)?;
    ///     let mut halo = StreamHalo::new(&world, &stream, "st-send", Pattern::Faces, 1, &mut cells)?;
    ///     let owned = grid.owned(Entity::Cell);
    ///     let inner = owned.shrink([1]);
    ///
    ///     let mut in_flight = halo.begin_gather(&mut cells)?;
    ///     stream.launch("add", inner.tile(), in_flight.now_and_next()?, add)?;
    ///     in_flight.finish()?;
    ///     for rim in [IndexBox::new(owned.start, inner.start), IndexBox::new(inner.end, owned.end)] {
    ///         stream.launch("add", rim.tile(), cells.now_and_next()?, add)?;
    ///     }
    ///     cells.swap();
    ///     Ok(cells.now().owned()?.iter().copied().collect())
    /// })?;
    /// let ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(ranks, [[8, 2, 4, 6], [8, 10, 12, 6]]);
    /// # Ok::<(), HaloError>(())
    /// ```
    ///
    /// [`InFlight`] shows the same with several fields, and for any number of axes.
    ///
    /// What leaves these bounds is detected: a launch that would write outside of them is refused
    /// ([`TileOutOfBounds`](streamhalo_comm::Error::TileOutOfBounds)), a kernel that reads ghosts fails as it runs (a
    /// kernel's text by what it says that it reads, as it is launched), and the host is refused both. The bound for writing
    /// is one box, without the outermost layers in which anything is sent: a pattern that sends less than whole sides keeps
    /// kernels from the rest of these sides too.
    ///
    /// # Errors
    /// As [`StreamHalo::enqueue_gather`].
    pub fn begin_gather<'a, F: Fields<D>, const D: usize>(
        &'a mut self,
        fields: &'a mut F,
    ) -> Result<InFlight<'a, F, D>> {
        self.begin("begin_gather", fields, &mut |_| {})?;
        self.gather.flush(&self.stream);
        self.comes_in_halves = true;
        Ok(InFlight::new(self, fields))
    }

    /// Enqueues combining the ghosts of `fields` with what their owners have, by the operation that
    /// the exchange was made with. Contributions to an entry are taken in a fixed order, so that a
    /// sum has one value on every backend and fabric at a given layout: in that of their offsets, whichever
    /// rank they are from. Only those along periodic axes in one part come last, axis by axis from the fastest to the
    /// slowest, if the pattern has each of its offsets with all three components there (as [`Pattern::All`] has) and the
    /// operation does not replace.
    /// Afterwards the ghosts are undefined. Blocks as [`StreamHalo::enqueue_gather`] does.
    ///
    /// # Errors
    /// [`HaloError::NoScatter`] if the exchange was made without; else as
    /// [`StreamHalo::enqueue_gather`].
    pub fn enqueue_scatter<const D: usize>(&mut self, fields: &mut impl Fields<D>) -> Result<()> {
        self.whole_scatter("enqueue_scatter", fields)
    }

    fn whole_scatter<const D: usize>(
        &mut self,
        call: &'static str,
        fields: &mut impl Fields<D>,
    ) -> Result<()> {
        self.finish_what_was_left()?;
        let scatter = self.scatter.as_ref().ok_or(HaloError::NoScatter)?;
        let phase = self.check_next(call, fields, scatter.epoch().wrapping_add(1))?;
        if let Some(scatter) = &mut self.scatter {
            // One that failed before has not come to its end, which is not what there is to say.
            self.stream.check()?;
            scatter.post_receives(&self.stream)?;
            scatter.post_sends(&self.stream, phase)?;
            scatter.finish(&self.stream, phase, &mut |_| {})?;
        }
        Ok(())
    }

    /// As [`StreamHalo::enqueue_scatter`], and waits for the stream. The ghosts are those that a gather fills, and go where
    /// it has them from:
    ///
    /// ```
    /// use streamhalo::prelude::*;
    ///
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let grid = GlobalGrid::new([4], [true])?.partition(&world)?.local(1)?;
    /// let mut charge = Array::<f64, 1>::zeros(&grid, Entity::Cell, &stream)?;
    /// let mut halo = StreamHalo::builder(&world, &stream).scatter(Op::Sum).build(1, &mut charge)?;
    /// // A kernel would do so: 0 and 5 are ghosts, of the last cell and of the first.
    /// charge.fill_with_ghosts(|[x], _| x as f64)?;
    /// halo.scatter(&mut charge)?;
    /// let owned: Vec<f64> = charge.owned()?.iter().copied().collect();
    /// assert_eq!(owned, [1.0 + 5.0, 2.0, 3.0, 4.0 + 0.0]);
    /// # Ok::<(), HaloError>(())
    /// ```
    ///
    /// # Errors
    /// As [`StreamHalo::enqueue_scatter`], and what went wrong on the stream.
    pub fn scatter<const D: usize>(&mut self, fields: &mut impl Fields<D>) -> Result<()> {
        self.whole_scatter("scatter", fields)?;
        Ok(self.stream.synchronize()?)
    }

    /// The stream that carries the exchange out.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The backend of gathers: the one that was chosen, where the exchange was made with
    /// [`AUTO`](streamhalo_comm::backend::AUTO). For scatters, which are other exchanges, another one may have been.
    pub fn backend(&self) -> &'static str {
        self.gather.backend()
    }

    /// Bytes that this rank sends in a gather, with those between fields of other element types that begin behind them.
    pub fn bytes_per_exchange(&self) -> usize {
        self.gather.bytes()
    }

    /// The offsets of its pattern, from which a gather fills ghosts: one component an axis, slowest first. In the order of
    /// their components.
    pub fn offsets(&self) -> &[Vec<i32>] {
        &self.offsets
    }

    /// How each message of a gather travels, one for each rank that this one sends to.
    pub fn routes(&self) -> Vec<Route> {
        self.gather.routes()
    }

    /// The first half of a gather, which has the phase that is given.
    fn begin<const D: usize>(
        &mut self,
        call: &'static str,
        fields: &mut dyn Fields<D>,
        behind: &mut impl FnMut(GatherStep),
    ) -> Result<usize> {
        self.finish_what_was_left()?;
        let phase = self.check_next(call, fields, self.gather.epoch().wrapping_add(1))?;
        self.gather.post_receives(&self.stream)?;
        // From here on peers may write, whatever happens next.
        let exchange = self.exchange.get(&self.stream);
        for field in &self.fields {
            field.ghosts(phase, self.swaps).begin(&self.stream, exchange, field.sent);
        }
        behind(GatherStep::PostReceives);
        self.gather.post_sends(&self.stream, phase)?;
        behind(GatherStep::PostSends);
        Ok(phase)
    }

    /// The second half, whatever has become of the fields.
    pub(crate) fn end(&mut self, phase: usize, behind: &mut impl FnMut(GatherStep)) -> Result<()> {
        self.gather.finish(&self.stream, phase, behind)?;
        for field in &self.fields {
            field.ghosts(phase, self.swaps).finish(&self.stream);
        }
        Ok(())
    }

    /// Ends a gather whose [`InFlight`] is gone: forgotten, or finished in a capture, which takes that back.
    #[inline]
    fn finish_what_was_left(&mut self) -> Result<()> {
        if self.comes_in_halves { self.finish_left_half() } else { Ok(()) }
    }

    fn finish_left_half(&mut self) -> Result<()> {
        let (exchange, phase) = (self.exchange.get(&self.stream), phase(self.gather.epoch()));
        let is_left =
            |field: &Registered| field.ghosts(phase, self.swaps).in_flight(&self.stream) == exchange;
        if self.fields.iter().any(is_left) {
            // One that failed has no second half any more, which is not what there is to say.
            self.stream.check()?;
            self.end(phase, &mut |_| {})?;
        }
        Ok(())
    }

    /// Whether an exchange of these fields may begin with that epoch, of which it gives the phase.
    fn check_next<const D: usize>(
        &self,
        call: &'static str,
        fields: &mut dyn Fields<D>,
        epoch: u32,
    ) -> Result<usize> {
        self.check(call, fields, epoch)?;
        let (stream, own, phase) = (&self.stream, self.exchange.get(&self.stream), phase(epoch));
        for (index, field) in self.fields.iter().enumerate() {
            let ghosts = field.ghosts(phase, self.swaps);
            let filled_ahead = ghosts.filled_ahead(stream);
            let is_in_flight = if filled_ahead == own {
                // Peers come to the generation that it leaves, too.
                field.all_ghosts().any(|ghosts| ghosts.in_flight(stream) != 0)
            } else {
                ghosts.in_flight(stream) != 0
            };
            if is_in_flight {
                // One that failed is never finished.
                stream.check()?;
                return Err(HaloError::FieldInFlight { call, index });
            }
            // Of a generation that the one which fills ahead has come to since the last swap, peers leave the ghosts alone.
            if filled_ahead != 0 && filled_ahead != own && ghosts.readable(stream) != ReadableGhosts::All {
                return Err(HaloError::GhostsFilledAhead { call, index });
            }
        }
        Ok(phase)
    }

    /// Whether these are the fields of the exchange, in the generation that it is about in that epoch.
    pub(crate) fn check<const D: usize>(
        &self,
        call: &'static str,
        fields: &mut dyn Fields<D>,
        epoch: u32,
    ) -> Result<()> {
        let mut index = 0;
        let mut other = None;
        let mut wrong_generation = None;
        fields.each(&mut |field| {
            let (arrays, current) = field.generations();
            match self.fields.get(index) {
                Some(registered) if registered.is_of(arrays) => {
                    let expected = registered.generation_in(phase(epoch), self.swaps);
                    if let Some(found) = current
                        && found != expected
                    {
                        let swaps = self.swaps;
                        wrong_generation.get_or_insert(HaloError::WrongGeneration {
                            index,
                            found,
                            expected,
                            epoch,
                            swaps,
                        });
                    }
                }
                _ => {
                    let info = field.info();
                    let components = info.rows.extents().components;
                    other.get_or_insert_with(|| (index, values(components, info.element, info.entity)));
                }
            }
            index += 1;
        });
        let (found, expected) = (index, self.fields.len());
        if other.is_some() || found != expected {
            let (found, expected) = match other {
                Some((index, has)) if found == expected => {
                    let Registered { rows, element, entity, .. } = &self.fields[index];
                    let had = values(rows.extents().components, *element, entity);
                    (format!("another array as field {index} ({has})"), format!("its own there ({had})"))
                }
                _ => (format!("{found} field(s)"), format!("{expected} field(s)")),
            };
            return Err(HaloError::OtherFields { call, found, expected });
        }
        wrong_generation.map_or(Ok(()), Err)
    }
}

impl Drop for StreamHalo {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // As if its `InFlight` had been dropped.
            let _ = self.finish_what_was_left();
        }
    }
}
