//! Moves as kernels read them: boxes of words, and which of these each group of threads takes.
//!
//! A group takes words of one box only, so that its threads do not search for theirs, and counts them in 32 bits, which a
//! GPU divides several times faster than 64.

/// A box of runs of words, as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    source: u64,
    destination: u64,
    source_strides: [u64; 2],
    destination_strides: [u64; 2],
    inner: u32,
    words: u32,
    pub(super) all: u32,
    word_bytes: u32,
}

/// What a group of threads moves at a time, as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    piece: u32,
    start: u32,
}

/// Words that a thread of a kernel has on their way at a time: `EACH` of its text.
pub(super) const EACH: usize = 4;
/// The most words of a piece: kernels count them in 32 bits, with room for a group's threads beyond the last.
pub(super) const MOST_WORDS: usize = 1 << 31;

/// A move whose sides kernels reach, by addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub(super) source: usize,
    pub(super) source_strides: [usize; 2],
    pub(super) destination: usize,
    pub(super) destination_strides: [usize; 2],
    /// Runs along the outer and the inner axis.
    pub(super) counts: [usize; 2],
    pub(super) run_bytes: usize,
}

impl Moved {
    /// The longest words that begin on their boundaries in all runs.
    fn word_bytes(&self) -> usize {
        let strides = self.source_strides.iter().zip(&self.destination_strides).zip(self.counts);
        // What is never stepped over may be anything.
        let strides = strides.filter(|(_, count)| *count > 1).fold(0, |all, ((from, to), _)| all | from | to);
        1 << (strides | self.run_bytes | self.source | self.destination).trailing_zeros().min(4)
    }

    /// As the kernel reads it: in halves while it has too many words.
    pub(super) fn cut(self, most_words: usize, pieces: &mut Vec<Piece>) {
        let (word_bytes, [outer, inner]) = (self.word_bytes(), self.counts);
        let all = outer * inner * (self.run_bytes / word_bytes);
        if all > most_words {
            let (mut first, mut second) = (self, self);
            if let Some(axis) = (0..2).find(|axis| self.counts[*axis] > 1) {
                let half = self.counts[axis] / 2;
                first.counts[axis] = half;
                second.counts[axis] -= half;
                second.source += half * self.source_strides[axis];
                second.destination += half * self.destination_strides[axis];
            } else {
                let half = self.run_bytes / word_bytes / 2 * word_bytes;
                first.run_bytes = half;
                second.run_bytes -= half;
                second.source += half;
                second.destination += half;
            }
            return [first, second].into_iter().for_each(|half| half.cut(most_words, pieces));
        }
        // All are at most as many as there are words.
        let [inner, words, all, word_bytes] =
            [inner, self.run_bytes / word_bytes, all, word_bytes].map(|count| count as u32);
        let wide = |sizes: [usize; 2]| sizes.map(|size| size as u64);
        pieces.push(Piece {
            source: self.source as u64,
            destination: self.destination as u64,
            source_strides: wide(self.source_strides),
            destination_strides: wide(self.destination_strides),
            inner,
            words,
            all,
            word_bytes,
        });
    }
}

/// Which words each group of threads moves, of pieces that are cut into chunks of that length.
pub(super) fn chunks_of(pieces: &[Piece], length: u32) -> Vec<Chunk> {
    let chunks = (0..).zip(pieces).flat_map(|(piece, one)| {
        (0..one.all).step_by(length as usize).map(move |start| Chunk { piece, start })
    });
    chunks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the kernel moves, from where to where: as its text has it, in each of the groups that are launched.
    fn moved(pieces: &[Piece], length: u32, [threads, groups]: [u32; 2]) -> Vec<(u64, u64)> {
        let (chunks, mut bytes) = (chunks_of(pieces, length), Vec::new());
        for chunk in (0..groups).flat_map(|group| chunks.iter().skip(group as usize).step_by(groups as usize))
        {
            let own = &pieces[chunk.piece as usize];
            let end = own.all.min(chunk.start + length);
            for thread in 0..threads {
                for word in (chunk.start + thread..end).step_by(threads as usize) {
                    let (run, place) = (word / own.words, u64::from(word % own.words * own.word_bytes));
                    let [outer, inner] = [run / own.inner, run % own.inner].map(u64::from);
                    let at = |start: u64, strides: [u64; 2]| {
                        start + outer * strides[0] + inner * strides[1] + place
                    };
                    let (from, to) =
                        (at(own.source, own.source_strides), at(own.destination, own.destination_strides));
                    assert!((from | to).is_multiple_of(own.word_bytes.into()), "{own:?}");
                    bytes.extend((0..u64::from(own.word_bytes)).map(|byte| (from + byte, to + byte)));
                }
            }
        }
        bytes.sort_unstable();
        bytes
    }

    #[test]
    fn each_byte_is_moved_once_however_boxes_are_cut() {
        let boxes = [
            ([1, 1], 4096, [[0, 0], [0, 0]], 16),
            ([1, 1], 1000, [[7, 7], [3, 3]], 8),
            ([3, 5], 48, [[400, 64], [240, 48]], 16),
            ([3, 5], 40, [[400, 64], [200, 40]], 8),
            ([9, 7], 4, [[700, 100], [28, 4]], 4),
            ([5, 1], 6, [[10, 3], [6, 6]], 2),
            ([2, 11], 3, [[99, 9], [33, 3]], 1),
        ];
        for (counts, run_bytes, [source_strides, destination_strides], word_bytes) in boxes {
            let one = Moved {
                source: 4096,
                source_strides,
                destination: 1 << 20,
                destination_strides,
                counts,
                run_bytes,
            };
            assert_eq!(one.word_bytes(), word_bytes, "{one:?}");
            let mut expected = Vec::new();
            for (outer, inner) in (0..counts[0]).flat_map(|i| (0..counts[1]).map(move |j| (i, j))) {
                let at = |start: usize, strides: [usize; 2]| start + outer * strides[0] + inner * strides[1];
                let (from, to) = (at(4096, source_strides), at(1 << 20, destination_strides));
                expected.extend((0..run_bytes).map(|byte| ((from + byte) as u64, (to + byte) as u64)));
            }
            expected.sort_unstable();
            for most_words in [1, 2, 7, 100, MOST_WORDS] {
                let mut pieces = Vec::new();
                one.cut(most_words, &mut pieces);
                assert!(pieces.iter().all(|piece| (1..=most_words).contains(&(piece.all as usize))));
                for (length, launched) in [(4, [1, 3]), (16, [4, 1000]), (1024, [256, 2])] {
                    assert_eq!(moved(&pieces, length, launched), expected, "{one:?}, {most_words}, {length}");
                }
            }
        }
    }

    #[test]
    fn the_most_words_leave_room_for_a_groups_threads() {
        let one = Moved {
            source: 0,
            source_strides: [0; 2],
            destination: 0,
            destination_strides: [0; 2],
            counts: [1, 1],
            run_bytes: (5 << 31) + 1,
        };
        let mut pieces = Vec::new();
        one.cut(MOST_WORDS, &mut pieces);
        let bytes = pieces.iter().map(|piece| u64::from(piece.all) * u64::from(piece.word_bytes));
        assert_eq!(bytes.sum::<u64>(), (5 << 31) + 1);
        assert!(pieces.iter().all(|piece| piece.all.checked_add(1 << 20).is_some()), "{pieces:?}");
    }
}
