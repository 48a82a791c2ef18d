//! Collective calls that are wrong on some rank: refused on all, by name.

use super::{LINE, SOON, buffer, world_of};
use streamhalo::comm::device::{Buffer, Section};
use streamhalo::comm::{Communicator, Error, Result};
use streamhalo::{Device, Op, World};
use streamhalo_tests::expect_all;

/// Rank 1 gives more than the others. In these calls nobody is done without the others: all are told of it in the same way,
/// whether they find it or wait for whoever has; and how much it is, by one of a pair that includes rank 1.
#[test]
fn collective_calls_with_other_arguments() {
    type Call = fn(&Communicator, &mut [f64]) -> Result<()>;
    let calls: [(&str, Call); 3] = [
        ("allreduce", |communicator, own| communicator.allreduce(own, Op::Sum)),
        ("allgather", |communicator, own| communicator.allgather(own, &mut vec![0.0; 3 * own.len()])),
        ("neighbour_alltoall", |communicator, own| {
            let sent = own.repeat(3);
            communicator.neighbour_alltoall(&[0, 1, 2], &sent, &[0, 1, 2], &mut vec![0.0; sent.len()])
        }),
    ];
    // At once, announced, and long enough to be reduced or gathered in parts.
    for ((name, call), elements) in calls.into_iter().flat_map(|call| [4, 2_000, 6_000].map(|n| (call, n))) {
        let results = world_of(3, SOON, |world, communicator| {
            call(communicator, &mut vec![0.0; if world.rank() == 1 { elements * 3 / 2 } else { elements }])
        });
        for result in results {
            match result {
                Err(Error::CollectiveFailed { call, rank, reason }) if call == name => {
                    assert!(reason.starts_with("it sent "), "{name}: {reason}");
                    assert_ne!(rank == 1, reason.contains("bytes where rank 1 expects"), "{name}: {reason}");
                }
                other => panic!("{name} of {elements} gave {other:?}"),
            }
        }
    }
}

/// Of equal lengths, as far as anybody finds out by them: each is refused on all ranks, and nobody gets what was meant otherwise.
#[test]
fn collective_calls_that_are_not_the_same() {
    type Call = fn(&Communicator, usize) -> Result<()>;
    let calls: [(&str, usize, Call); 11] = [
        // One in halves of all, the others in thirds of what is three times as much.
        ("elements", 3, |communicator, rank| {
            communicator.allreduce(&mut vec![0.0; if rank == 1 { 2_000 } else { 6_000 }], Op::Sum)
        }),
        ("f64 where rank", 2, |communicator, rank| match rank {
            0 => communicator.allreduce(&mut [1_i64], Op::Sum),
            _ => communicator.allreduce(&mut [1.0_f64], Op::Sum),
        }),
        ("i64 where rank", 2, |communicator, rank| match rank {
            0 => communicator.broadcast(&mut [0_i64], 0),
            _ => communicator.broadcast(&mut [0.0_f32; 2], 0),
        }),
        ("another operation", 2, |communicator, rank| {
            communicator.allreduce(&mut [1.0], if rank == 0 { Op::Sum } else { Op::Max })
        }),
        ("another root", 2, |communicator, rank| communicator.reduce(&mut [0_u8], Op::Sum, rank)),
        ("another root", 2, |communicator, rank| communicator.gather(&[0_u8], rank).map(drop)),
        ("f64 where rank", 2, |communicator, rank| match rank {
            0 => communicator.gather(&[1_i64], 0).map(drop),
            _ => communicator.gather(&[1.0_f64], 0).map(drop),
        }),
        ("it called `barrier`", 2, |communicator, rank| match rank {
            0 => communicator.barrier(),
            _ => communicator.broadcast(&mut [0_u8; 0], 0),
        }),
        // Each has sent, and nobody has received: what comes next is of that call.
        ("in a call before", 2, |communicator, rank| {
            communicator.broadcast(&mut [0_u8], rank)?;
            communicator.broadcast(&mut [0_u8], 0)
        }),
        ("in a call before", 2, |communicator, rank| {
            // Of rank 1 one more than rank 0 knows of, and then as many.
            for blocks in [1 + rank, 1] {
                let other = vec![1 - rank; blocks];
                let mut received = [0_u8];
                communicator.neighbour_alltoall(&other, &vec![7_u8; blocks], &other[..1], &mut received)?;
            }
            Ok(())
        }),
        ("it called `neighbour_alltoall`", 2, |communicator, rank| {
            match rank {
                0 => communicator.neighbour_alltoall(&[], &[], &[1], &mut [0_u8])?,
                _ => communicator.neighbour_alltoall(&[0; 2], &[1_u8; 2], &[], &mut [])?,
            }
            communicator.allreduce(&mut [1_u8], Op::Sum)
        }),
    ];
    for (what, ranks, call) in calls {
        let results = world_of(ranks, SOON, |world, communicator| {
            // Whoever is done without the others learns of it in the next call.
            call(communicator, world.rank())?;
            communicator.barrier()
        });
        let failures = results.iter().filter_map(|result| match result {
            Err(Error::CollectiveFailed { reason, .. }) => Some(reason.clone()),
            Err(Error::PeerFailed { operation, .. }) => Some(operation.clone()),
            _ => None,
        });
        let failures: Vec<String> = failures.collect();
        assert_eq!(failures.len(), ranks, "{what}: {results:?}");
        assert!(failures.iter().any(|reason| reason.contains(what)), "{what}: {failures:?}");
    }
}

/// Each rank is told by its own call.
#[test]
fn roots_and_neighbours_that_are_no_ranks() {
    type Call = fn(&Communicator, &Section, usize) -> Result<()>;
    let calls: [(&str, Call); 7] = [
        ("gather", |communicator, _, rank| communicator.gather(&[1.0], rank).map(drop)),
        ("broadcast", |communicator, _, rank| communicator.broadcast(&mut [1.0], rank)),
        ("reduce", |communicator, _, rank| communicator.reduce(&mut [1.0], Op::Sum, rank)),
        ("neighbour_alltoall", |communicator, _, rank| {
            communicator.neighbour_alltoall(&[0, rank], &[1.0; 2], &[0, 1], &mut [0.0; 2])
        }),
        ("neighbour_alltoall", |communicator, _, rank| {
            communicator.neighbour_alltoall(&[0, 1], &[1.0; 2], &[rank, 1], &mut [0.0; 2])
        }),
        ("broadcast_section", |communicator, section, rank| communicator.broadcast_section(section, rank)),
        ("reduce_section", |communicator, section, rank| communicator.reduce_section(section, Op::Sum, rank)),
    ];
    for (name, call) in calls {
        for wrong in [2, usize::MAX] {
            let results = world_of(2, SOON, |world, communicator| {
                let (_stream, buffer) = buffer(world)?;
                Ok(call(communicator, &buffer.section(0..3)?, wrong))
            });
            for result in expect_all(results) {
                match result {
                    Err(Error::WrongRank { what, rank, size: 2 }) => {
                        assert_eq!((what, rank), (&*format!("Communicator::{name}"), wrong));
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
        }
    }
}

/// What rank 1 cannot make, the others, who would wait for it, are told of at once.
#[test]
fn a_collective_call_that_one_rank_cannot_make_fails_on_all() {
    type Call = fn(&Communicator, &World, bool) -> Result<()>;
    let calls: [(&str, Call); 11] = [
        ("gather", |communicator, _, wrong| communicator.gather(&[1.0], if wrong { 3 } else { 1 }).map(drop)),
        ("broadcast", |communicator, _, wrong| communicator.broadcast(&mut [1.0], if wrong { 3 } else { 1 })),
        ("reduce", |communicator, _, wrong| communicator.reduce(&mut [1.0], replace_if(wrong), 0)),
        ("allreduce", |communicator, _, wrong| communicator.allreduce(&mut [1.0], replace_if(wrong))),
        ("allgather", |communicator, _, wrong| {
            communicator.allgather(&[1.0], &mut [0.0; 4][..if wrong { 4 } else { 3 }])
        }),
        ("neighbour_alltoall", |communicator, _, wrong| {
            let sent = if wrong { [1.0; 4].as_slice() } else { &[1.0; 3] };
            communicator.neighbour_alltoall(&[0, 1, 2], sent, &[0, 1, 2], &mut [0.0; 3])
        }),
        ("broadcast", |communicator, world, wrong| {
            held_if(wrong, world, |section| communicator.broadcast_section(section, 1))
        }),
        ("reduce", |communicator, world, wrong| {
            held_if(wrong, world, |section| communicator.reduce_section(section, Op::Sum, 0))
        }),
        ("allreduce", |communicator, world, wrong| {
            held_if(wrong, world, |section| communicator.allreduce_section(section, Op::Sum))
        }),
        ("allgather", |communicator, world, wrong| {
            let (_stream, gathered) = buffer(world)?;
            held_if(wrong, world, |own| communicator.allgather_section(own, &gathered.section(0..9)?))
        }),
        ("neighbour_alltoall", |communicator, world, wrong| {
            let stream = Device::host().stream(world)?;
            let other = Buffer::<f32>::zeros(world, &stream, LINE)?;
            let (_stream, floats) = buffer(world)?;
            let to = if wrong { other.section(0..3)? } else { floats.section(0..3)? };
            let all = [0, 1, 2];
            held_if(false, world, |from| communicator.neighbour_alltoall_section(&all, from, &all, &to))
        }),
    ];
    for (name, call) in calls {
        let mut results = expect_all(world_of(3, SOON, |world, communicator| {
            let called = call(communicator, world, world.rank() == 1);
            // Rank 1 goes on, but has told the others; of which some may have done their part before.
            Ok((called, world.barrier()))
        }));
        let own = results.remove(1).0.expect_err("it cannot be made");
        let is_told = matches!(own, Error::PeerFailed { .. } | Error::TimedOut { .. });
        assert!(!is_told, "{name} gave {own} on rank 1");
        let later = Err(Error::PeerFailed { rank: 1, operation: format!("{name}: {own}") });
        let told = if matches!(own, Error::CollectiveFailed { .. }) { Err(own) } else { later.clone() };
        for (called, gone_on) in results {
            assert!(called == told || called == Ok(()), "{name} gave {called:?} instead of {told:?}");
            assert_eq!(gone_on, later, "{name}");
        }
    }
}

fn replace_if(wrong: bool) -> Op {
    if wrong { Op::Replace } else { Op::Sum }
}

/// Makes a call with a section that something else reads and writes, or not.
fn held_if(is_held: bool, world: &World, call: impl FnOnce(&Section) -> Result<()>) -> Result<()> {
    let (_stream, mut buffer) = buffer(world)?;
    let section = buffer.section(0..3)?;
    let view = if is_held { Some(buffer.view_mut(LINE.whole())?) } else { None };
    let called = call(&section);
    drop(view);
    called
}
