//! Gatherings: who has come to the current call of a meeting, and with what.

use super::frame::{Call, Verdict};

/// The state of one meeting at rank 0. Its calls follow each other: no rank comes to the next one
/// before it has the verdict of this one.
#[derive(Debug)]
pub(super) struct Gathering {
    sequence: u64,
    came: Vec<Option<(Call, Vec<u8>)>>,
    /// Who has let go of the meeting.
    left: Vec<bool>,
}

impl Gathering {
    pub(super) fn new(ranks: usize) -> Self {
        Self { sequence: 0, came: vec![None; ranks], left: vec![false; ranks] }
    }

    pub(super) fn ranks(&self) -> usize {
        self.came.len()
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether that call has no verdict yet.
    pub(super) fn is_open(&self, sequence: u64) -> bool {
        self.sequence == sequence
    }

    /// A rank has come to the current call. Gives the verdict, if that settles it.
    pub(super) fn arrive(&mut self, rank: usize, call: Call, data: Vec<u8>) -> Option<(Verdict, Vec<u8>)> {
        let others = self.came.iter().enumerate().filter_map(|(other, came)| Some((other, came.as_ref()?.0)));
        if let Some((other, theirs)) = others.into_iter().find(|(_, theirs)| *theirs != call) {
            let reason =
                format!("it called {call}, but rank {other} {theirs}; all ranks must make the same calls");
            return Some(self.end(Verdict::Mismatch { call: theirs, rank: rank as u32, reason }));
        }
        self.came[rank] = Some((call, data));
        if self.came.iter().any(Option::is_none) {
            return None;
        }
        let parts: Vec<Vec<u8>> = self.came.iter_mut().filter_map(|came| Some(came.take()?.1)).collect();
        let bytes = parts.iter().map(|part| part.len() as u64).collect();
        let (verdict, _) = self.end(Verdict::Gathered { bytes });
        Some((verdict, parts.concat()))
    }

    /// Who has not come to the current call.
    pub(super) fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.came).filter(|(_, came)| came.is_none()).map(|(rank, _)| rank).collect()
    }

    /// A rank comes to no more calls. Whether all ranks have said so.
    pub(super) fn leave(&mut self, rank: usize) -> bool {
        self.left[rank] = true;
        self.left.iter().all(|left| *left)
    }

    /// The first of those who do not come to the current call, and let go of the meeting, or of all.
    pub(super) fn gone(&self, left: &[bool]) -> Option<u32> {
        let is_gone = |rank: &u32| self.left[*rank as usize] || left[*rank as usize];
        self.missing().into_iter().find(is_gone)
    }

    /// Whether some ranks wait for others.
    pub(super) fn is_awaited(&self) -> bool {
        self.came.iter().any(Option::is_some)
    }

    /// Ends the current call with a verdict without data.
    pub(super) fn end(&mut self, verdict: Verdict) -> (Verdict, Vec<u8>) {
        self.came.fill(None);
        self.sequence += 1;
        (verdict, Vec::new())
    }
}
