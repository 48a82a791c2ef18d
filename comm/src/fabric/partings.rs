//! Partings over a wire: what a rank leaves behind the words of peers whose memory it does not reach.
//!
//! Where memory is mapped, whoever writes a word leaves its parting beside it. Over a wire it tells the rank that waits,
//! which puts the parting there by itself, so that waits look at one place in both cases. A parting says how far the word
//! comes: it may overtake what it speaks of.

use super::region::Word;
use crate::locks::lock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How far words of one number come, by their offsets, says their writer, which lets go of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    pub(crate) number: u64,
    pub(crate) words: Vec<(usize, u32)>,
}

/// Which words of this rank peers over a wire may part from.
#[derive(Debug, Default)]
pub struct Partings {
    last: AtomicU64,
    words: Mutex<HashMap<u64, Vec<Word>>>,
}

impl Partings {
    /// A number that no other words have: partings may come when nobody listens any more.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Has partings come to words that peers are told of by that number, until what is returned is dropped.
    pub(crate) fn listen(self: &Arc<Self>, number: u64, words: Vec<Word>) -> Listening {
        self.lock().insert(number, words);
        Listening { partings: self.clone(), number }
    }

    /// Takes in what a peer has told.
    pub(super) fn hear(&self, source: usize, parted: &Parted) {
        let all = self.lock();
        let Some(known) = all.get(&parted.number) else { return };
        for (offset, last) in &parted.words {
            let is_meant = |word: &&Word| word.from == source && word.offset() == *offset;
            known.iter().filter(is_meant).for_each(|word| word.part(*last));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Word>>> {
        lock(&self.words)
    }
}

/// Words that partings come to.
#[derive(Debug)]
pub(crate) struct Listening {
    partings: Arc<Partings>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let words = self.partings.lock().remove(&self.number);
        // With the last of its words goes their memory: giving that back may take long, and nobody is to wait for it.
        drop(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Fabric, LocalFabric, Role};

    #[test]
    fn a_parting_comes_to_the_words_of_its_teller_and_number_alone() {
        let memory = LocalFabric::alone(0).and_then(|fabric| fabric.allocate(256)).expect("it is little");
        let word = |offset, from| memory.word_with_parting(offset, Role::Credit, from, 0).expect("it fits");
        let words = [word(0, 1), word(64, 1), word(128, 2)];
        let partings = Arc::new(Partings::default());
        let [first, second] = [partings.number(), partings.number()];
        let listening = partings.listen(second, words.to_vec());
        let gone = || words.clone().map(|word| word.leaver(5));
        partings.hear(1, &Parted { number: first, words: vec![(0, 4)] });
        partings.hear(2, &Parted { number: second, words: vec![(0, 4), (32, 4)] });
        assert_eq!(gone(), [None; 3]);
        partings.hear(1, &Parted { number: second, words: vec![(0, 5), (64, 4), (128, 4)] });
        assert_eq!(gone(), [None, Some(1), None], "the first comes to what is waited for");
        drop(listening);
        partings.hear(2, &Parted { number: second, words: vec![(128, 4)] });
        assert_eq!(gone(), [None, Some(1), None]);
    }
}
