//! Failures, told to all ranks with messages: there is no memory that all of them see.

use crate::error::Result;
use crate::fabric::Abort;
use crate::fabric::carrier::Carried;
use crate::fabric::mpi::Communicator;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// On the communicator of the first meeting.
const ALARM: i32 = 2;
/// Room for a rank and the beginning of what it said.
const ALARM_BYTES: usize = 512;
/// For how long a rank that has failed waits until the others are told.
const MOMENT: Duration = Duration::from_millis(300);

/// Hears of other ranks' failures, and tells them of this one's.
#[derive(Debug)]
pub(super) struct Alarm {
    communicator: Communicator,
    abort: Abort,
    was_told: AtomicBool,
}

impl Alarm {
    /// Over a communicator on which nobody else uses the tag of alarms.
    pub(super) fn new(communicator: Communicator, abort: Abort) -> Arc<Self> {
        Arc::new(Self { communicator, abort, was_told: AtomicBool::new(false) })
    }

    /// Hears what has come, and tells what this rank knows and the others may not.
    pub(super) fn check(&self) -> Result<()> {
        match self.abort.failure() {
            None => self.hear(),
            Some(_) if self.was_told.swap(true, Ordering::Relaxed) => Ok(()),
            Some((rank, operation)) => self.tell(rank, &operation),
        }
    }

    /// As [`Alarm::check`], by a thread of its own, for which this one waits a moment only: the progress
    /// thread may be in a call that never returns, and keep the library to itself.
    pub(super) fn check_soon(self: &Arc<Self>) {
        let (alarm, (told, is_told)) = (self.clone(), std::sync::mpsc::channel());
        let thread = std::thread::Builder::new().name("alarm".into());
        // Nobody else can be told of a failure to tell.
        if thread.spawn(move || told.send(alarm.check())).is_ok() {
            let _ = is_told.recv_timeout(MOMENT);
        }
    }

    fn hear(&self) -> Result<()> {
        let Some(found) = self.communicator.iprobe(ALARM)? else { return Ok(()) };
        let message: &'static mut [u8; ALARM_BYTES] = Box::leak(Box::new([0; ALARM_BYTES]));
        // SAFETY: the message is never freed, and read only when it is there.
        let mut request =
            unsafe { self.communicator.irecv(message.as_mut_ptr(), ALARM_BYTES, found.source, ALARM) }?;
        // It is short, and here already.
        while request.test()?.is_none() {
            std::hint::spin_loop();
        }
        let (rank, text) = message.split_first_chunk::<4>().expect("it is longer");
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        // Whoever has told this rank tells all.
        self.was_told.store(true, Ordering::Relaxed);
        self.abort.raise(u32::from_le_bytes(*rank) as usize, &String::from_utf8_lossy(text));
        Ok(())
    }

    fn tell(&self, rank: usize, operation: &str) -> Result<()> {
        // For as long as the process lives: nobody waits for these messages to arrive.
        let message: &'static mut [u8; ALARM_BYTES] = Box::leak(Box::new([0; ALARM_BYTES]));
        message[..4].copy_from_slice(&(rank as u32).to_le_bytes());
        let length = operation.len().min(ALARM_BYTES - 5);
        message[4..4 + length].copy_from_slice(&operation.as_bytes()[..length]);
        let own = self.communicator.rank()?;
        for peer in (0..self.communicator.size()?).filter(|peer| *peer != own) {
            // SAFETY: the message is never freed nor written again.
            let request = unsafe { self.communicator.isend(message.as_ptr(), ALARM_BYTES, peer, ALARM) }?;
            drop(request);
        }
        Ok(())
    }
}

/// What the carrier goes round to.
pub(super) struct AlarmCheck(pub(super) Arc<Alarm>);

impl Carried for AlarmCheck {
    fn progress(&mut self) -> Result<bool> {
        self.0.check().map(|()| false)
    }

    fn is_quiet(&self) -> bool {
        true
    }
}
