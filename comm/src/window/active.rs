//! Active target epochs: what has begun, and which call may come next (2023, section 4).
//!
//! What an access epoch is to do is recorded in `access.rs`; the host's calls that begin and end epochs are in
//! `host.rs`, those that go on a stream in `streamed.rs`.

use super::account::{Account, Side};
use super::epoch::{Plan, Plans, Recorded};
use super::far::{Far, Operation};
use super::signals::Signals;
use super::{Group, Window};
use crate::device::{Hold, Intent, Mirror, Mirrors, Section, Stream, TriggeredSend, WaitSet};
use crate::error::{Error, Result};
use crate::fabric::{Executor, Place, Throttling};
use crate::world::World;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

/// Who carries out the operations of an access epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The host, in [`Window::complete`].
    Host,
    /// The stream, once it has come to [`Window::complete_stream`] (`MPIX_MODE_STREAM` of the paper).
    Stream,
}

/// How much a host may enqueue ahead of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveOptions {
    /// Who makes room when all entries are in use, and how much.
    pub throttling: Throttling,
    /// How many entries there are. Each operation, and each signal to a rank, of an epoch on a stream takes one
    /// until the stream has carried it out.
    pub entries: usize,
}

impl Default for ActiveOptions {
    fn default() -> Self {
        Self { throttling: Throttling::Adaptive, entries: 4096 }
    }
}

/// The active target epochs of a window.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) signals: Signals,
    pub(super) account: Account,
    plans: Plans,
    /// Of sections on a device that epochs were given.
    mirrors: Mirrors,
    /// Where the parts of the ranks are that are mapped and not empty, by rank.
    parts: Vec<Option<Place>>,
    exposure: Option<Exposure>,
    pub(super) access: Option<(Group, Mode)>,
    /// Of the access epoch.
    pub(super) operations: Vec<Recorded>,
    /// What is left to carry out, or to enqueue, of an epoch that is being completed.
    pub(super) planned: Vec<Planned>,
    /// For ranks whose memory is not mapped, if there are any.
    pub(super) far: Option<Far>,
    world: World,
}

/// An exposure epoch, which keeps this rank from the part that it lets others write.
#[derive(Debug)]
struct Exposure {
    group: Group,
    mode: Mode,
    hold: Hold,
}

/// Sends of an epoch, to targets that have come to its number together.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) send: Arc<TriggeredSend>,
    pub(super) departure: Arc<WaitSet>,
    pub(super) epoch: u32,
}

/// A far target, the number of the epoch, and what that is to do there.
pub(super) type FarAccess = (usize, u32, Vec<Operation>);

pub(super) fn out_of_order(call: &'static str, reason: &str) -> Error {
    Error::OutOfOrder { call, reason: reason.into() }
}

impl Active {
    /// The group of the access epoch, if there is one of that mode.
    pub(super) fn accessed(&self, call: &'static str, mode: Mode) -> Result<Group> {
        match (&self.access, mode) {
            (None, _) => Err(out_of_order(call, "start an access epoch first")),
            (Some((_, Mode::Host)), Mode::Stream) => {
                Err(out_of_order(call, "the epoch was started with Mode::Host; end it with `complete`"))
            }
            (Some((_, Mode::Stream)), Mode::Host) => Err(out_of_order(
                call,
                "the epoch was started with Mode::Stream; end it with `complete_stream`",
            )),
            (Some((group, _)), _) => Ok(group.clone()),
        }
    }

    /// The group of the exposure epoch, if there is one of that mode.
    pub(super) fn exposed(&self, call: &'static str, mode: Mode) -> Result<Group> {
        match (&self.exposure, mode) {
            (None, _) => Err(out_of_order(call, "post an exposure epoch first")),
            (Some(Exposure { mode: Mode::Host, .. }), Mode::Stream) => {
                Err(out_of_order(call, "the window was exposed with `post`; use `wait` or `test`"))
            }
            (Some(Exposure { mode: Mode::Stream, .. }), Mode::Host) => {
                Err(out_of_order(call, "the window was exposed with `post_stream`; use `wait_stream`"))
            }
            (Some(Exposure { group, .. }), _) => Ok(group.clone()),
        }
    }

    /// Keeps this rank from its part, if an exposure epoch may begin.
    pub(super) fn may_expose(&self, call: &'static str, own: &Section) -> Result<Hold> {
        match &self.exposure {
            None => own.hold_in_order(Intent::Write, "an exposure epoch"),
            Some(_) => Err(out_of_order(call, "the window is exposed already; wait for that epoch first")),
        }
    }

    /// Keeps others from the section of an operation, which may go on after the exposure of the part that it lies in;
    /// and whether that is exposed. It may still be a source: of what peers do not write.
    pub(super) fn hold(
        &self,
        own: &Section,
        section: &Section,
        (intent, by): (Intent, &'static str),
    ) -> Result<(Hold, bool)> {
        match &self.exposure {
            Some(Exposure { hold, .. }) if section.is_within(own) => {
                Ok((section.hold_beside(hold, intent, by)?, true))
            }
            _ => Ok((section.hold_in_order(intent, by)?, false)),
        }
    }

    /// Where peers find a section of an operation; `own` is the part of this rank.
    pub(super) fn mirror(&mut self, own: &Mirror, section: &Section) -> Result<Mirror> {
        self.mirrors.of(section, || match own.is_copy() && section.is_within(own.section()) {
            true => own.part(section),
            false => Mirror::new(&self.world, section),
        })
    }

    /// Begins an exposure epoch.
    pub(super) fn expose(&mut self, group: &Group, mode: Mode, hold: Hold) {
        self.signals.expose(group.ranks());
        self.exposure = Some(Exposure { group: group.clone(), mode, hold });
    }

    /// Whether peers may access this rank's part.
    pub(super) fn is_exposed(&self) -> bool {
        self.exposure.is_some()
    }

    /// Whether that is where a stream comes to it, which may not have done so.
    pub(super) fn is_exposed_by_stream(&self) -> bool {
        matches!(self.exposure, Some(Exposure { mode: Mode::Stream, .. }))
    }

    /// Ends the exposure epoch; what has kept this rank from its part goes to whoever goes on with that.
    pub(super) fn end_exposure(&mut self) -> Option<Hold> {
        self.exposure.take().map(|exposure| exposure.hold)
    }

    /// Ends an exposure epoch that has failed. What an origin may still write is never lent again.
    pub(super) fn give_up_exposure(&mut self) {
        let Some(Exposure { group, hold, .. }) = self.exposure.take() else { return };
        let Active { signals, far, .. } = self;
        let may_write = |origin: &usize| {
            let (word, epoch) = (signals.completed_by(*origin), signals.exposures(*origin));
            let has_left = match far {
                Some(far) if !signals.is_mapped(*origin) => far.has_left(*origin),
                _ => word.leaver(epoch).is_some(),
            };
            !word.cell().reached(epoch) && !has_left
        };
        if group.ranks().iter().any(may_write) {
            hold.keep();
        }
    }

    /// What the access epoch has to do with: with exposures only if an operation is on the part of this rank. The host
    /// need not wait for the end of the one in which that was recorded.
    pub(super) fn sides(&self, own: &Section) -> &'static [Side] {
        let is_on_stream = matches!(self.access, Some((_, Mode::Stream)));
        let is_on_part =
            |one: &Recorded| (is_on_stream || !one.is_exposed) && one.mirror.section().meets(own);
        match self.operations.iter().any(is_on_part) {
            true => &[Side::Access, Side::Exposure],
            false => &[Side::Access],
        }
    }

    /// Counts the accesses of the epoch and makes its sends to targets whose memory is mapped, or does nothing.
    pub(super) fn plan(&mut self, group: &Group) -> Result<()> {
        let Active { signals, plans, parts, operations, planned, .. } = self;
        signals.access(group.ranks());
        let mut result = Ok(());
        signals.each_access(group.ranks(), |signals, targets, epoch| {
            match plans.of(signals, parts, targets, operations) {
                Ok(Plan { send, departure, .. }) => {
                    planned.push(Planned { send: send.clone(), departure: departure.clone(), epoch });
                }
                Err(error) => result = Err(error),
            }
        });
        if result.is_err() {
            planned.clear();
            signals.take_back(group.ranks().iter().copied());
        }
        result
    }

    /// Takes back the accesses to targets whose sends have not been carried out: they still wait for them.
    pub(super) fn take_back_planned(&mut self) {
        for Planned { send, .. } in self.planned.drain(..) {
            self.signals.take_back(send.conditions.iter().map(|exposure| exposure.from));
        }
    }

    /// The targets of the access epoch whose memory is not mapped, with the number of the epoch and what it is
    /// to do there.
    pub(super) fn far_accesses(&self, group: &Group) -> Vec<FarAccess> {
        let far = group.ranks().iter().filter(|target| !self.signals.is_mapped(**target));
        let access = |target: &usize| {
            let ours = self.operations.iter().filter(|one| one.target == *target);
            (*target, self.signals.accesses(*target), ours.map(Operation::from).collect())
        };
        far.map(access).collect()
    }

    /// The origins of the exposure epoch whose memory is not mapped, with the number of the epoch.
    pub(super) fn far_exposures(&self, group: &Group) -> Vec<(usize, u32)> {
        let far = group.ranks().iter().filter(|origin| !self.signals.is_mapped(**origin));
        far.map(|origin| (*origin, self.signals.exposures(*origin))).collect()
    }

    /// Ends the access epoch.
    pub(super) fn end_access(&mut self) {
        self.access = None;
        // What they hold goes, and the room stays.
        self.operations.clear();
        self.planned.clear();
    }

    /// Ends an access epoch that has failed. What a wire may still use is never lent again.
    pub(super) fn give_up_access(&mut self) {
        if self.far.is_some() {
            self.operations.iter_mut().filter_map(|one| one.hold.take()).for_each(Hold::keep);
        }
        self.end_access();
    }
}

impl Drop for Active {
    /// Peers must not wait for an epoch that nobody can end or begin any more.
    fn drop(&mut self) {
        let open = match (&self.exposure, &self.access) {
            (Some(exposure), _) => Some(("exposure", &exposure.group)),
            (None, Some((group, _))) => Some(("access", group)),
            (None, None) => None,
        };
        if let Some((kind, group)) = open.filter(|_| !std::thread::panicking()) {
            let ranks = group.ranks();
            self.world.fail(&format!("it dropped a window with an open {kind} epoch of the ranks {ranks:?}"));
        }
        self.give_up_exposure();
        // Behind the failure, which says more.
        self.signals.part();
    }
}

impl Window {
    /// A window for active target epochs: this rank's part is `section`, which may be empty, and is accessed
    /// between [`Window::post`] and [`Window::wait`] only. In between it is the rank's own, for kernels and
    /// views. Collective over `world`; blocks. `MPI_Win_create`.
    ///
    /// Calls on a stream must name the stream that the memory belongs to; events order it with others. A window
    /// that is dropped with an open epoch fails its world, since peers would wait for it without end. Between epochs a
    /// rank may drop its end: epochs that it has left on its streams are still carried out, and whoever waits for
    /// another one of it gets [`Error::PeerFailed`].
    ///
    /// Every rank writes to its left and right neighbour, again and again, and the host waits once, at the end
    /// (figure 9b of the paper):
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents, Rows, RowsMut};
    /// use streamhalo_comm::window::{ActiveOptions, Group, Mode, Window};
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(3, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let row = |elements| Extents { points: [1, 1, elements], components: 1 };
    ///     let mut source = Buffer::<f64>::zeros(&world, &stream, row(4))?;
    ///     let mut sum = Buffer::<f64>::zeros(&world, &stream, row(4))?;
    ///     let received = Buffer::<f64>::zeros(&world, &stream, row(8))?;
    ///     let window = Window::active(&world, &received.section(0..8)?, ActiveOptions::default())?;
    ///     let (left, right) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
    ///     let neighbours = Group::new(&world, &[left, right])?;
    ///     let start = world.rank() as f64;
    ///
    ///     for _ in 0..10 {
    ///         window.post_stream(&neighbours, &stream)?;
    ///         let whole = source.extents().whole();
    ///         stream.launch("increment", whole, (source.writer(whole)?,), move |_, (mut row,): (RowsMut<f64>,)| {
    ///             row.row(0, 0).iter_mut().for_each(|element| *element += 1.0 + start);
    ///         })?;
    ///         window.start(&neighbours, Mode::Stream)?;
    ///         window.put(&source.section(0..4)?, left, 4)?;
    ///         window.put(&source.section(0..4)?, right, 0)?;
    ///         window.complete_stream(&stream)?;
    ///         window.wait_stream(&stream)?;
    ///         let both = (received.reader(received.extents().whole())?, sum.writer(whole)?);
    ///         stream.launch("add", whole, both, |_, (row, mut sum): (Rows<f64>, RowsMut<f64>)| {
    ///             let (from_left, from_right) = row.row(0, 0).split_at(4);
    ///             for (i, sum) in sum.row(0, 0).iter_mut().enumerate() {
    ///                 *sum += from_left[i] + from_right[i];
    ///             }
    ///         })?;
    ///     }
    ///     stream.synchronize()?;
    ///     Ok::<_, Error>(sum.copy_out(sum.extents().whole())?[0])
    /// })?;
    /// // 1 + 2 + ... + 10 times the increments of the neighbours.
    /// assert_eq!(ranks, [Ok(55.0 * 5.0), Ok(55.0 * 4.0), Ok(55.0 * 3.0)]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`], on all ranks, if the section of one has another element type, or if there is
    /// no memory for the signals.
    pub fn active(world: &World, section: &Section, options: ActiveOptions) -> Result<Self> {
        const CALL: &str = "Window::active";
        let mut window = Self::create(world, CALL, Ok(section.clone()), false)?;
        let targets = &window.inner().targets;
        let parts = targets.iter().map(|target| target.memory.as_ref().map(|memory| memory.place()));
        let signals = Signals::connect(world, section.stream(), CALL)?;
        let active = Active {
            parts: parts.collect(),
            far: Far::connect(world, &window.inner().own, &signals)?,
            signals,
            account: Account::new(world, options.throttling, options.entries),
            plans: Plans::default(),
            mirrors: Mirrors::default(),
            exposure: None,
            access: None,
            operations: Vec::new(),
            planned: Vec::new(),
            world: world.clone(),
        };
        let inner = Rc::get_mut(&mut window.inner).expect("nobody else has the window yet");
        inner.active = Some(RefCell::new(active));
        Ok(window)
    }

    /// The epochs of an active window.
    pub(super) fn epochs(&self, call: &'static str) -> Result<RefMut<'_, Active>> {
        let reason = "the window has no epochs; make it with `Window::active`";
        Ok(self.inner().active.as_ref().ok_or_else(|| out_of_order(call, reason))?.borrow_mut())
    }

    /// Who carries out this rank's operations on the part of `target` in active target epochs, on streams as that of its
    /// own part.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn executor(&self, target: usize, mode: Mode) -> Executor {
        let is_mapped = self.inner().world.fabric().is_mapped(target);
        match mode {
            Mode::Host => Executor::Host,
            Mode::Stream if is_mapped && !self.inner().own.is_copy() => Executor::Stream,
            Mode::Stream => Executor::Proxy,
        }
    }

    /// How many entries for epochs on streams are in use; see [`ActiveOptions::entries`].
    pub fn entries_in_use(&self) -> usize {
        self.epochs("entries_in_use").map_or(0, |mut active| active.account.in_use())
    }

    pub(super) fn check_group(&self, group: &Group) -> Result<()> {
        let size = self.size();
        match group.ranks().iter().find(|rank| **rank >= size) {
            None => Ok(()),
            Some(rank) => Err(Error::BadGroup {
                ranks: group.ranks().to_vec(),
                reason: format!("the window's world has {size} ranks, and rank {rank} is not one"),
            }),
        }
    }

    /// Refuses streams that do not order what is done with the memory of the epoch.
    pub(super) fn check_stream(&self, section: &Section, stream: &Stream) -> Result<()> {
        let (owner, used) = (section.stream().id(), stream.id());
        if owner == used {
            Ok(())
        } else {
            Err(Error::WrongStream { what: "memory of an epoch", owner, used })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents, left_of};
    use crate::world::WorldOptions;
    use std::sync::Barrier;

    /// What an origin may still write is not lent again; the stream that works on it ends all the same.
    #[test]
    fn an_exposure_that_is_given_up_keeps_no_stream() {
        let is_over = Barrier::new(2);
        let ranks = World::threads(2, WorldOptions::default(), |world| {
            let give_up = || {
                let stream = Device::host().stream(&world)?;
                let line = Extents { points: [1, 1, 8], components: 1 };
                let buffer = Buffer::<f64>::zeros(&world, &stream, line)?;
                let section = buffer.section(0..8)?;
                let window = Window::active(&world, &section, ActiveOptions::default())?;
                if world.rank() == 0 {
                    return Ok((None, Some(window)));
                }
                window.post(&Group::new(&world, &[0])?)?;
                drop(window);
                Ok::<_, Error>((Some(left_of(stream, buffer, section)), None))
            };
            let told = give_up();
            // The origin has its end until then.
            is_over.wait();
            told.map(|(told, _)| told)
        });
        let told = ranks.expect("threads start").remove(1).expect("an epoch");
        assert!(matches!(told, Some((Err(Error::InUse { .. }), false))), "{told:?}");
    }
}
