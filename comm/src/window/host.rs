//! Active target epochs of the host: `MPI_Win_post`, `MPI_Win_complete`, `MPI_Win_test` and `MPI_Win_wait`.

use super::active::{Active, Mode, Planned};
use super::{Group, Window};
use crate::device::progress;
use crate::error::Result;
use crate::fabric::WaitContext;

impl Window {
    /// Exposes this rank's part to the origins of `group`, each of which may access it once the signal is there.
    /// Until [`Window::wait`] nothing else of this rank may use the part, and what it holds is undefined. Does
    /// not block, unless epochs of the window are still on a stream; what else that does with the part is not
    /// waited for: synchronise it first.
    /// `MPI_Win_post`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if it is exposed already, [`crate::Error::InUse`] if an operation still uses
    /// it, [`crate::Error::BadGroup`] if the group is of a larger world.
    pub fn post(&self, group: &Group) -> Result<()> {
        self.check_group(group)?;
        let active = &mut *self.epochs("post")?;
        let hold = active.may_expose("post", &self.inner().own)?;
        active.account.drain()?;
        active.expose(group, Mode::Host, hold);
        active.signals.each_exposure(group.ranks(), |signal, epoch| signal.run(epoch));
        match &active.far {
            Some(far) => far.expose(&active.far_exposures(group)),
            None => Ok(()),
        }
    }

    /// Carries out the operations of the access epoch and ends it: the sections may be used again, and gets have
    /// arrived. Blocks until all targets of the group have exposed their parts. What the stream still has to write
    /// into a section does not count: synchronise it first. `MPI_Win_complete`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no epoch of [`Mode::Host`] has begun; [`crate::Error::TimedOut`], which names
    /// a target that has not exposed its part, or [`crate::Error::PeerFailed`].
    pub fn complete(&self) -> Result<()> {
        let active = &mut *self.epochs("complete")?;
        let group = active.accessed("complete", Mode::Host)?;
        active.account.drain()?;
        let planned = active.plan(&group);
        let carried = planned.and_then(|()| active.carry_out(&group, self.inner().world.wait_context()));
        active.end_access();
        carried
    }

    /// Whether all origins of the group have completed their access epochs, which then ends the exposure epoch.
    /// Does not block. `MPI_Win_test`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no exposure epoch of [`Window::post`] has begun.
    pub fn test(&self) -> Result<bool> {
        let active = &mut *self.epochs("test")?;
        let group = active.exposed("test", Mode::Host)?;
        progress();
        let signals = &active.signals;
        let is_done =
            |origin: &usize| signals.completed_by(*origin).cell().reached(signals.exposures(*origin));
        let done = group.ranks().iter().all(is_done);
        if done {
            active.end_exposure();
        }
        Ok(done)
    }

    /// Blocks until all origins of the group have completed their access epochs, which ends the exposure epoch:
    /// what they have put is there. `MPI_Win_wait`.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no exposure epoch of [`Window::post`] has begun; [`crate::Error::TimedOut`],
    /// which names an origin that has not completed, or [`crate::Error::PeerFailed`].
    pub fn wait(&self) -> Result<()> {
        let active = &mut *self.epochs("wait")?;
        let group = active.exposed("wait", Mode::Host)?;
        active.end_exposure();
        if let Some(far) = &active.far {
            far.completed(&active.far_exposures(&group))?;
        }
        let (context, signals) = (self.inner().world.wait_context(), &active.signals);
        group.ranks().iter().try_for_each(|origin| {
            context.wait(signals.completed_by(*origin), signals.exposures(*origin), &mut progress)
        })
    }
}

impl Active {
    /// Carries out the sends of the epoch as their targets become ready.
    fn carry_out(&mut self, group: &Group, context: &WaitContext) -> Result<()> {
        let begun = match &self.far {
            Some(far) => far.begin(self.far_accesses(group))?,
            None => Vec::new(),
        };
        let planned = &mut self.planned;
        carry_out_ready(planned);
        while let Some(Planned { send, epoch, .. }) = planned.first() {
            let (send, epoch) = (send.clone(), *epoch);
            for word in &send.conditions {
                context.wait(word, epoch, &mut || {
                    carry_out_ready(planned);
                    progress()
                })?;
            }
            carry_out_ready(planned);
        }
        self.far.as_ref().map_or(Ok(()), |far| far.finish(&begun))
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
