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
    /// Of the first moves that came behind it, as long as they are there; whoever puts it on the queue holds them.
    arrival: Option<(Weak<MoveTable>, Option<Arrival<D>>)>,
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
        waits.on_device.with(self.id, self, |_| Ok(Ready { table: None, arrival: None }), run)
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
                    let addresses: Vec<u64> = waits.words.iter().map(|word| address(word) as u64).collect();
                    let (words, kernel) = (compiler.upload(&addresses)?, compiler.kernel("halo_wait_all")?);
                    table.insert(Table { kernel, words })
                }
            };
            run(own.queue, table)
        })
    }

    /// Hands `run` the kernel of a wait and the moves behind it, which has been made.
    pub(super) fn with_arrival(
        &mut self,
        waits: &WaitSet,
        run: impl FnOnce(&mut D::Queue, &mut Arrival<D>) -> Result<()>,
    ) -> Result<()> {
        self.with(waits, |own, Ready { arrival, .. }| {
            let arrival = arrival.as_mut().and_then(|(_, arrival)| arrival.as_mut());
            run(own.queue, arrival.expect("asked before"))
        })
    }

    /// Whether moves are known that one kernel does with a wait.
    pub(super) fn awaits_moves(&mut self, waits: &WaitSet) -> Result<bool> {
        self.with(waits, |_, Ready { arrival, .. }| {
            Ok(arrival.as_ref().is_some_and(|(known, arrival)| arrival.is_some() && known.strong_count() > 0))
        })
    }

    /// Whether one kernel does a wait and the moves behind it. Makes it, of the first moves that come behind the wait.
    pub(super) fn joins(&mut self, waits: &WaitSet, unpack: &Arc<MoveTable>) -> Result<bool> {
        self.with(waits, |own, Ready { arrival, .. }| {
            if arrival.as_ref().is_none_or(|(known, _)| known.strong_count() == 0) {
                *arrival = Some((Arc::downgrade(unpack), Arrival::compile(own.engine, waits, unpack)?));
            }
            let is_it = |known: &Weak<MoveTable>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(unpack));
            Ok(arrival.as_ref().is_some_and(|(known, arrival)| arrival.is_some() && is_it(known)))
        })
    }
}
