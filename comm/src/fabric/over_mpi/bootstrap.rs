//! Ranks that an MPI launcher has started, or that an application has brought together.

use super::attendance::Attendance;
use super::communicators::Communicators;
use super::meeting::MpiMeeting;
use super::news::{News, NewsCheck};
use crate::error::{Error, Result};
use crate::fabric::mpi::{Communicator, Mpi, ThreadLevel};
use crate::fabric::spanning::Bootstrap;
use crate::fabric::{Abort, Carrier, Executor, Fabric, LocalFabric, Parted, Partings, WaitContext};
use crate::meeting::{Meeting, all_gather};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One rank's end.
pub(super) struct MpiBootstrap {
    mpi: &'static Mpi,
    communicators: Arc<Communicators>,
    rank: usize,
    size: usize,
    /// Meetings of all ranks so far. They have the even numbers, and those that rank 0 numbers the odd ones.
    meetings: AtomicU64,
    memory: Arc<LocalFabric>,
    news: Arc<News>,
    carrier: Arc<Carrier>,
    was_told: AtomicBool,
}

impl MpiBootstrap {
    /// Over the ranks of a communicator. Collective over it.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn new(mpi: &'static Mpi, level: ThreadLevel, theirs: &Communicator) -> Result<Arc<Self>> {
        let (rank, size) = (theirs.rank()?, theirs.size()?);
        let communicators = Communicators::new(theirs)?;
        let memory = LocalFabric::alone(rank)?;
        let abort = memory.abort();
        let news = News::new(communicators.duplicate()?, size, abort.clone());
        // A library that lets one thread at a time call it, or the main thread only, is called by the host.
        let executor = if level == ThreadLevel::Multiple { Executor::Proxy } else { Executor::Host };
        let carrier = Carrier::new(rank, executor, abort.clone());
        // No thread is started for it: the host looks in its waits, until there is a thread anyway.
        carrier.add(Box::new(NewsCheck(news.clone())));
        let (meetings, was_told) = (AtomicU64::new(0), AtomicBool::new(false));
        mpi.enter(abort, carrier.clone(), news.clone());
        Ok(Arc::new(Self { mpi, communicators, rank, size, meetings, memory, news, carrier, was_told }))
    }

    pub(super) fn communicators(&self) -> &Arc<Communicators> {
        &self.communicators
    }

    /// Hears all that any rank has told this one. Collective.
    fn hear_the_last(&self, context: &WaitContext) -> Result<()> {
        let to_this = self.news.told_to_this(context)?;
        let late = |source: usize, waited| Error::TimedOut {
            rank: self.rank,
            peer: source,
            what: "what it has told before it left".into(),
            wanted: to_this[source],
            found: self.news.heard()[source],
            waited,
        };
        let mut done = || {
            self.news.check()?;
            Ok(self.news.heard() == to_this)
        };
        let missing = || self.news.heard().iter().zip(&to_this).position(|(heard, told)| heard != told);
        context.poll(&mut done, &|waited| late(missing().unwrap_or(self.rank), waited))?;
        self.news.settle()
    }

    pub(super) fn proxy(&self) -> &Arc<Carrier> {
        &self.carrier
    }
}

impl Bootstrap for MpiBootstrap {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn meeting(&self) -> Result<Box<dyn Meeting>> {
        let number = self.meetings.fetch_add(1, Ordering::Relaxed);
        let attendance = Attendance::new(&self.news, self.rank, self.size, 2 * number)?;
        let all = &self.communicators;
        let communicator = if number > 0 { all.duplicate()? } else { all.base() };
        Ok(Box::new(MpiMeeting::new(all.clone(), communicator, Some(attendance))?))
    }

    fn farewell(&self) -> Result<Box<dyn Meeting>> {
        let all = &self.communicators;
        Ok(Box::new(MpiMeeting::new(all.clone(), all.duplicate()?, None)?))
    }

    fn abort(&self) -> Abort {
        self.memory.abort()
    }

    fn tell_failure(&self, _rank: usize, operation: &str) {
        if self.was_told.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.carrier.executor() == Executor::Proxy {
            self.news.check_soon();
        } else {
            // Nobody else can be told of a failure to tell.
            let _ = self.news.check();
        }
        // Finalising would wait for those who never come. What comes of the first failure is none of its own.
        let first = self.memory.abort().failure();
        self.mpi.poison_by(first.as_ref().map_or(operation, |(_, first)| first));
    }

    fn partings(&self) -> &Arc<Partings> {
        self.news.partings()
    }

    fn tell_parting(&self, peer: usize, parted: &Parted) {
        // Who is not told waits until it is out of time.
        if self.news.can_tell() {
            let _ = self.news.tell_parting(peer, parted);
        }
    }

    fn carrier(&self) -> Option<Arc<Carrier>> {
        Some(self.carrier.clone())
    }

    fn end(&self, meeting: &dyn Meeting, context: &WaitContext) {
        // From here on this thread alone hears.
        self.carrier.stop();
        let heard = self.hear_the_last(context);
        let all = all_gather(meeting, context, &heard.is_ok());
        if all.is_ok_and(|all| !all.contains(&false)) {
            self.communicators.free_all();
        }
    }
}

impl Drop for MpiBootstrap {
    fn drop(&mut self) {
        self.carrier.stop();
        self.mpi.leave(&self.memory.abort());
    }
}
