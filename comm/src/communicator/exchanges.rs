//! The engine of the exchanges that a rank's thread carries out itself.
//!
//! No other thread uses it, so that nothing is locked on the way of an exchange.

use super::engine::Engine;
use super::slots::Ticket;
use crate::error::{Error, Result};
use crate::fabric::{Progress, WaitContext, register};
use crate::source::Tag;
use crate::world::World;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

/// The messages of a world's exchanges between ranks whose memory is mapped.
#[derive(Debug)]
pub(crate) struct Exchanges {
    engine: RefCell<Engine>,
    context: Arc<WaitContext>,
    /// A wait on this engine makes progress already.
    is_waiting: Cell<bool>,
}

impl Progress for Exchanges {
    fn progress(&self) -> bool {
        if self.is_waiting.get() {
            return false;
        }
        let mut engine = self.engine.borrow_mut();
        // An error is kept, for the next call that can give it.
        engine.is_active() && engine.progress().is_ok() && engine.is_active()
    }
}

impl Exchanges {
    /// Connects the ranks of a world. Collective; blocks.
    pub(crate) fn connect(world: &World) -> Result<Rc<Self>> {
        let exchanges = Rc::new(Self {
            engine: RefCell::new(Engine::connect_mapped(world)?),
            context: world.wait_context().clone(),
            is_waiting: Cell::new(false),
        });
        register(&exchanges);
        Ok(exchanges)
    }

    /// The engine, while nothing is waited for.
    #[inline]
    pub(crate) fn engine(&self) -> RefMut<'_, Engine> {
        self.engine.borrow_mut()
    }

    /// Blocks until all requests of an exchange are complete; they can be started again then. Fails if `gone` gives an
    /// error meanwhile: one of the ranks has let go of the exchange. Of each request comes the tag that errors give it.
    pub(crate) fn wait_for_all(
        &self,
        tickets: &[(Ticket, u32)],
        gone: &dyn Fn() -> Option<Error>,
    ) -> Result<()> {
        let mut complete = 0;
        let mut look = || {
            let mut engine = self.engine.borrow_mut();
            loop {
                while complete < tickets.len() && engine.is_complete(tickets[complete].0) {
                    complete += 1;
                }
                if complete == tickets.len() {
                    return Ok(true);
                }
                // No more than is waited for: messages of the next epoch would have to be kept.
                if !engine.look()? {
                    return engine.progress().map(|()| false);
                }
            }
        };
        if !look()? {
            self.wait(tickets, &mut look, gone)?;
        }
        let mut engine = self.engine.borrow_mut();
        // All of them end, whatever the first error is.
        let mut ended = Ok(());
        for (ticket, _) in tickets {
            let end = engine.end(*ticket);
            ended = ended.and(end);
        }
        ended
    }

    fn wait(
        &self,
        tickets: &[(Ticket, u32)],
        look: &mut dyn FnMut() -> Result<bool>,
        gone: &dyn Fn() -> Option<Error>,
    ) -> Result<()> {
        let first_late = |engine: &Engine| tickets.iter().find(|(ticket, _)| !engine.is_complete(*ticket));
        let mut sleep = |nap| {
            let engine = self.engine.borrow();
            let late = first_late(&engine);
            engine.sleep(late.and_then(|(late, _)| engine.describe_peer(*late)), nap);
        };
        let describe = |waited| {
            let engine = self.engine.borrow();
            let (late, tag) = first_late(&engine).expect("not all are complete");
            let (peer, what) = engine.describe_as(*late, Tag::Value(*tag));
            self.context.late(peer, what, waited)
        };
        self.is_waiting.set(true);
        let waited = self.context.poll_sleeping(look, gone, &mut sleep, &describe);
        self.is_waiting.set(false);
        waited
    }
}
