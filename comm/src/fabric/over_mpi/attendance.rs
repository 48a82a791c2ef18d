//! Who still comes to a meeting: whoever lets go of it tells the others how many of its calls it has made.

use super::news::News;
use crate::error::{Error, Result};
use crate::fabric::{Fabric, LINE, Listening, LocalFabric, Parted, Role, Word};
use crate::meeting::left;
use std::sync::Arc;

/// What distinguishes numbers of meetings from those of other words that ranks part from.
const MEETING: u64 = 1 << 63;

/// One rank's place in a meeting.
#[derive(Debug)]
pub(super) struct Attendance {
    news: Arc<News>,
    rank: usize,
    number: u64,
    /// By rank; only their partings are used.
    words: Vec<Word>,
    _listening: Listening,
}

impl Attendance {
    /// In a meeting of so many ranks, whose number no other one has and all of them know. Does not communicate; to be made
    /// before any of them can let go of the meeting.
    pub(super) fn new(news: &Arc<News>, rank: usize, size: usize, number: u64) -> Result<Self> {
        let memory = LocalFabric::alone(rank)?.allocate(size * LINE)?;
        let word = |peer: usize| memory.word_with_parting(peer * LINE, Role::Barrier, peer, rank);
        let words = (0..size).map(word).collect::<Result<Vec<_>>>()?;
        let number = MEETING | number;
        let listening = news.partings().listen(number, words.clone());
        Ok(Self { news: news.clone(), rank, number, words, _listening: listening })
    }

    /// The error if a rank does not come to the call of that number.
    pub(super) fn gone(&self, call: u32) -> Option<Error> {
        self.words.iter().find_map(|word| word.leaver(call)).map(left)
    }

    pub(super) fn news(&self) -> &Arc<News> {
        &self.news
    }

    /// Tells the others that this rank comes to no more calls than so many.
    pub(super) fn end(&self, calls: u32) {
        // Why a rank fails is told otherwise.
        if std::thread::panicking() || !self.news.can_tell() {
            return;
        }
        let parted = Parted { number: self.number, words: vec![(self.rank * LINE, calls)] };
        for peer in (0..self.words.len()).filter(|peer| *peer != self.rank) {
            // Who is not told waits until it is out of time.
            let _ = self.news.tell_parting(peer, &parted);
        }
    }
}
