//! What a device has made ready of a wait: it stays with the wait's words.

use super::arrival::Arrival;
use super::engine::Engine;
use super::moves::{Argument, Compiler};
use super::waits::{Flags, WORDS, address};
use crate::device::driver::Driver;
use crate::device::moves::MoveTable;
use crate::device::operation::WaitSet;
use crate::error::Result;
use crate::fabric::Word;
use std::sync::{Arc, Weak};

/// A wait for more words than a kernel is given, compiled for a device.
pub(super) struct Table<D: Driver> {
    pub(super) kernel: D::Kernel,
    pub(super) words: Argument,
}

/// With what waits are put on a queue: its executor's number, and what the device may still use.
pub(super) struct Onto<'a, D: Driver> {
    pub(super) engine: &'a Arc<Engine<D>>,
    pub(super) queue: &'a mut D::Queue,
    pub(super) id: u64,
    pub(super) flags: &'a Flags,
}

/// What a device has of a wait: made when it is needed first.
struct Ready<D: Driver> {
    table: Option<Table<D>>,
    behind: Option<Behind<D>>,
}

/// The first moves that came behind a wait, as long as they are there; whoever puts them on the queue holds them.
struct Behind<D: Driver> {
    moves: Weak<MoveTable>,
    /// Once they have come again, the wait and these moves as one kernel, if that can be.
    arrival: Option<Option<Arrival<D>>>,
    /// Whether a send has come behind both which that kernel can do, too.
    expects_send: bool,
}

impl<D: Driver> Behind<D> {
    fn is(&self, moves: &Arc<MoveTable>) -> bool {
        std::ptr::eq(self.moves.as_ptr(), Arc::as_ptr(moves))
    }

    fn is_joined(&self) -> bool {
        self.arrival.as_ref().is_some_and(Option::is_some)
    }
}

impl<D: Driver> Onto<'_, D> {
    /// Makes a wait ready for the device's kernels, where they are not given its words as such.
    pub(super) fn compile(&mut self, waits: &WaitSet) -> Result<()> {
        if waits.words.len() > WORDS { self.with_table(waits, |_, _| Ok(())) } else { Ok(()) }
    }

    fn with<R>(
        &mut self,
        waits: &WaitSet,
        run: impl FnOnce(&mut Self, &mut Ready<D>) -> Result<R>,
    ) -> Result<R> {
        waits.on_device.with(self.id, self, |_| Ok(Ready { table: None, behind: None }), run)
    }

    /// Hands `run` the table of a wait for many words.
    pub(super) fn with_table(
        &mut self,
        waits: &WaitSet,
        run: impl FnOnce(&mut D::Queue, &mut Table<D>) -> Result<()>,
    ) -> Result<()> {
        self.with(waits, |own, Ready { table, .. }| {
            let table = match table {
                Some(table) => table,
                None => {
                    let compiler = Compiler::new(own.engine, waits.words.iter().map(Word::region))?;
                    let (words, kernel) = (words_of(&compiler, waits)?, compiler.kernel("halo_wait_all")?);
                    table.insert(Table { kernel, words })
                }
            };
            run(own.queue, table)
        })
    }

    /// Hands `run` the kernel of a wait and the moves behind it, which has been made.
    pub(super) fn with_arrival<R>(
        &mut self,
        waits: &WaitSet,
        run: impl FnOnce(&mut D::Queue, &mut Arrival<D>) -> Result<R>,
    ) -> Result<R> {
        self.with(waits, |own, Ready { behind, .. }| {
            let arrival = behind.as_mut().and_then(|behind| behind.arrival.as_mut()?.as_mut());
            run(own.queue, arrival.expect("asked before"))
        })
    }

    /// Whether moves are known that one kernel does with a wait.
    pub(super) fn awaits_moves(&mut self, waits: &WaitSet) -> Result<bool> {
        self.with(waits, |_, Ready { behind, .. }| {
            Ok(behind.as_ref().is_some_and(|behind| behind.is_joined() && behind.moves.strong_count() > 0))
        })
    }

    /// Whether one kernel does a wait and the moves behind it. Makes it, of the first moves that come behind the wait: at once
    /// or, as what comes once is not worth it, when they come again.
    pub(super) fn joins(&mut self, waits: &WaitSet, moves: &Arc<MoveTable>, at_once: bool) -> Result<bool> {
        self.with(waits, |own, Ready { behind, .. }| {
            let (known, is_new) = match behind {
                Some(known) if known.moves.strong_count() > 0 => (known, false),
                _ => (
                    behind.insert(Behind {
                        moves: Arc::downgrade(moves),
                        arrival: None,
                        expects_send: false,
                    }),
                    true,
                ),
            };
            if !known.is(moves) {
                return Ok(false);
            }
            if known.arrival.is_none() && (at_once || !is_new) {
                known.arrival = Some(Arrival::compile(own.engine, waits, moves)?);
            }
            Ok(known.is_joined())
        })
    }

    /// Notes whether a send is likely to come behind a wait and moves that one kernel does, which can be that kernel's, too: one
    /// has come, or none has.
    pub(super) fn expect_send(
        &mut self,
        waits: &WaitSet,
        moves: &Arc<MoveTable>,
        is_likely: bool,
    ) -> Result<()> {
        self.with(waits, |_, Ready { behind, .. }| {
            let known = behind.iter_mut().filter(|known| known.is(moves));
            known.for_each(|known| known.expects_send = is_likely);
            Ok(())
        })
    }

    /// Whether such a send is likely to come behind them.
    pub(super) fn expects_send(&mut self, waits: &WaitSet, moves: &Arc<MoveTable>) -> Result<bool> {
        self.with(waits, |_, Ready { behind, .. }| {
            Ok(behind
                .as_ref()
                .is_some_and(|known| known.is(moves) && known.is_joined() && known.expects_send))
        })
    }
}

/// The words of a wait, as kernels read them.
pub(super) fn words_of<D: Driver>(compiler: &Compiler<'_, D>, waits: &WaitSet) -> Result<Argument> {
    let addresses: Vec<u64> = waits.words.iter().map(|word| address(word) as u64).collect();
    compiler.upload(&addresses)
}
