//! Answers are compared before anything is timed: a wrong one is the error of a measurement, not a figure.

use std::fmt::Debug;
use streamhalo::World;
use streamhalo::comm::Error;

use crate::error::AppError;

/// A measurement, and which of its contestants answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answers<'a> {
    pub(super) world: &'a World,
    pub(super) bench: &'a str,
    pub(super) contestant: &'a str,
}

impl Answers<'_> {
    /// Compares what was found at each place with what belongs there. Collective; blocks: no rank goes on where one has
    /// found a wrong answer.
    ///
    /// # Errors
    ///
    /// [`AppError::Rank`] of the first rank that has, the same on all ranks.
    pub(super) fn compare<P: Debug, T: PartialEq + Debug>(
        self,
        answers: impl IntoIterator<Item = (P, T, T)>,
    ) -> Result<(), AppError> {
        let wrong = answers.into_iter().find(|(_, found, expected)| found != expected);
        self.agree(
            wrong.map(|(place, found, expected)| {
                format!("{found:?} is at {place:?}, where {expected:?} belongs")
            }),
        )
    }

    /// The same of elements that lie in a row.
    pub(super) fn compare_all<T: PartialEq + Debug + Copy>(
        self,
        found: &[T],
        expected: impl Fn(usize) -> T,
    ) -> Result<(), AppError> {
        self.compare(found.iter().enumerate().map(|(index, found)| (index, *found, expected(index))))
    }

    /// The same of what this rank has found to be wrong.
    pub(super) fn agree(self, wrong: Option<String>) -> Result<(), AppError> {
        let of_ranks = self.world.all_gather(&wrong)?.into_iter().enumerate();
        let first = of_ranks.filter_map(|(rank, wrong)| Some((rank, wrong?))).next();
        first.map_or(Ok(()), |(rank, wrong)| {
            let Self { bench, contestant, .. } = self;
            let message =
                format!("bench {bench}: a wrong answer of `{contestant}`: {wrong}; it was not timed");
            Err(AppError::Rank { rank, message })
        })
    }
}

/// A byte that a rank sends in a round.
pub(super) fn said(rank: usize, round: usize, index: usize) -> u8 {
    (index * 7 + rank * 31 + round * 13 + index / 251) as u8
}

/// So many zeros, if the host has memory for them.
///
/// # Errors
///
/// [`Error::OutOfMemory`].
pub(super) fn zeros<T: Default + Clone>(count: usize) -> Result<Vec<T>, Error> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).map_err(|_| Error::OutOfMemory {
        bytes: count.saturating_mul(size_of::<T>()),
        kind: "host",
        reason: "free memory, or ask for smaller sizes".into(),
    })?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// A value as it is given to a contestant. Tests spoil one, so that what comes of it has to be refused.
#[cfg(not(test))]
pub(super) use std::convert::identity as given;
#[cfg(test)]
pub(super) use tests::{given, spoil};

#[cfg(test)]
mod tests {
    use crate::bench::halo::HaloBench;
    use crate::bench::micro::MicroBench;
    use crate::bench::moves::Boxes;
    use crate::bench::primitive::{OF_HOST, primitive_names};
    use crate::bench::streams::Streams;
    use crate::bench::what::What;
    use crate::bench::{collectives, throttle};
    use crate::ranks::{Work, on_threads};
    use std::cell::Cell;
    use streamhalo::comm::ElementType;
    use streamhalo::comm::backend::backend_names;
    use streamhalo::{Device, StreamKind, WorldOptions};

    thread_local! {
        /// How many values this rank is given before one is spoilt.
        static BEFORE: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Has the value behind so many others of this rank be another one.
    pub(in crate::bench) fn spoil(before: usize) {
        BEFORE.set(Some(before));
    }

    pub(in crate::bench) fn given<T: Default>(value: T) -> T {
        let before = BEFORE.get();
        BEFORE.set(before.and_then(|before| before.checked_sub(1)));
        if before == Some(0) { T::default() } else { value }
    }

    fn between_two(what: What, contestant: &str) -> MicroBench {
        MicroBench {
            what,
            fabric: "local".into(),
            ranks: 2,
            sizes: vec![64],
            contestants: vec![contestant.into()],
            operations: Vec::new(),
            entries: vec![8],
            stream: StreamKind::Inline,
            streams: Streams::default(),
            boxes: Some(Boxes { width: 1, cell_bytes: 1 }),
            threshold_bytes: 0,
            seconds: 1e-6,
        }
    }

    /// A device, if there is one.
    fn on_device() -> Option<Streams> {
        let device = Device::opencl("");
        device.inspect_err(|reason| println!("skipped: measurements on a device: {reason}")).ok()?;
        Some(Streams { device: Some("opencl".into()), ..Streams::default() })
    }

    /// The host, and a device if there is one.
    fn everywhere() -> impl Iterator<Item = Streams> {
        std::iter::once(Streams::default()).chain(on_device())
    }

    /// Has a rank be given a wrong value, and gives what comes of it. Nothing must be reported.
    fn spoilt<W: Work>(work: &W, ranks: usize, rank: usize, before: usize) -> String {
        let done = on_threads(ranks, WorldOptions::default(), |world| {
            if world.rank() == rank {
                spoil(before);
            }
            work.on_rank(world, &mut |_| panic!("something was timed"))
        });
        done.expect_err("what is wrong is refused").to_string()
    }

    fn assert_refused(said: &str, rank: usize, bench: &str, contestant: &str, place: &str) {
        let start = format!("rank {rank} failed: bench {bench}: a wrong answer of `{contestant}`: 0");
        assert!(said.starts_with(&start) && said.contains(&format!(" is at {place}, where ")), "{said}");
    }

    #[test]
    fn a_wrong_byte_of_any_primitive_is_found_before_anything_is_timed() {
        let messages = primitive_names().into_iter().filter(|name| *name != "flag");
        let mut cases: Vec<_> = messages.map(|name| (What::Latency, name)).collect();
        // Those that check a primitive elsewhere than where they time it, too.
        cases.extend(
            [What::Bandwidth, What::Bibandwidth, What::Overlap, What::Loggp].map(|what| (what, "queue")),
        );
        cases.extend(backend_names().map(|name| (What::Pingpong, name)));
        cases.extend(throttle::policy_names().into_iter().map(|name| (What::Throttle, name)));
        for streams in everywhere() {
            let is_there =
                |name: &str| streams.device.is_none() || OF_HOST.iter().all(|(of_host, _)| *of_host != name);
            for (what, name) in cases.iter().filter(|(_, name)| is_there(name)) {
                let bench = MicroBench { streams: streams.clone(), ..between_two(*what, name) };
                assert_refused(&spoilt(&bench, 2, 1, 3), 0, what.row().name, name, "3");
            }
        }
    }

    /// Names that the command line would have refused: none of them stands for a default.
    #[test]
    fn a_contestant_that_there_is_not_is_refused() {
        let cases = [
            (What::Throttle, "adaptve"),
            (What::Copies, "pined"),
            (What::Staging, "advanced-pined"),
            (What::Latency, "two-sidde"),
        ];
        for (what, name) in cases {
            let operations = vec!["latency".to_owned()];
            let bench = MicroBench { operations, ..between_two(what, name) };
            let said = spoilt(&bench, 2, 0, usize::MAX);
            assert!(said.contains(&format!("`{name}`")), "bench {}: {said}", what.row().name);
        }
    }

    #[test]
    fn a_wrong_element_of_any_collective_is_found() {
        let by_host =
            collectives::OPERATIONS.iter().filter(|name| **name != "barrier").map(|name| (*name, "host"));
        let on_streams = backend_names().map(|name| ("allreduce", name));
        let cases: Vec<_> = by_host.chain(on_streams).collect();
        for streams in everywhere() {
            for (operation, name) in &cases {
                let (operations, streams) = (vec![(*operation).to_owned()], streams.clone());
                let bench =
                    MicroBench { ranks: 3, operations, streams, ..between_two(What::Collectives, name) };
                let said = spoilt(&bench, 3, 0, 3);
                let contestant = format!("of `{operation} by {name}`: ");
                assert!(said.contains(" failed: bench collectives: a wrong answer "), "{said}");
                assert!(said.contains(&contestant) && said.contains(" is at "), "{said}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_of_a_device_is_found() {
        let Some(on_device) = on_device() else { return };
        // Of a field of 64³ cells with a ghost on either side, the third owned one; what is copied is filled after it. The
        // second message begins on a line.
        let (owned, behind_field, packed) = ((66 + 1) * 66 + 3, 66 * 66 * 66 + 3, 64 + 3);
        let of_moves = [
            (What::Moves, "z-faces", "copy", behind_field),
            (What::Moves, "z-faces", "fused", owned),
            (What::Moves, "unpack", "fused", packed),
            (What::Moves, "pack", "apart", owned),
            (What::Moves, "unpack", "apart", packed),
        ];
        let of_copies = ["to-host", "to-device"].map(|operation| (What::Copies, operation, "pinned", 3));
        for (what, operation, name, before) in of_moves.into_iter().chain(of_copies) {
            let operations = vec![operation.to_owned()];
            let streams = on_device.clone();
            let bench = MicroBench { ranks: 1, operations, streams, ..between_two(what, name) };
            let said = spoilt(&bench, 1, 0, before);
            let start =
                format!("rank 0 failed: bench {}: a wrong answer of `{name}`: 0 is at ", what.row().name);
            assert!(said.starts_with(&start), "{operation}: {said}");
        }
        let operations = vec!["latency".to_owned()];
        for name in ["user", "naive", "advanced-2"] {
            let (operations, streams) = (operations.clone(), on_device.clone());
            let bench = MicroBench { operations, streams, ..between_two(What::Staging, name) };
            assert_refused(&spoilt(&bench, 2, 1, 3), 0, "staging", name, "3");
        }
    }

    #[test]
    fn a_wrong_cell_of_a_halo_is_found() {
        for (alternating, element) in [(false, ElementType::F64), (true, ElementType::U8)] {
            let bench = HaloBench {
                layout: vec![2, 1],
                cells: vec![4, 4],
                element,
                width: 1,
                faces: false,
                alternating,
                backends: vec!["st-rsend".into()],
                fabric: "local".into(),
                streams: Streams::default(),
                seconds: 1e-6,
            };
            let said = spoilt(&bench, 2, 1, 3);
            assert!(said.contains(" failed: bench halo: a wrong answer of `st-rsend`: 0"), "{said}");
        }
    }
}
