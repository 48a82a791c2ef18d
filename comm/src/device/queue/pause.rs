//! How a stream's thread passes the time until its device, or another rank, has come to something.

use crate::fabric::WaitPolicy;
use std::time::Duration;

/// The longest nap: kernels wake nobody.
pub(super) const NAP: Duration = Duration::from_micros(50);

/// Where the device computes on the host's cores, of which it may need the thread's.
const GIVES_WAY: WaitPolicy = WaitPolicy { spins: 32, yields: 8, sleeps: true };
/// Beside a GPU, whose kernels are shorter than a nap.
const LOOKS_ON: WaitPolicy = WaitPolicy { spins: 1000, yields: 200, sleeps: true };

/// How a thread waits that feeds such a device.
pub(super) fn policy(is_gpu: bool) -> WaitPolicy {
    if is_gpu { LOOKS_ON } else { GIVES_WAY }
}

/// What it does between two looks.
pub(super) struct Pause {
    policy: WaitPolicy,
    looks: u32,
}

impl Pause {
    pub(super) fn new(policy: WaitPolicy) -> Self {
        Self { policy, looks: 0 }
    }

    /// Passes some time, longer as they come to be more.
    pub(super) fn next(&mut self) {
        let WaitPolicy { spins, yields, .. } = self.policy;
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            looks if looks < spins => std::hint::spin_loop(),
            looks if looks < spins + yields => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}
