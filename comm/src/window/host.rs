//! Active target epochs of the host: `MPI_Win_post`, `MPI_Win_complete`, `MPI_Win_test` and `MPI_Win_wait`.

use super::account::Side;
use super::active::{Active, Mode, Planned};
use super::epoch::Recorded;
use super::{Group, WINDOW, Window};
use crate::device::{Hold, progress};
use crate::error::Result;
use crate::fabric::WaitContext;

impl Window {
    /// Exposes this rank's part to the origins of `group`, each of which may access it once the signal is there.
    /// Until [`Window::wait`] nothing else of this rank may use the part, and what it holds is undefined. Does
    /// not block, unless something is still on the part's stream that uses it, or exposure epochs of the window are still on
    /// one. A part on a device waits for its stream, and is copied to the host.
    /// `MPI_Win_post`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if it is exposed already, [`crate::Error::InUse`] if an operation still uses
    /// it, [`crate::Error::BadGroup`] if the group is of a larger world.
    pub fn post(&self, group: &Group) -> Result<()> {
        self.check_group(group)?;
        let active = &mut *self.epochs("post")?;
        let own = &self.inner().own;
        let hold = active.may_expose("post", own.section())?;
        active.account.drain(&[Side::Exposure])?;
        match own.is_copy() {
            false => hold.wait_for_stream()?,
            true => own.bring_down()?,
        }
        active.expose(group, Mode::Host, hold);
        active.signals.each_exposure(group.ranks(), |signal, epoch| signal.run(epoch));
        match &active.far {
            Some(far) => far.expose(&active.far_exposures(group)),
            None => Ok(()),
        }
    }

    /// Carries out the operations of the access epoch and ends it: the sections may be used again, and gets have
    /// arrived. Blocks until all targets of the group have exposed their parts, and access epochs of the window that are
    /// still on a stream are complete; and exposure epochs if an operation uses the part, recorded while that was not
    /// exposed; and until what a stream still has to do with the sections has run. Where one is on a device, that is all that
    /// is on its stream: if a [`Window::wait_stream`] is there whose origins wait for this epoch, neither ends.
    /// `MPI_Win_complete`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no epoch of [`Mode::Host`] has begun; [`crate::Error::TimedOut`], which names
    /// a target that has not exposed its part; [`crate::Error::PeerFailed`] if a rank has failed, or a target has
    /// dropped its end of the window. Then some of the operations may have been carried out, the epoch has ended, and
    /// sections that a wire may still use are not lent again. Targets whose memory is mapped, and to which nothing was done,
    /// are still exposed to the next epoch.
    pub fn complete(&self) -> Result<()> {
        let active = &mut *self.epochs("complete")?;
        let group = active.accessed("complete", Mode::Host)?;
        let sides = active.sides(self.inner().own.section());
        active.account.drain(sides)?;
        let context = self.inner().world.wait_context();
        let brought = active.wait_for_streams().and_then(|()| active.bring(Recorded::enqueue_before));
        let planned = brought.and_then(|()| active.plan(&group));
        let carried = planned.and_then(|()| active.carry_out(&group, context));
        let carried = carried.and_then(|()| active.bring(Recorded::enqueue_behind));
        match &carried {
            Ok(()) => {
                active.signals.complete(group.ranks());
                active.end_access();
            }
            Err(_) => {
                active.take_back_planned();
                active.give_up_access();
            }
        }
        carried
    }

    /// Whether all origins of the group have completed their access epochs, which then ends the exposure epoch.
    /// Does not block, except that a window over memory of a device copies what has come to it as the epoch ends.
    /// `MPI_Win_test`.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::window::{ActiveOptions, Group, Mode, Window};
    /// use streamhalo_comm::{Error, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let line = Extents { points: [1, 1, 4], components: 1 };
    ///     let mut cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    ///     if world.rank() == 0 {
    ///         cells.view_mut(line.whole())?.fill(2.5);
    ///     }
    ///     let window = Window::active(&world, &cells.section(2..4)?, ActiveOptions::default())?;
    ///     let peer = Group::new(&world, &[1 - world.rank()])?;
    ///     if world.rank() == 0 {
    ///         window.start(&peer, Mode::Host)?;
    ///         window.put(&cells.section(0..2)?, 1, 0)?;
    ///         window.complete()?;
    ///     } else {
    ///         window.post(&peer)?;
    ///         while !window.test()? {
    ///             std::thread::yield_now(); // ... what else there is to do ...
    ///         }
    ///     }
    ///     cells.copy_out(line.whole())
    /// })?;
    /// assert_eq!(ranks[1], Ok(vec![0.0, 0.0, 2.5, 2.5]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no exposure epoch of [`Window::post`] has begun; [`crate::Error::PeerFailed`],
    /// which ends the epoch as in [`Window::wait`], if a rank has failed, or an origin has dropped its end of the
    /// window.
    pub fn test(&self) -> Result<bool> {
        let active = &mut *self.epochs("test")?;
        let group = active.exposed("test", Mode::Host)?;
        progress();
        let done = active.have_completed(&group, self.inner().world.wait_context());
        match &done {
            Ok(false) => {}
            Ok(true) => {
                drop(active.end_exposure());
                self.inner().own.bring_up()?;
            }
            Err(_) => active.give_up_exposure(),
        }
        done
    }

    /// Blocks until all origins of the group have completed their access epochs, which ends the exposure epoch:
    /// what they have put is there. `MPI_Win_wait`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no exposure epoch of [`Window::post`] has begun; [`crate::Error::TimedOut`],
    /// which names an origin that has not completed; [`crate::Error::PeerFailed`] if a rank has failed, or an origin
    /// has dropped its end of the window. Then the epoch has ended, and if another origin may still write the part, that is
    /// not lent again: views, kernels and further epochs are refused with [`crate::Error::InUse`].
    pub fn wait(&self) -> Result<()> {
        let active = &mut *self.epochs("wait")?;
        let group = active.exposed("wait", Mode::Host)?;
        if let Err(error) = active.await_completion(&group, self.inner().world.wait_context()) {
            active.give_up_exposure();
            return Err(error);
        }
        drop(active.end_exposure());
        self.inner().own.bring_up()
    }
}

impl Active {
    /// Whether the origins of an exposure epoch have completed it.
    fn have_completed(&self, group: &Group, context: &WaitContext) -> Result<bool> {
        if let Some(far) = &self.far {
            far.look_for_completions(&self.far_exposures(group))?;
        }
        let (signals, ranks) = (&self.signals, group.ranks());
        let word = |origin: usize| signals.completed_by(origin).cell();
        if ranks.iter().all(|origin| word(*origin).reached(signals.exposures(*origin))) {
            return Ok(true);
        }
        match signals.left_origin(ranks) {
            Some(rank) => Err(context.left(rank, WINDOW)),
            None if context.abort.failure().is_some() => Err(context.peer_failure()),
            None => Ok(false),
        }
    }

    /// Waits until they have.
    fn await_completion(&self, group: &Group, context: &WaitContext) -> Result<()> {
        let signals = &self.signals;
        let leaver = || signals.left_origin(group.ranks());
        if let Some(far) = &self.far {
            far.completed(&self.far_exposures(group), &leaver, &mut || false)?;
        }
        group.ranks().iter().try_for_each(|origin| {
            let (word, epoch) = (signals.completed_by(*origin), signals.exposures(*origin));
            context.wait(word, epoch, &|| leaver().map(|rank| context.left(rank, WINDOW)), &mut progress)
        })
    }

    /// Waits for what streams still have to do with sections that are used where they are.
    fn wait_for_streams(&self) -> Result<()> {
        let here = self.operations.iter().filter(|one| !one.mirror.is_copy());
        here.filter_map(|one| one.hold.as_ref()).try_for_each(Hold::wait_for_stream)
    }

    /// Has the streams of the operations' sections do something, and waits for those that have.
    fn bring(&self, enqueue: fn(&Recorded)) -> Result<()> {
        self.operations.iter().for_each(enqueue);
        self.operations.iter().try_for_each(|one| one.mirror.settle())
    }

    /// Carries out the sends of the epoch as their targets become ready.
    fn carry_out(&mut self, group: &Group, context: &WaitContext) -> Result<()> {
        let begun = match &self.far {
            Some(far) => far.begin(self.far_accesses(group))?,
            None => Vec::new(),
        };
        let (planned, signals) = (&mut self.planned, &self.signals);
        let far_leaver = || self.far.as_ref().and_then(|far| far.left_target(&begun));
        let leaver = || signals.left_target(group.ranks()).or_else(far_leaver);
        let gone = || leaver().map(|rank| context.left(rank, WINDOW));
        carry_out_ready(planned);
        while let Some(Planned { send, epoch, .. }) = planned.first() {
            let (send, epoch) = (send.clone(), *epoch);
            for word in &send.conditions {
                context.wait(word, epoch, &gone, &mut || {
                    carry_out_ready(planned);
                    progress()
                })?;
            }
            carry_out_ready(planned);
        }
        self.far.as_ref().map_or(Ok(()), |far| far.finish(&begun, &mut || false))
    }
}

fn carry_out_ready(planned: &mut Vec<Planned>) {
    planned.retain(|one| {
        let is_clear = one.send.is_clear(one.epoch);
        if is_clear {
            one.send.run(one.epoch);
            one.send.wake();
        }
        !is_clear
    });
}
