//! The driver's streams, which are kept for those who come later, on two sides.
//!
//! A GPU has several units that read what hosts have put on its queues, and a driver gives streams to them in turn, in
//! the order in which they are used first. Streams that wait for each other are slower where one unit reads both: a
//! launch takes 1 µs longer and more (see `docs/measurements/gpu.md`). So streams are made and used in pairs, the first
//! of each for ranks of one kind, and the second for those of the other, and kept. More than have a queue of the
//! hardware each, which streams may be on that wait for nobody, are not: of two that share one a kernel that waits on
//! the one would hold up the other.

/// Streams that nobody has at present, by their side, and how many there are in all.
#[derive(Debug)]
pub(super) struct Streams<S> {
    spare: [Vec<S>; 2],
    made: usize,
    most: usize,
}

/// Which side those of a rank are on. Ranks are on different ones whose numbers differ by a power of two from one that is a
/// multiple of it: the neighbours along each axis of a layout of powers of two.
pub(super) fn side_of(rank: usize) -> usize {
    rank.count_ones() as usize % 2
}

impl<S> Streams<S> {
    /// None yet. More than `most` share queues of the hardware.
    pub(super) fn new(most: usize) -> Self {
        Self { spare: [Vec::new(), Vec::new()], made: 0, most }
    }

    /// One of that side, or of any, made if there is none to spare, by `make`, which also uses it; of the other side before some
    /// would share a queue. No side has one that may.
    ///
    /// # Errors
    /// That of `make`.
    pub(super) fn take<E>(
        &mut self,
        side: Option<usize>,
        mut make: impl FnMut() -> Result<S, E>,
    ) -> Result<(S, Option<usize>), E> {
        let side = side.unwrap_or_else(|| usize::from(self.spare[1].len() > self.spare[0].len()));
        if self.spare[side].is_empty() && self.made + 2 <= self.most {
            for spare in &mut self.spare {
                spare.push(make()?);
                self.made += 1;
            }
        }
        for side in [side, 1 - side] {
            if let Some(stream) = self.spare[side].pop() {
                return Ok((stream, Some(side)));
            }
        }
        if self.made >= self.most {
            return Ok((make()?, None));
        }
        self.made += 1;
        Ok((make()?, Some(side)))
    }

    /// Nobody has one any more of that side, which is at rest. Gives it back where it is to be destroyed.
    pub(super) fn give_back(&mut self, stream: S, side: Option<usize>) -> Option<S> {
        match side {
            Some(side) => {
                self.spare[side].push(stream);
                None
            }
            None => Some(stream),
        }
    }

    /// One of that side is not at rest, and is destroyed.
    pub(super) fn lose(&mut self, side: Option<usize>) {
        self.made -= usize::from(side.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn neighbours_along_axes_of_powers_of_two_are_on_different_sides() {
        for rank in 0..64_usize {
            for axis in 0..6 {
                assert_ne!(side_of(rank), side_of(rank ^ 1 << axis), "{rank}, axis {axis}");
            }
        }
    }

    #[test]
    fn streams_have_every_second_place_and_are_kept() {
        let mut next = 0;
        let mut make = || {
            next += 1;
            Ok::<_, Infallible>(next - 1)
        };
        let mut streams = Streams::new(7);
        let mut take = |streams: &mut Streams<i32>, side| streams.take(side, &mut make).expect("never fails");
        let first = [1, 1, 0, 0].map(|side| take(&mut streams, Some(side)));
        assert_eq!(first, [(1, Some(1)), (3, Some(1)), (2, Some(0)), (0, Some(0))]);
        // What was given back is there again, for its own side.
        assert_eq!(streams.give_back(3, Some(1)), None);
        let next = [Some(0), Some(1), None].map(|side| take(&mut streams, side));
        assert_eq!(next, [(4, Some(0)), (5, Some(1)), (3, Some(1))]);
        // The last that has a queue of its own is of any side; then some share, which are not kept.
        let last = [0, 0, 1].map(|side| take(&mut streams, Some(side)));
        assert_eq!(last, [(6, Some(0)), (7, None), (8, None)]);
        assert_eq!(streams.give_back(7, None), Some(7));
        streams.lose(None);
        streams.lose(Some(0));
        assert_eq!([1, 0].map(|side| take(&mut streams, Some(side))), [(9, Some(1)), (10, None)]);
        assert_eq!(streams.give_back(5, Some(1)), None);
        assert_eq!(take(&mut streams, Some(0)), (5, Some(1)));
    }

    #[test]
    fn what_cannot_be_made_is_an_error() {
        let mut streams = Streams::<i32>::new(6);
        assert_eq!(streams.take(Some(0), || Err("no more")), Err("no more"));
        assert_eq!(streams.take(None, || Ok::<_, &str>(7)), Ok((7, Some(0))));
    }
}
