//! What ranks tell each other beside exchanges, with messages: failures, which concern all, and partings.
//!
//! There is no memory that all of them see, and nobody waits for these messages: a carrier looks for them as it goes
//! round, and so does the host in its waits.

use crate::error::{Error, Result};
use crate::fabric::carrier::Carried;
use crate::fabric::mpi::{Communicator, LastWord, Request};
use crate::fabric::{Abort, EXITED, Grace, Parted, Partings, WaitContext, any_other};
use crate::locks::lock;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// On a communicator of their own.
const NEWS: i32 = 2;
/// What is told of a failure, at most: libraries send short messages at once.
const TEXT_LENGTH: usize = 500;
/// How many words are told of at once, likewise.
const WORDS: usize = 64;
/// For how long a rank that has failed, or ends, waits until the others are told.
const MOMENT: Duration = Duration::from_millis(300);

/// What a rank tells others, at any time.
#[derive(Debug, Serialize, Deserialize)]
enum Notice {
    Failed {
        rank: u32,
        text: String,
    },
    Parted(Parted),
    /// The process of the sender ends with status 0, and has not dropped its world.
    Exited,
}

/// Hears what other ranks tell, and tells them.
#[derive(Debug)]
pub(super) struct News {
    communicator: Communicator,
    abort: Abort,
    partings: Arc<Partings>,
    was_told: AtomicBool,
    /// The first rank whose process has ended, and how long is listened yet for what it has told before.
    exited: OnceLock<(usize, Mutex<Grace>)>,
    /// How many messages this rank has begun to send to each, and how many of each it has heard.
    told: Vec<AtomicU32>,
    heard: Vec<AtomicU32>,
    /// Messages that may be on their way.
    sent: Mutex<Vec<(Request, Box<[u8]>)>>,
}

impl News {
    /// Over a communicator of `size` ranks that nobody else uses.
    pub(super) fn new(communicator: Communicator, size: usize, abort: Abort) -> Arc<Self> {
        let (partings, was_told) = (Arc::default(), AtomicBool::new(false));
        let (exited, sent) = (OnceLock::new(), Mutex::default());
        let [told, heard] = [(); 2].map(|()| (0..size).map(|_| AtomicU32::new(0)).collect());
        Arc::new(Self { communicator, abort, partings, was_told, exited, told, heard, sent })
    }

    /// How many messages each rank has sent to this one. Collective, when nobody tells anything any more; blocks.
    pub(super) fn told_to_this(&self, context: &WaitContext) -> Result<Vec<u32>> {
        let told: Vec<u32> = self.told.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let mut to_this = vec![0_u32; told.len()];
        let (from, to) = (told.as_ptr().cast(), to_this.as_mut_ptr().cast());
        // SAFETY: both have a count for each rank, and are kept until the request is complete, or, after a failure, for ever.
        let mut request = unsafe { self.communicator.ialltoall(from, to, size_of::<u32>()) }?;
        let mut done = || Ok(request.test()?.is_some());
        let peer = any_other(context.rank, told.len());
        let late = |waited| context.late(peer, "how much each rank has told before it left", waited);
        let waited = context.poll(&mut done, &late);
        if waited.is_err() {
            std::mem::forget((told, std::mem::take(&mut to_this)));
        }
        waited.map(|()| to_this)
    }

    /// How many it has heard of each.
    pub(super) fn heard(&self) -> Vec<u32> {
        self.heard.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn partings(&self) -> &Arc<Partings> {
        &self.partings
    }

    /// Hears what has come, and tells of a failure that this rank knows of and the others may not.
    pub(super) fn check(&self) -> Result<()> {
        match self.abort.failure() {
            None => self.hear().map(|()| self.miss_exited()),
            Some(_) if self.was_told.swap(true, Ordering::Relaxed) => Ok(()),
            Some((rank, operation)) => self.tell_failure(rank, &operation),
        }
    }

    /// Tells of a failure as [`News::check`] does, by a thread of its own, for which this one waits a moment only: the progress
    /// thread may be in a call that never returns, and keep the library to itself.
    pub(super) fn check_soon(self: &Arc<Self>) {
        let (news, (told, is_told)) = (self.clone(), std::sync::mpsc::channel());
        let thread = std::thread::Builder::new().name("news".into());
        // Nobody else can be told of a failure to tell.
        let tell = move || {
            // One thread hears at a time, and this is not it.
            let failed = news.abort.failure().is_some();
            told.send(if failed { news.check() } else { Ok(()) })
        };
        if thread.spawn(tell).is_ok() {
            let _ = is_told.recv_timeout(MOMENT);
        }
    }

    fn hear(&self) -> Result<()> {
        while let Some(found) = self.communicator.iprobe(NEWS)? {
            let mut message = vec![0; found.bytes].into_boxed_slice();
            // SAFETY: the message has that many bytes, and is kept until it is there.
            let receive =
                unsafe { self.communicator.irecv(message.as_mut_ptr(), found.bytes, found.source, NEWS) };
            let mut request = receive?;
            // It is short, and here already.
            while request.test().inspect_err(|_| std::mem::forget(std::mem::take(&mut message)))?.is_none() {
                std::hint::spin_loop();
            }
            self.heard[found.source].fetch_add(1, Ordering::Relaxed);
            match postcard::from_bytes(&message).map_err(unreadable)? {
                Notice::Parted(parted) => self.partings.hear(found.source, &parted),
                Notice::Exited => drop(self.exited.set((found.source, Mutex::default()))),
                Notice::Failed { rank, text } => {
                    // Whoever has told this rank tells all.
                    self.was_told.store(true, Ordering::Relaxed);
                    self.abort.raise(rank as usize, &text);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes it for a failure that a process has ended, once what it has sent before has had the time to come: whoever has
    /// had all that it waits for may be about to end as well.
    fn miss_exited(&self) {
        let Some((rank, grace)) = self.exited.get() else { return };
        if lock(grace).is_over() && self.abort.failure().is_none() {
            // It has told all.
            self.was_told.store(true, Ordering::Relaxed);
            self.abort.raise(*rank, EXITED);
        }
    }

    fn tell_failure(&self, rank: usize, operation: &str) -> Result<()> {
        let text = operation.chars().take(TEXT_LENGTH).collect();
        self.tell_all(&Notice::Failed { rank: rank as u32, text })
    }

    fn tell_all(&self, told: &Notice) -> Result<()> {
        let own = self.communicator.rank()?;
        let mut peers = (0..self.communicator.size()?).filter(|peer| *peer != own);
        peers.try_for_each(|peer| self.tell(peer, told))
    }

    /// Whether the library may be called for what can be left out.
    pub(super) fn can_tell(&self) -> bool {
        let mpi = self.communicator.mpi();
        mpi.is_running() && !mpi.is_poisoned()
    }

    /// Tells a peer that this rank lets go of words of its. Does not block.
    pub(super) fn tell_parting(&self, peer: usize, parted: &Parted) -> Result<()> {
        let mut parts = parted.words.chunks(WORDS).map(<[_]>::to_vec);
        parts.try_for_each(|words| self.tell(peer, &Notice::Parted(Parted { words, ..*parted })))
    }

    fn tell(&self, peer: usize, told: &Notice) -> Result<()> {
        let message = postcard::to_stdvec(told).map_err(unreadable)?.into_boxed_slice();
        // SAFETY: the message is kept until it has gone, or for as long as the process lives.
        let request = unsafe { self.communicator.isend(message.as_ptr(), message.len(), peer, NEWS) }?;
        self.told[peer].fetch_add(1, Ordering::Relaxed);
        lock(&self.sent).push((request, message));
        self.settle()
    }

    /// Lets go of what has gone.
    pub(super) fn settle(&self) -> Result<()> {
        let mut sent = lock(&self.sent);
        // What cannot be asked may still be on its way.
        sent.retain_mut(|(request, _)| !matches!(request.test(), Ok(Some(_))));
        Ok(())
    }
}

impl LastWord for News {
    fn tell_exit(&self) {
        // Nobody can be told that this cannot be told.
        let _ = self.tell_all(&Notice::Exited);
        let end = Instant::now() + MOMENT;
        while self.settle().is_ok() && !lock(&self.sent).is_empty() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        // MPI may have ended by now: nobody can ask what has gone.
        let sent = self.sent.get_mut().unwrap_or_else(PoisonError::into_inner);
        sent.drain(..).for_each(|(_, message)| std::mem::forget(message));
    }
}

fn unreadable(error: postcard::Error) -> Error {
    Error::System { call: "what ranks tell each other over MPI", reason: error.to_string() }
}

/// What the carrier goes round to.
pub(super) struct NewsCheck(pub(super) Arc<News>);

impl Carried for NewsCheck {
    fn progress(&mut self) -> Result<bool> {
        self.0.check().map(|()| false)
    }

    fn is_quiet(&self) -> bool {
        true
    }
}
