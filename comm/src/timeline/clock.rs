//! The clock of timelines, and how far those of two ranks are apart.
//!
//! Threads and processes of one machine read one clock. Ranks on other machines find out, by messages to and from
//! rank 0, when their clock showed what: a message that left at *a* and came back at *b* met rank 0 in between, so
//! that its reading belongs to *(a + b) / 2*, give or take *(b - a) / 2*. The quickest of some messages decides.

use crate::communicator::Communicator;
use crate::error::Result;
use crate::world::World;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Messages there and back, of which the quickest counts.
const ROUNDS: usize = 64;
const TAG: u32 = 0;

/// Nanoseconds of a clock that never goes back, from an origin that all processes of a machine share.
#[inline]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Where a rank's clock stands against that of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClockOffset {
    /// What has to be added to a time of this rank to have it on rank 0's clock, in nanoseconds.
    pub offset_ns: i64,
    /// By how much that may be wrong either way, in nanoseconds; 0 where the clock is the same one.
    pub uncertainty_ns: u64,
}

impl ClockOffset {
    /// The offset of this rank's clock. Collective; blocks. For set-up: where ranks have several clocks it sends some messages
    /// between each of them and rank 0.
    ///
    /// # Errors
    /// Which rank failed; those of [`Communicator::new`].
    pub fn to_rank_zero(world: &World) -> Result<Self> {
        Self::between(world, identity(), &|| now_ns() as i64)
    }

    /// As [`ClockOffset::to_rank_zero`], of a clock of this name.
    fn between(world: &World, identity: &str, clock: &dyn Fn() -> i64) -> Result<Self> {
        let identities: Vec<String> = world.all_gather(&identity.to_owned())?;
        let others: Vec<usize> =
            (1..world.size()).filter(|rank| identities[*rank] != identities[0]).collect();
        let mut offset = Self::default();
        if others.is_empty() {
            return Ok(offset);
        }
        let communicator = Communicator::new(world)?;
        for other in others {
            if world.rank() == 0 {
                for _ in 0..ROUNDS {
                    communicator.recv(&mut [0_i64], other, TAG)?;
                    communicator.send(&[clock()], other, TAG)?;
                }
            } else if world.rank() == other {
                let mut rounds = (0..ROUNDS).map(|_| Self::by_message(&communicator, clock));
                let first = rounds.next().expect("there are some")?;
                offset = rounds.try_fold(first, |best, next| {
                    let next = next?;
                    Result::Ok(if next.uncertainty_ns < best.uncertainty_ns { next } else { best })
                })?;
            }
        }
        Ok(offset)
    }

    /// By one message there and back.
    fn by_message(communicator: &Communicator, clock: &dyn Fn() -> i64) -> Result<Self> {
        let mut of_rank_zero = [0_i64];
        let left = clock();
        communicator.send(&[left], 0, TAG)?;
        communicator.recv(&mut of_rank_zero, 0, TAG)?;
        let came = clock();
        // Rounded up, as half of an odd number is left out of the middle.
        let uncertainty_ns = (came - left).unsigned_abs().div_ceil(2);
        Ok(Self { offset_ns: of_rank_zero[0] - (left + (came - left) / 2), uncertainty_ns })
    }
}

/// The name of a clock: the same in all processes that read it, and in no others.
fn identity() -> &'static str {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| machine().unwrap_or_else(of_this_process))
}

/// Of the machine since it was started, and of the name space that its clocks may be shifted in.
fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let shift = std::fs::read_link("/proc/self/ns/time").ok()?;
    Some(format!("{} {}", boot.trim(), shift.display()))
}

fn of_this_process() -> String {
    let mut drawn = [0; 16];
    // Without randomness two processes of one number on two machines would be taken for one.
    let is_drawn = getrandom::fill(&mut drawn).is_ok();
    format!("process {} {is_drawn} {drawn:?} {}", std::process::id(), now_ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::world::WorldOptions;

    #[test]
    fn one_clock_has_no_offset() {
        let ranks = World::threads(3, WorldOptions::default(), |world| ClockOffset::to_rank_zero(&world));
        assert_eq!(
            ranks.expect("starts"),
            [const { Ok(ClockOffset { offset_ns: 0, uncertainty_ns: 0 }) }; 3]
        );
    }

    #[test]
    fn offsets_are_found_within_what_they_claim() -> Result<()> {
        // Rank 1 shares rank 0's clock; the others' are behind and ahead of it.
        const SHIFTS: [i64; 4] = [0, 0, -3_000_000_000, 7_777];
        let ranks = World::threads(4, WorldOptions::default(), |world| {
            let shift = SHIFTS[world.rank()];
            let identity = format!("clock {shift}");
            let offset = ClockOffset::between(&world, &identity, &|| now_ns() as i64 + shift)?;
            Ok::<_, Error>((shift, offset))
        })?;
        for (rank, found) in ranks.into_iter().enumerate() {
            let (shift, offset) = found?;
            let error = (offset.offset_ns + shift).unsigned_abs();
            assert!(error <= offset.uncertainty_ns, "rank {rank}: {offset:?} for a clock shifted by {shift}");
            assert_eq!(shift == 0, offset.uncertainty_ns == 0, "rank {rank}");
        }
        Ok(())
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let mut last = now_ns();
        for _ in 0..1000 {
            let now = now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
