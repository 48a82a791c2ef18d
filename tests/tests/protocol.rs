//! What each backend says to whom, and in which order: the table that makes them different
//! protocols (design, section 4), counted on a recording fabric.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use streamhalo::ElementType::{F64, I64, U8};
use streamhalo::comm::backend::BACKENDS;
use streamhalo::comm::fabric::{Event, Recording, Role};
use streamhalo::{Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, StreamHalo, StreamKind, World};
use streamhalo_tests::{
    FieldSet, FieldSpec, Oracle, Origin, Scenario, TIMEOUT, each_way, expect_all, other_device, stream_of,
    walled_outcomes, watchdog, ways_of,
};

/// The longest message that `standard` sends without asking.
const EAGER_BYTES: usize = 8160;

/// An exchange whose messages are counted.
#[derive(Debug, Clone)]
struct Case {
    cells: [usize; 2],
    periodic: [bool; 2],
    layout: [usize; 2],
    pattern: Pattern,
    fields: Vec<FieldSpec>,
}

const CELLS: FieldSpec = FieldSpec::array(F64, Entity::Cell, 1);
const ALTERNATING: FieldSpec = FieldSpec::alternating(F64, Entity::Cell, 1);

impl Case {
    fn new(cells: [usize; 2], layout: [usize; 2], fields: &[FieldSpec]) -> Self {
        Self { cells, periodic: [true; 2], layout, pattern: Pattern::All, fields: fields.to_vec() }
    }

    fn ranks(&self) -> usize {
        self.layout.iter().product()
    }

    fn grid(&self, world: &World) -> Result<LocalGrid<2>, HaloError> {
        Ok(GlobalGrid::new(self.cells, self.periodic)?.partition_as(world, self.layout)?.local(1)?)
    }

    /// Payload bytes from each rank to each other one, by the oracle.
    fn bytes(&self, grid: &LocalGrid<2>) -> Vec<Vec<usize>> {
        let mut bytes = vec![vec![0; self.ranks()]; self.ranks()];
        for field in &self.fields {
            let oracle = Oracle::new(grid.subdomain(), field.entity, &self.pattern, [1, 1]);
            for (sender, row) in bytes.iter_mut().enumerate() {
                for (receiver, sent) in row.iter_mut().enumerate().filter(|(receiver, _)| *receiver != sender)
                {
                    let there = oracle.of_rank(receiver);
                    for local in there.entries() {
                        let Origin::Ghost { offset, .. } = there.origin(local) else { continue };
                        let from = grid.partition().neighbor(receiver, offset).expect("a filled ghost");
                        if from == sender {
                            *sent += field.components * field.element.bytes();
                        }
                    }
                }
            }
        }
        bytes
    }
}

/// What one rank must do to `peer` in an exchange, in order. `given` and `taken` are the bytes that
/// it sends there and gets from there, `regions` how many the payload goes to.
fn expected(backend: &str, given: usize, taken: usize, regions: usize) -> Vec<Role> {
    let before = |says: bool, role: Role| if says && taken > 0 { vec![role] } else { vec![] };
    let one_way = given == 0;
    let payload = |after: Option<Role>| {
        let mut roles = vec![Role::Payload; if given > 0 { regions } else { 0 }];
        roles.extend(after.filter(|_| given > 0));
        roles
    };
    match backend {
        "standard" => {
            let mut roles = if given > EAGER_BYTES { vec![Role::ReadyToSend] } else { vec![] };
            roles.extend(before(taken > EAGER_BYTES, Role::ClearToSend));
            [roles, payload(None)].concat()
        }
        "st-send" => [before(true, Role::ClearToSend), payload(Some(Role::Completion))].concat(),
        "st-rsend" => [before(one_way, Role::Credit), payload(Some(Role::Completion))].concat(),
        "active-rma" => [before(true, Role::Exposure), payload(Some(Role::Completion))].concat(),
        "notified" => [before(one_way, Role::Credit), payload(Some(Role::Notification))].concat(),
        other => panic!("the table of section 4 has no row for backend `{other}`: add it here"),
    }
}

/// Runs `exchange` on every rank in every way, several times, and checks what it has done to each
/// peer. `path` says which path the messages of a backend must take.
fn check(case: &Case, path: impl Fn(&str) -> &'static str + Sync, scatter: bool) {
    let ranks = World::recorded_threads(case.ranks(), watchdog(), |world, recording| {
        let on_device = other_device().into_iter().flat_map(|_| ways_of(StreamKind::Device));
        for way in each_way().chain(on_device) {
            check_way(case, &world, &recording, way, path(way.backend), scatter)?;
        }
        Ok::<(), HaloError>(())
    });
    expect_all(ranks.expect("threads can be started"));
    if other_device().is_some() {
        // Staged through the host's memory: the same protocols, and all messages packed.
        let packed = |backend| Some(path(backend)).filter(|path| !path.starts_with("straight"));
        expect_all(walled_outcomes(case.ranks(), watchdog(), |world, recording| {
            ways_of(StreamKind::Device).try_for_each(|way| {
                check_way(case, world, recording, way, packed(way.backend).unwrap_or("packed"), scatter)
            })
        }));
    }
}

fn check_way(
    case: &Case,
    world: &World,
    recording: &Recording,
    way: Scenario,
    path: &str,
    scatter: bool,
) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let grid = case.grid(world)?;
    let mut fields = FieldSet::new(&grid, &stream, &case.fields, &case.pattern, [1, 1])?;
    let builder = StreamHalo::builder(world, &stream).backend(way.backend).pattern(case.pattern.clone());
    let builder = if scatter { builder.scatter(Op::Sum) } else { builder };
    let mut halo = builder.build([1, 1], &mut fields)?;
    for route in halo.routes().iter().filter(|_| !scatter) {
        assert!(route.path.starts_with(path), "`{}` instead of `{path}` in {case:?}, {way:?}", route.path);
    }
    let mut bytes = case.bytes(&grid);
    if scatter {
        // The same messages the other way round.
        bytes = (0..world.size()).map(|from| bytes.iter().map(|row| row[from]).collect()).collect();
    }
    let regions = if !scatter && path.starts_with("straight") { case.fields.len() } else { 1 };
    recording.take();
    for epoch in 1..=4 {
        if scatter {
            halo.enqueue_scatter(&mut fields)?;
        } else {
            fields.fill(epoch)?;
            halo.enqueue_gather(&mut fields)?;
            fields.check(epoch)?;
        }
        fields.swap();
        stream.synchronize()?;
        let events = recording.take();
        for (peer, row) in bytes.iter().enumerate() {
            let (given, taken) = (bytes[world.rank()][peer], row[world.rank()]);
            let to_peer: Vec<Event> = events.iter().copied().filter(|event| event.to == peer).collect();
            let roles: Vec<Role> = to_peer.iter().map(|event| event.role).collect();
            assert_eq!(
                roles,
                expected(way.backend, given, taken, regions),
                "rank {} to {peer} in epoch {epoch} of {case:?}, {way:?}",
                world.rank()
            );
            assert_eq!(to_peer.iter().map(|event| event.bytes).sum::<usize>(), given, "{case:?}, {way:?}");
            assert!(to_peer.iter().all(|event| event.from == world.rank()));
        }
        let last_signal = events.iter().rposition(|event| is_readiness(event.role));
        let first_payload = events.iter().position(|event| event.role == Role::Payload);
        if way.backend != "standard" {
            assert!(
                last_signal < first_payload || first_payload.is_none(),
                "{events:?} in {case:?}, {way:?}"
            );
        }
    }
    fields.assert_right(&(case, way))
}

fn is_readiness(role: Role) -> bool {
    matches!(role, Role::ClearToSend | Role::Credit | Role::Exposure)
}

/// Two-way, one-way and mixed pairs, more ranks than two, and the same peer on both sides.
fn neighbourhoods(cells: [usize; 2], fields: &[FieldSpec]) -> Vec<Case> {
    let case = Case::new(cells, [1, 2], fields);
    let offsets = |given: &[[i32; 2]]| Pattern::Offsets(given.iter().map(|o| o.to_vec()).collect());
    vec![
        case.clone(),
        Case { layout: [3, 1], ..case.clone() },
        Case { layout: [2, 2], periodic: [false, true], ..case.clone() },
        Case { layout: [2, 1], pattern: Pattern::Faces, ..case.clone() },
        Case { layout: [3, 1], periodic: [false; 2], pattern: offsets(&[[1, 0]]), ..case.clone() },
        Case { layout: [3, 1], pattern: offsets(&[[1, 0]]), ..case.clone() },
        Case { layout: [2, 2], periodic: [false; 2], pattern: offsets(&[[0, 1], [1, 0], [-1, 0]]), ..case },
    ]
}

#[test]
fn small_messages_travel_with_their_signal() {
    for case in neighbourhoods([6, 6], &[FieldSpec::array(U8, Entity::Cell, 3)]) {
        for scatter in [false, true] {
            let path = |backend: &str| match backend {
                "standard" => "packed, eager",
                _ => "packed, with its signal",
            };
            check(&case, path, scatter);
        }
    }
}

#[test]
fn packed_messages_are_one_for_each_peer_whatever_the_fields() {
    // Runs shorter than a cache line, more than 224 bytes in all.
    let fields = [CELLS, FieldSpec::array(I64, Entity::Node, 2), ALTERNATING];
    for case in neighbourhoods([12, 4], &fields) {
        for scatter in [false, true] {
            check(&case, |_| "packed", scatter);
        }
    }
}

#[test]
fn single_pass_puts_go_to_every_field_before_the_completion() {
    // Rows of 40 cells are long runs: only the first axis is split.
    for fields in [vec![CELLS], vec![CELLS, FieldSpec::array(I64, Entity::Node, 1)]] {
        let path = |backend: &str| match backend {
            "st-send" | "active-rma" => "straight into ghosts",
            _ => "packed",
        };
        for layout in [[2, 1], [3, 1]] {
            let case = Case { layout, ..Case::new([9, 40], [1, 1], &fields) };
            check(&case, path, false);
            check(&case, |_| "packed", true);
            let pattern = Pattern::Offsets(vec![vec![-1, 0]]);
            check(&Case { pattern, periodic: [false; 2], ..case }, path, false);
        }
    }
}

#[test]
fn ready_single_pass_goes_to_the_other_generation() {
    let path = |backend: &str| match backend {
        "standard" => "packed",
        _ => "straight into ghosts",
    };
    let fields = [ALTERNATING, FieldSpec::alternating(I64, Entity::Node, 2)];
    for layout in [[2, 1], [3, 1]] {
        let case = Case::new([9, 40], layout, &fields);
        check(&case, path, false);
        let pattern = Pattern::Offsets(vec![vec![-1, 0]]);
        check(&Case { pattern, periodic: [false; 2], ..case }, path, false);
    }
}

#[test]
fn large_messages_of_standard_ask_first() {
    // Rows of 1,020 cells are 8,160 bytes and just fit; periodic ones need two cells more.
    for periodic in [false, true] {
        for layout in [[2, 1], [3, 1]] {
            let fields = [FieldSpec::array(F64, Entity::Cell, 1)];
            let case = Case { periodic: [false, periodic], ..Case::new([6, 1020], layout, &fields) };
            let standard = if periodic { "packed, rendezvous" } else { "packed, eager" };
            check(&case, |backend| if backend == "standard" { standard } else { "" }, false);
            check(&case, |_| "packed", true);
        }
    }
}

#[test]
fn only_standard_synchronises_the_stream() {
    let case = Case::new([8, 40], [2, 1], &[CELLS]);
    let ranks = World::threads(2, watchdog(), |world| {
        for way in each_way() {
            let stream = stream_of(&world, way.kind)?;
            let mut fields =
                FieldSet::new(&case.grid(&world)?, &stream, &case.fields, &case.pattern, [1; 2])?;
            let mut halo = StreamHalo::builder(&world, &stream)
                .backend(way.backend)
                .scatter(Op::Max)
                .build([1; 2], &mut fields)?;
            let before = stream.synchronizations();
            for _ in 0..5 {
                halo.enqueue_gather(&mut fields)?;
                halo.enqueue_scatter(&mut fields)?;
                halo.begin_gather(&mut fields)?.finish()?;
            }
            let expected = if way.backend == "standard" { 15 } else { 0 };
            assert_eq!(stream.synchronizations() - before, expected, "{way:?}");
        }
        Ok::<(), HaloError>(())
    });
    expect_all(ranks.expect("threads can be started"));
}

/// Rank 2 comes late. What rank 0 has sent to rank 1 meanwhile tells the protocols apart: a ready
/// send goes out at once, one with clear-to-send once rank 1 has given it, and an access epoch
/// starts when the whole group has exposed.
#[test]
fn an_access_epoch_waits_for_the_whole_group() {
    for row in BACKENDS.iter().filter(|row| row.name != "standard") {
        let begun = AtomicUsize::new(0);
        let ranks = World::recorded_threads(3, watchdog(), |world, recording| {
            let case = Case::new([6, 40], [3, 1], &[CELLS, CELLS]);
            let stream = stream_of(&world, StreamKind::Threaded)?;
            let mut fields =
                FieldSet::new(&case.grid(&world)?, &stream, &case.fields, &case.pattern, [1; 2])?;
            let mut halo = StreamHalo::new(&world, &stream, row.name, case.pattern.clone(), 1, &mut fields)?;
            recording.take();
            for epoch in 1..=3 {
                if world.rank() == 2 {
                    // Until rank 0 has seen enough of what happens without this rank.
                    wait_for(|| begun.load(Ordering::SeqCst) >= 3 * epoch as usize);
                }
                fields.fill(epoch)?;
                let in_flight = halo.begin_gather(&mut fields)?;
                if world.rank() != 2 {
                    stream.synchronize()?;
                    begun.fetch_add(1, Ordering::SeqCst);
                }
                if world.rank() == 0 {
                    wait_for(|| begun.load(Ordering::SeqCst) >= 3 * epoch as usize - 1);
                    let mut puts = 0;
                    let mut look = || {
                        let events = recording.take();
                        puts += events.iter().filter(|e| e.role == Role::Payload && e.to == 1).count();
                        puts
                    };
                    if row.name == "active-rma" {
                        std::thread::sleep(Duration::from_millis(15));
                        assert_eq!(look(), 0, "puts before rank 2 has exposed, in epoch {epoch}");
                    } else {
                        let expected = if row.name == "st-send" { case.fields.len() } else { 1 };
                        wait_for(|| look() == expected);
                    }
                    begun.fetch_add(1, Ordering::SeqCst);
                }
                in_flight.finish()?;
                fields.check(epoch)?;
                stream.synchronize()?;
                recording.take();
            }
            fields.assert_right(&row.name)
        });
        expect_all(ranks.expect("threads can be started"));
    }
}

/// Without a message back, the sender of a one-way pair needs no more than that there is a free
/// buffer: two epochs go out before the receiver has done anything, and each before it starts it.
#[test]
fn ready_senders_of_one_way_pairs_run_two_epochs_ahead() {
    for (backend, field) in ["st-rsend", "notified"].iter().flat_map(|row| [(row, CELLS), (row, ALTERNATING)])
    {
        let sent = AtomicUsize::new(0);
        let case = Case {
            periodic: [false; 2],
            pattern: Pattern::Offsets(vec![vec![1, 0]]),
            ..Case::new([6, 60], [2, 1], &[field])
        };
        let ranks = World::threads(2, watchdog(), |world| {
            let stream = stream_of(&world, StreamKind::Threaded)?;
            let mut fields =
                FieldSet::new(&case.grid(&world)?, &stream, &case.fields, &case.pattern, [1; 2])?;
            let mut halo = StreamHalo::new(&world, &stream, backend, case.pattern.clone(), 1, &mut fields)?;
            for epoch in 1..=6 {
                if world.rank() == 0 {
                    // Credit for an epoch is given as the next one starts.
                    wait_for(|| sent.load(Ordering::SeqCst) >= epoch.max(2) as usize);
                }
                fields.fill(epoch)?;
                halo.enqueue_gather(&mut fields)?;
                fields.check(epoch)?;
                fields.swap();
                if world.rank() == 1 {
                    stream.synchronize()?;
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            }
            fields.assert_right(&(backend, field))
        });
        expect_all(ranks.expect("threads can be started"));
    }
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "what this rank waits for does not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}
