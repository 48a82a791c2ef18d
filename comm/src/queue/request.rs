//! What queues know of a persistent request.

use super::matcher::MatchState;
use super::matching::hear;
use super::record::{Direction, Side};
use crate::backend::Route;
use crate::communicator::{Communicator, Kind, PersistentRequest, Stage};
use crate::error::{Error, Result};
use crate::source::{Source, Tag};
use std::rc::Rc;

impl PersistentRequest {
    /// Whether the request has a partner (`MPI_Is_matched`; 2026, section III-C), so that queues can start it.
    /// Makes progress, and does not block. It is not before the peer matches its own request, and becomes so whether or not
    /// the [`MatchRequest`](super::MatchRequest) is tested, which still has to be tested or waited for.
    pub fn is_matched(&self) -> bool {
        if let Err(error) = hear(self.communicator()) {
            // For the call that can give it.
            self.communicator().matcher().borrow_mut().keep(error);
        }
        self.match_state().is_matched()
    }

    /// How its messages travel once queues start it, and who carries them; of a receive also how long they are.
    /// `None` while it is not matched.
    pub fn route(&self) -> Option<Route> {
        self.match_state().with(|pair| pair.route())
    }

    /// Ends the request and its match (`MPI_Request_free`). Waits for nobody: the partner stays as it is, but
    /// what it starts fails. A request that is dropped instead is freed without a question: one that was
    /// started and not waited for then takes its section with it, which nothing can use again.
    ///
    /// ```
    /// use streamhalo_comm::device::{Buffer, Device, Extents};
    /// use streamhalo_comm::queue::{Queue, match_all};
    /// use streamhalo_comm::{Communicator, Error, World};
    ///
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let communicator = Communicator::new(&world)?;
    /// let line = Extents { points: [1, 1, 8], components: 1 };
    /// let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
    /// let receive = communicator.recv_init(&cells.section(0..4)?, 0, 7)?;
    /// let mut requests = [receive, communicator.send_init(&cells.section(4..8)?, 0, 7)?];
    /// match_all(&mut requests)?;
    /// let queue = Queue::new(&stream);
    /// queue.enqueue_start_all(&mut requests)?;
    /// queue.enqueue_wait_all(&mut requests)?;
    /// let [receive, send] = requests;
    /// // For all that the host knows the stream may still be at it.
    /// let (receive, refused) = receive.free().unwrap_err();
    /// assert!(matches!(refused, Error::OutOfOrder { .. }));
    /// queue.wait()?;
    /// receive.free().map_err(|(_, error)| error)?;
    /// send.free().map_err(|(_, error)| error)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], with the request as it was, if it has been started and not been waited for, or if
    /// the host cannot know yet that the wait is over, since it has not called [`Queue::wait`](super::Queue::wait)
    /// behind it (2026, section III-D).
    pub fn free(self) -> Result<(), (PersistentRequest, Error)> {
        let refused = match self.inner.stage.get() {
            Stage::Active => Err("has been started by the host; wait for it first"),
            Stage::Inactive | Stage::Enqueued => {
                self.match_state().with(|pair| pair.check_free()).unwrap_or(Ok(()))
            }
        };
        match refused {
            Ok(()) => Ok(()),
            Err(reason) => {
                let reason = format!("the {} {reason}", self.describe());
                Err((self, Error::OutOfOrder { call: "PersistentRequest::free", reason }))
            }
        }
    }

    pub(super) fn match_state(&self) -> &Rc<MatchState> {
        &self.inner.match_state
    }

    pub(super) fn communicator(&self) -> &Communicator {
        &self.inner.communicator
    }

    /// What it says to its partner, if it has one only.
    pub(super) fn side(&self) -> Option<Side> {
        let (direction, peer, tag) = match self.inner.kind {
            Kind::Send { destination, tag } => (Direction::Send { ready: false }, destination, tag),
            Kind::ReadySend { destination, tag } => (Direction::Send { ready: true }, destination, tag),
            Kind::Recv { source: Source::Rank(source), tag: Tag::Value(tag) } => {
                (Direction::Receive, source, tag)
            }
            Kind::Recv { .. } => return None,
        };
        Some(Side { direction, peer, tag, section: self.inner.section.clone() })
    }

    pub(super) fn describe(&self) -> String {
        match (self.side(), self.inner.kind) {
            (Some(side), _) => side.describe(),
            (None, Kind::Recv { source, tag }) => format!("receive from {source} with {tag}"),
            (None, _) => unreachable!("a send has one receiver"),
        }
    }
}
