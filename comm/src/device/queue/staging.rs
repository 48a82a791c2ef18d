//! How a stream carries moves out: by the device, and where one side of them is memory of the host that kernels do not
//! reach, by the device and the stream's thread, through a bounce buffer that both reach.
//!
//! The queue never comes to rest for it. When payloads go out, the thread owes its part until the device has passed
//! the kernels; when they come in, it does its part first.

use super::executor::QueueExecutor;
use super::moves::DeviceTable;
use super::owed::Debt;
use super::pause::NAP;
use crate::device::counts::Count;
use crate::device::crossing::{Crossing, Split};
use crate::device::driver::{CommandQueue, Driver, MemoryKind};
use crate::device::moves::MoveTable;
use crate::device::operation::Rule;
use crate::error::{Error, Result};
use crate::fabric::Region;
use std::sync::Arc;

/// A table as a stream carries it out.
struct Compiled<D: Driver> {
    on_device: DeviceTable<D>,
    staging: Option<Staging<D>>,
}

/// The host's part of a table that crosses between the device and memory of the host. It keeps the bounce buffer.
struct Staging<D: Driver> {
    crossing: Crossing,
    on_host: Arc<MoveTable>,
    /// Behind the last kernels that read the bounce buffer.
    read: Option<<D::Queue as CommandQueue>::Mark>,
}

impl<D: Driver> QueueExecutor<D> {
    /// Puts moves on the queue, of which the caller holds the table.
    pub(super) fn put_moves(&mut self, table: &MoveTable) -> Result<()> {
        table.on_device.with(
            self.id,
            self,
            |own| own.compile(table),
            |own, compiled| own.carry(table, compiled),
        )
    }

    fn carry(&mut self, table: &MoveTable, compiled: &mut Compiled<D>) -> Result<()> {
        let Compiled { on_device, staging } = compiled;
        if staging.is_some() {
            self.status.count(Count::StagedMoves, 1);
        }
        match staging {
            None => {
                on_device.launch(&mut self.queue, &self.flags)?;
                table.observe();
            }
            Some(Staging { crossing: Crossing::Out, on_host, .. }) => {
                // What the last kernels have put there may not have been taken yet.
                self.come_to(|own| !own.owed.includes(on_host))?;
                on_device.launch(&mut self.queue, &self.flags)?;
                self.owe(Debt::Moves(on_host.clone()))?;
            }
            Some(Staging { on_host, read, .. }) => {
                // In the order of the stream: behind what kernels wait for, and what the thread owes.
                self.finish_waits()?;
                self.come_to(|own| own.owed.is_empty())?;
                if let Some(mark) = read.take() {
                    self.come_to(|own| own.queue.has_passed(&mark))?;
                }
                on_host.run();
                on_device.launch(&mut self.queue, &self.flags)?;
                *read = Some(self.queue.mark()?);
            }
        }
        Ok(())
    }

    fn compile(&mut self, table: &MoveTable) -> Result<Compiled<D>> {
        let driver = self.engine.driver();
        let is_here =
            |region: &Region| region.on_device().is_some_and(|memory| memory.device() == driver.id());
        let Some(crossing) = table.crossing(is_here).filter(|_| !table.accumulates) else {
            let device = driver.name().into();
            return Err(Error::WrongDevice { what: "the memory of a move", device });
        };
        if crossing == Crossing::Within {
            let on_device = DeviceTable::compile(&self.engine, table)?;
            return Ok(Compiled { on_device, staging: None });
        }
        let rank = self.status.context.rank;
        let bounce = |bytes| Ok(Region::private(Arc::new(driver.allocate(bytes, MemoryKind::Pinned)?), rank));
        let Split { on_device, on_host } = table.split(crossing, is_here, bounce)?;
        let on_device = DeviceTable::compile(&self.engine, &on_device)?;
        let staging = Staging { crossing, on_host: Arc::new(on_host), read: None };
        Ok(Compiled { on_device, staging: Some(staging) })
    }

    /// Whether moves are nothing but kernels, which are compiled then.
    pub(super) fn is_all_kernels(&mut self, table: &MoveTable) -> Result<bool> {
        let is_so = |_: &mut Self, compiled: &mut Compiled<D>| {
            Ok(compiled.staging.is_none() && compiled.on_device.is_all_kernels())
        };
        table.on_device.with(self.id, self, |own| own.compile(table), is_so)
    }

    /// Puts moves on the queue that are nothing but kernels, and have been compiled.
    pub(super) fn launch_moves(&mut self, table: &MoveTable) -> Result<()> {
        let launch = |own: &mut Self, compiled: &mut Compiled<D>| {
            compiled.on_device.launch(&mut own.queue, &own.flags)
        };
        table.on_device.with(self.id, self, |own| own.compile(table), launch)
    }

    /// Has the thread do something behind what is on the queue and what it owes already.
    pub(super) fn owe(&mut self, debt: Debt) -> Result<()> {
        debug_assert!(
            !matches!(&debt, Debt::Post(word, rule @ Rule::Increment, _) if self.can_post(word, *rule)),
            "kernels add to the word"
        );
        let mark = self.queue.mark()?;
        self.owed.push(mark, debt);
        self.pay();
        if self.owed.is_empty() { Ok(()) } else { self.queue.flush() }
    }

    /// Does what is owed as far as the device has come. Does not wait.
    pub(super) fn pay(&mut self) {
        let queue = &mut self.queue;
        let due = self.owed.due(|mark| queue.has_passed(mark));
        // Behind a command that has failed all others count as passed, though they have moved nothing. What fails from here
        // on is behind those that are due.
        if due > 0 && queue.has_failed() {
            queue.finish().unwrap_or_else(|error| self.status.fail(error));
        }
        if self.status.has_failed() {
            return self.owed.clear();
        }
        let overlaps = self.owed.pay(due, |mark| queue.has_passed(mark));
        self.status.count(Count::StagedOverlaps, overlaps);
    }

    /// Blocks until nothing is owed, or the stream has failed. What the device waits for may depend on sends that wait for
    /// their receivers, which go meanwhile.
    pub(super) fn pay_all(&mut self) -> Result<()> {
        self.queue.flush()?;
        let mut pause = self.pause();
        while !self.owed.is_empty() && !self.status.has_failed() {
            self.serve();
            pause.next();
        }
        Ok(())
    }

    /// Blocks until the queue has room, or nothing on it waits: a call that waits for a device which waits for a rank could
    /// not be ended.
    pub(super) fn make_room(&mut self) {
        let mut pause = self.pause();
        while self.queue.is_full() && self.kernels_wait() {
            self.serve();
            pause.next();
        }
    }

    /// Blocks until something is there that the device and the thread come to without other ranks, or the stream has
    /// failed.
    pub(super) fn come_to(&mut self, is_there: impl Fn(&Self) -> bool) -> Result<()> {
        self.queue.flush()?;
        let mut pause = self.pause();
        while !is_there(self) && !self.status.has_failed() {
            self.watch();
            pause.next();
        }
        Ok(())
    }

    /// The same of what much is behind on the queue: it does not run dry while the thread rests between two looks, which are
    /// calls of the driver that hold up those of others.
    pub(super) fn rest_until(&mut self, is_there: impl Fn(&Self) -> bool) -> Result<()> {
        self.queue.flush()?;
        while !is_there(self) && !self.status.has_failed() {
            self.watch();
            std::thread::sleep(NAP);
        }
        Ok(())
    }
}
