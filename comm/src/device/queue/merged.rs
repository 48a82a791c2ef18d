//! Sends whose kernel moves all payloads and then signals them (2023, section 5.4).

use super::awaited::Number;
use super::engine::Engine;
use super::moves::{Argument, Compiler, Moves, is_one_kernel};
use super::waits::{Flags, address};
use crate::device::driver::{CommandQueue, Driver, MemoryKind, Value};
use crate::device::operation::{Message, Rule, TriggeredSend};
use crate::error::Result;
use crate::fabric::Word;
use std::sync::Arc;

/// A send, compiled for a device.
pub(super) struct MergedSend<D: Driver> {
    /// `None`: one kernel cannot do it.
    send: Option<Prepared<D>>,
}

struct Prepared<D: Driver> {
    kernel: D::Kernel,
    /// Behind the flag that stops it, and before the epoch.
    arguments: Vec<Argument>,
    threads: usize,
}

/// As the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Notice {
    at: u64,
    increments: u64,
}

impl<D: Driver> MergedSend<D> {
    /// Compiles a send whose words kernels can post, if it moves something and tells somebody, its moves do not depend on
    /// each other, and kernels reach all their memory; `held` as for [`super::moves::DeviceTable::compile`].
    pub(super) fn compile(engine: &Engine<D>, send: &TriggeredSend) -> Result<Self> {
        let tables = || send.messages.iter().map(|message| &*message.moves);
        let mut words: Vec<_> = send.messages.iter().flat_map(Message::words).collect();
        let is_both = !words.is_empty() && tables().any(|table| table.bytes() > 0);
        if !is_both || !tables().all(is_one_kernel) {
            return Ok(Self { send: None });
        }
        words.sort_by_key(|(_, rule)| *rule == Rule::Increment);
        let regions = tables().flat_map(|table| &table.regions);
        let reached = regions.chain(words.iter().map(|(word, _)| word.region()));
        let mut compiler = Compiler::new(engine, reached)?;
        let nests = tables().flat_map(|table| table.nests.iter().map(move |nest| (table, nest)));
        let Moves { mut arguments, threads } = compiler.tables(nests)?;
        let notice = |(word, rule): &(&Word, Rule)| Notice {
            at: address(word) as u64,
            increments: u64::from(*rule == Rule::Increment),
        };
        let notices: Vec<Notice> = words.iter().map(notice).collect();
        let told = Argument::U64(notices.len() as u64);
        let done = engine.driver().allocate(size_of::<u32>(), MemoryKind::Device)?;
        arguments.extend([Argument::Table(Arc::new(done)), compiler.upload(&notices)?, told]);
        let kernel = compiler.kernel("halo_send")?;
        Ok(Self { send: Some(Prepared { kernel, arguments, threads }) })
    }

    /// Whether one kernel can do it.
    pub(super) fn is_there(&self) -> bool {
        self.send.is_some()
    }

    /// Puts it on a queue, if one kernel can do it; whether it can. It and the send must be held until the queue has
    /// come to rest.
    pub(super) fn launch(&mut self, queue: &mut D::Queue, flags: &Flags, epoch: Number) -> Result<bool> {
        let Some(send) = &mut self.send else { return Ok(false) };
        let failed = Value::Pointer(flags.failed());
        let arguments = [failed].into_iter().chain(send.arguments.iter().map(Argument::value));
        let arguments: Vec<Value> = arguments.chain(epoch.arguments()).collect();
        // SAFETY: the arguments are those of the kernel's text; the tables are held with `self`, and what they
        // point into by the send.
        unsafe { queue.launch("a send", &mut send.kernel, &arguments, [send.threads, 1, 1]) }?;
        Ok(true)
    }
}
