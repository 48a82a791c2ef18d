//! Worlds: the ranks that work together, and what they set up together.

mod threads;

use crate::backend::Known;
use crate::communicator::{Exchanges, Staging};
use crate::error::{Error, Result};
use crate::fabric::{self, Fabric, HostRounds, LocalFabric, WaitContext, WaitPolicy, register, to_blame};
use crate::meeting::Meeting;
use crate::pinning::{self, Pinned};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A set of ranks. A world belongs to the thread of its rank; clones are the same world.
///
/// Over `mpi` and `ofi` peers may still be at this rank's memory when it has ended its last exchange: dropping
/// the last of a world and its exchanges blocks until all ranks do so, up to the time-out, unless one has failed.
///
/// The first failure of any rank is seen by the waits of all others, which then end with
/// [`Error::PeerFailed`]. So do those for a rank whose process has ended without dropping its world, with status 0 too,
/// but where the application itself finalises MPI (`World::from_mpi_comm`): then only the time-out tells.
#[derive(Clone)]
pub struct World {
    shared: Rc<Shared>,
}

struct Shared {
    /// Before the fabric: whose last end goes may wait for ranks that wait for this one here.
    meeting: Box<dyn Meeting>,
    fabric: Arc<dyn Fabric>,
    rank: usize,
    size: usize,
    wait: Arc<WaitContext>,
    next_tag: Cell<u32>,
    staging: Cell<Staging>,
    last_epoch: Cell<u32>,
    /// What carries the messages of exchanges by the host, once there is one.
    messages: OnceCell<Rc<Exchanges>>,
    /// What exchanges take, by shape: of this world and of those of its first ranks.
    measured: Rc<RefCell<Known>>,
    /// The thread's waits make progress on it.
    carrier: Option<Rc<HostRounds>>,
}

/// How the ranks of a world wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorldOptions {
    /// How to wait; chosen by the number of ranks and cores if `None`.
    pub policy: Option<WaitPolicy>,
    /// After how long any wait for other ranks fails; never if `None`. By default 60 s, which has to be longer than ranks
    /// compute, read or write between exchanges: others wait for them meanwhile.
    pub timeout: Option<Duration>,
}

/// Waits that suit the number of ranks and cores, and fail after 60 s.
impl Default for WorldOptions {
    fn default() -> Self {
        Self { policy: None, timeout: Some(Duration::from_secs(60)) }
    }
}

impl World {
    /// The world that this process was started in: a rank of `streamhalo launch` or `streamhalo run`, of
    /// `mpiexec` or `srun`, of those that meet at an address, or else a world of one rank. Waits that last longer than 60 s
    /// fail; [`World::from_env_with`] has it otherwise. Collective over the ranks that were started; blocks.
    ///
    /// The fabric is the first of these that applies: `shm` under `streamhalo launch`; what the variable
    /// `STREAMHALO_FABRIC` names; `ofi` where one of `STREAMHALO_RENDEZVOUS` (rank 0's address as `HOST:PORT`),
    /// `STREAMHALO_RANK` and `STREAMHALO_SIZE` is set, which are all needed then, with the key that all ranks share in
    /// `STREAMHALO_JOB_KEY` or `STREAMHALO_JOB_KEY_FILE`; `mpi` under an MPI launcher of several ranks; `local`.
    ///
    /// A process may make several, at once or one after the other, if all ranks make them in one order. Over `shm` a
    /// failure is one of the job: it ends the waits of all its worlds, also of those that are made afterwards.
    ///
    /// # Errors
    /// If a launcher's environment is there but cannot be used. A process that was started as one of
    /// several is refused rather than left alone.
    pub fn from_env() -> Result<Self> {
        Self::from_env_with(WorldOptions::default())
    }

    /// As [`World::from_env`], with options. Ranks that may compute for as long as they like between exchanges:
    ///
    /// ```
    /// use streamhalo_comm::{World, WorldOptions};
    ///
    /// let world = World::from_env_with(WorldOptions { timeout: None, ..WorldOptions::default() })?;
    /// # Ok::<(), streamhalo_comm::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`World::from_env`].
    pub fn from_env_with(options: WorldOptions) -> Result<Self> {
        Self::over(&fabric::of_launcher(), options)
    }

    /// The world that this process was started in, over the fabric of that name, one of
    /// [`FABRICS`](crate::fabric::FABRICS). Collective over the ranks that were started; blocks.
    ///
    /// # Errors
    /// [`Error::FabricUnavailable`] if there is no such fabric, if it cannot be used on this machine, or if
    /// the ranks were not started for it; else as [`World::from_env`].
    pub fn over(fabric: &str, options: WorldOptions) -> Result<Self> {
        Self::new(fabric::join(fabric, &options)?, options)
    }

    /// A world of one rank, in the calling thread. Needs no launcher.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the little memory that a world needs is not there.
    pub fn alone() -> Result<Self> {
        Self::new(LocalFabric::ends(1)?.remove(0), WorldOptions::default())
    }

    /// The world of all ranks of a fabric, in the thread of this end's rank. Does not communicate.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the fabric's roots are too small for its ranks.
    pub fn new(fabric: Arc<dyn Fabric>, options: WorldOptions) -> Result<Self> {
        let (rank, size) = (fabric.rank(), fabric.size());
        let wait = Arc::new(WaitContext {
            rank,
            policy: options.policy.unwrap_or_else(|| fabric.wait_policy()),
            timeout: options.timeout,
            abort: fabric.abort(),
            calls: fabric.wire().is_some() || !fabric.carriers().is_empty(),
        });
        let meeting = fabric.clone().meeting()?;
        let carriers = fabric.carriers();
        let rounds = (!carriers.is_empty()).then(|| Rc::new(HostRounds(carriers)));
        if let Some(rounds) = &rounds {
            register(rounds);
        }
        Ok(Self::assemble(fabric, meeting, size, wait, (rounds, Rc::default())))
    }

    fn assemble(
        fabric: Arc<dyn Fabric>,
        meeting: Box<dyn Meeting>,
        size: usize,
        wait: Arc<WaitContext>,
        (carrier, measured): (Option<Rc<HostRounds>>, Rc<RefCell<Known>>),
    ) -> Self {
        let rank = fabric.rank();
        let (next_tag, staging, last_epoch) = (Cell::new(0), Cell::default(), Cell::new(0));
        let messages = OnceCell::new();
        Self {
            shared: Rc::new(Shared {
                fabric,
                rank,
                size,
                meeting,
                wait,
                next_tag,
                staging,
                last_epoch,
                messages,
                measured,
                carrier,
            }),
        }
    }

    /// The world of the first `ranks` ranks of this one. Collective over this world; blocks. Ranks
    /// that are not in it get `None`.
    ///
    /// # Errors
    /// [`Error::BadWorldSize`] if `ranks` is 0 or more than there are; [`Error::CollectiveFailed`], on
    /// all ranks, if they ask for different numbers or rank 0 has no memory for it; or that a rank failed meanwhile.
    pub fn first(&self, ranks: usize) -> Result<Option<World>> {
        self.first_waiting(ranks, self.shared.wait.clone())
    }

    /// As [`World::first`], but the ranks of the new world wait as `options` say: ranks that are left out
    /// may have to wait longer than any wait among those that work.
    ///
    /// # Errors
    /// As [`World::first`].
    pub fn first_with(&self, ranks: usize, options: WorldOptions) -> Result<Option<World>> {
        let Shared { fabric, wait, .. } = &*self.shared;
        let policy = options.policy.unwrap_or_else(|| fabric.wait_policy());
        let wait = WaitContext { policy, timeout: options.timeout, ..(**wait).clone() };
        self.first_waiting(ranks, Arc::new(wait))
    }

    fn first_waiting(&self, ranks: usize, wait: Arc<WaitContext>) -> Result<Option<World>> {
        let asked = self.all_gather(&ranks)?;
        if let Some(rank) = asked.iter().position(|other| *other != asked[0]) {
            let reason = format!("it asked for {} ranks, rank 0 for {}", asked[rank], asked[0]);
            return Err(Error::CollectiveFailed { call: "World::first", rank, reason });
        }
        if ranks == 0 || ranks > self.size() {
            return Err(Error::BadWorldSize {
                asked: ranks,
                reason: format!("this world has {}", self.size()),
            });
        }
        let meeting = self.shared.meeting.first(&self.shared.wait, ranks)?;
        Ok(meeting.map(|meeting| {
            let Shared { fabric, carrier, measured, .. } = &*self.shared;
            let kept = (carrier.clone(), measured.clone());
            let world = Self::assemble(fabric.clone(), meeting, ranks, wait, kept);
            world.shared.staging.set(self.staging());
            world.shared.last_epoch.set(self.last_epoch());
            world
        }))
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// Whether the other world has the same ranks, over the same fabric: what was laid out for one of them can be used
    /// in the other.
    pub fn has_ranks_of(&self, other: &World) -> bool {
        let [own, others] = [self, other].map(|world| Arc::as_ptr(&world.shared.fabric));
        std::ptr::addr_eq(own, others) && self.size() == other.size()
    }

    /// The fabric between the ranks.
    pub fn fabric(&self) -> &dyn Fabric {
        &*self.shared.fabric
    }

    /// That no rank has failed, be it on a stream of this one that nobody has waited for.
    fn check(&self) -> Result<()> {
        let wait = &self.shared.wait;
        wait.abort.failure().map_or(Ok(()), |_| Err(wait.peer_failure()))
    }

    /// Blocks until all ranks have called it. Collective.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank has failed, or one of this rank's streams, [`Error::TimedOut`] if one does not come.
    /// Whoever comes when others have given up is told so by [`Error::CollectiveFailed`], as are all at the calls that follow,
    /// or over MPI runs out of time too.
    pub fn barrier(&self) -> Result<()> {
        self.check()?;
        self.shared.meeting.barrier(&self.shared.wait)
    }

    /// Gives every rank the values of every rank, by rank. Collective; blocks. For set-up and
    /// results: it allocates, and copies every value to every rank.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`] if a rank has no memory for its value or for those of others, or makes another call; else
    /// as [`World::barrier`].
    pub fn all_gather<T: serde::Serialize + serde::de::DeserializeOwned>(&self, value: &T) -> Result<Vec<T>> {
        self.check()?;
        crate::meeting::all_gather(&*self.shared.meeting, &self.shared.wait, value)
    }

    /// As [`World::all_gather`], as a part of `call`: what goes wrong names that one, which the application has made.
    ///
    /// # Errors
    /// As [`World::all_gather`].
    #[doc(hidden)]
    pub fn all_gather_of<T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        call: &'static str,
        value: &T,
    ) -> Result<Vec<T>> {
        self.all_gather(value).map_err(|error| match error {
            Error::CollectiveFailed { call: "all_gather", rank, reason } => {
                Error::CollectiveFailed { call, rank, reason }
            }
            other => other,
        })
    }

    /// Turns each rank's own result into one verdict: the values of all, or the error of the first
    /// rank that has one. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`] with `call`, that rank and its reason, the same on every rank; else
    /// as [`World::all_gather`].
    pub fn agree<T, E>(&self, call: &'static str, own: std::result::Result<T, E>) -> Result<Vec<T>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
        E: fmt::Display,
    {
        let told = self.all_gather_of(call, &own.map_err(|error| error.to_string()))?;
        told.into_iter()
            .enumerate()
            .map(|(rank, result)| result.map_err(|reason| Error::CollectiveFailed { call, rank, reason }))
            .collect()
    }

    /// The largest of the ranks' values, by `f64::max`, which ignores NaN. Collective; blocks.
    ///
    /// # Errors
    /// As [`World::all_gather`].
    pub fn all_max(&self, value: f64) -> Result<f64> {
        Ok(self.all_gather(&value)?.into_iter().fold(f64::NEG_INFINITY, f64::max))
    }

    /// A tag that no other call of this on this world gives: 0, 1 and so on, modulo 2³². It is the same on every rank as
    /// long as all make the same calls in the same order, which nothing checks. Does not communicate. Tags that an
    /// application has chosen by itself are not known here.
    pub fn next_tag(&self) -> u32 {
        let tag = self.shared.next_tag.get();
        self.shared.next_tag.set(tag.wrapping_add(1));
        tag
    }

    /// How communicators that are made from here on stage messages of sections on devices, unless they are told
    /// otherwise, and into which blocks exchanges cut what they stage over a wire. Each rank may say so for itself.
    ///
    /// # Errors
    /// [`Error::WrongStaging`].
    pub fn set_staging(&self, staging: Staging) -> Result<()> {
        staging.check()?;
        self.shared.staging.set(staging);
        Ok(())
    }

    /// How new communicators and exchanges stage messages of devices.
    pub fn staging(&self) -> Staging {
        self.shared.staging.get()
    }

    /// The epoch before the first of what is matched and of windows that are made from here on, to test what happens near
    /// the wrap at 2³²; even, and the same on all ranks.
    #[doc(hidden)]
    pub fn set_last_epoch(&self, last_epoch: u32) {
        assert!(last_epoch.is_multiple_of(2), "the first exchange has phase 1");
        self.shared.last_epoch.set(last_epoch);
    }

    /// What [`World::set_last_epoch`] has said; else zero.
    #[doc(hidden)]
    pub fn last_epoch(&self) -> u32 {
        self.shared.last_epoch.get()
    }

    /// Tells the other ranks that this one has failed, and at what; their waits, and its own from here on, end with
    /// [`Error::PeerFailed`]. The first failure of any rank is the one that all see. Where `operation` is the text of such
    /// an error itself, of a rank that has left, that rank is named. What is longer than some hundred bytes is cut.
    ///
    /// Not collective, and waits for no rank: for a third of a second at most, where a library has to carry it.
    pub fn fail(&self, operation: &str) {
        let (rank, operation) = to_blame(self.rank(), operation);
        self.shared.wait.abort.raise(rank, operation);
        self.fabric().tell_failure(rank, operation);
    }

    /// Pins the calling thread to a core until what this gives is dropped; does nothing on systems other than Linux. Of the
    /// cores that its process may use it takes the first of those that the fewest ranks before it on its node have: with the
    /// same cores for all, rank *r* of a node gets core *r* mod cores. Threads that it starts meanwhile inherit that, but for
    /// those of streams and of fabrics. Collective; blocks.
    ///
    /// # Errors
    /// [`Error::CollectiveFailed`] if the system refuses it to a rank; else as [`World::barrier`].
    pub fn pin(&self) -> Result<Pinned> {
        pinning::pin(self)
    }

    pub(crate) fn shared_fabric(&self) -> &Arc<dyn Fabric> {
        &self.shared.fabric
    }

    pub(crate) fn known_to_auto(&self) -> &RefCell<Known> {
        &self.shared.measured
    }

    pub(crate) fn wait_context(&self) -> &Arc<WaitContext> {
        &self.shared.wait
    }

    /// What carries the messages of exchanges by the host between ranks whose memory is mapped. Collective;
    /// blocks if it was not called before.
    pub(crate) fn messages(&self) -> Result<&Rc<Exchanges>> {
        if self.shared.messages.get().is_none() {
            let messages = Exchanges::connect(self)?;
            self.shared.messages.set(messages).expect("nothing else makes them meanwhile");
        }
        Ok(self.shared.messages.get().expect("they have been made"))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.wait.abort.raise(self.rank, "its own code, which panicked");
        }
        // A stream that failed could tell those only who see this rank's abort word.
        if let Some((rank, operation)) = self.wait.abort.failure() {
            self.fabric.tell_failure(rank, &operation);
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World(rank {} of {} over {})", self.rank(), self.size(), self.fabric().name())
    }
}
