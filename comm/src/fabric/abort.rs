//! The abort word: the first failure of any rank of a job, which ends the waits of all.

use super::region::Region;
use super::shared_struct;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What a rank has done whose process has ended with status 0 while it had a world: who is through with it by then, and ends
/// well too, has not failed.
pub(crate) const EXITED: &str = "its process exited without dropping its world";

/// The abort word of a job: the first failure of any rank, for all the others to see.
#[derive(Clone)]
pub struct Abort {
    region: Region,
    tell: Option<Arc<Tell>>,
}

/// Tells ranks that do not see the word of the failure that has been raised: which rank, and what it did.
type Tell = dyn Fn(usize, &str) + Send + Sync;

/// In shared memory; zeroed means that nobody has failed.
#[repr(C)]
struct AbortCell {
    /// 0: none, 1: being written, 2: there.
    state: AtomicU32,
    rank: AtomicU32,
    length: AtomicU32,
    text: [AtomicU8; Abort::TEXT_BYTES],
}

impl Abort {
    const TEXT_BYTES: usize = 500;
    pub(crate) const BYTES: usize = size_of::<AbortCell>();

    /// The abort word in zeroed memory that all ranks share.
    pub(crate) fn new(region: Region) -> Self {
        assert!(region.bytes() >= Self::BYTES, "the abort word needs {} bytes", Self::BYTES);
        Self { region, tell: None }
    }

    /// The same word, for those of this rank that raise it: `tell` is called with the failure, by the thread that was the
    /// first to raise one, and must not block.
    pub(crate) fn telling(&self, tell: impl Fn(usize, &str) + Send + Sync + 'static) -> Self {
        Self { region: self.region.clone(), tell: Some(Arc::new(tell)) }
    }

    fn cell(&self) -> &AbortCell {
        shared_struct(&self.region, 0)
    }

    /// Whether both are the same word.
    pub(crate) fn is(&self, other: &Abort) -> bool {
        self.region.is_same(&other.region)
    }

    /// Tells all ranks that `rank` has failed, or the rank that its error names, unless one has told already.
    pub(crate) fn raise(&self, rank: usize, operation: &str) {
        let (rank, operation) = to_blame(rank, operation);
        let cell = self.cell();
        if cell.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let mut length = operation.len().min(Self::TEXT_BYTES);
        while !operation.is_char_boundary(length) {
            length -= 1;
        }
        for (slot, byte) in cell.text.iter().zip(operation.as_bytes()).take(length) {
            slot.store(*byte, Ordering::Relaxed);
        }
        cell.rank.store(rank as u32, Ordering::Relaxed);
        cell.length.store(length as u32, Ordering::Relaxed);
        cell.state.store(2, Ordering::Release);
        if let Some(tell) = &self.tell {
            tell(rank, operation);
        }
    }

    /// The first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<(usize, String)> {
        let cell = self.cell();
        if cell.state.load(Ordering::Acquire) != 2 {
            return None;
        }
        let length = (cell.length.load(Ordering::Relaxed) as usize).min(Self::TEXT_BYTES);
        let text: Vec<u8> = cell.text.iter().take(length).map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some((cell.rank.load(Ordering::Relaxed) as usize, String::from_utf8_lossy(&text).into_owned()))
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Abort({:?})", self.failure())
    }
}

/// Who has failed, and at what: a rank with its error, or the one that this error, an [`Error::PeerFailed`], is about.
pub(crate) fn to_blame(rank: usize, error: &str) -> (usize, &str) {
    let other = || {
        let (other, operation) = error.strip_prefix("rank ")?.split_once(" failed: ")?;
        Some((other.parse().ok()?, operation.strip_suffix("; this rank stopped waiting for it")?))
    };
    other().unwrap_or((rank, error))
}
