//! Stores to words, and waits for them, that a stream does by itself.
//!
//! AMD's wait compares numbers without a sign (`hipStreamWaitValue32`: until `*ptr & mask >= value`), where words
//! count past the wrap: what is put on a stream depends on where the word stands when it is put there. Up to ROCm 5 a
//! wait takes memory of a kind only that is allocated by eight bytes (`hipMallocSignalMemory`), in which words of a region
//! cannot lie: whether a device has these operations is tried when it is opened.

use super::driver::Context;
use super::library::{MemoryOperations, NOT_READY, SUCCESS};
use super::memory;
use crate::device::driver::MemoryKind;
use crate::error::{Error, Result};
use hip_sys::hiprt;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// All bits of a word.
const WHOLE: u32 = u32::MAX;
/// The bit that the wrap clears.
const TOP: u32 = 1 << 31;
/// How far a word may run ahead of what the stream waits for: other ranks are at most two epochs ahead, and words that
/// count are as many steps further for each source.
const LEAD: u32 = 1 << 20;
/// After how long a device that is tried is taken not to have the operations.
const PATIENCE: Duration = Duration::from_secs(2);

/// What lets a stream wait until a word has come to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// It has come already.
    Nothing,
    /// A comparison.
    Compare,
    /// A comparison, once the word has wrapped.
    CompareBehindWrap,
    /// A kernel: the word may wrap before the stream looks at it.
    Kernel,
}

/// What it takes, with a word that was found so.
pub(super) fn plan(found: u32, wanted: u32) -> Plan {
    if (found.wrapping_sub(wanted) as i32) >= 0 {
        Plan::Nothing
    } else if wanted > u32::MAX - LEAD {
        Plan::Kernel
    } else if found > wanted {
        Plan::CompareBehindWrap
    } else {
        Plan::Compare
    }
}

impl MemoryOperations {
    /// Puts the waits of a plan on a stream, or the code of why not. A kernel is the caller's.
    ///
    /// # Safety
    /// The word must be one that the device reaches, and stay until the stream has come to rest.
    pub(super) unsafe fn put(
        &self,
        plan: Plan,
        stream: hiprt::hipStream_t,
        word: *mut c_void,
        wanted: u32,
    ) -> u32 {
        if plan == Plan::CompareBehindWrap {
            // SAFETY: by the caller.
            let code = unsafe { (self.wait)(stream, word, 0, hiprt::hipStreamWaitValueEq, TOP) };
            if code != SUCCESS {
                return code;
            }
        }
        // SAFETY: by the caller.
        unsafe { (self.wait)(stream, word, wanted, hiprt::hipStreamWaitValueGte, WHOLE) }
    }
}

/// Whether the device stores to words of the host's memory, and waits for them. What it does not come to the end of keeps the
/// stream and the memory that it was tried with, which are nobody else's.
///
/// # Errors
/// [`Error::DeviceUnavailable`] if the device does nothing else meanwhile either.
pub(super) fn are_there(context: &Arc<Context>) -> Result<bool> {
    let Some(operations) = context.memory_operations() else { return Ok(false) };
    let tried = memory::allocate(context, 192, MemoryKind::Pinned)?;
    let word = |line: usize| {
        let word = tried.base().as_ptr().wrapping_add(64 * line).cast();
        // SAFETY: aligned memory of the host, kept until the device uses it no more, and used as an atomic by all.
        unsafe { AtomicU32::from_ptr(word) }
    };
    let words = [word(0), word(1)];
    let [awaited, told] = words.map(|word| word.as_ptr().cast::<c_void>());
    let stream = context.new_stream()?;
    let _current = context.enter()?;
    // SAFETY: the words are kept.
    let mut code = unsafe { operations.put(Plan::Compare, stream, awaited, 3) };
    if code == SUCCESS {
        // SAFETY: as above.
        code = unsafe { (operations.write)(stream, told, 7, 0) };
    }
    std::thread::sleep(Duration::from_millis(1));
    let is_early = words[1].load(Ordering::Acquire) != 0;
    words[0].store(4, Ordering::Release);
    let end = comes_to_rest(context, stream);
    if end != NOT_READY {
        // SAFETY: nothing is on it any more. There is nobody to tell of a failure.
        let _ = unsafe { (context.runtime().hipStreamDestroy)(stream) };
        let has_come = end == SUCCESS && words[1].load(Ordering::Acquire) == 7;
        return Ok(code == SUCCESS && !is_early && has_come);
    }
    let other = tried.base().as_ptr().wrapping_add(128).cast();
    // With its memory the device stays, whose end would wait for what is on it.
    std::mem::forget(tried);
    // SAFETY: memory of the runtime that is never given back.
    let code = unsafe { (context.runtime().hipMemsetAsync)(other, 0, 64, context.set_up) };
    context.check("clearing memory", code)?;
    if comes_to_rest(context, context.set_up) != NOT_READY {
        return Ok(false);
    }
    let reason = format!(
        "it did not answer in {} s; see whether it works on something else without end, or has to be reset",
        PATIENCE.as_secs()
    );
    Err(Error::DeviceUnavailable { device: context.name().into(), reason })
}

/// What a stream says once it has come to rest, or has not within [`PATIENCE`].
fn comes_to_rest(context: &Context, stream: hiprt::hipStream_t) -> u32 {
    let since = Instant::now();
    loop {
        // SAFETY: the stream lives.
        match unsafe { (context.runtime().hipStreamQuery)(stream) } {
            NOT_READY if since.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(50)),
            code => return code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a stream goes on that looks at a word, at the first wait of a plan at `first`, and later at `second`.
    fn goes_on(plan: Plan, wanted: u32, first: u32, second: u32) -> bool {
        match plan {
            Plan::Nothing => true,
            Plan::Compare => first >= wanted,
            Plan::CompareBehindWrap => first & TOP == 0 && second >= wanted,
            Plan::Kernel => (first.wrapping_sub(wanted) as i32) >= 0,
        }
    }

    #[test]
    fn a_stream_goes_on_once_the_word_has_come_and_not_before() {
        let around = |base: u32| (0..7).map(move |step| base.wrapping_add(step).wrapping_sub(3));
        for wanted in [1, 5, TOP, u32::MAX - LEAD, u32::MAX - 2, 0].into_iter().flat_map(around) {
            for behind in [0, 1, 2, 7, LEAD] {
                let found = wanted.wrapping_sub(behind);
                let plan = plan(found, wanted);
                assert_eq!(plan == Plan::Nothing, behind == 0, "{found} for {wanted}");
                let later =
                    [0, 1, behind / 2, behind.saturating_sub(1), behind, behind + 1, behind + LEAD - 1];
                for (first, second) in later.into_iter().flat_map(|first| later.map(|second| (first, second)))
                {
                    if second < first {
                        continue;
                    }
                    let looks = goes_on(plan, wanted, found.wrapping_add(first), found.wrapping_add(second));
                    // A plan of one comparison looks once.
                    let seen = if plan == Plan::CompareBehindWrap { second } else { first };
                    let has_come = seen >= behind;
                    if plan == Plan::CompareBehindWrap && found.wrapping_add(first) & TOP != 0 {
                        // It looks again, and the wrap is before the value.
                        assert!(!looks && first < behind, "{found} for {wanted}");
                    } else {
                        assert_eq!(looks, has_come, "{plan:?}: {found} + {first}, {second} for {wanted}");
                    }
                }
            }
        }
    }

    #[test]
    fn each_plan_is_for_its_place() {
        for (found, wanted, expected) in [
            (4, 4, Plan::Nothing),
            (1, u32::MAX, Plan::Nothing),
            (0, 1, Plan::Compare),
            (TOP - 1, TOP + 1, Plan::Compare),
            (u32::MAX - 2, 1, Plan::CompareBehindWrap),
            (u32::MAX - 2, u32::MAX, Plan::Kernel),
        ] {
            assert_eq!(plan(found, wanted), expected, "{found} for {wanted}");
        }
    }
}
