//! Ranks that an MPI launcher has started, or that an application has brought together.

use super::meeting::MpiMeeting;
use super::news::{News, NewsCheck};
use crate::error::Result;
use crate::fabric::mpi::{Communicator, Mpi, ThreadLevel};
use crate::fabric::spanning::Bootstrap;
use crate::fabric::{Abort, Carrier, Executor, Fabric, LocalFabric, Parted, Partings, Region};
use crate::meeting::Meeting;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One rank's end.
pub(super) struct MpiBootstrap {
    mpi: &'static Mpi,
    base: Communicator,
    rank: usize,
    size: usize,
    /// Of the first meeting, until somebody asks for it.
    first: Mutex<Option<Communicator>>,
    memory: Arc<LocalFabric>,
    news: Arc<News>,
    carrier: Arc<Carrier>,
    was_told: AtomicBool,
}

impl MpiBootstrap {
    /// Over the ranks of a communicator. Collective over it.
    pub(super) fn new(mpi: &'static Mpi, level: ThreadLevel, base: Communicator) -> Result<Arc<Self>> {
        let (rank, size) = (base.rank()?, base.size()?);
        let first = base.duplicate()?;
        let memory = LocalFabric::alone(rank)?;
        let abort = Abort::new(memory.abort());
        let news = News::new(base.duplicate()?, abort.clone());
        // A library that lets one thread at a time call it, or the main thread only, is called by the host.
        let executor = if level == ThreadLevel::Multiple { Executor::Proxy } else { Executor::Host };
        let carrier = Carrier::new(rank, executor, abort.clone());
        // No thread is started for it: the host looks in its waits, until there is a thread anyway.
        carrier.add(Box::new(NewsCheck(news.clone())));
        let was_told = AtomicBool::new(false);
        let first = Mutex::new(Some(first));
        mpi.enter(abort);
        Ok(Arc::new(Self { mpi, base, rank, size, first, memory, news, carrier, was_told }))
    }

    pub(super) fn base(&self) -> &Communicator {
        &self.base
    }

    /// Hears what all ranks have told before they met for the last time.
    pub(super) fn hear_the_last(&self) {
        // What has not come yet nobody waits for.
        let _ = self.news.check().and_then(|()| self.news.settle());
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
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let communicator = first.map_or_else(|| self.base.duplicate(), Ok)?;
        Ok(Box::new(MpiMeeting::new(communicator)?))
    }

    fn farewell(&self) -> Result<Box<dyn Meeting>> {
        Ok(Box::new(MpiMeeting::new(self.base.duplicate()?)?.at_will()))
    }

    fn abort(&self) -> Region {
        self.memory.abort()
    }

    fn tell_failure(&self, _rank: usize, _operation: &str) {
        if self.was_told.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.carrier.executor() == Executor::Proxy {
            self.news.check_soon();
        } else {
            // Nobody else can be told of a failure to tell.
            let _ = self.news.check();
        }
        // Finalising would wait for those who never come.
        self.mpi.poison();
    }

    fn partings(&self) -> &Arc<Partings> {
        self.news.partings()
    }

    fn tell_parting(&self, peer: usize, parted: &Parted) {
        // Who is not told waits until it is out of time.
        if self.mpi.is_running() && !self.mpi.is_poisoned() {
            let _ = self.news.tell_parting(peer, parted);
        }
    }

    fn carrier(&self) -> Option<Arc<Carrier>> {
        Some(self.carrier.clone())
    }
}

impl Drop for MpiBootstrap {
    fn drop(&mut self) {
        self.carrier.stop();
        self.mpi.leave(&Abort::new(self.memory.abort()));
    }
}
