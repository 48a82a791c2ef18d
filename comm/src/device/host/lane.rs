//! The executor of host streams: what a thread does with the operations that it is given.
//!
//! The thread is the executor. Sends whose receivers are not ready wait in a list of the thread,
//! and every wait on it serves all of them, whichever stream or exchange they belong to. So a rank
//! that waits for one exchange still sends what others wait for, and two exchanges that are begun
//! in different orders on two ranks do not block each other.

use crate::device::accelerator::Execute;
use crate::device::operation::{Counted, Operation, ReadySend, TriggeredSend, WaitSet};
use crate::device::recorded;
use crate::device::status::{Event, Status};
use crate::error::{Error, Result};
use crate::fabric::{GaveUp, progress_all};
use crate::timeline::now_ns;
use std::cell::RefCell;
use std::sync::Arc;

struct Pending {
    send: Arc<TriggeredSend>,
    epoch: u32,
    status: Arc<Status>,
    /// The operation in a timeline.
    number: Option<u64>,
}

/// How many more sends may wait on a thread before the list has to grow.
const PENDING_CAPACITY: usize = 256;

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

/// The executor of a threaded stream of the host.
pub(crate) struct Lane;

impl Execute for Lane {
    fn run(&mut self, status: &Arc<Status>, operation: Operation) {
        run(status, operation);
    }

    fn run_recorded(&mut self, status: &Arc<Status>, operation: Operation) {
        recorded::run(status, operation);
    }

    fn idle(&mut self, _status: &Arc<Status>) -> bool {
        serve() > 0
    }
}

/// Gives the calling thread's list its room, which allocates: set-up calls it on every thread that sends, so that no
/// exchange does. A thread that only waits, as in collective calls, has no use for it.
pub(crate) fn prepare() {
    PENDING.with_borrow_mut(|pending| pending.reserve(PENDING_CAPACITY));
}

/// Carries out one operation.
pub(crate) fn run(status: &Arc<Status>, operation: Operation) {
    match operation {
        // An event is completed on a failed stream too: who waits for it must not hang.
        Operation::Record(event) => event.complete(),
        Operation::Finish => {}
        _ if status.has_failed() => {}
        Operation::Move(moves) => moves.run(),
        Operation::Signal(signals, value) => signals.run(value),
        Operation::Send(send, epoch) => self::send(status, &send, epoch),
        Operation::Ready(send, epoch) => ready_send(status, &send, epoch),
        Operation::Wake(waits) => waits.wake_signalled(),
        Operation::Wait(waits, value) => wait(status, &waits, value),
        Operation::Host(_, _, function) => {
            // Every wait of the thread serves its sends already.
            fail_on_error(status, function(&mut || false));
        }
        Operation::Clock(tell) => tell(now_ns()),
        Operation::WaitEvent(event) => fail_on_error(status, wait_for_event(status, &event, &mut progress)),
        Operation::Kernel(kernel) => fail_on_error(status, (kernel.run)()),
        Operation::Replay(replay) => {
            // The error of a stream that has failed is there already.
            let _ = replay.each(|sequence, moved| {
                sequence.operations(moved).for_each(|operation| run(status, operation));
                if status.has_failed() { Err(()) } else { Ok(()) }
            });
        }
        Operation::Prepare(_) => unreachable!("the host needs no preparation"),
        Operation::Launch(launch) => unreachable!("the text of `{}` is for other devices", launch.text.name),
    }
}

/// Sends at once if the receivers are ready, and otherwise as soon as a wait finds them ready. For a stream that
/// has not failed, as the others here.
#[inline]
pub(crate) fn send(status: &Arc<Status>, send: &Arc<TriggeredSend>, epoch: u32) {
    if send.is_clear(epoch) {
        send.run(epoch);
    } else {
        defer(status, send, epoch, None);
    }
}

/// Leaves a send to the waits of this thread.
pub(crate) fn defer(status: &Arc<Status>, send: &Arc<TriggeredSend>, epoch: u32, number: Option<u64>) {
    let one = Pending { send: send.clone(), epoch, status: status.clone(), number };
    if with_pending(|pending| pending.push(one)).is_none() {
        let message = "its receiver is not ready, and the thread that would wait for that is at its end; drop \
                       exchanges before their thread ends";
        status.fail(Error::OperationFailed { operation: "a send".into(), message: message.into() });
    }
}

/// What `look` finds at the sends of this thread. One that ends has none any more while it drops what it has kept in places
/// of its own, be it a world.
fn with_pending<R>(look: impl FnOnce(&mut Vec<Pending>) -> R) -> Option<R> {
    PENDING.try_with(|pending| look(&mut pending.borrow_mut())).ok()
}

/// Sends at once, or fails if a receiver has not been started.
#[inline]
pub(crate) fn ready_send(status: &Arc<Status>, send: &ReadySend, epoch: u32) {
    match send.not_started(status.context.rank, epoch) {
        None => send.send.run(epoch),
        Some(error) => status.fail(error),
    }
}

/// Waits for the words and for the group's own sends.
#[inline]
pub(crate) fn wait(status: &Arc<Status>, waits: &WaitSet, value: u32) {
    fail_on_error(status, wait_for_words(status, waits, value));
}

fn wait_for_words(status: &Status, waits: &WaitSet, value: u32) -> Result<()> {
    waits.wake_signalled();
    let context = &status.context;
    let epoch = waits.begin(value);
    for word in &waits.words {
        let waited = context.wait(word, value, &|| waits.gone(epoch), &mut progress);
        waited.map_err(|error| waits.name_the_late(error))?;
    }
    while has_pending(waits.group) {
        // A receiver that is not ready: wait for it, serving the others meanwhile.
        let Some((send, epoch)) = first_pending(waits.group) else { break };
        let needed = (send.needed)(epoch);
        for word in &send.conditions {
            context.wait(word, needed, &|| send.gone(epoch), &mut progress)?;
        }
        serve();
    }
    Ok(())
}

impl WaitSet {
    /// Where all sources count in one word, says which of them is late.
    pub(crate) fn name_the_late(&self, mut error: Error) -> Error {
        if let (Some(Counted { sources, .. }), Error::TimedOut { peer, .. }) = (&self.counted, &mut error) {
            let newest = sources.iter().map(|source| source.cell().load()).max();
            let late = sources.iter().find(|source| Some(source.cell().load()) != newest).or(sources.first());
            *peer = late.map_or(*peer, |source| source.from);
        }
        error
    }
}

/// Blocks until a stream has come to where the event was recorded.
pub(crate) fn wait_for_event(status: &Status, event: &Event, serve: &mut dyn FnMut() -> bool) -> Result<()> {
    let context = &status.context;
    let waited = context.wait_until(&mut || event.is_complete(), serve, &mut |nap| {
        // Events are between streams of one rank; nobody is asked to wake this one.
        std::thread::sleep(nap.min(std::time::Duration::from_micros(50)));
    });
    waited.map_err(|gave_up| match gave_up {
        GaveUp::Failed(error) => error,
        GaveUp::TimedOut(_) => crate::error::Error::OperationFailed {
            operation: "waiting for an event".into(),
            message: "no stream came to it within the time-out".into(),
        },
    })
}

fn fail_on_error(status: &Status, result: Result<()>) {
    if let Err(error) = result {
        status.fail(error);
    }
}

/// Carries out the pending sends whose receivers have become ready; how many are left.
pub(crate) fn serve() -> usize {
    let left = with_pending(|pending| {
        let mut i = 0;
        while i < pending.len() {
            let one = &pending[i];
            if one.status.has_failed() {
                pending.swap_remove(i);
            } else if one.send.is_clear(one.epoch) {
                match one.status.is_recorded() {
                    false => one.send.run(one.epoch),
                    true => recorded::send(&one.status, &one.send, one.epoch, one.number),
                }
                one.send.wake();
                pending.swap_remove(i);
            } else {
                i += 1;
            }
        }
        pending.len()
    });
    left.unwrap_or(0)
}

/// Makes progress on all that this thread has begun, for whatever blocks it; whether more is left.
pub(crate) fn progress() -> bool {
    progress_all() | (serve() > 0)
}

fn has_pending(group: u64) -> bool {
    with_pending(|pending| pending.iter().any(|one| one.send.group == group)).unwrap_or(false)
}

fn first_pending(group: u64) -> Option<(Arc<TriggeredSend>, u32)> {
    with_pending(|pending| {
        pending.iter().find(|one| one.send.group == group).map(|one| (one.send.clone(), one.epoch))
    })?
}
