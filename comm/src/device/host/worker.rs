//! The thread of a threaded stream.

use super::lane;
use crate::device::accelerator::Execute;
use crate::device::operation::Operation;
use crate::device::status::Status;
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::pinning::unpinned;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, available_parallelism};

/// Operations that fit on a stream before enqueueing has to wait for the executor, as on a GPU.
/// The slots are made once, so that enqueueing does not allocate.
const DEPTH: usize = 4096;
/// How late the owner may see that there is room again.
const FULL_NAP: std::time::Duration = std::time::Duration::from_micros(20);
/// How often a thread looks for the next operation, and whoever waits for it at what is done, before they sleep.
const LOOKS: u32 = 2000;
/// The same beside a GPU: waking takes longer than its kernels.
const GPU_LOOKS: u32 = 16_000;
/// What a thread sleeps for before it has anything to do: longer than it takes to go to sleep.
const FIRST_SLEEP: std::time::Duration = std::time::Duration::from_micros(100);

/// A thread that carries out operations in order.
pub(crate) struct Worker {
    queue: Option<SyncSender<Operation>>,
    enqueued: AtomicU64,
    progress: Arc<Progress>,
    /// At the progress, before its owner sleeps on it.
    looks: u32,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Progress {
    done: AtomicU64,
    /// What the owner sleeps for, if it does.
    awaited: Mutex<Option<u64>>,
    reached: Condvar,
}

impl Worker {
    /// Starts the thread, which has `executor` carry operations out.
    pub(crate) fn start<E: Execute + 'static>(status: Arc<Status>, mut executor: E) -> Result<Self> {
        let (queue, operations) = sync_channel(DEPTH);
        let (feeds_a_gpu, unpinned) = (executor.feeds_a_gpu(), unpinned());
        let progress = Arc::new(Progress::default());
        let shared = progress.clone();
        let (ready, is_ready) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("rank {} stream", status.context.rank))
            .spawn(move || {
                lane::prepare();
                unpinned();
                // Of one core a thread that looks keeps the other from what it looks for.
                let has_core = feeds_a_gpu && available_parallelism().is_ok_and(|cores| cores.get() > 1);
                let looks = if has_core { GPU_LOOKS } else { LOOKS };
                // A channel allocates when a thread sleeps on it for the first time. That belongs to
                // set-up, not to the first exchange that comes late. The first call may have used its
                // time up on being loaded, and not sleep; the second has nothing else to do.
                for _ in 0..2 {
                    let nothing = operations.recv_timeout(FIRST_SLEEP);
                    debug_assert!(nothing.is_err(), "nobody has the stream yet");
                }
                let _ = ready.send(looks);
                work(&mut executor, &status, &operations, (&shared, looks));
            })
            .map_err(|error| Error::System {
                call: "starting a stream's thread",
                reason: error.to_string(),
            })?;
        let looks = is_ready.recv().unwrap_or(LOOKS);
        Ok(Self { queue: Some(queue), enqueued: AtomicU64::new(0), progress, looks, thread: Some(thread) })
    }

    pub(crate) fn push(&self, mut operation: Operation) {
        self.enqueued.fetch_add(1, Ordering::Relaxed);
        let queue = self.queue.as_ref().expect("the queue lives as long as the worker");
        loop {
            match queue.try_send(operation) {
                Ok(()) => return,
                Err(TrySendError::Full(back)) => operation = back,
                // Its thread has panicked, and the stream has failed.
                Err(TrySendError::Disconnected(lost)) => return skip(lost),
            }
            // The operation that makes room may wait for what only this thread moves on.
            if !lane::progress() {
                std::thread::sleep(FULL_NAP);
            }
        }
    }

    /// How many operations were pushed.
    pub(crate) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Relaxed)
    }

    /// How many of them are done: carried out, or handed to the queues of a device.
    pub(crate) fn done(&self) -> u64 {
        self.progress.done.load(Ordering::Acquire)
    }

    /// Blocks until all that was pushed is done.
    pub(crate) fn drain(&self) {
        self.wait_for(self.enqueued());
    }

    /// Blocks until so many are done.
    pub(crate) fn wait_for(&self, wanted: u64) {
        for _ in 0..self.looks {
            if self.done() >= wanted {
                return;
            }
            std::hint::spin_loop();
        }
        let mut awaited = lock(&self.progress.awaited);
        *awaited = Some(wanted);
        // Either the worker sees the mark, or its count is seen here: both are under the lock or
        // sequentially consistent.
        while self.progress.done.load(Ordering::SeqCst) < wanted {
            // What this thread has begun elsewhere may be what other ranks wait for.
            // The thread tells nobody of what it does before it has nothing more to do.
            let more = lane::progress() | (wanted < self.enqueued());
            let pause = std::time::Duration::from_micros(if more { 200 } else { 20_000 });
            awaited =
                self.progress.reached.wait_timeout(awaited, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        *awaited = None;
    }
}

fn work<E: Execute>(
    executor: &mut E,
    status: &Arc<Status>,
    operations: &Receiver<Operation>,
    (progress, looks): (&Progress, u32),
) {
    let _ended = Ended { status, progress, operations };
    let mut done = 0;
    loop {
        let operation = match operations.try_recv() {
            Ok(operation) => operation,
            Err(_) => {
                // Idle: whoever waits for the end is told, then sends that wait are served while
                // nothing else comes.
                tell(progress);
                match next(executor, status, operations, looks) {
                    Some(operation) => operation,
                    None => break,
                }
            }
        };
        match status.is_recorded() {
            false => executor.run(status, operation),
            true => executor.run_recorded(status, operation),
        }
        done += 1;
        progress.done.store(done, Ordering::SeqCst);
    }
    tell(progress);
}

/// Of a thread that panics, which is a bug of ours: nobody waits for it, and all are told.
struct Ended<'a> {
    status: &'a Arc<Status>,
    progress: &'a Progress,
    operations: &'a Receiver<Operation>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "its thread has panicked, and says where: please report that".into();
            self.status
                .fail(Error::OperationFailed { operation: "an operation of a stream".into(), message });
            self.operations.try_iter().for_each(skip);
            self.progress.done.store(u64::MAX, Ordering::SeqCst);
            tell(self.progress);
        }
    }
}

/// Leaves out an operation of a stream that has failed. Who waits for an event must not hang.
fn skip(operation: Operation) {
    if let Operation::Record(event) = operation {
        event.complete();
    }
}

fn tell(progress: &Progress) {
    let awaited = lock(&progress.awaited);
    if awaited.is_some() {
        progress.reached.notify_all();
    }
}

/// The next operation; `None` when the stream has been dropped.
fn next<E: Execute>(
    executor: &mut E,
    status: &Arc<Status>,
    operations: &Receiver<Operation>,
    looks: u32,
) -> Option<Operation> {
    use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
    for _ in 0..looks {
        executor.idle(status);
        match operations.try_recv() {
            Ok(operation) => return Some(operation),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    while executor.idle(status) {
        match operations.recv_timeout(std::time::Duration::from_micros(50)) {
            Ok(operation) => return Some(operation),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    operations.recv().ok()
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // With progress on what this thread has begun elsewhere: other ranks may wait for that, and this one for them. A
            // device's queue may be behind what has been put on it.
            self.push(Operation::Finish);
            self.drain();
        }
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, is one of ours and was printed by the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Worker({} of {} done)",
            self.progress.done.load(Ordering::Relaxed),
            self.enqueued.load(Ordering::Relaxed)
        )
    }
}
