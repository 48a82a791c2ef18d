//! What is kept back for what may follow it, so that one kernel does both, goes with it or without.

use super::*;

/// A table that copies within the last line of a region of four.
fn copy_in(region: &Region) -> Arc<MoveTable> {
    let place = |offset| region.place(offset, 16, "a place").expect("it is in the region");
    let (source, destination) = (place(192), place(208));
    let (source_strides, destination_strides) = ([16; 2], [16; 2]);
    let (counts, run_bytes, element, op) = ([1, 1], 16, ElementType::U8, Op::Replace);
    let one =
        Move { source, source_strides, destination, destination_strides, counts, run_bytes, element, op };
    Arc::new(MoveTable::new(&[vec![one]]).expect("it fits"))
}

/// A wait that moves have followed is kept back for them, and is on the queue in any case before something else is, or if
/// nothing follows.
#[test]
fn a_wait_goes_with_the_moves_that_follow_it_or_without() {
    let world = impatient();
    let stream = open_with_kernels(&world, |threads| threads.takes_moves = true);
    let region = stream.allocate(&world, 256).expect("memory");
    let ([awaited, told, _], waits) = (words(&region), wait_for(&[&words(&region)[0]]));
    let (unpack, other) = (copy_in(&region), copy_in(&region));
    let wait = |value| {
        awaited.set(value);
        stream.wait_values(&waits, value);
    };
    // They come twice before they are expected.
    for value in 1..=2 {
        wait(value);
        stream.put_move(&unpack);
    }
    stream.synchronize().expect("all have come");
    assert_eq!((stream.count(Count::KernelWaits), stream.count(Count::MergedArrivals)), (2, 0));
    // A host that is stopped in between for long sees them go apart.
    let together = |value: &u32| {
        let before = stream.count(Count::MergedArrivals);
        wait(*value);
        stream.put_move(&unpack);
        stream.synchronize().expect("it has come");
        stream.count(Count::MergedArrivals) == before + 1
    };
    assert!((3..50).any(|value| together(&value)), "never together");
    let (waited, arrived) = (stream.count(Count::KernelWaits), stream.count(Count::MergedArrivals));
    // Others, something else, and nothing.
    wait(50);
    stream.put_move(&other);
    wait(51);
    stream.wait_values(&wait_for(&[&told]), 0);
    until("what is behind it", || stream.count(Count::KernelWaits) == waited + 3);
    wait(52);
    until("the last", || stream.count(Count::KernelWaits) == waited + 4);
    assert_eq!(stream.count(Count::MergedArrivals), arrived);
    // One that is kept back is in time for its end.
    stream.wait_values(&waits, 53);
    let late = stream.synchronize();
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
}

/// A send that says so in a word once all conditions have come to the epoch.
fn send_of(region: &Region, conditions: &[&Word], told: &Word) -> Arc<TriggeredSend> {
    let message = Message { moves: copy_in(region), stamp: None, completion: (told.clone(), Rule::Set) };
    Arc::new(TriggeredSend {
        conditions: conditions.iter().map(|word| (*word).clone()).collect(),
        needed: |epoch| epoch,
        messages: vec![message],
        group: next_group(),
        on_device: OnDevice::default(),
    })
}

/// Signals that a send has followed are kept back for it, and are on the queue in any case before something else is, or if
/// nothing follows.
#[test]
fn signals_go_with_the_send_that_follows_them_or_without() {
    let world = world();
    let stream = open_with_kernels(&world, |threads| threads.takes_moves = true);
    let region = stream.allocate(&world, 256).expect("memory");
    let [ready, told, clear] = words(&region);
    let (signals, send) = (set(&ready), send_of(&region, &[], &told));
    let signal = |value| stream.write_values(&signals, value);
    // A host that is stopped in between for long sees them go apart, and so does it the first time.
    let together = |value: &u32| {
        let before = stream.count(Count::MergedSignals);
        signal(*value);
        stream.enqueue_send(&send, *value);
        stream.synchronize().expect("nobody is waited for");
        assert_eq!([&ready, &told].map(|word| word.cell().load()), [*value; 2]);
        stream.count(Count::MergedSignals) == before + 1
    };
    assert!(!together(&1) && (2..50).any(|value| together(&value)), "the first time, or never together");
    let (sent, merged) = (stream.count(Count::MergedSends), stream.count(Count::MergedSignals));
    // Nothing follows, something else, and a send that has to be put off.
    signal(50);
    until("the signal alone", || ready.cell().reached(50));
    signal(51);
    let awaited = region.word(192, Role::Completion, 0, 0).expect("it is in the region");
    stream.wait_values(&wait_for(&[&awaited]), 51);
    until("the signal before a wait", || ready.cell().reached(51));
    awaited.set(51);
    signal(52);
    stream.enqueue_send(&send_of(&region, &[&clear], &told), 52);
    until("the signal beside a send that waits", || ready.cell().reached(52));
    assert_eq!((told.cell().reached(52), stream.count(Count::MergedSends)), (false, sent));
    clear.set(52);
    until("the send", || told.cell().reached(52));
    // A send that moves nothing, which is no kernel of its own.
    let moves = Arc::new(MoveTable::new(&[]).expect("it fits"));
    let message = Message { moves, stamp: None, completion: (told.clone(), Rule::Set) };
    let bare = TriggeredSend {
        conditions: Vec::new(),
        needed: |epoch| epoch,
        messages: vec![message],
        group: next_group(),
        on_device: OnDevice::default(),
    };
    signal(53);
    stream.enqueue_send(&Arc::new(bare), 53);
    stream.synchronize().expect("nobody is waited for");
    assert_eq!([&ready, &told].map(|word| word.cell().load()), [53; 2]);
    // Signals that nothing has followed at the end.
    signal(54);
    stream.synchronize().expect("nobody is waited for");
    assert_eq!((ready.cell().load(), stream.count(Count::MergedSignals)), (54, merged));
}

/// While the device still waits for what was before, a send that was put off goes in time, and the device waits behind it
/// without the thread.
#[test]
fn a_send_that_was_put_off_goes_while_the_device_waits() {
    let world = world();
    let stream = open_with_kernels(&world, |threads| threads.takes_moves = true);
    let region = stream.allocate(&world, 256).expect("memory");
    let [awaited, told, clear] = words(&region);
    stream.wait_values(&wait_for(&[&awaited]), 1);
    stream.enqueue_send(&send_of(&region, &[&clear], &told), 1);
    stream.wait_values(&wait_for(&[&awaited]), 2);
    until("the first wait", || stream.count(Count::KernelWaits) == 1);
    clear.set(1);
    until("the send, and the wait behind it", || {
        (stream.count(Count::MergedSends), stream.count(Count::KernelWaits)) == (1, 2)
    });
    assert!(!told.cell().reached(1), "it is behind the first wait");
    awaited.set(2);
    stream.synchronize().expect("all have come");
    assert!(told.cell().reached(1));
}

/// In a graph too, each with its own: the same send may be behind several.
#[test]
fn signals_go_with_the_send_that_follows_them_in_a_graph() {
    let world = world();
    let stream = open_with_kernels(&world, |threads| {
        (threads.traits.has_graphs, threads.takes_moves) = (true, true);
    });
    let region = stream.allocate(&world, 256).expect("memory");
    let [first, second, told] = words(&region);
    let (signals, send) = ([set(&first), set(&second)], send_of(&region, &[], &told));
    let due = |value| Due { value, count: 0 };
    let steps = signals.iter().zip([10, 20]).flat_map(|(signals, value)| {
        [Step::Signal(signals.clone(), due(value)), Step::Send(send.clone(), due(value + 1))]
    });
    let period = Arc::new(Sequence::new(steps.collect(), vec![100]));
    stream.put(Operation::Prepare(period.clone()));
    stream.put(Operation::Replay(Box::new(Replay { sequence: period.clone(), moved: vec![0], times: 2 })));
    stream.synchronize().expect("nobody is waited for");
    assert_eq!((period.is_recorded(), stream.count(Count::Graphs)), (true, 2));
    assert_eq!([&first, &second, &told].map(|word| word.cell().load()), [110, 120, 121]);
    // What the graph reads stays, whatever else the send follows meanwhile.
    let other = set(&region.word(192, Role::Completion, 0, 0).expect("it is in the region"));
    for value in 1..=3 {
        stream.write_values(&other, value);
        stream.enqueue_send(&send, value);
        stream.synchronize().expect("nobody is waited for");
    }
    stream.put(Operation::Replay(Box::new(Replay { sequence: period, moved: vec![200], times: 1 })));
    stream.synchronize().expect("nobody is waited for");
    assert_eq!([&first, &second, &told].map(|word| word.cell().load()), [210, 220, 221]);
}

/// What was kept back for a send that has followed it before goes with it, and is on the queue in any case before something
/// else is, or if nothing follows.
#[test]
fn a_send_goes_with_what_has_arrived_before_it_or_without() {
    let world = impatient();
    let stream = open_with_kernels(&world, |threads| threads.takes_moves = true);
    let region = stream.allocate(&world, 256).expect("memory");
    let ([awaited, ready, told], unpack) = (words(&region), copy_in(&region));
    let (waits, signals, send) = (wait_for(&[&awaited]), set(&ready), send_of(&region, &[], &told));
    let arrive = |value| {
        stream.wait_values(&waits, value);
        stream.put_move(&unpack);
    };
    // The first times they go apart, and so they do on a host that is stopped in between for long.
    let together = |value: &u32| {
        let before = stream.count(Count::Relays);
        arrive(*value);
        stream.write_values(&signals, *value);
        stream.enqueue_send(&send, *value);
        std::thread::sleep(Duration::from_millis(1));
        assert!(!ready.cell().reached(*value) && !told.cell().reached(*value), "they have not waited");
        awaited.set(*value);
        stream.synchronize().expect("it has come");
        assert_eq!([&ready, &told].map(|word| word.cell().load()), [*value; 2]);
        stream.count(Count::Relays) == before + 1
    };
    assert!(
        (1..4).all(|value| !together(&value)) && (4..50).any(|value| together(&value)),
        "at once, or never"
    );
    // A host that is stopped in between sees moves go apart from their wait, but not waits from each other.
    let counts =
        || [stream.count(Count::Relays), stream.count(Count::KernelWaits), stream.count(Count::MergedSends)];
    let [relays, waited, sent] = counts();
    // Nothing behind it, another send without signals, a send that has to be put off, and signals alone.
    awaited.set(60);
    arrive(50);
    until("the wait alone", || stream.count(Count::KernelWaits) == waited + 1);
    arrive(51);
    stream.enqueue_send(&send_of(&region, &[], &told), 51);
    until("another send", || told.cell().reached(51));
    arrive(52);
    let clear = region.word(192, Role::Completion, 0, 0).expect("it is in the region");
    clear.cell().store(0);
    stream.enqueue_send(&send_of(&region, &[&clear], &told), 52);
    until("the wait before a send that waits", || stream.count(Count::KernelWaits) == waited + 3);
    clear.set(52);
    until("that send", || told.cell().reached(52));
    arrive(53);
    stream.write_values(&signals, 53);
    until("signals that nothing follows", || ready.cell().reached(53));
    assert_eq!(counts(), [relays, waited + 4, sent + 2]);
    // Before other signals, behind those that may go with a send and behind the moves.
    let other = set(&clear);
    for (value, is_behind_signals) in [(61, true), (62, false)] {
        arrive(value);
        if is_behind_signals {
            stream.write_values(&signals, value);
        }
        stream.write_values(&other, value);
        std::thread::sleep(Duration::from_millis(1));
        assert!(!ready.cell().reached(value) && !clear.cell().reached(value), "they have not waited");
        awaited.set(value);
        stream.synchronize().expect("it has come");
        assert!(clear.cell().reached(value) && ready.cell().reached(61));
    }
    // One that is kept back is in time for the end of the stream.
    arrive(70);
    let late = stream.synchronize();
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
}

/// In a graph too, with the signals before it and without.
#[test]
fn a_send_goes_with_what_has_arrived_before_it_in_a_graph() {
    let world = world();
    let mut kernels = Arc::default();
    let stream = open_with_kernels(&world, |threads| {
        (threads.traits.has_graphs, threads.takes_moves) = (true, true);
        kernels = threads.in_graphs.clone();
    });
    let region = stream.allocate(&world, 256).expect("memory");
    let ([awaited, ready, told], unpack) = (words(&region), copy_in(&region));
    let other = region.word(192, Role::Completion, 0, 0).expect("it is in the region");
    let due = |value| Due { value, count: 0 };
    for signals in [None, Some(set(&ready))] {
        let mut steps = vec![Step::Wait(wait_for(&[&awaited]), due(1)), Step::Move(unpack.clone())];
        steps.extend(signals.iter().map(|signals| Step::Signal(signals.clone(), due(2))));
        steps.extend([Step::Send(send_of(&region, &[], &told), due(3)), Step::Signal(set(&other), due(4))]);
        let period = Arc::new(Sequence::new(steps, vec![100]));
        [&awaited, &ready, &told, &other].iter().for_each(|word| word.cell().store(0));
        stream.put(Operation::Prepare(period.clone()));
        stream.put(Operation::Replay(Box::new(Replay {
            sequence: period.clone(),
            moved: vec![0],
            times: 2,
        })));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!([&ready, &told].map(|word| word.cell().load()), [0; 2], "they have not waited");
        awaited.set(101);
        stream.synchronize().expect("it has come");
        let before = if signals.is_some() { 102 } else { 0 };
        assert_eq!([&ready, &told, &other].map(|word| word.cell().load()), [before, 103, 104]);
        let kernels = std::mem::take(&mut *kernels.lock().expect("nobody panics"));
        assert_eq!(kernels, ["a wait with a send", "a signal", "counts"], "{signals:?}");
    }
}

/// Where the wait of its group comes next, the kernel waits for the receivers of a send, too, and the thread goes on; where
/// anything else comes they hold up nothing.
#[test]
fn a_kernel_waits_for_the_receivers_of_what_it_sends() {
    let world = impatient();
    let stream = open_with_kernels(&world, |threads| threads.takes_moves = true);
    let region = stream.allocate(&world, 256).expect("memory");
    let ([awaited, told, clear], unpack) = (words(&region), copy_in(&region));
    let ready = region.word(192, Role::Completion, 0, 0).expect("it is in the region");
    let (waits, signals, send) = (wait_for(&[&awaited]), set(&ready), send_of(&region, &[&clear], &told));
    let of_group = Arc::new(WaitSet::new(Vec::new(), Vec::new(), send.group));
    let enqueue = |value| {
        stream.wait_values(&waits, value);
        stream.put_move(&unpack);
        stream.write_values(&signals, value);
        stream.enqueue_send(&send, value);
    };
    let together = |value: &u32| {
        let before = stream.count(Count::Relays);
        enqueue(*value);
        stream.wait_values(&of_group, *value);
        awaited.set(*value);
        // They may be ready only once they have been told.
        until("what is told before", || ready.cell().reached(*value));
        std::thread::sleep(Duration::from_millis(1));
        assert!(!told.cell().reached(*value), "its receiver is not ready");
        clear.set(*value);
        stream.synchronize().expect("all have come");
        assert!(told.cell().reached(*value));
        stream.count(Count::Relays) == before + 1
    };
    assert!((1..50).any(|value| together(&value)), "never together");
    let relays = stream.count(Count::Relays);
    let more = stream.allocate(&world, 64).expect("memory");
    let beside = more.word(0, Role::Completion, 0, 0).expect("it is in the region");
    // Another wait, which is not for this send: the stream goes on though the receiver is not ready.
    enqueue(50);
    stream.wait_values(&wait_for(&[&awaited]), 51);
    stream.write_values(&set(&beside), 50);
    awaited.set(51);
    until("what is behind it", || ready.cell().reached(50) && beside.cell().reached(50));
    assert!(!told.cell().reached(50));
    clear.set(50);
    until("that send", || told.cell().reached(50));
    stream.synchronize().expect("all have come");
    // Nothing: what it was kept back with goes on the queue.
    enqueue(51);
    until("its signals", || ready.cell().reached(51));
    clear.set(51);
    until("the send", || told.cell().reached(51));
    stream.synchronize().expect("all have come");
    assert_eq!(stream.count(Count::Relays), relays);
    // Whoever is never ready is named, by the word that is waited for behind what has arrived.
    let late = (52..90).find_map(|value| {
        enqueue(value);
        stream.wait_values(&of_group, value);
        awaited.set(value);
        until("its signals", || ready.cell().reached(value));
        let relayed = stream.count(Count::Relays) - relays;
        // The first times they go apart, since nothing came behind it, and on a host that is stopped in between.
        if relayed == 0 {
            clear.set(value);
        }
        let done = stream.synchronize();
        assert_eq!(told.cell().reached(value), done.is_ok());
        done.err()
    });
    let Some(Error::TimedOut { found, wanted, .. }) = late else { panic!("never together, or {late:?}") };
    assert!(
        found == clear.cell().load() && found < wanted && awaited.cell().reached(wanted),
        "{found}, {wanted}"
    );
}

/// Where the device has no unit to spare the thread waits for what was kept back: signals behind a wait that was in vain are
/// not told.
#[test]
fn signals_behind_a_wait_in_vain_are_not_told() {
    let world = impatient();
    let device = device(|threads| (threads.traits.compute_units, threads.takes_moves) = (2, true));
    let open = || Stream::open(&world, StreamOptions::default(), Some(device.clone()), Ways::default());
    let [stream, other] = [(); 2].map(|()| open().expect("a queue"));
    let region = stream.allocate(&world, 256).expect("memory");
    let ([awaited, told, ready], unpack) = (words(&region), copy_in(&region));
    let (waits, send) = (wait_for(&[&awaited]), send_of(&region, &[], &told));
    let arrive = |value| {
        stream.wait_values(&waits, value);
        stream.put_move(&unpack);
    };
    let together = |value: u32| {
        arrive(value);
        stream.enqueue_send(&send, value);
        awaited.set(value);
        stream.synchronize().expect("it has come");
        stream.count(Count::Relays) > 0
    };
    assert!((1..50).any(together), "never together");
    // Something on the other stream has the only unit.
    other.wait_values(&wait_for(&[&awaited]), 60);
    until("the other wait", || other.count(Count::KernelWaits) == 1);
    arrive(60);
    stream.write_values(&set(&ready), 60);
    stream.synchronize().expect_err("nothing has come");
    assert!(!ready.cell().reached(60), "told, though what is before it has not come");
    other.synchronize().expect_err("nothing has come");
}
