//! Exchanges between ranks on a device that lacks something, or whose kernels have a mistake.

use super::choice;
use super::driver::OpenclDriver;
use super::tests::{TURNS, device_that_signals, device_with, stream_of, without_fine_grain};
use crate::backend::{BACKENDS, Direct, ExchangeSpec, MessageSpec, Slot, match_exchange};
use crate::device::accelerator::Accelerator;
use crate::device::queue::{Engine, OWN_KERNELS};
use crate::device::{Buffer, Count, Extents, KernelText, Move, MoveTable, Signals, Waits, Ways};
use crate::element::{ElementType, Op};
use crate::error::Error;
use crate::fabric::{Place, phase};
use crate::locks::lock;
use crate::world::{World, WorldOptions};
use std::sync::Arc;
use std::time::Duration;

/// Every second element of a row of this many is sent.
const ROW: Extents = Extents { points: [1, 1, 64], components: 1 };

fn every_second(
    source: Place,
    strides: [usize; 2],
    destination: Place,
    op: Op,
) -> Result<Arc<MoveTable>, Error> {
    let one = Move {
        source,
        source_strides: [0, strides[0]],
        destination,
        destination_strides: [0, strides[1]],
        counts: [1, 32],
        run_bytes: 8,
        element: ElementType::I64,
        op,
    };
    MoveTable::new(&[vec![one]]).map(Arc::new)
}

/// What has come of six epochs, which `op` unpacks, how many sends were one kernel, and how many waits with what they wait
/// for.
fn rank_main(
    world: &World,
    device: &Arc<dyn Accelerator>,
    ways: Ways,
    (backend, op): (&str, Op),
) -> Result<(Vec<i64>, u64, u64), Error> {
    let stream = stream_of(world, device, ways)?;
    let [mut own, sums] =
        [Buffer::<i64>::zeros(world, &stream, ROW)?, Buffer::<i64>::zeros(world, &stream, ROW)?];
    let message = MessageSpec {
        peer: 1 - world.rank(),
        tag: 0,
        elements: vec![(ElementType::I64, 32)],
        bytes: 256,
        run_bytes: 8,
        direct: Direct::Never,
        ghosts: Vec::new(),
    };
    let spec = ExchangeSpec { sends: vec![message.clone()], recvs: vec![message], last_epoch: 0 };
    let mut exchange = match_exchange(world, &stream, backend, spec)?;
    let pack = |phase| match exchange.send_slot(0, phase) {
        Slot::Packed(place) => every_second(own.place([0; 3])?, [16, 8], place, Op::Replace),
        Slot::Ghosts(_) => unreachable!("the receiver has said `Direct::Never`"),
    };
    let unpack = |phase| {
        let arrived = exchange.recv_slot(0, phase).expect("packed messages are unpacked");
        every_second(arrived, [8, 16], sums.place([0, 0, 1])?, op)
    };
    let (packing, unpacking) = ([pack(0)?, pack(1)?], [unpack(0)?, unpack(1)?]);
    exchange.bind(vec![packing])?;
    for epoch in 1..=6 {
        own.with_host_mut(ROW.whole(), |mut view| {
            let number = |index: usize| 1000 * world.rank() as i64 + epoch * index as i64;
            view.iter_mut().enumerate().for_each(|(index, value)| *value = number(index));
        })?;
        exchange.start_recvs(&stream)?;
        exchange.start_sends(&stream)?;
        exchange.wait(&stream)?;
        stream.put_move(&unpacking[phase(exchange.epoch())]);
    }
    Ok((sums.copy_out(ROW.whole())?, stream.count(Count::MergedSends), stream.count(Count::MergedArrivals)))
}

/// What has to arrive at a rank: of epochs 1 to 6, at the places behind those that were sent.
fn expected(rank: usize) -> Vec<i64> {
    let sum = |index: usize| match index % 2 {
        0 => 0,
        _ => 6 * 1000 * (1 - rank) as i64 + 21 * (index - 1) as i64,
    };
    (0..64).map(sum).collect()
}

/// By ranks.
fn run(device: &Arc<dyn Accelerator>, signals: Signals, backend: &str) -> Vec<(Vec<i64>, u64)> {
    run_on([device; 2], signals, backend)
}

/// As [`run`], each rank on a device of its own.
fn run_on(devices: [&Arc<dyn Accelerator>; 2], signals: Signals, backend: &str) -> Vec<(Vec<i64>, u64)> {
    let ways = Ways { waits: Waits::Proxy, signals, ..Ways::default() };
    let all = run_with(devices, [ways; 2], (backend, Op::Sum)).into_iter();
    all.map(|(sums, sends, arrivals)| {
        assert_eq!(arrivals, 0, "threads wait");
        (sums, sends)
    })
    .collect()
}

fn run_with(
    devices: [&Arc<dyn Accelerator>; 2],
    ways: [Ways; 2],
    how: (&str, Op),
) -> Vec<(Vec<i64>, u64, u64)> {
    let options = WorldOptions { timeout: Some(Duration::from_secs(20)), ..WorldOptions::default() };
    let all = World::threads(2, options, |world| {
        let rank = world.rank();
        rank_main(&world, devices[rank], ways[rank], how)
    });
    let all = all.expect("threads can be started").into_iter().collect::<Result<_, _>>();
    all.unwrap_or_else(|error: Error| panic!("{how:?}: {error}"))
}

#[test]
fn all_backends_between_ranks_that_signal_by_their_threads() {
    let Some(device) = device_with(without_fine_grain) else { return };
    for row in BACKENDS {
        for (rank, (sums, merged)) in run(&device, Signals::Kernel, row.name).into_iter().enumerate() {
            assert_eq!((sums, merged), (expected(rank), 0), "rank {rank}, {}", row.name);
        }
    }
    let world = World::alone().expect("a world of one rank");
    let refused = stream_of(&world, &device, Ways { signals: Signals::Merged, ..Ways::default() });
    let Err(Error::DeviceUnavailable { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("kernels cannot signal on it"), "{reason}");
}

/// The device with that text in place of the streams' own kernels.
fn device_of(own: &'static KernelText) -> Arc<dyn Accelerator> {
    let (index, (device, found)) = choice::choose("").expect("there is one");
    let driver =
        OpenclDriver::new(index, device, found, true).expect("it can be opened").with_own_kernels(own);
    Arc::new(Engine::new(driver).expect("they compile"))
}

/// As two GPUs of one model, whose memory the threads of ranks do not address.
#[test]
fn all_backends_between_ranks_on_two_devices_of_one_name() {
    if device_with(|_| ()).is_none() {
        return;
    }
    let _turn = lock(&TURNS);
    let devices = [(); 2].map(|()| device_of(&OWN_KERNELS));
    assert_eq!(devices[0].name(), devices[1].name());
    for signals in [Signals::Kernel, Signals::Merged] {
        for row in BACKENDS {
            let found = run_on([&devices[0], &devices[1]], signals, row.name);
            for (rank, (sums, merged)) in found.into_iter().enumerate() {
                assert_eq!((sums, merged), (expected(rank), 0), "rank {rank}, {}, {signals:?}", row.name);
            }
        }
    }
}

#[test]
fn moves_to_the_memory_of_another_device_are_refused() {
    if device_with(|_| ()).is_none() {
        return;
    }
    let world = World::alone().expect("a world of one rank");
    let streams =
        [(); 2].map(|()| stream_of(&world, &device_of(&OWN_KERNELS), Waits::Proxy).expect("a queue"));
    let [own, other] = [0, 1].map(|of| Buffer::<i64>::zeros(&world, &streams[of], ROW).expect("memory"));
    let [here, there] = [&own, &other].map(|buffer| buffer.place([0; 3]).expect("it is not empty"));
    streams[0].put_move(&every_second(here, [16, 8], there, Op::Replace).expect("it fits"));
    let refused = streams[0].synchronize();
    assert!(matches!(refused, Err(Error::WrongDevice { what: "the memory of a move", .. })), "{refused:?}");
}

/// The streams' own kernels, changed.
fn changed(changes: &[(&str, &str)]) -> &'static KernelText {
    let mut source = OWN_KERNELS.source.to_owned();
    for (from, to) in changes {
        assert_eq!(source.matches(from).count(), 1, "{from}");
        source = source.replace(from, to);
    }
    // A text is static: the test's is never freed.
    Box::leak(Box::new(KernelText { source: source.leak(), ..OWN_KERNELS }))
}

/// What the kernel of a send moves, in its text.
const MOVED: &str =
    "if (!stopped) halo_move_all(first, first_piece, pieces, chunks, count, length);\n    GROUP_BARRIER;";

/// Payloads that take long are stored before they are signalled; were it the other way round, it would be seen. Those of
/// rank 1 take long: rank 0, which does not, has to wait.
#[test]
fn a_signal_before_its_payload_is_seen() {
    if device_that_signals("a signal before its payload").is_none() {
        return;
    }
    // Some 100 ms in an epoch, so that rank 0 unpacks meanwhile in at least one of six, however busy the machine is.
    let slow =
        "if (*(GLOBAL const i64 *)pieces[0].source >= 1000) for (volatile int n = 0; n < 40000000; ++n) {}";
    // The device is busy meanwhile.
    let _turn = lock(&TURNS);
    let moved = MOVED;
    let late = format!("if (ITEM == 0) {{ {slow} }} {moved}");
    let told = "halo_tell(first_notice, value);\n    for (u64 n = 1; n < told; ++n) halo_tell(halo_notice(notices + n), value);";
    let early = format!(
        "if (ITEM == 0) for (u64 n = 0; n < told; ++n) halo_tell(halo_notice(notices + n), value); {late}"
    );
    let (right, wrong) = (changed(&[(moved, &late)]), changed(&[(told, ""), (moved, &early)]));
    for (text, is_right) in [(right, true), (wrong, false)] {
        let device = device_of(text);
        for row in BACKENDS.iter().filter(|row| row.name != "standard") {
            let found = run(&device, Signals::Merged, row.name);
            for (rank, (sums, merged)) in found.into_iter().enumerate() {
                assert_eq!(merged, 6, "one kernel an epoch, rank {rank}, {}", row.name);
                if is_right || rank == 0 {
                    assert_eq!(sums == expected(rank), is_right, "rank {rank}, {}: {sums:?}", row.name);
                }
            }
        }
    }
}

/// A kernel that waits moves what has arrived; were it to do so without waiting, it would be seen. Payloads of rank 1 take
/// long, so that rank 0 has to wait; the device has room for one that does.
#[test]
fn what_has_not_arrived_is_not_unpacked() {
    if device_that_signals("kernels that wait and unpack").is_none() {
        return;
    }
    let _turn = lock(&TURNS);
    let moved = MOVED;
    let late = format!(
        "if (ITEM == 0 && *(GLOBAL const i64 *)pieces[0].source >= 1000) \
         for (volatile int n = 0; n < 4000000; ++n) {{}} {moved}"
    );
    let wait = "WAIT(awaited, (GLOBAL word *)words[n])";
    let (right, wrong) = (changed(&[(moved, &late)]), changed(&[(moved, &late), (wait, "int stopped = 0;")]));
    let last = |rank: usize| -> Vec<i64> {
        let of_last =
            |index: i64| if index % 2 == 0 { 0 } else { 1000 * (1 - rank as i64) + 6 * (index - 1) };
        (0..64).map(of_last).collect()
    };
    for (text, signals, is_right) in
        [(right, Signals::Merged, true), (right, Signals::Kernel, true), (wrong, Signals::Merged, false)]
    {
        let device = device_of(text);
        let ways = [Waits::Kernel, Waits::Proxy].map(|waits| Ways { waits, signals, ..Ways::default() });
        // Sends of these wait for nobody, so that kernels wait in every epoch.
        for backend in ["st-rsend", "notified"] {
            // All but the first two of each phase, which tell that there are moves behind the wait.
            let joined = if signals == Signals::Merged { 2 } else { 0 };
            let is_seen = (0..20).any(|_| {
                let found = run_with([&device, &device], ways, (backend, Op::Replace));
                assert_eq!(found[1].2, 0, "the thread of rank 1 waits");
                let are_right = [0, 1].map(|rank| found[rank].0 == last(rank));
                assert!(!is_right || are_right == [true; 2], "{backend}, {signals:?}: {found:?}");
                // A host that is kept from enqueueing the moves for long sees them go apart, and rank 0 may be late.
                found[0].2 == joined && are_right[0] == is_right
            });
            assert!(is_seen, "{backend}, {signals:?}, {is_right}");
        }
    }
}
