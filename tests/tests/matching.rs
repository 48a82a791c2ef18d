//! Matching of what ranks want to send and receive, written out message by message: every misuse
//! is refused with the same error on every rank, and leaves the world usable.

use std::sync::Arc;
use streamhalo::ElementType::{self, F32, F64, I64, U8};
use streamhalo::comm::Error;
use streamhalo::comm::backend::{
    AUTO, Direct, Exchange, ExchangeSpec, MessageSpec, Slot, backend_names, match_exchange,
};
use streamhalo::comm::device::{Buffer, Extents, Move, MoveTable};
use streamhalo::comm::fabric::{Place, phase};
use streamhalo::{Period, Stream, StreamKind, World};
use streamhalo_tests::{Random, delay, each_way, on_ranks, same_on_all, stream_of};

/// A packed message of those elements.
fn message(peer: usize, tag: u32, elements: &[(ElementType, usize)]) -> MessageSpec {
    MessageSpec {
        peer,
        tag,
        elements: elements.to_vec(),
        bytes: elements.iter().map(|(element, count)| element.bytes() * count).sum(),
        run_bytes: 8,
        direct: Direct::Never,
        ghosts: Vec::new(),
    }
}

/// Rank 0 sends three numbers to rank 1 and both know it.
fn one_message(rank: usize) -> ExchangeSpec {
    let told = |peer| vec![message(peer, 5, &[(F64, 3)])];
    match rank {
        0 => ExchangeSpec { sends: told(1), recvs: Vec::new(), last_epoch: 0 },
        1 => ExchangeSpec { sends: Vec::new(), recvs: told(0), last_epoch: 0 },
        _ => ExchangeSpec { sends: Vec::new(), recvs: Vec::new(), last_epoch: 0 },
    }
}

/// The verdict on `spec`, which must be the same on all of three ranks whatever the backend, and
/// after which the world can still match what is right.
fn verdict(spec: impl Fn(usize) -> ExchangeSpec + Sync) -> Error {
    let by_backend = backend_names().chain([AUTO]).map(|name| refusal(&|_| name, &spec)).collect();
    same_on_all(by_backend)
}

fn refusal(
    backend: &(impl Fn(usize) -> &'static str + Sync),
    spec: &(impl Fn(usize) -> ExchangeSpec + Sync),
) -> Error {
    same_on_all(on_ranks(3, |world| {
        let stream = stream_of(world, StreamKind::Inline)?;
        let rank = world.rank();
        let refused = match_exchange(world, &stream, backend(rank), spec(rank));
        match_exchange(world, &stream, "st-send", one_message(rank))?;
        Ok(refused.expect_err("what does not match is refused"))
    }))
}

/// The message of rank 0, changed on one side.
fn with_send(change: impl Fn(&mut MessageSpec) + Sync) -> Error {
    verdict(|rank| {
        let mut spec = one_message(rank);
        spec.sends.iter_mut().for_each(&change);
        spec
    })
}

fn mismatch(sender: usize, receiver: usize, tag: u32, sent: &str, expected: &str) -> Error {
    let (sent, expected) = (sent.to_string(), expected.to_string());
    Error::Mismatch { sender, receiver, tag, sent, expected }
}

#[test]
fn two_sides_that_differ() {
    let sent = "24 bytes (3 f64)";
    let other_tag = with_send(|send| send.tag = 6);
    assert_eq!(other_tag, mismatch(0, 1, 6, sent, "has no receive for it"));
    let other_peer = with_send(|send| send.peer = 2);
    assert_eq!(other_peer, mismatch(0, 2, 5, sent, "has no receive for it"));
    let other_type = with_send(|send| send.elements = vec![(I64, 3)]);
    assert_eq!(other_type, mismatch(0, 1, 5, "24 bytes (3 i64)", "expects 24 bytes (3 f64)"));
    let fewer = with_send(|send| *send = message(1, 5, &[(F64, 2)]));
    assert_eq!(fewer, mismatch(0, 1, 5, "16 bytes (2 f64)", "expects 24 bytes (3 f64)"));
    let padded = with_send(|send| send.bytes = 32);
    assert_eq!(padded, mismatch(0, 1, 5, "32 bytes (3 f64)", "expects 24 bytes (3 f64)"));
    let other_order = verdict(|rank| {
        let mut spec = one_message(rank);
        spec.sends.iter_mut().for_each(|send| *send = message(1, 5, &[(U8, 4), (F32, 2)]));
        spec.recvs.iter_mut().for_each(|recv| *recv = message(0, 5, &[(F32, 2), (U8, 4)]));
        spec
    });
    assert_eq!(other_order, mismatch(0, 1, 5, "12 bytes (4 u8 + 2 f32)", "expects 12 bytes (2 f32 + 4 u8)"));
}

#[test]
fn a_side_that_is_missing() {
    let no_receive = verdict(|rank| ExchangeSpec { recvs: Vec::new(), ..one_message(rank) });
    assert_eq!(no_receive, mismatch(0, 1, 5, "24 bytes (3 f64)", "has no receive for it"));
    let no_send = verdict(|rank| ExchangeSpec { sends: Vec::new(), ..one_message(rank) });
    assert_eq!(no_send, mismatch(0, 1, 5, "nothing", "expects 24 bytes (3 f64)"));
}

/// The reason of a rank's unusable description.
fn bad(error: Error, expected_rank: usize) -> String {
    match error {
        Error::BadExchange { rank, reason } if rank == expected_rank => reason,
        other => panic!("{other} instead of what is wrong with rank {expected_rank}"),
    }
}

#[test]
fn descriptions_that_are_wrong_in_themselves() {
    let out_of_range = bad(with_send(|send| send.peer = 3), 0);
    assert!(out_of_range.contains("rank 3") && out_of_range.contains("3 ranks"), "{out_of_range}");
    let receives = verdict(|rank| {
        let mut spec = one_message(rank);
        spec.recvs.iter_mut().for_each(|recv| recv.peer = usize::MAX);
        spec
    });
    assert!(bad(receives, 1).contains("receives from"));
    let twice = verdict(|rank| {
        let mut spec = one_message(rank);
        spec.sends.extend(spec.sends.clone());
        spec
    });
    let twice = bad(twice, 0);
    assert!(twice.contains("sends to rank 1 twice with tag 5"), "{twice}");
    let received_twice = verdict(|rank| {
        let mut spec = one_message(rank);
        spec.recvs.extend(spec.recvs.clone());
        spec
    });
    assert!(bad(received_twice, 1).contains("receives from rank 0 twice with tag 5"));
    let too_short = bad(with_send(|send| send.bytes = 23), 0);
    assert!(too_short.contains("23 bytes for 24 bytes"), "{too_short}");
    // None of these may be multiplied or rounded up before it is refused.
    for most in [usize::MAX, usize::MAX / 2, usize::MAX / 8 + 1] {
        let too_long = bad(with_send(|send| send.bytes = most), 0);
        assert!(too_long.contains(&format!("sends to rank 1 has {most} bytes")), "{too_long}");
        let too_many = bad(with_send(|send| send.elements = vec![(F64, most)]), 0);
        assert!(too_many.contains("more than any memory holds"), "{too_many}");
    }
    let empty = bad(with_send(|send| *send = message(1, 5, &[])), 0);
    assert!(empty.contains("0 bytes"), "{empty}");
    let epochs = verdict(|rank| ExchangeSpec { last_epoch: rank as u32 / 2 * 4, ..one_message(rank) });
    let epochs = bad(epochs, 2);
    assert!(epochs.contains("after epoch 4, rank 0 after 0"), "{epochs}");
    let nowhere = verdict(|rank| {
        let mut spec = one_message(rank);
        spec.recvs.iter_mut().for_each(|recv| recv.direct = Direct::WhenClear);
        spec
    });
    let nowhere = bad(nowhere, 1);
    assert!(nowhere.contains("of which it names none"), "{nowhere}");
    let odd = bad(verdict(|rank| ExchangeSpec { last_epoch: 1, ..one_message(rank) }), 0);
    assert!(odd.contains("after epoch 1, but the first exchange has an odd epoch"), "{odd}");
}

#[test]
fn backends_that_are_unknown_or_differ() {
    let known = backend_names().chain([AUTO]).collect::<Vec<_>>().join(", ");
    let unknown = refusal(&|_| "st-recv", &one_message);
    assert_eq!(unknown, Error::UnknownBackend { name: "st-recv".into(), known });
    let cray = refusal(&|_| "cray-mpich", &one_message);
    assert!(
        matches!(&cray, Error::BackendRefused { backend: "cray-mpich", reason } if reason.contains("`standard`")),
        "{cray}"
    );
    for (odd, other) in [("notified", "st-send"), ("st-recv", "st-send"), ("cray-mpich", "standard")] {
        for rank in [1, 2] {
            let names = move |own| if own == rank { odd } else { other };
            let reason = bad(refusal(&names, &one_message), rank);
            assert!(reason.contains(&format!("`{odd}`, rank 0 for `{other}`")), "{reason}");
        }
        let first = move |own| if own == 0 { odd } else { other };
        let reason = bad(refusal(&first, &one_message), 1);
        assert!(reason.contains(&format!("`{other}`, rank 0 for `{odd}`")), "{reason}");
    }
}

/// Values that go round a ring of ranks by an exchange made by hand.
struct Ring {
    exchange: Box<dyn Exchange>,
    sent: Buffer<i64>,
    received: Buffer<i64>,
    unpacks: [Arc<MoveTable>; 2],
}

const ENTRIES: usize = 40;

fn copy(source: Place, destination: Place) -> Result<Arc<MoveTable>, Error> {
    let one = Move::of_bytes(source, destination, ENTRIES * 8);
    Ok(Arc::new(MoveTable::new(&[vec![one]])?))
}

/// The moves of a send, by phase.
type ByPhase = [Arc<MoveTable>; 2];

impl Ring {
    fn new(world: &World, stream: &Stream, backend: &str) -> Result<(Self, Vec<ByPhase>), Error> {
        let size = world.size();
        let to = |peer| vec![message(peer, 9, &[(I64, ENTRIES)])];
        let (next, previous) = ((world.rank() + 1) % size, (world.rank() + size - 1) % size);
        let spec = ExchangeSpec { sends: to(next), recvs: to(previous), last_epoch: 0 };
        let exchange = match_exchange(world, stream, backend, spec)?;
        let extents = Extents { points: [1, 1, ENTRIES], components: 1 };
        let sent = Buffer::zeros(world, stream, extents)?;
        let received = Buffer::zeros(world, stream, extents)?;
        let send = |phase| match exchange.send_slot(0, phase) {
            Slot::Packed(place) => copy(sent.place([0; 3])?, place),
            Slot::Ghosts(_) => panic!("nobody may write ghosts here"),
        };
        let unpack = |phase| {
            let arrived = exchange.recv_slot(0, phase).expect("nobody writes ghosts here");
            copy(arrived, received.place([0; 3])?)
        };
        let sends = vec![[send(0)?, send(1)?]];
        let unpacks = [unpack(0)?, unpack(1)?];
        Ok((Self { exchange, sent, received, unpacks }, sends))
    }

    fn fill(&mut self, epoch: u32, rank: usize) -> Result<(), Error> {
        let whole = self.sent.extents().whole();
        let first = i64::from(epoch) * 1000 + rank as i64 * 100;
        let mut view = self.sent.view_mut(whole)?;
        view.iter_mut().zip(first..).for_each(|(entry, value)| *entry = value);
        Ok(())
    }

    fn check(&self, epoch: u32, from: usize) -> Result<(), Error> {
        let first = i64::from(epoch) * 1000 + from as i64 * 100;
        let expected: Vec<i64> = (first..).take(ENTRIES).collect();
        assert_eq!(self.received.copy_out(self.received.extents().whole())?, expected, "epoch {epoch}");
        Ok(())
    }
}

#[test]
fn messages_on_their_way_are_none_of_a_rehearsal_with_their_tags() {
    for kind in [StreamKind::Inline, StreamKind::Threaded] {
        on_ranks(2, |world| {
            let stream = stream_of(world, kind)?;
            let (mut ring, sends) = Ring::new(world, &stream, "standard")?;
            ring.exchange.bind(sends)?;
            ring.fill(1, world.rank())?;
            let begin = |ring: &mut Ring| {
                ring.exchange.start_recvs(&stream)?;
                ring.exchange.start_sends(&stream)
            };
            if world.rank() == 0 {
                begin(&mut ring)?;
            }
            Ring::new(world, &stream, AUTO)?;
            if world.rank() == 1 {
                begin(&mut ring)?;
            }
            ring.exchange.wait(&stream)?;
            stream.enqueue_move(&ring.unpacks[phase(1)])?;
            Ok(ring.check(1, 1 - world.rank())?)
        });
    }
}

/// Whoever begins them first: they are told apart though a caller has given them the same tags.
#[test]
fn exchanges_of_the_same_tags_are_told_apart() {
    for way in each_way() {
        on_ranks(2, |world| {
            let (rank, stream) = (world.rank(), stream_of(world, way.kind)?);
            let new = || {
                let (mut ring, sends) = Ring::new(world, &stream, way.backend)?;
                ring.exchange.bind(sends)?;
                Ok::<_, Error>(ring)
            };
            let begin = |ring: &mut Ring, epoch| {
                ring.fill(epoch, rank)?;
                ring.exchange.start_recvs(&stream)?;
                ring.exchange.start_sends(&stream)
            };
            let end = |ring: &mut Ring, epoch| {
                ring.exchange.wait(&stream)?;
                stream.enqueue_move(&ring.unpacks[phase(1)])?;
                ring.check(epoch, 1 - rank)
            };
            let mut rings = [new()?, new()?];
            let order = if rank == 0 { [0, 1] } else { [1, 0] };
            for one in order {
                begin(&mut rings[one], 10 + one as u32)?;
            }
            for one in order {
                end(&mut rings[one], 10 + one as u32)?;
            }
            // Nor is one that nobody has received the other's.
            let mut left = new()?;
            if rank == 1 {
                begin(&mut left, 20)?;
            }
            world.barrier()?;
            drop(left);
            let mut next = new()?;
            begin(&mut next, 30)?;
            Ok(end(&mut next, 30)?)
        });
    }
}

#[test]
fn an_exchange_made_by_hand_goes_round_a_ring() {
    for ranks in [2, 3, 4] {
        on_ranks(ranks, |world| {
            let mut random = Random::new(world.rank() as u64);
            for way in each_way() {
                let stream = stream_of(world, way.kind)?;
                let (mut ring, sends) = Ring::new(world, &stream, way.backend)?;
                ring.exchange.bind(sends)?;
                for epoch in 1..=8 {
                    delay(&stream, &mut random);
                    ring.fill(epoch, world.rank())?;
                    ring.exchange.start_recvs(&stream)?;
                    assert_eq!(ring.exchange.epoch(), epoch);
                    ring.exchange.start_sends(&stream)?;
                    ring.exchange.wait(&stream)?;
                    stream.enqueue_move(&ring.unpacks[phase(epoch)])?;
                    delay(&stream, &mut random);
                    ring.check(epoch, (world.rank() + world.size() - 1) % world.size())?;
                }
            }
            Ok(())
        });
    }
}

fn out_of_order(result: Result<(), Error>, expected: &'static str) {
    match result {
        Err(Error::OutOfOrder { call, .. }) if call == expected => {}
        other => panic!("{other:?} instead of an `{expected}` out of order"),
    }
}

#[test]
fn calls_out_of_order_are_refused_and_do_nothing() {
    on_ranks(2, |world| {
        for way in each_way() {
            let stream = stream_of(world, way.kind)?;
            let (mut ring, sends) = Ring::new(world, &stream, way.backend)?;
            out_of_order(ring.exchange.start_recvs(&stream), "start_recvs");
            out_of_order(ring.exchange.wait(&stream), "wait");
            ring.exchange.bind(sends.clone())?;
            out_of_order(ring.exchange.bind(sends), "bind");
            for epoch in 1..=3 {
                ring.fill(epoch, world.rank())?;
                out_of_order(ring.exchange.start_sends(&stream), "start_sends");
                out_of_order(ring.exchange.wait(&stream), "wait");
                ring.exchange.start_recvs(&stream)?;
                out_of_order(ring.exchange.start_recvs(&stream), "start_recvs");
                out_of_order(ring.exchange.wait(&stream), "wait");
                ring.exchange.start_sends(&stream)?;
                out_of_order(ring.exchange.start_sends(&stream), "start_sends");
                out_of_order(ring.exchange.start_recvs(&stream), "start_recvs");
                ring.exchange.wait(&stream)?;
                out_of_order(ring.exchange.wait(&stream), "wait");
                stream.enqueue_move(&ring.unpacks[phase(epoch)])?;
                ring.check(epoch, 1 - world.rank())?;
            }
        }
        Ok(())
    });
}

/// Whichever half of an exchange is called in a capture that it was not begun in, it goes on behind that.
#[test]
fn an_exchange_that_was_begun_before_a_capture_is_as_it_was_behind_it() {
    let refused = |result: Result<Period, Error>| {
        assert!(
            matches!(&result, Err(Error::NotCapturable { reason, .. }) if reason.contains("begun before")),
            "{result:?}"
        );
    };
    on_ranks(2, |world| {
        for way in each_way().filter(|way| way.backend != "standard") {
            let stream = stream_of(world, way.kind)?;
            let (mut ring, sends) = Ring::new(world, &stream, way.backend)?;
            ring.exchange.bind(sends)?;
            for epoch in 1..=3 {
                ring.fill(epoch, world.rank())?;
                ring.exchange.start_recvs(&stream)?;
                refused(stream.capture(|stream| ring.exchange.start_sends(stream)));
                ring.exchange.start_sends(&stream)?;
                refused(stream.capture(|stream| ring.exchange.wait(stream)));
                ring.exchange.wait(&stream)?;
                stream.enqueue_move(&ring.unpacks[phase(epoch)])?;
                ring.check(epoch, 1 - world.rank())?;
            }
        }
        Ok(())
    });
}
