//! Streams: FIFO queues of operations, and what is enqueued on them.

use super::accelerator::Accelerator;
use super::capture::Capture;
use super::counts::Count;
use super::host::{lane, worker::Worker};
use super::operation::{HostFunction, HostKernel, Operation, ReadySend, SignalSet, TriggeredSend, WaitSet};
use super::panics::caught;
use super::peers::Sharing;
use super::raised::Raised;
use super::section::View;
use super::standing::Reading;
use super::status::{Event, Status};
use super::stream_kind::{StreamKind, StreamOptions};
use super::wires::Wiring;
use super::{MoveTable, Waits, Ways, recorded};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::Executor;
use crate::pinning::unpinned;
use crate::timeline::Activity;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A FIFO of operations. Everything is promised to run in order, and nothing is promised to have
/// run until [`Stream::synchronize`]. A stream belongs to the thread of its rank; clones are the
/// same stream.
///
/// After an operation has failed, what is left on the stream is skipped, and the waits of other
/// ranks end with [`Error::PeerFailed`].
#[derive(Clone)]
pub struct Stream {
    inner: Rc<Inner>,
}

struct Inner {
    id: u64,
    kind: StreamKind,
    worker: Option<Worker>,
    accelerator: Option<Arc<dyn Accelerator>>,
    executor: Executor,
    sharing: Sharing,
    wiring: Wiring,
    ways: Ways,
    threads: Option<Arc<rayon::ThreadPool>>,
    synchronizations: Cell<u64>,
    /// How often it has come to rest for [`Stream::synchronize`].
    rests: Cell<u64>,
    /// What is captured, while something is.
    captured: RefCell<Option<Capture>>,
    /// What the host looks at of its arrays.
    views: Rc<RefCell<Vec<View>>>,
    /// An inline stream runs an operation now, or a period.
    is_running: Cell<bool>,
    is_replaying: Cell<bool>,
    /// How many operations a device had been given when the host last saw it at rest.
    rested: Cell<u64>,
    status: Arc<Status>,
}

impl Drop for Inner {
    /// A program that never asks how a stream has ended would end well with answers that are none.
    fn drop(&mut self) {
        // With all that is on it.
        drop(self.worker.take());
        self.status.say_untold();
    }
}

impl Stream {
    pub(crate) fn open(
        world: &World,
        options: StreamOptions,
        accelerator: Option<Arc<dyn Accelerator>>,
        ways: impl Into<Ways>,
    ) -> Result<Self> {
        let ways = ways.into();
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let status = Arc::new(Status::new(world.wait_context().clone()));
        // The caller waits too, inline or in backends that synchronise.
        lane::prepare();
        let kind = if accelerator.is_some() { StreamKind::Device } else { options.kind };
        let sharing = Sharing::of(world.fabric(), accelerator.as_ref(), ways.peers);
        let wiring = Wiring::of(world.fabric(), accelerator.as_ref(), (ways.wires, ways.peers))?;
        let worker = match (&accelerator, kind) {
            (Some(accelerator), _) => {
                if let (Sharing::Staged(reason), true) = (&sharing, ways.need_kernels()) {
                    let reason = format!(
                        "what ranks tell each other is in the host's memory, where kernels neither signal nor wait, \
                         because {reason}; leave both to the thread, or use `local`"
                    );
                    return Err(Error::DeviceUnavailable { device: accelerator.name().into(), reason });
                }
                let queue = accelerator.clone().open_queue(status.clone(), ways)?;
                Some(Worker::start(status.clone(), queue)?)
            }
            (None, StreamKind::Inline) => None,
            (None, StreamKind::Threaded) => Some(Worker::start(status.clone(), lane::Lane)?),
            (None, StreamKind::Device) => {
                return Err(Error::DeviceUnavailable {
                    device: "host".into(),
                    reason: "its streams are inline or threaded".into(),
                });
            }
        };
        let threads = match options.threads {
            0 | 1 => None,
            threads => {
                let (name, unpinned) = (format!("rank {} kernel", world.rank()), unpinned());
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .start_handler(move |_| unpinned())
                    .thread_name(move |i| format!("{name} {i}"))
                    .build();
                Some(Arc::new(pool.map_err(|error| Error::System {
                    call: "starting the kernel threads",
                    reason: error.to_string(),
                })?))
            }
        };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            inner: Rc::new(Inner {
                id,
                kind,
                worker,
                executor: match &accelerator {
                    None => Executor::Stream,
                    // Kernels reach none of the words.
                    Some(_) if matches!(sharing, Sharing::Staged(_)) => Executor::Proxy,
                    Some(accelerator) => accelerator.executor(ways),
                },
                accelerator,
                sharing,
                wiring,
                ways,
                threads,
                synchronizations: Cell::new(0),
                rests: Cell::new(0),
                captured: RefCell::default(),
                views: Rc::default(),
                is_running: Cell::new(false),
                is_replaying: Cell::new(false),
                rested: Cell::default(),
                status,
            }),
        })
    }

    /// Another stream of the same device and of the same kind, which signals and waits alike; on the host with one
    /// thread for kernels.
    ///
    /// # Errors
    /// As [`Device::stream_with`](super::Device::stream_with).
    pub fn another(&self, world: &World) -> Result<Self> {
        let options = StreamOptions { kind: self.kind(), threads: 1 };
        Self::open(world, options, self.accelerator().cloned(), self.inner.ways)
    }

    /// Identifies the stream within its process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// When its operations run.
    pub fn kind(&self) -> StreamKind {
        self.inner.kind
    }

    /// How often the host has waited for this stream: [`Stream::synchronize`] and the backends
    /// that need it.
    pub fn synchronizations(&self) -> u64 {
        self.inner.synchronizations.get()
    }

    /// What it runs on: `host`, or the device as its vendor calls it.
    pub fn device_name(&self) -> &str {
        self.accelerator().map_or("host", |accelerator| accelerator.name())
    }

    /// What exchanges on it depend on, as text: the same for streams that are alike.
    pub(crate) fn described(&self) -> String {
        let Inner { kind, executor, sharing, wiring, ways, .. } = &*self.inner;
        let (name, kind) = (self.device_name(), kind.name());
        if self.is_on_host() {
            return format!("{name}, {kind}");
        }
        let waits = match ways.waits {
            Waits::Auto => executor.to_string(),
            waits => waits.name().to_owned(),
        };
        let [peers, wires] = [matches!(sharing, Sharing::Staged(_)), matches!(wiring, Wiring::Staged(_))]
            .map(|is_staged| if is_staged { "staged" } else { "direct" });
        let signals = ways.signals.name();
        format!("{name}, {kind}, waits {waits}, signals {signals}, peers {peers}, wires {wires}")
    }

    /// Who carries out what is triggered on it, between ranks whose memory is mapped.
    pub fn executor(&self) -> Executor {
        self.inner.executor
    }

    /// How often that has happened on it: how its device does what it is asked for, for those who want to be sure.
    pub fn count(&self, what: Count) -> u64 {
        self.inner.status.counted(what)
    }

    /// What is captured, while something is.
    pub(super) fn captured(&self) -> &RefCell<Option<Capture>> {
        &self.inner.captured
    }

    /// Does what replays a period. On an inline stream that is here and now, and no borrow keeps kernels of the period from
    /// arrays that it uses, as one does with a kernel that is launched.
    pub(super) fn while_replaying(&self, replay: impl FnOnce()) {
        let _raised = Raised::new(&self.inner.is_replaying, self.inner.worker.is_none());
        replay();
    }

    /// Does what runs an operation on an inline stream.
    #[inline]
    pub(super) fn while_running<R>(&self, run: impl FnOnce() -> R) -> R {
        let _raised = Raised::new(&self.inner.is_running, true);
        run()
    }

    /// # Errors
    /// [`Error::OutOfOrder`] for a call of what a period does that is being replayed.
    #[inline]
    pub(super) fn refuse_within_replay(&self, call: &'static str) -> Result<()> {
        if self.inner.is_replaying.get() { Err(self.within_operation(call)) } else { Ok(()) }
    }

    /// # Errors
    /// [`Error::OutOfOrder`] for a call from within what an inline stream runs: it may be a kernel, and what the call does to
    /// the same array no borrow of that forbids.
    #[inline]
    pub(crate) fn refuse_within_operation(&self, call: &'static str) -> Result<()> {
        if self.inner.is_running.get() { Err(self.within_operation(call)) } else { Ok(()) }
    }

    #[cold]
    fn within_operation(&self, call: &'static str) -> Error {
        let reason = match self.inner.is_replaying.get() {
            true => {
                "a period is being replayed, whose kernels can use no other arrays of its stream than they were given"
            }
            false => "an operation of the stream is running; do it before or behind that",
        };
        Error::OutOfOrder { call, reason: reason.into() }
    }

    pub(super) fn views(&self) -> &Rc<RefCell<Vec<View>>> {
        &self.inner.views
    }

    pub(crate) fn accelerator(&self) -> Option<&Arc<dyn Accelerator>> {
        self.inner.accelerator.as_ref()
    }

    pub(crate) fn sharing(&self) -> &Sharing {
        &self.inner.sharing
    }

    pub(crate) fn wiring(&self) -> &Wiring {
        &self.inner.wiring
    }

    /// Whether its device computes with elements of that type.
    pub(crate) fn check_element(&self, element: ElementType) -> Result<()> {
        self.accelerator().map_or(Ok(()), |accelerator| accelerator.check_element(element))
    }

    /// Whether what is put on it is carried out at once, and nothing else is done with it.
    #[inline(always)]
    pub(crate) fn is_plain_inline(&self) -> bool {
        self.inner.worker.is_none() && self.inner.status.is_plain()
    }

    pub(crate) fn threads(&self) -> Option<&Arc<rayon::ThreadPool>> {
        self.inner.threads.as_ref()
    }

    /// Refuses a stream whose failures the ranks of that world would not see, nor it theirs.
    pub(crate) fn check_world(&self, world: &World, what: &'static str) -> Result<()> {
        if self.status().context.abort.is(&world.wait_context().abort) {
            return Ok(());
        }
        Err(Error::OtherWorld { what })
    }

    pub(crate) fn status(&self) -> &Arc<Status> {
        &self.inner.status
    }

    /// Blocks until all that was enqueued has run.
    ///
    /// # Errors
    /// The first error of an enqueued operation, which it names. It stays: a stream that has
    /// failed does no more. [`Error::NotCapturable`] within a capture.
    ///
    /// A stream that is dropped without that, nor any other call that gives the error, writes it to standard error.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture(
            "waiting for the stream",
            "nothing runs during a capture; wait before or behind it",
        )?;
        self.inner.synchronizations.set(self.inner.synchronizations.get() + 1);
        match self.inner.status.is_recorded() {
            false => self.drain(),
            true => self.by_host(Activity::Synchronize, "synchronize", || self.drain()),
        }
        self.inner.rests.set(self.inner.rests.get() + 1);
        self.inner.status.result()
    }

    /// How many calls of [`Stream::synchronize`] have brought it to rest.
    pub(crate) fn rests(&self) -> u64 {
        self.inner.rests.get()
    }

    /// Blocks until all that was enqueued has run or been skipped.
    pub(super) fn drain(&self) {
        if let Some(worker) = &self.inner.worker {
            if self.inner.accelerator.is_some() {
                worker.push(Operation::Finish);
            }
            worker.drain();
            self.inner.rested.set(worker.enqueued());
        }
    }

    /// The position of what is put on it next, counted from 1, and that of what it has certainly come past; `None` for an
    /// inline stream, on which nothing is ever left to do.
    pub(super) fn positions(&self) -> Option<(u64, u64)> {
        let worker = self.inner.worker.as_ref()?;
        let passed = match self.inner.accelerator {
            None => worker.done(),
            Some(_) => self.inner.rested.get(),
        };
        Some((worker.enqueued() + 1, passed))
    }

    /// Blocks until the stream has come past that position.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    #[cold]
    pub(super) fn come_past(&self, position: u64) -> Result<()> {
        self.inner.synchronizations.set(self.inner.synchronizations.get() + 1);
        self.by_host(Activity::Synchronize, "wait for what uses a section", || {
            match (&self.inner.worker, &self.inner.accelerator) {
                (Some(worker), None) => worker.wait_for(position.min(worker.enqueued())),
                _ => self.drain(),
            }
        });
        self.inner.status.result()
    }

    /// The first error so far of an enqueued operation, for a host that wants to stop enqueueing
    /// on a stream that skips it all. Does not block, so that no error proves nothing.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.inner.status.result()
    }

    /// Enqueues the recording of an event: it is complete once the stream has come to here, also on a stream that has
    /// failed, and stays so. Waits for nothing but room on the stream; on an inline stream it is complete at once. A
    /// period that is captured cannot have one.
    pub fn record(&self, event: &Event) {
        self.put(Operation::Record(event.clone()));
    }

    /// Enqueues a wait for an event that another stream of this rank records, before or after this call: what is
    /// enqueued behind it runs once that stream has come to there. Waits for nothing but room on the stream, except on an
    /// inline one, where it blocks until the event is complete. An event that does not come within the time-out makes the
    /// stream fail, with [`Error::OperationFailed`] at [`Stream::synchronize`]. A period that is captured cannot have one.
    pub fn wait_event(&self, event: &Event) {
        self.put(Operation::WaitEvent(event.clone()));
    }

    /// Enqueues a host function, which runs once, on the stream's thread, when all before it on the stream is done, on a
    /// device too; on an inline stream at once, in the caller. What is behind it waits for it. Waits for nothing but room
    /// on the stream. A stream that has failed does not call it, and a period that is captured cannot have one.
    ///
    /// The text that it returns as its error, or with which it panics, makes the stream fail: [`Stream::synchronize`] gives
    /// [`Error::OperationFailed`] with it and `name`.
    pub fn enqueue_host(
        &self,
        name: &str,
        function: impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
    ) {
        let operation = name.to_string();
        let failed = operation.clone();
        let function = move || {
            let returned = caught(function).unwrap_or_else(|message| Err(format!("it panicked: {message}")));
            returned.map_err(|message| Error::OperationFailed { operation: failed, message })
        };
        self.enqueue_boxed(Activity::Function, operation, Box::new(|_| function()));
    }

    /// Enqueues a reading of the clock: `tell` is given when the stream came to it, in nanoseconds of
    /// [`now_ns`](crate::timeline::now_ns). Nothing waits for that. A GPU notes its own time, and the stream's thread tells it
    /// later, before [`Stream::synchronize`] returns; a device of OpenCL comes to rest for it. A stream that has failed tells
    /// nothing, and fails if `tell` panics.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::World;
    ///
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let (told, times) = channel();
    /// for _ in 0..2 {
    ///     let told = told.clone();
    ///     stream.enqueue_clock(move |at_ns| told.send(at_ns).expect("somebody listens"));
    ///     // What is to be timed goes here.
    /// }
    /// stream.synchronize()?;
    /// let (begun_ns, ended_ns) = (times.recv()?, times.recv()?);
    /// assert!(begun_ns <= ended_ns);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_clock(&self, tell: impl FnOnce(u64) + Send + 'static) {
        let status = self.status().clone();
        let tell = move |at_ns| {
            if let Err(message) = caught(|| tell(at_ns)) {
                let (operation, message) = ("telling the time".into(), format!("it panicked: {message}"));
                status.fail(Error::OperationFailed { operation, message });
            }
        };
        self.put(Operation::Clock(Box::new(tell)));
    }

    /// Enqueues a table of moves. Nothing keeps track of what tables touch, unlike sections, but for what the host looks at:
    /// whoever enqueues one sees to it that what it writes is not moved by others until the stream has come past it.
    ///
    /// # Errors
    /// [`Error::InUse`] if it writes between the first and the last byte that a view of an array of this stream shows, or
    /// reads between those that a view lends for writing; [`Error::OutOfOrder`] from within an operation that an inline
    /// stream runs, which may be a kernel on the same array.
    #[inline]
    pub fn enqueue_move(&self, moves: &Arc<MoveTable>) -> Result<()> {
        self.refuse_within_operation("enqueue_move")?;
        self.check_views([moves])?;
        self.put_move(moves);
        Ok(())
    }

    /// That those tables do nothing to what the host looks at that a view of it forbids.
    ///
    /// # Errors
    /// [`Error::InUse`].
    #[inline]
    pub(crate) fn check_views<'t>(&self, tables: impl IntoIterator<Item = &'t Arc<MoveTable>>) -> Result<()> {
        let views = self.views().borrow();
        if views.is_empty() {
            return Ok(());
        }
        tables.into_iter().try_for_each(|moves| moves.check_views(&views))
    }

    /// As [`Stream::enqueue_move`], of what is not viewed as far as its caller knows.
    #[inline]
    pub(crate) fn put_move(&self, moves: &Arc<MoveTable>) {
        match &self.inner.worker {
            None if self.inner.status.is_plain() => moves.run(),
            _ => self.put_aside(|| Operation::Move(moves.clone())),
        }
    }

    /// Enqueues posting a value to all words of a set, which peers may wait for.
    #[inline]
    pub(crate) fn write_values<'a>(&self, signals: &Arc<SignalSet>, value: impl Into<Reading<'a>>) {
        if signals.words.is_empty() {
            return;
        }
        let value = value.into();
        match &self.inner.worker {
            None if self.inner.status.is_plain() => signals.run(value.value),
            _ => self.put_due(value, || Operation::Signal(signals.clone(), value.value)),
        }
    }

    /// Enqueues a send that goes out as soon as its receivers are ready; does not wait for them.
    #[inline]
    pub(crate) fn enqueue_send<'a>(&self, send: &Arc<TriggeredSend>, epoch: impl Into<Reading<'a>>) {
        let epoch = epoch.into();
        match &self.inner.worker {
            None if self.inner.status.is_plain() => lane::send(&self.inner.status, send, epoch.value),
            _ => self.put_due(epoch, || Operation::Send(send.clone(), epoch.value)),
        }
    }

    /// Enqueues sends whose receivers have been started; the stream fails if one has not.
    pub(crate) fn enqueue_ready_send(&self, send: &Arc<ReadySend>, epoch: u32) {
        match &self.inner.worker {
            None if self.inner.status.is_plain() => lane::ready_send(&self.inner.status, send, epoch),
            _ => self.put_aside(|| Operation::Ready(send.clone(), epoch)),
        }
    }

    /// Enqueues waking those who sleep for what a group has sent: for a group whose wait is not
    /// enqueued soon.
    pub(crate) fn wake_signalled(&self, waits: &Arc<WaitSet>) {
        match &self.inner.worker {
            None if !self.inner.status.is_recorded() && !self.inner.status.is_captured() => {
                waits.wake_signalled();
            }
            _ => self.put_aside(|| Operation::Wake(waits.clone())),
        }
    }

    /// Enqueues waiting until all words have come to the value and the group's sends have gone.
    #[inline]
    pub(crate) fn wait_values<'a>(&self, waits: &Arc<WaitSet>, value: impl Into<Reading<'a>>) {
        let value = value.into();
        match &self.inner.worker {
            None if self.inner.status.is_plain() => lane::wait(&self.inner.status, waits, value.value),
            _ => self.put_due(value, || Operation::Wait(waits.clone(), value.value)),
        }
    }

    /// As [`Stream::put`], out of the way of an inline stream that is plain: what it carries out at once is inlined.
    #[inline(never)]
    fn put_aside(&self, operation: impl FnOnce() -> Operation) {
        self.put(operation());
    }

    /// As [`Stream::put_aside`], of an operation that goes with a count of an exchange.
    #[inline(never)]
    fn put_due(&self, reading: Reading<'_>, operation: impl FnOnce() -> Operation) {
        match self.inner.status.is_captured() {
            false => self.put(operation()),
            true => self.put_captured(operation(), reading),
        }
    }

    /// Puts an operation where its executor finds it: for all but those that an inline stream that is plain
    /// carries out at once.
    pub(super) fn put(&self, operation: Operation) {
        let status = &self.inner.status;
        match &self.inner.worker {
            _ if status.is_captured() => self.put_captured(operation, 0.into()),
            _ if status.is_recorded() => recorded::put(self, operation),
            None => self.while_running(|| lane::run(status, operation)),
            Some(worker) => worker.push(operation),
        }
    }

    /// As [`Stream::put`], for a timeline that is kept.
    pub(super) fn put_recorded(&self, operation: Operation) {
        match &self.inner.worker {
            None => self.while_running(|| recorded::run(&self.inner.status, operation)),
            Some(worker) => worker.push(operation),
        }
    }

    /// Makes the stream fail, for host calls that a backend makes on its behalf; gives the first
    /// error of the stream, which may be another.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.inner.status.fail(error);
        self.inner.status.result().expect_err("a failed stream has an error")
    }

    /// Enqueues a kernel of the host; the same one may be enqueued many times.
    pub(crate) fn enqueue_kernel(&self, kernel: &Arc<HostKernel>) {
        self.put(Operation::Kernel(kernel.clone()));
    }

    pub(crate) fn enqueue_boxed(&self, activity: Activity, name: String, function: HostFunction) {
        self.put(Operation::Host(activity, name, function));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {})", self.id(), self.kind().name())
    }
}
