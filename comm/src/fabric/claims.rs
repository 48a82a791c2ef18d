//! Claims on the machine's memory, so that what it does not have is an error and not the end of a process.

use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are claimed and not taken yet: of all who claim memory of a kind at once. Lies in shared memory too, where
/// zero means that there are none.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Claims(AtomicU64);

/// Of memory that only this process makes.
pub(crate) static OF_THIS_PROCESS: Claims = Claims(AtomicU64::new(0));

/// Less than this is not worth a look at what the machine has left.
const MUCH_BYTES: usize = 1 << 24;

/// So much is taken at once: a signal may undo a piece, and come often.
const PIECE_BYTES: usize = 1 << 22;

impl Claims {
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes that many bytes by `take`, piece by piece. A kernel does not refuse what it does not have: it gives page after
    /// page, and kills processes when there are none left. So nothing is taken, and `refused` makes the error from what is
    /// left, where not all who claim memory at this moment would get it.
    pub(crate) fn take(
        &self,
        bytes: usize,
        take: &mut dyn FnMut(Range<usize>) -> Result<()>,
        refused: &dyn Fn(u64) -> Error,
    ) -> Result<()> {
        self.take_of(available_bytes, bytes, take, refused)
    }

    fn take_of(
        &self,
        available: impl FnOnce() -> Option<u64>,
        bytes: usize,
        take: &mut dyn FnMut(Range<usize>) -> Result<()>,
        refused: &dyn Fn(u64) -> Error,
    ) -> Result<()> {
        if bytes < MUCH_BYTES {
            return take(0..bytes);
        }
        let claimed = self.0.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64);
        let mut taken = 0;
        let mut done = match available() {
            Some(left) if claimed > left => Err(refused(left)),
            _ => Ok(()),
        };
        while done.is_ok() && taken < bytes {
            let piece = taken..bytes.min(taken + PIECE_BYTES);
            done = take(piece.clone());
            // The kernel counts it from here on.
            self.0.fetch_sub(piece.len() as u64, Ordering::Relaxed);
            taken = piece.end;
        }
        self.0.fetch_sub((bytes - taken) as u64, Ordering::Relaxed);
        done
    }
}

/// What the kernel thinks that it can still give out, with what it has room to swap out, where it says so.
fn available_bytes() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = told.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    bytes("MemAvailable:")?.checked_add(bytes("SwapFree:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    const GIB: usize = 1 << 30;

    fn refused(left: u64) -> Error {
        Error::OutOfMemory { bytes: 0, kind: "test", reason: left.to_string() }
    }

    /// Two who each find enough for themselves, at the same moment.
    #[test]
    fn who_comes_while_another_takes_gets_what_that_leaves() {
        let claims = Claims::none();
        let mut heard = Vec::new();
        // What the first takes is taken from what is available.
        let mut first = |piece: Range<usize>| {
            let left = || Some((GIB - piece.start) as u64);
            let large = claims.take_of(left, GIB / 2, &mut |_| Ok(()), &refused);
            let small = claims.take_of(left, GIB / 4, &mut |_| Ok(()), &refused);
            heard.push((large.is_ok(), small.is_ok()));
            Ok(())
        };
        let taken = claims.take_of(|| Some(GIB as u64), GIB * 3 / 4, &mut first, &refused);
        assert_eq!(taken, Ok(()));
        assert_eq!(heard, vec![(false, true); 192]);
        assert_eq!(claims.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_stays_claimed_after_a_failure() {
        let claims = Claims::none();
        let mut pieces = 0;
        let mut second_fails = |_: Range<usize>| {
            pieces += 1;
            if pieces == 2 { Err(refused(7)) } else { Ok(()) }
        };
        assert_eq!(claims.take_of(|| None, GIB, &mut second_fails, &refused), Err(refused(7)));
        assert_eq!(pieces, 2);
        assert_eq!(
            claims.take_of(|| Some(5), GIB, &mut |_| panic!("it is refused"), &refused),
            Err(refused(5))
        );
        assert_eq!(claims.0.load(Ordering::Relaxed), 0);
    }
}
