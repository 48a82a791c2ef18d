//! The engine of a communicator as the thread of its rank sees it.

use super::engine::{COMMUNICATOR, Engine};
use super::slots::Ticket;
use crate::error::{Error, Result};
use crate::fabric::{Progress, WaitContext, register};
use crate::locks::{lock, try_lock};
use crate::source::Status;
use crate::world::World;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// An engine on which whatever blocks the thread makes progress.
#[derive(Debug)]
pub(crate) struct Host {
    engine: Arc<Mutex<Engine>>,
    context: Arc<WaitContext>,
    /// A wait on this engine makes progress already.
    is_waiting: Cell<bool>,
    /// Whether other threads use the engine too.
    is_shared: Cell<bool>,
}

impl Progress for Host {
    fn progress(&self) -> bool {
        if self.is_waiting.get() {
            return false;
        }
        // Whoever has it makes progress.
        let Some(mut engine) = self.try_lock() else { return false };
        // Also while nothing of this rank is active: what has come makes room for what is to come. An error is
        // kept, for the next call that can give it.
        engine.progress().is_ok() && engine.is_active()
    }
}

impl Host {
    /// The engine of a communicator. Collective; blocks.
    pub(crate) fn connect(world: &World) -> Result<Rc<Self>> {
        let host = Rc::new(Self {
            engine: Arc::new(Mutex::new(Engine::connect(world)?)),
            context: world.wait_context().clone(),
            is_waiting: Cell::new(false),
            is_shared: Cell::new(false),
        });
        register(&host);
        Ok(host)
    }

    pub(crate) fn context(&self) -> &Arc<WaitContext> {
        &self.context
    }

    /// The engine, for another thread.
    pub(crate) fn share(&self) -> &Arc<Mutex<Engine>> {
        self.is_shared.set(true);
        &self.engine
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        lock(&self.engine)
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        try_lock(&self.engine)
    }

    /// Blocks until `done` says so, which is asked with the engine after it has made progress. It needs no other rank.
    pub(crate) fn wait_until(
        &self,
        done: &mut dyn FnMut(&mut Engine) -> Result<bool>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        self.wait_for(None, done, &|_| None, late)
    }

    /// As [`Host::wait_until`], for what that rank does, or any: fails once it has let go of its end, or all others have.
    pub(crate) fn wait_for_rank(
        &self,
        rank: Option<usize>,
        done: &mut dyn FnMut(&mut Engine) -> Result<bool>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        self.wait_for(rank, done, &|engine| engine.gone(rank), late)
    }

    /// As [`Host::wait_for_rank`], until there is room for what goes to that rank: whoever makes it wakes nobody.
    pub(crate) fn wait_for_room(
        &self,
        rank: usize,
        done: &mut dyn FnMut(&mut Engine) -> Result<bool>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        self.wait_for(None, done, &|engine| engine.gone(Some(rank)), late)
    }

    /// As [`Host::wait_until`], which fails once `gone` names a rank.
    fn wait_for(
        &self,
        source: Option<usize>,
        done: &mut dyn FnMut(&mut Engine) -> Result<bool>,
        gone: &dyn Fn(&Engine) -> Option<usize>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        let leaver = Cell::new(None);
        let mut look = || {
            let Some(mut engine) = self.try_lock() else { return Ok(false) };
            leaver.set(None);
            engine.progress()?;
            if done(&mut engine)? {
                return Ok(true);
            }
            if gone(&engine).is_none() {
                return Ok(false);
            }
            // What it sent before it left is there now, and may be all that was needed of it.
            engine.hear_out()?;
            if done(&mut engine)? {
                return Ok(true);
            }
            leaver.set(gone(&engine));
            Ok(false)
        };
        let gone = || leaver.get().map(|rank| self.context.left(rank, COMMUNICATOR));
        self.spin(source, &mut look, &gone, late)
    }

    fn spin(
        &self,
        source: Option<usize>,
        look: &mut dyn FnMut() -> Result<bool>,
        gone: &dyn Fn() -> Option<Error>,
        late: &dyn Fn(Duration) -> Error,
    ) -> Result<()> {
        if look()? {
            return Ok(());
        }
        let was_waiting = self.is_waiting.replace(true);
        let mut sleep = |nap: Duration| match self.is_shared.get() {
            // Others need the engine meanwhile.
            true => std::thread::sleep(nap.min(Duration::from_micros(50))),
            false => self.lock().sleep(source, nap),
        };
        let waited = self.context.poll_sleeping(look, gone, &mut sleep, late);
        self.is_waiting.set(was_waiting);
        waited
    }

    /// Blocks until a request is complete, and takes its outcome.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<Status> {
        let source = self.lock().describe_peer(ticket);
        let mut outcome = None;
        let mut done = |engine: &mut Engine| {
            outcome = engine.outcome(ticket);
            Ok(outcome.is_some())
        };
        self.wait_for(source, &mut done, &|engine| engine.leaver(ticket), &|waited| {
            self.late(ticket, waited)
        })?;
        outcome.expect("the wait ends with the request")
    }

    /// The error of a wait for a request that has taken too long.
    pub(crate) fn late(&self, ticket: Ticket, waited: Duration) -> Error {
        let (peer, what) = self.lock().describe(ticket);
        self.context.late(peer, what, waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::WorldOptions;

    /// As a receive on a device whose last block was on its way when its sender left: the copies to the device come to
    /// their end without it.
    #[test]
    fn a_rank_that_has_left_is_not_waited_for_where_it_has_sent_all() {
        let options = WorldOptions { timeout: Some(Duration::from_secs(20)), ..WorldOptions::default() };
        let ends = World::threads(1, options, |world| {
            let host = Host::connect(&world)?;
            let late = |_| panic!("nothing is late");
            let wait = |done_at: u32, last_needed: u32| {
                let (looked, asked) = (Cell::new(0), Cell::new(0));
                let mut done = |_: &mut Engine| {
                    looked.set(looked.get() + 1);
                    Ok(looked.get() == done_at)
                };
                let gone = |_: &Engine| {
                    asked.set(asked.get() + 1);
                    (asked.get() <= last_needed).then_some(0)
                };
                host.wait_for(None, &mut done, &gone, &late)
            };
            Ok::<_, Error>((wait(5, 1), wait(u32::MAX, u32::MAX)))
        });
        let (sent_all, has_not) = ends.expect("threads").remove(0).expect("a communicator");
        assert_eq!(sent_all, Ok(()));
        assert!(matches!(has_not, Err(Error::PeerFailed { rank: 0, .. })), "{has_not:?}");
    }
}
