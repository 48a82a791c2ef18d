//! Queues: persistent requests that a stream starts and waits for, and operations that it carries out in turn.
//!
//! Two interfaces of the papers are here, name for name. That of 2026 (section III) separates what is done once
//! (describing messages and matching them) from what is done each time (starting and waiting), so that nothing is
//! left to negotiate when a stream comes to it. That of 2022 (section III) matches each operation anew, so that it
//! meets whatever is on the other side.
//!
//! # Persistent requests on queues (2026, section III)
//!
//! Table I, queues:
//!
//! | of the paper | here | blocks |
//! |---|---|---|
//! | `Queue_init` | [`Queue::new`] | no; local |
//! | `Queue_free` | dropping the [`Queue`] | no; local |
//!
//! Table II, matching. Requests are made by [`Communicator`](crate::Communicator): `send_init`, `rsend_init` (ready
//! sends) and `recv_init`:
//!
//! | of the paper | here | blocks |
//! |---|---|---|
//! | `Match`, `Matchall` | [`match_one`], [`match_all`] | until the partners match too |
//! | `Imatch`, `Imatchall` | [`imatch_one`], [`imatch_all`]: one [`MatchRequest`] for all | no |
//! | `Is_matched` | [`is_matched`](crate::PersistentRequest::is_matched) | no |
//!
//! Table III, enqueueing:
//!
//! | of the paper | here | blocks |
//! |---|---|---|
//! | `Enqueue_start`, `Enqueue_startall` | [`Queue::enqueue_start`], [`Queue::enqueue_start_all`] | neither host nor stream |
//! | `Enqueue_wait`, `Enqueue_waitall` | [`Queue::enqueue_wait`], [`Queue::enqueue_wait_all`] | the stream, until requests are complete |
//! | `Queue_wait` | [`Queue::wait`] | the host, until the stream is empty |
//! | `Request_free` | [`free`](crate::PersistentRequest::free), or dropping the request | no; local |
//!
//! What is erroneous there is refused here: see the errors of each call. A batch of which one request is refused
//! is not enqueued at all. Requests that are not persistent cannot be matched, by their type:
//!
//! ```compile_fail,E0308
//! use streamhalo_comm::device::Section;
//! use streamhalo_comm::{Communicator, Error, queue};
//!
//! fn refused(communicator: &Communicator, section: &Section) -> Result<(), Error> {
//!     let mut request = communicator.irecv(section, 0, 1)?;
//!     queue::match_one(&mut request) // it is no `PersistentRequest`
//! }
//! ```
//!
//! Nor can they be added to a queue:
//!
//! ```compile_fail,E0308
//! use streamhalo_comm::device::Section;
//! use streamhalo_comm::queue::Queue;
//! use streamhalo_comm::{Communicator, Error};
//!
//! fn refused(communicator: &Communicator, section: &Section, queue: &Queue) -> Result<(), Error> {
//!     let mut request = communicator.irecv(section, 0, 1)?;
//!     queue.enqueue_start(&mut request) // the same
//! }
//! ```
//!
//! Figures 2 and 3 of the paper, on a ring of three ranks with a ghost at either end of what each owns:
//!
//! ```
//! use std::sync::Arc;
//! use streamhalo_comm::device::{Buffer, Device, Extents, Move, MoveTable, Stream};
//! use streamhalo_comm::fabric::Place;
//! use streamhalo_comm::queue::{Queue, match_all};
//! use streamhalo_comm::{Communicator, ElementType, Error, Op, PersistentRequest, World, WorldOptions};
//!
//! const OWNED: usize = 4;
//!
//! struct StreamHalo {
//!     stream: Stream,
//!     queue: Queue,
//!     /// A receive for each neighbour, then a send for each.
//!     requests: Vec<PersistentRequest>,
//!     pack: Arc<MoveTable>,
//!     unpack: Arc<MoveTable>,
//! }
//!
//! fn one(source: Place, destination: Place) -> Move {
//!     Move {
//!         source,
//!         source_strides: [8, 8],
//!         destination,
//!         destination_strides: [8, 8],
//!         counts: [1, 1],
//!         run_bytes: 8,
//!         element: ElementType::F64,
//!         op: Op::Replace,
//!     }
//! }
//!
//! impl StreamHalo {
//!     /// Figure 2.
//!     fn new(stream: &Stream, communicator: &Communicator, field: &Buffer<f64>) -> Result<Self, Error> {
//!         let queue = Queue::new(stream);
//!
//!         // Create send and receive requests.
//!         let (rank, size) = (communicator.rank(), communicator.size());
//!         let neighbors = [((rank + size - 1) % size, 1, 0), ((rank + 1) % size, OWNED, OWNED + 1)];
//!         let staging = Extents { points: [1, 1, 2], components: 1 };
//!         let owned_buffers = Buffer::<f64>::zeros(communicator.world(), stream, staging)?;
//!         let ghost_buffers = Buffer::<f64>::zeros(communicator.world(), stream, staging)?;
//!         let (mut requests, mut sends) = (Vec::new(), Vec::new());
//!         let (mut pack, mut unpack) = (Vec::new(), Vec::new());
//!         for (n, (neighbor, owned, ghost)) in neighbors.into_iter().enumerate() {
//!             // What goes to the left has tag 0, what goes to the right tag 1.
//!             let (send_tag, receive_tag) = (n as u32, 1 - n as u32);
//!             requests.push(communicator.recv_init(&ghost_buffers.section(n..n + 1)?, neighbor, receive_tag)?);
//!             sends.push(communicator.send_init(&owned_buffers.section(n..n + 1)?, neighbor, send_tag)?);
//!             pack.push(one(field.place([0, 0, owned])?, owned_buffers.place([0, 0, n])?));
//!             unpack.push(one(ghost_buffers.place([0, 0, n])?, field.place([0, 0, ghost])?));
//!         }
//!         requests.append(&mut sends);
//!
//!         // Match send and receive requests.
//!         match_all(&mut requests)?;
//!         let [pack, unpack] = [pack, unpack].map(|moves| MoveTable::new(&[moves]).map(Arc::new));
//!         Ok(Self { stream: stream.clone(), queue, requests, pack: pack?, unpack: unpack? })
//!     }
//!
//!     /// Figure 3.
//!     fn enqueue_gather(&mut self) -> Result<(), Error> {
//!         let (receives, sends) = self.requests.split_at_mut(2);
//!         // Enqueue starting the receives.
//!         self.queue.enqueue_start_all(receives)?;
//!         // Enqueue packing the data to send.
//!         self.stream.enqueue_move(&self.pack)?;
//!         // Enqueue sends and waiting for communication to complete.
//!         self.queue.enqueue_start_all(sends)?;
//!         self.queue.enqueue_wait_all(&mut self.requests)?;
//!         // Enqueue unpacking receive buffers.
//!         self.stream.enqueue_move(&self.unpack)?;
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let ranks = World::threads(3, WorldOptions::default(), |world| -> Result<Vec<f64>, Error> {
//!     let stream = Device::host().stream(&world)?;
//!     let communicator = Communicator::new(&world)?;
//!     let line = Extents { points: [1, 1, OWNED + 2], components: 1 };
//!     let mut field = Buffer::<f64>::zeros(&world, &stream, line)?;
//!     field.view_mut(line.whole())?.fill(world.rank() as f64);
//!     let mut halo = StreamHalo::new(&stream, &communicator, &field)?;
//!     for _ in 0..10 {
//!         halo.enqueue_gather()?;
//!     }
//!     halo.queue.wait()?;
//!     field.copy_out(line.whole())
//! })?;
//! assert_eq!(ranks[0], Ok(vec![2.0, 0.0, 0.0, 0.0, 0.0, 1.0]));
//! assert_eq!(ranks[1], Ok(vec![0.0, 1.0, 1.0, 1.0, 1.0, 2.0]));
//! # Ok(())
//! # }
//! ```
//!
//! What a pair takes each time, where ranks have mapped each other's memory (`local`, `shm`): the start of a
//! receive stores one word, *clear-to-send*, into the sender's memory; the send goes out when the stream has come to
//! its start and clear-to-send is there, in one pass from its section into the receiver's; then it stores one word,
//! the completion. A ready send does the same without waiting: if it does not find the word, which says that its
//! receive has been started, the stream fails. Over `mpi` and `ofi` a stream posts and waits for words of its own
//! rank, and the wire carries the message ([`PersistentRequest::route`](crate::PersistentRequest::route) says how, and
//! who executes it): on libfabric, with triggered operations where the provider has them, as in section V of the
//! paper.
//!
//! Over wires the sender of a ready send does not know whether its receive has been started: to be told is what it
//! saves. A send that comes too soon is found by the *receiver*, as far as that is possible without a message. Over
//! `ofi` its payload lies in the section when the host comes to the start, which is refused with
//! [`crate::Error::ReceiverNotReady`], on the receiving rank, and enqueues nothing; or it lies there when the stream comes to
//! the start, and then the stream fails with that. (The stream of a device comes to rest to look.) What the stream has
//! read of the section until then is undefined. Not found is a send that was too soon and is still on its way when the
//! stream has looked: it comes after the start, as one that is in time does, and the application gets what was sent. Only
//! the order was its luck. Over `mpi` a ready send of a queue is an ordinary one of the library's, and one that comes
//! too soon waits for its receive: nothing is lost, and nothing is refused.
//!
//! Sections on a device go by way of the host's memory, on every fabric alike: each request has a copy of its section there,
//! of which its partner knows. The start of a send copies the section to it first, and the wait for a receive copies
//! what has come to the device, both on the stream and in order with its kernels; in between the stream's thread
//! does what an executor on the host does. Neither start nor wait blocks the host.
//!
//! # Enqueued operations (2022, section III)
//!
//! | of the paper, figures 4 and 5 | here | blocks |
//! |---|---|---|
//! | `MPIX_Create_queue` | [`OperationQueue::new`] | no; local |
//! | `MPIX_Free_queue` | dropping the [`OperationQueue`] | no; local |
//! | `MPIX_Enqueue_send` | [`OperationQueue::enqueue_send`] | no |
//! | `MPIX_Enqueue_recv` | [`OperationQueue::enqueue_recv`] | no |
//! | `MPIX_Enqueue_start` | [`OperationQueue::enqueue_start`] | neither host nor stream |
//! | `MPIX_Enqueue_wait` | [`OperationQueue::enqueue_wait`] | the stream, until all that was started is complete |
//! | `MPI_Wait` on the request of an operation | [`EnqueuedOperation::wait`] | the host |
//!
//! Sections on a device are staged in the same way: copied to the host ahead of the start, and what has come to the device
//! behind the wait, by the stream, or as the host learns of it ([`EnqueuedOperation::wait`]). A receive is copied both ways,
//! since its message may be shorter.
//!
//! Figure 7 of the paper: a kernel writes what is sent after the sends were enqueued, and before the stream comes
//! to their start.
//!
//! ```
//! use streamhalo_comm::device::{Buffer, Device, Extents, Rows, RowsMut, StreamKind, StreamOptions};
//! use streamhalo_comm::queue::OperationQueue;
//! use streamhalo_comm::{Communicator, Error, World, WorldOptions};
//!
//! const SIZE: usize = 100;
//! const TAGS: [u32; 4] = [123, 126, 125, 124];
//!
//! # fn main() -> Result<(), Error> {
//! let ranks = World::threads(2, WorldOptions::default(), |world| -> Result<(), Error> {
//!     // Create a stream, and use it to create a queue.
//!     let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
//!     let stream = Device::host().stream_with(&world, options)?;
//!     let communicator = Communicator::new(&world)?;
//!     let queue = OperationQueue::new(&stream, &communicator)?;
//!
//!     let extents = Extents { points: [1, TAGS.len(), SIZE], components: 1 };
//!     let mut buffers = Buffer::<i32>::zeros(&world, &stream, extents)?;
//!     let whole = extents.whole();
//!     if world.rank() == 0 {
//!         stream.launch("compute", whole, (buffers.writer(whole)?,), |_, (mut out,): (RowsMut<'_, i32>,)| {
//!             for (i, row) in out.rows().enumerate() {
//!                 row.fill(i as i32 + 1);
//!             }
//!         })?;
//!         for (i, tag) in TAGS.into_iter().enumerate() {
//!             queue.enqueue_send(&buffers.section(i * SIZE..(i + 1) * SIZE)?, 1, tag)?;
//!         }
//!         queue.enqueue_start()?; // enables the triggering of all prior sends
//!         queue.enqueue_wait()?; // blocks only the stream
//!     } else {
//!         for (i, tag) in TAGS.into_iter().enumerate() {
//!             queue.enqueue_recv(&buffers.section(i * SIZE..(i + 1) * SIZE)?, 0, tag)?;
//!         }
//!         queue.enqueue_start()?;
//!         queue.enqueue_wait()?;
//!         stream.launch("use", whole, (buffers.reader(whole)?,), |_, (found,): (Rows<'_, i32>,)| {
//!             (0..TAGS.len()).for_each(|i| assert!(found.row(0, i).iter().all(|value| *value == i as i32 + 1)));
//!         })?;
//!     }
//!     stream.synchronize() // waits for all operations on the stream to complete
//! })?;
//! assert_eq!(ranks, [Ok(()), Ok(())]);
//! # Ok(())
//! # }
//! ```

mod early;
mod enqueue;
mod matcher;
mod matching;
mod merged;
mod operations;
mod pair;
mod record;
mod request;
mod words;

pub(crate) use matcher::{MatchState, Matcher};
pub(crate) use matching::go_on;
pub use matching::{MatchRequest, imatch_all, imatch_one, match_all, match_one};
pub use operations::{EnqueuedOperation, OperationQueue};

use crate::device::{Stream, next_group};
use crate::error::Result;
use merged::Groups;
use std::cell::RefCell;
use std::fmt;

/// Ties persistent requests to a stream, which starts them and waits for them where it comes to what
/// was enqueued here (2026, section III-B). They may be of several communicators.
///
/// Dropping a queue (`MPI_Queue_free`) leaves on the stream what was enqueued. A request that was started on it
/// and not waited for can then never be waited for, and its section never be used again.
pub struct Queue {
    id: u64,
    stream: Stream,
    groups: RefCell<Groups>,
}

impl Queue {
    /// A queue over a stream (`MPI_Queue_init`). Local; does not communicate.
    pub fn new(stream: &Stream) -> Self {
        Self { id: next_group(), stream: stream.clone(), groups: RefCell::default() }
    }

    /// Identifies the queue within its process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Blocks until all that was enqueued, here or otherwise on the stream, has run (`MPI_Queue_wait`): every
    /// request whose wait was enqueued is then complete, and may be freed. It does not wait for what was only
    /// started.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn wait(&self) -> Result<()> {
        self.groups.borrow_mut().forget_freed();
        self.stream.synchronize()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} on {:?})", self.id, self.stream)
    }
}
