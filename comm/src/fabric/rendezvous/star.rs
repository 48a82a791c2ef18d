//! The star: a meeting whose ranks talk through rank 0.

use super::centre::name_ranks;
use super::frame::{Call, Round, Verdict};
use super::inbox::{Found, Outcome};
use super::{GRACE, Rendezvous};
use crate::error::{Error, Result, TIMEOUT_IS, in_seconds};
use crate::fabric::GaveUp;
use crate::fabric::WaitContext;
use crate::meeting::{Meeting, is_over, left};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

/// The meeting of the first ranks of a rendezvous.
#[derive(Debug)]
pub(super) struct Star {
    rendezvous: Arc<Rendezvous>,
    /// Its number, which is the same on all its ranks, and that of no other meeting of the rendezvous.
    meeting: u64,
    ranks: usize,
    /// Calls that this rank has made.
    calls: Cell<u64>,
    /// For whom ranks have given up a call, having waited so long: all of them know the same one, and make no other.
    late: OnceCell<(usize, Duration)>,
}

impl Star {
    pub(super) fn new(rendezvous: Arc<Rendezvous>, meeting: u64, ranks: usize) -> Self {
        Self { rendezvous, meeting, ranks, calls: Cell::new(0), late: OnceCell::new() }
    }

    /// Tells the others `data` and gives what each has told, by rank. Blocks.
    fn call(&self, context: &WaitContext, call: Call, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        if let Some((rank, waited)) = self.late.get() {
            return Err(is_over(call.name(), *rank, *waited));
        }
        let round = Round { meeting: self.meeting, sequence: self.calls.replace(self.calls.get() + 1) };
        self.rendezvous.arrive(round, self.ranks, call, data);
        let found = match self.wait(context, round) {
            Err(GaveUp::TimedOut(waited)) => {
                // Rank 0 knows who has not come, and tells all that it is over.
                self.rendezvous.late(round, waited);
                let grace = WaitContext { timeout: Some(GRACE), ..context.clone() };
                self.wait(&grace, round).map_err(|gave_up| match gave_up {
                    GaveUp::TimedOut(_) => GaveUp::TimedOut(waited),
                    failed => failed,
                })
            }
            other => other,
        };
        match found {
            Ok(Found::Outcome(outcome)) => self.conclude(context, call, outcome),
            Ok(Found::Failure(failure)) => {
                // So that other waits of this world end as well.
                context.abort.raise(failure.rank, &failure.text);
                Err(Error::PeerFailed { rank: failure.rank, operation: failure.text })
            }
            Ok(Found::CentreLeft) => Err(left(0)),
            Err(GaveUp::Failed(error)) => Err(error),
            Err(GaveUp::TimedOut(waited)) => Err(Error::TimedOut {
                rank: context.rank,
                peer: 0,
                what: format!("{call}, of which rank 0 does not even say who is missing; the answer"),
                wanted: self.ranks as u32,
                found: 0,
                waited,
            }),
        }
    }

    fn wait(&self, context: &WaitContext, round: Round) -> std::result::Result<Found, GaveUp> {
        let watch = std::cell::RefCell::new(self.rendezvous.inbox.watch(round));
        context.wait_until(
            &mut || watch.borrow_mut().look(),
            &mut crate::device::progress,
            &mut |nap: Duration| watch.borrow_mut().sleep(nap),
        )?;
        Ok(watch.into_inner().found().unwrap_or(Found::CentreLeft))
    }

    fn conclude(&self, context: &WaitContext, call: Call, (verdict, body): Outcome) -> Result<Vec<Vec<u8>>> {
        if let Verdict::Late { missing, waited, .. } = &verdict {
            let first = missing.first().map_or(0, |rank| *rank as usize);
            self.late.get_or_init(|| (first, *waited));
        }
        match verdict {
            Verdict::Gathered { bytes } => Ok(split(&body, &bytes)),
            Verdict::Mismatch { call, rank, reason } => {
                Err(Error::CollectiveFailed { call: call.name(), rank: rank as usize, reason })
            }
            Verdict::Late { missing, waited, .. } if missing.contains(&(context.rank as u32)) => {
                let reason = format!(
                    "it came after the others had waited {} s for it, and given up; their time-out is {TIMEOUT_IS}",
                    in_seconds(&waited)
                );
                Err(Error::CollectiveFailed { call: call.name(), rank: context.rank, reason })
            }
            Verdict::Late { missing, ranks, waited } => {
                let found = ranks - missing.len() as u32;
                let what = match missing.as_slice() {
                    [_] => call.to_string(),
                    _ => {
                        let names = name_ranks(missing.iter().map(|rank| *rank as usize));
                        format!("{call}, to which {names} have not come; that")
                    }
                };
                let peer = missing.first().map_or(0, |rank| *rank as usize);
                Err(Error::TimedOut { rank: context.rank, peer, what, wanted: ranks, found, waited })
            }
            Verdict::Left { rank } => Err(left(rank as usize)),
        }
    }
}

fn split(mut body: &[u8], lengths: &[u64]) -> Vec<Vec<u8>> {
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (part, rest) = body.split_at((*length as usize).min(body.len()));
        parts.push(part.to_vec());
        body = rest;
    }
    parts
}

impl Drop for Star {
    fn drop(&mut self) {
        // Why a rank panics is told by whoever has the rendezvous.
        if !std::thread::panicking() {
            self.rendezvous.leave(self.meeting, self.ranks);
        }
    }
}

impl Meeting for Star {
    fn barrier(&self, context: &WaitContext) -> Result<()> {
        self.call(context, Call::Barrier, &[]).map(drop)
    }

    fn all_gather(&self, context: &WaitContext, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.call(context, Call::AllGather, data)
    }

    fn first(&self, context: &WaitContext, ranks: usize) -> Result<Option<Box<dyn Meeting>>> {
        // Rank 0 is in every meeting, so it names the new one.
        let name = if context.rank == 0 { self.rendezvous.name_meeting() } else { 0 };
        let told = [(ranks as u64).to_le_bytes(), name.to_le_bytes()].concat();
        let told = self.call(context, Call::First, &told)?;
        let numbers = |told: &[u8]| {
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            (number(&told[..told.len() / 2]), number(&told[told.len() / 2..]))
        };
        let (wanted, meeting) = numbers(&told[0]);
        if let Some((rank, other)) =
            told.iter().map(|told| numbers(told).0).enumerate().find(|(_, other)| *other != wanted)
        {
            return Err(Error::CollectiveFailed {
                call: Call::First.name(),
                rank,
                reason: format!(
                    "it asked for {other} ranks, but rank 0 for {wanted}; all must ask for the same"
                ),
            });
        }
        Ok((context.rank < ranks).then(|| {
            let star = Self::new(self.rendezvous.clone(), meeting, ranks);
            Box::new(star) as Box<dyn Meeting>
        }))
    }
}
