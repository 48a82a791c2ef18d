//! Sends whose kernel moves all payloads and then signals them (2023, section 5.4).
//!
//! Who says that it is ready to receive mostly sends next. Then the kernel of the send says so first: one launch less, and one
//! kernel less between what has come and what is sent. And where little has come, the kernel that waits for it may send as well
//! (`relay.rs`).

use super::awaited::Number;
use super::engine::Engine;
use super::moves::{Argument, Compiler, Moves, is_one_kernel};
use super::relay::Relay;
use super::waits::{Flags, address};
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Value};
use crate::device::moves::{MoveTable, Nest};
use crate::device::operation::{Message, Rule, SignalSet, TriggeredSend};
use crate::error::Result;
use crate::fabric::{Region, Word};
use std::sync::{Arc, Weak};

/// A send, compiled for a device.
pub(super) struct MergedSend<D: Driver> {
    /// `None`: one kernel cannot do it.
    pub(super) send: Option<Prepared<D>>,
    /// The same with signals that have come before it, as long as there are these: then no kernel reads their tables any more.
    behind: Vec<Behind<D>>,
    /// And behind what has arrived.
    pub(super) relays: Vec<Relay<D>>,
}

pub(super) struct Prepared<D: Driver> {
    kernel: D::Kernel,
    pub(super) moves: Moves,
    /// Where its groups of threads count themselves.
    done: Argument,
    pub(super) notices: [Argument; 2],
}

/// A send behind signals that its kernel posts first.
struct Behind<D: Driver> {
    signals: Weak<SignalSet>,
    kernel: D::Kernel,
    notices: [Argument; 2],
}

/// Signals before a send, and their number.
pub(super) type Before<'a> = (&'a Arc<SignalSet>, Number);

impl<D: Driver> Behind<D> {
    fn is_behind(&self, signals: &Arc<SignalSet>) -> bool {
        self.signals.as_ptr() == Arc::as_ptr(signals)
    }
}

/// As the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Notice {
    at: u64,
    increments: u64,
}

/// Words that become a number, or one more, as kernels read them: the table, and how many there are.
fn notices<D: Driver>(compiler: &Compiler<'_, D>, words: &[(&Word, Rule)]) -> Result<[Argument; 2]> {
    let notice = |(word, rule): &(&Word, Rule)| Notice {
        at: address(word) as u64,
        increments: u64::from(*rule == Rule::Increment),
    };
    let notices: Vec<Notice> = words.iter().map(notice).collect();
    Ok([compiler.upload(&notices)?, Argument::U64(notices.len() as u64)])
}

/// All that a send moves.
pub(super) fn nests_of(send: &TriggeredSend) -> impl Iterator<Item = (&MoveTable, &Nest)> {
    let tables = send.messages.iter().map(|message| &*message.moves);
    tables.flat_map(|table| table.nests.iter().map(move |nest| (table, nest)))
}

impl<D: Driver> MergedSend<D> {
    /// Compiles a send whose words kernels can post, if it moves something and tells somebody, its moves do not depend on
    /// each other, and kernels reach all their memory; `held` as for [`super::moves::DeviceTable::compile`].
    pub(super) fn compile(engine: &Engine<D>, send: &TriggeredSend) -> Result<Self> {
        let (behind, relays) = (Vec::new(), Vec::new());
        let tables = || send.messages.iter().map(|message| &*message.moves);
        let mut words: Vec<_> = send.messages.iter().flat_map(Message::words).collect();
        let is_both = !words.is_empty() && tables().any(|table| table.bytes() > 0);
        if !is_both || !tables().all(is_one_kernel) {
            return Ok(Self { send: None, behind, relays });
        }
        words.sort_by_key(|(_, rule)| *rule == Rule::Increment);
        let mut compiler = Self::compiler(engine, send, [].into_iter())?;
        let moves = compiler.by_groups(nests_of(send))?;
        let done = engine.driver().allocate(size_of::<u32>(), MemoryKind::Device)?;
        let (done, notices) = (Argument::Table(Arc::new(done)), notices(&compiler, &words)?);
        let kernel = compiler.kernel("halo_send")?;
        Ok(Self { send: Some(Prepared { kernel, moves, done, notices }), behind, relays })
    }

    /// For kernels of a send that reach more memory than its own.
    pub(super) fn compiler<'e, 'r>(
        engine: &'e Engine<D>,
        send: &'r TriggeredSend,
        more: impl Iterator<Item = &'r Region>,
    ) -> Result<Compiler<'e, D>> {
        let moved = send.messages.iter().flat_map(|message| &message.moves.regions);
        let words = send.messages.iter().flat_map(Message::words).map(|(word, _)| word.region());
        Compiler::new(engine, moved.chain(words).chain(more))
    }

    /// Whether one kernel can do it.
    pub(super) fn is_there(&self) -> bool {
        self.send.is_some()
    }

    /// Makes the kernel that posts those signals first, whose words kernels can post, where one kernel can do the send.
    pub(super) fn follow(
        &mut self,
        engine: &Engine<D>,
        send: &TriggeredSend,
        signals: &Arc<SignalSet>,
    ) -> Result<()> {
        if self.send.is_none() || self.behind.iter().any(|one| one.is_behind(signals)) {
            return Ok(());
        }
        let words: Vec<(&Word, Rule)> = signals.words.iter().map(|word| (word, signals.rule)).collect();
        let compiler = Self::compiler(engine, send, signals.words.iter().map(Word::region))?;
        let (notices, kernel) = (notices(&compiler, &words)?, compiler.kernel("halo_send")?);
        self.behind.retain(|one| one.signals.strong_count() > 0);
        self.behind.push(Behind { signals: Arc::downgrade(signals), kernel, notices });
        Ok(())
    }

    /// The last arguments of its kernels: the epoch, and the signals before it with their number.
    pub(super) fn numbers(&self, epoch: Number, before: Option<Before<'_>>) -> [Value<'static>; 6] {
        let (notices, number) = match before {
            None => ([Value::Pointer(std::ptr::null()), Value::U64(0)], 0.into()),
            Some((signals, number)) => {
                let behind = self.behind.iter().find(|one| one.is_behind(signals)).expect("made before");
                (behind.notices.each_ref().map(Argument::value), number)
            }
        };
        let ([base, epoch], [at, told], [base_before, number]) =
            (epoch.arguments(), notices, number.arguments());
        [base, epoch, at, told, base_before, number]
    }

    /// Puts it on a queue, if one kernel can do it, with the signals before it; whether it can. It, the send and the signals
    /// must be held until the queue has come to rest.
    pub(super) fn launch(
        &mut self,
        (engine, queue, flags): (&Engine<D>, &mut D::Queue, &Flags),
        of: &TriggeredSend,
        (epoch, before): (Number, Option<Before<'_>>),
    ) -> Result<bool> {
        if !self.is_there() {
            return Ok(false);
        }
        if let Some((signals, _)) = before {
            self.follow(engine, of, signals)?;
        }
        let numbers = self.numbers(epoch, before);
        let Self { send: Some(send), behind, .. } = self else { unreachable!("asked now") };
        let moves = send.moves.arguments.iter().chain([&send.done]).chain(&send.notices);
        let arguments = [Value::Pointer(flags.failed())].into_iter().chain(moves.map(Argument::value));
        let arguments: Vec<Value> = arguments.chain(numbers).collect();
        let behind = before.map(|(signals, _)| behind.iter_mut().find(|one| one.is_behind(signals)));
        let kernel = match behind {
            Some(behind) => &mut behind.expect("asked before").kernel,
            None => &mut send.kernel,
        };
        // SAFETY: the arguments are those of the kernel's text; the tables are held with `self`, and what they
        // point into by the send and the signals.
        unsafe {
            queue.launch("a send", kernel, &arguments, Groups::ForThreads([send.moves.threads, 1, 1]))
        }?;
        Ok(true)
    }
}
