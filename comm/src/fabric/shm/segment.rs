//! The memory file that the ranks of a job share.

use super::super::Abort;
use super::super::claims::Claims;
use super::super::{Executor, Fabric, Region, SKEWED_BYTES, WaitContext, WaitPolicy, shared_struct, skew};
use super::mapping::{Mapping, give_back, out_of_memory, reserve};
use super::node::together;
use super::{RANK_VARIABLE, SEGMENT_VARIABLE, SIZE_VARIABLE};
use crate::boards::Boards;
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use crate::pinning::{allowed, usable};
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use rustix::param::page_size;
use rustix::thread::CpuSet;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// In front of each region: how many processes map it, and where it starts.
const HEADER_BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"shalo002");

/// The beginning of the file.
#[repr(C)]
struct FileHeader {
    magic: AtomicU64,
    size: AtomicU64,
    /// Where the next region goes. Offsets are not used twice; what is freed becomes a hole.
    next: AtomicU64,
    /// Where the boards of the first worlds of all ranks are.
    boards: AtomicU64,
    /// Of regions that ranks are making.
    claims: Claims,
}

/// In front of boards: where those of the next worlds of all ranks are. Zero before a rank has one.
#[repr(C, align(64))]
struct BoardsHeader {
    next: AtomicU64,
}

/// What is known of a rank.
#[repr(C)]
struct Member {
    /// Ends of the fabric that it has, and has not dropped.
    ends: AtomicU32,
    /// Those that it has had.
    worlds: AtomicU32,
    /// The cores that it could use as it made the last one, a bit for each.
    cores: [AtomicU64; CpuSet::MAX_CPU / 64],
}

/// The beginning of a region.
#[repr(C)]
struct RegionHeader {
    /// Processes that map it; the last to let go frees the memory.
    users: AtomicU32,
    /// Bytes from the end of the header to the first byte.
    skew: AtomicU32,
    bytes: AtomicU64,
    /// Its own offset, to tell a header from anything else.
    key: AtomicU64,
}

impl RegionHeader {
    /// Counts one more process that maps it; false if all that had have let go, or it is none.
    fn join(&self, key: u64, bytes: usize) -> bool {
        let more = |users: u32| if users == 0 { None } else { users.checked_add(1) };
        self.key.load(Ordering::Relaxed) == key
            && self.bytes.load(Ordering::Relaxed) == bytes as u64
            && self.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }
}

/// One rank's end of the fabric.
#[derive(Debug)]
pub struct ShmFabric {
    segment: Arc<Segment>,
    rank: usize,
    size: usize,
    abort: Abort,
    boards: Region,
    /// How many cores the ranks may use together, as far as this one knows.
    cores: usize,
}

/// The file, as this process has it.
#[derive(Debug)]
pub(super) struct Segment {
    file: OwnedFd,
    header: Mapping,
    /// Bytes of a page, on which every piece begins: as the system has them.
    page: usize,
}

/// A region's piece of the file; the last process to drop it gives the memory back.
#[derive(Debug)]
struct Piece {
    segment: Arc<Segment>,
    mapping: Mapping,
    offset: u64,
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.mapping.header::<RegionHeader>().users.fetch_sub(1, Ordering::AcqRel) == 1 {
            give_back(&self.segment.file, self.offset, self.mapping.bytes());
        }
    }
}

/// Where the abort word and what is known of each rank lie in the file: right behind its header.
const ABORT_OFFSET: usize = size_of::<FileHeader>().next_multiple_of(64);
const MEMBERS_OFFSET: usize = (ABORT_OFFSET + Abort::BYTES).next_multiple_of(64);

fn root_bytes(size: usize) -> usize {
    MEMBERS_OFFSET + size * size_of::<Member>()
}

impl Segment {
    /// Makes the file for a job of `size` ranks: as `flags` say, it stays open across `exec`, for the ranks to inherit, or
    /// does not.
    pub(super) fn create(size: usize, flags: MemfdFlags) -> Result<Arc<Self>> {
        Self::with_pages(size, flags, page_size())
    }

    fn with_pages(size: usize, flags: MemfdFlags, page: usize) -> Result<Arc<Self>> {
        let failed = |call: &'static str| {
            move |error: rustix::io::Errno| Error::System { call, reason: error.to_string() }
        };
        let file = rustix::fs::memfd_create(c"streamhalo", flags).map_err(failed("memfd_create"))?;
        let bytes = root_bytes(size).next_multiple_of(page);
        reserve(&file, 0, bytes, &Claims::none())?;
        let header = Mapping::new(&file, 0, bytes)?;
        let fields = header.header::<FileHeader>();
        fields.size.store(size as u64, Ordering::Relaxed);
        fields.next.store(bytes as u64, Ordering::Relaxed);
        fields.magic.store(MAGIC, Ordering::Release);
        Ok(Arc::new(Self { file, header, page }))
    }

    /// Opens the file that this process has inherited as descriptor `fd`.
    pub(super) fn inherited(fd: &str) -> Result<(Arc<Self>, usize)> {
        let bad = |reason: String| Error::BadEnvironment {
            variable: SEGMENT_VARIABLE,
            value: fd.to_string(),
            reason,
        };
        let number = fd.parse::<u32>().ok().and_then(|number| i32::try_from(number).ok());
        let number = number.ok_or_else(|| bad("it must be the number of a file descriptor".into()))?;
        let opened = Self::open(&format!("/proc/self/fd/{number}")).map_err(|reason| {
            bad(format!(
                "{reason}; start ranks with `streamhalo run` or `streamhalo launch`, which pass it on (a program that has \
                 made a world does not pass it on to another one that takes its place)"
            ))
        })?;
        // SAFETY: the descriptor has just been found open, and is the launcher's, which nothing in this process closes.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        // What a rank starts may outlive the job, and is not to keep its memory. A failure only means that it does.
        let _ = rustix::io::fcntl_setfd(inherited, FdFlags::CLOEXEC);
        Ok(opened)
    }

    /// Opens the file that a process of this machine has made, under its path in `/proc`.
    pub(super) fn open(path: &str) -> Result<(Arc<Self>, usize), String> {
        let file = File::options().read(true).write(true).open(path).map_err(|error| error.to_string())?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len() as usize;
        let foreign = || "it is not a memory file of StreamHalo".to_owned();
        let page = page_size();
        if bytes < page {
            return Err(foreign());
        }
        let file = OwnedFd::from(file);
        let mapped = |bytes| Mapping::new(&file, 0, bytes).map_err(|error| error.to_string());
        let first = mapped(page)?;
        if first.header::<FileHeader>().magic.load(Ordering::Acquire) != MAGIC {
            return Err(foreign());
        }
        let size = first.header::<FileHeader>().size.load(Ordering::Relaxed) as usize;
        let header = mapped(root_bytes(size).next_multiple_of(page))?;
        Ok((Arc::new(Self { file, header, page }), size))
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.file
    }

    /// The job's abort word.
    pub(super) fn abort(self: &Arc<Self>) -> Abort {
        Abort::new(self.root(ABORT_OFFSET, Abort::BYTES))
    }

    fn with_member<R>(self: &Arc<Self>, rank: usize, what: impl FnOnce(&Member) -> R) -> R {
        let size = self.header.header::<FileHeader>().size.load(Ordering::Relaxed) as usize;
        let members = self.root(MEMBERS_OFFSET, size * size_of::<Member>());
        what(shared_struct(&members, rank * size_of::<Member>()))
    }

    /// Whether a rank has a world that it has not dropped, for the launcher.
    pub(super) fn is_joined(self: &Arc<Self>, rank: usize) -> bool {
        self.with_member(rank, |member| member.ends.load(Ordering::Acquire)) > 0
    }

    /// How many worlds a rank has had, for the launcher.
    pub(super) fn worlds_of(self: &Arc<Self>, rank: usize) -> u32 {
        self.with_member(rank, |member| member.worlds.load(Ordering::Acquire))
    }

    /// The cores that ranks may use together, of those that have had a world.
    pub(super) fn cores(self: &Arc<Self>) -> BTreeSet<usize> {
        let size = self.header.header::<FileHeader>().size.load(Ordering::Relaxed) as usize;
        let of_rank = |rank| {
            self.with_member(rank, |member| {
                member.cores.each_ref().map(|cores| cores.load(Ordering::Relaxed))
            })
        };
        let of_all = (0..size).flat_map(|rank| of_rank(rank).into_iter().enumerate());
        of_all
            .flat_map(|(word, cores)| {
                (0..64).filter(move |bit| cores >> bit & 1 == 1).map(move |bit| 64 * word + bit)
            })
            .collect()
    }

    /// The boards of the worlds that have this number on each rank. They stay until the job ends: a rank may come to them
    /// when others have left.
    fn boards(&self, number: u32, size: usize) -> Result<Region> {
        let header = self.header.header::<FileHeader>();
        let mut mapping = self.boards_at(&header.boards, size)?;
        for _ in 0..number {
            mapping = self.boards_at(&mapping.header::<BoardsHeader>().next, size)?;
        }
        // SAFETY: `boards_at` has made room for both.
        let base = unsafe { mapping.start().add(size_of::<BoardsHeader>()) };
        // SAFETY: aligned to a line, as a page and the header are, and mapped for as long as the mapping lives, which the
        // region keeps.
        Ok(unsafe { Region::new(base, Boards::bytes(size), 0, u64::MAX, Arc::new(mapping)) })
    }

    /// The boards that `link` leads to, which the first to ask for them makes.
    fn boards_at(&self, link: &AtomicU64, size: usize) -> Result<Mapping> {
        let bytes = (size_of::<BoardsHeader>() + Boards::bytes(size)).next_multiple_of(self.page);
        let mut offset = link.load(Ordering::Acquire);
        if offset == 0 {
            let (own, mapping) = self.take(bytes)?;
            offset = match link.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(mapping),
                Err(first) => first,
            };
            give_back(&self.file, own, bytes);
        }
        Mapping::new(&self.file, offset, bytes)
    }

    /// Whole pages of the file that nobody else has or had, and where they begin.
    fn take(&self, bytes: usize) -> Result<(u64, Mapping)> {
        let header = self.header.header::<FileHeader>();
        let offset = header.next.fetch_add(bytes as u64, Ordering::Relaxed);
        // Reserving grows the file and never shrinks it, whichever rank comes first; and memory
        // that is not there is an error now instead of a bus error at the first store.
        reserve(&self.file, offset, bytes, &header.claims)?;
        let mapping = Mapping::new(&self.file, offset, bytes);
        let mapping = mapping.inspect_err(|_| give_back(&self.file, offset, bytes))?;
        Ok((offset, mapping))
    }

    /// What a region of that size takes of the file: with its header, and room for its skew. `None`
    /// beyond any address space, so that sums of offsets do not overflow.
    fn piece_bytes(&self, bytes: usize) -> Option<usize> {
        let skewed = if bytes < SKEWED_BYTES { 0 } else { SKEWED_BYTES };
        (bytes < 1 << 47).then(|| (HEADER_BYTES + bytes + skewed).next_multiple_of(self.page))
    }

    fn root(self: &Arc<Self>, offset: usize, bytes: usize) -> Region {
        assert!(
            offset + bytes <= self.header.bytes(),
            "the file's beginning has {} bytes",
            self.header.bytes()
        );
        // SAFETY: in bounds by the assertion.
        let base = unsafe { self.header.start().add(offset) };
        // SAFETY: in bounds by the assertion, aligned to 64 as both offsets are, and mapped for
        // as long as the segment lives.
        unsafe { Region::new(base, bytes, 0, u64::MAX, self.clone()) }
    }

    /// The region in a mapped piece that this process is counted in.
    fn region(self: &Arc<Self>, owner: usize, mapping: Mapping, offset: u64, bytes: usize) -> Region {
        let header = mapping.header::<RegionHeader>();
        let start = HEADER_BYTES + header.skew.load(Ordering::Relaxed) as usize;
        assert!(start + bytes <= mapping.bytes(), "a region of {bytes} bytes does not fit behind {start}");
        // SAFETY: in bounds by the assertion.
        let base = unsafe { mapping.start().add(start) };
        let piece = Arc::new(Piece { segment: self.clone(), mapping, offset });
        // SAFETY: in bounds by the assertion, aligned to 64 as header and skew are, and mapped
        // until `piece` is dropped.
        unsafe { Region::new(base, bytes, owner, offset, piece) }
    }
}

impl ShmFabric {
    /// The end of the rank that this process was started as. Does not wait for the others, so that it counts only the cores
    /// of which the calling thread gets the time, and takes a rank that a script has bound to one of its own for one of more
    /// ranks than cores. Worlds of [`World::over`](crate::World::over), whose ranks wait for each other, count those that
    /// all of them may use together.
    ///
    /// # Errors
    /// [`Error::BadEnvironment`] if the launcher's variables are not there or do not fit the job; [`Error::OutOfMemory`].
    pub fn from_env() -> Result<Arc<Self>> {
        Ok(Arc::new(Self::of_env()?))
    }

    fn of_env() -> Result<Self> {
        let variable = |name: &'static str| {
            std::env::var(name).map_err(|_| Error::BadEnvironment {
                variable: name,
                value: String::new(),
                reason: "it is not set; start ranks with `streamhalo run` or `streamhalo launch`".into(),
            })
        };
        let number = |name: &'static str| {
            let value = variable(name)?;
            value.parse::<usize>().map_err(|_| Error::BadEnvironment {
                variable: name,
                value,
                reason: "it must be a whole number".into(),
            })
        };
        let (rank, size) = (number(RANK_VARIABLE)?, number(SIZE_VARIABLE)?);
        let (segment, file_size) = Segment::inherited(&variable(SEGMENT_VARIABLE)?)?;
        if size != file_size || rank >= size {
            return Err(Error::BadEnvironment {
                variable: RANK_VARIABLE,
                value: format!("{rank} of {size}"),
                reason: format!("the job has {file_size} ranks"),
            });
        }
        Self::of_segment(segment, rank, size)
    }

    /// As [`ShmFabric::from_env`], but waits for the others, and counts the cores of all.
    ///
    /// # Errors
    /// As there; and [`Error::PeerFailed`], [`Error::TimedOut`].
    pub(super) fn of_all(timeout: Option<Duration>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::of_env()?.with_all(timeout)?))
    }

    /// Waits until all ranks have as many worlds, however they make them, and counts the cores of all.
    fn with_all(mut self, timeout: Option<Duration>) -> Result<Self> {
        let worlds = self.segment.worlds_of(self.rank);
        let missing = || (0..self.size).find(|other| self.segment.worlds_of(*other) < worlds);
        // Nobody wakes it.
        let policy = WaitPolicy { spins: 64, yields: 64, sleeps: false };
        let (rank, abort) = (self.rank, self.abort());
        let context = WaitContext { rank, policy, timeout, abort, calls: false };
        let late = |waited| context.late(missing(), "the world", waited);
        context.poll(&mut || Ok(missing().is_none()), &late)?;
        self.cores = self.cores_of_all();
        Ok(self)
    }

    /// How many cores the ranks may use together that have come.
    pub(super) fn cores_of_all(&self) -> usize {
        together(&self.segment.cores())
    }

    /// The end of a rank, in a file that all the ranks with whom it shares memory have open.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn of_segment(segment: Arc<Segment>, rank: usize, size: usize) -> Result<Self> {
        // No other process has this rank.
        let number = segment.with_member(rank, |member| member.worlds.load(Ordering::Acquire));
        let (abort, boards) = (segment.abort(), segment.boards(number, size)?);
        // Who cannot tell them counts as one that has none.
        let own = allowed().unwrap_or_default();
        segment.with_member(rank, |member| {
            for (word, cores) in member.cores.iter().enumerate() {
                let here = own.iter().filter(|core| **core / 64 == word);
                cores.store(here.fold(0, |bits, core| bits | 1 << (core % 64)), Ordering::Relaxed);
            }
            // Behind them: whoever has seen it come sees its cores.
            member.ends.fetch_add(1, Ordering::AcqRel);
            member.worlds.fetch_add(1, Ordering::AcqRel);
        });
        Ok(Self { segment, rank, size, abort, boards, cores: usable() })
    }
}

impl Drop for ShmFabric {
    fn drop(&mut self) {
        self.segment.with_member(self.rank, |member| member.ends.fetch_sub(1, Ordering::AcqRel));
    }
}

impl Fabric for ShmFabric {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn executor(&self) -> Executor {
        Executor::Stream
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allocate(&self, bytes: usize) -> Result<Region> {
        let total = self.segment.piece_bytes(bytes);
        let total = total.ok_or_else(|| out_of_memory(bytes, "no machine has that much"))?;
        let (offset, mapping) = self.segment.take(total)?;
        let header = mapping.header::<RegionHeader>();
        header.skew.store(skew(bytes, offset / self.segment.page as u64) as u32, Ordering::Relaxed);
        header.bytes.store(bytes as u64, Ordering::Relaxed);
        header.key.store(offset, Ordering::Relaxed);
        header.users.store(1, Ordering::Release);
        Ok(self.segment.region(self.rank, mapping, offset, bytes))
    }

    fn takes_handles(&self) -> bool {
        true
    }

    fn map(&self, owner: usize, key: u64, bytes: usize) -> Result<Region> {
        let gone = || Error::System {
            call: "mapping a peer's memory",
            reason: format!("rank {owner} has no region with key {key} and {bytes} bytes any more"),
        };
        // Beyond what was ever allocated a look at the header would be a bus error.
        let end = self.segment.header.header::<FileHeader>().next.load(Ordering::Relaxed);
        let total = self.segment.piece_bytes(bytes).ok_or_else(gone)?;
        let fits = key.checked_add(total as u64).is_some_and(|piece_end| piece_end <= end);
        if !fits || !key.is_multiple_of(self.segment.page as u64) {
            return Err(gone());
        }
        let mapping = Mapping::new(&self.segment.file, key, total)?;
        if !mapping.header::<RegionHeader>().join(key, bytes) {
            return Err(gone());
        }
        Ok(self.segment.region(owner, mapping, key, bytes))
    }

    fn abort(&self) -> Abort {
        self.abort.clone()
    }

    fn meeting(self: Arc<Self>) -> Result<Box<dyn Meeting>> {
        let (boards, size) = (self.boards.clone(), self.size);
        Ok(Box::new(Boards::new(self, boards, size)?))
    }

    fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::for_threads(self.size, self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::on_cores;
    use super::*;

    /// As some systems have: where a file is mapped from is one of their multiples.
    #[test]
    fn pieces_begin_on_pages_of_any_size() {
        for page in [page_size(), 16 * page_size()] {
            let segment = Segment::with_pages(2, MemfdFlags::CLOEXEC, page).expect("there is memory");
            let ends =
                [0, 1].map(|rank| ShmFabric::of_segment(segment.clone(), rank, 2).expect("there is memory"));
            let boards = segment.header.header::<FileHeader>().boards.load(Ordering::Relaxed);
            assert!(boards.is_multiple_of(page as u64), "the boards begin at {boards}");
            for bytes in [1, 4095, 4096, 5000, page - 64, page, 3 * page + 1] {
                for _ in 0..3 {
                    let own = ends[0].allocate(bytes).expect("there is memory");
                    assert!(own.key().is_multiple_of(page as u64), "{bytes} bytes begin at {}", own.key());
                    own.write_bytes(bytes - 1, &[7]).expect("it is as long");
                    let theirs = ends[1].map(0, own.key(), bytes).expect("it is there");
                    assert_eq!(theirs.read_bytes(bytes - 1, 1), Ok(vec![7]), "{bytes} bytes");
                }
            }
        }
    }

    /// Also with one that does not wait itself.
    #[test]
    fn ranks_count_the_cores_of_all_in_the_world_that_they_have() {
        let segment = Segment::create(2, MemfdFlags::CLOEXEC).expect("there is memory");
        let end = |rank| ShmFabric::of_segment(segment.clone(), rank, 2).expect("there is memory");
        let bound = || end(0).with_all(Some(Duration::from_secs(60)));
        let one = allowed().expect("the system tells them").into_iter().take(1).collect();
        let (_other, bound) = std::thread::scope(|scope| {
            let bound = scope.spawn(|| on_cores(&one, bound).expect("a thread can be bound"));
            std::thread::sleep(Duration::from_millis(20));
            (end(1), bound.join().expect("it does not panic").expect("the other rank comes"))
        });
        assert_eq!(bound.cores, usable());
        assert_eq!([0, 1].map(|rank| segment.worlds_of(rank)), [1, 1]);
        let late = end(1).with_all(Some(Duration::from_millis(20))).expect_err("rank 0 has no second one");
        assert!(matches!(late, Error::TimedOut { rank: 1, peer: 0, .. }), "{late}");
    }
}
