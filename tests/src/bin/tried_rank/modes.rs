//! What a rank does.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::WaitPolicy;
use streamhalo::comm::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};
use streamhalo::comm::window::Window;
use streamhalo::comm::{Source, Tag};
use streamhalo::grid::Fields;
use streamhalo::prelude::*;
use streamhalo::{ElementType, StreamKind, WorldOptions};
use streamhalo_tests::cases::{leaving, ready};
use streamhalo_tests::{FieldSet, FieldSpec, Random, Scenario, set_ways, stream_of};

pub(super) type Outcome = Result<(), Box<dyn Error>>;

/// - `world`: joins the others and leaves.
/// - `exchange SEED EPOCHS`: all backends with arrays and alternating fields on either kind of stream,
///   checked in every epoch.
/// - `wake`: how soon a rank that sleeps goes on once what it waits for is there.
/// - `over FABRIC`: does so over that fabric.
/// - `bound`: binds itself to a core of its own before. Prints how ranks wait.
/// - `memory`, `kept`, `refused`, `unmapped`: see [`super::memory`].
/// - `forever`: exchanges until something ends it, and says when it has begun.
/// - `kernel`, `main`: the last rank panics in a kernel, or in its own code, and the others exchange.
/// - `exit`, `quit`: the last rank ends its process with status 1, or 0, while the others exchange.
/// - `quit WAIT`: it does so with 0 while rank 0 waits for it (`ending::quit`), which prints what it is told.
/// - `quit-late`: it does so once it has had all and sent all, and the others take it and drop their worlds.
/// - `leaked`: all ranks end their processes with status 0 after some exchanges, and drop nothing.
/// - `worlds NUMBER`: makes so many worlds, one after the other, each with parts, exchanges and windows.
/// - `two-worlds`: has two of them at once, of which others may come to the second when this rank is still at the first.
/// - `fewer-worlds NUMBER`: the last rank ends with status 0 after so many worlds, and the others wait in one more.
/// - `absent BACKEND`: the last rank never comes to an exchange, for which the others wait for two seconds.
/// - `cut FOLDER`: exchanges until it cannot for three seconds, and writes that into a file of that folder.
/// - `device WORDS... -- MODE`: one of those with arrays on a device, used as the words say (`set_ways`), of `forever`,
///   `exit`, `absent` and `leave`.
/// - `early`: a ready send of rank 0 comes before the stream of rank 1 has started its receive.
/// - `leave KIND host|origin|target|sender|receiver [started]`: the last rank drops a window, or a request that it may have
///   started, for which rank 0's host or stream waits.
/// - `leave KIND exchange|one-way|part|replay|reduction BACKEND [first]`: it drops an exchange, in which it may only receive,
///   which may not be finished, and of which there may be a period, or a reduction; of a world, or of the first ranks of a world, which are all of them.
///   Prints that all were told so.
/// - `leave KIND world [first]`: it drops its world, to whose calls the others come, or the first ranks of one, likewise.
/// - `missing`: the last rank never comes to a barrier, for which the others wait as long, and which fails at once if rank 0
///   tries again.
/// - `begun`: rank 0 begins to receive in an exchange of `active-rma`, which all then drop.
/// - `at-thread-end`: a world with an exchange, which the end of its thread drops.
/// - `other-thread`: a world that is made in another thread than the first. Prints why it is refused.
pub(crate) fn run(mode: &str, arguments: &[&str]) -> Outcome {
    match (mode, arguments) {
        ("device", words) => {
            let end = words.iter().position(|word| *word == "--").ok_or("`--` is missing")?;
            let [mode, arguments @ ..] = &words[end + 1..] else { return Err("a mode is missing".into()) };
            set_ways(&words[..end], 0)?;
            KIND.set(StreamKind::Device);
            run(mode, arguments)
        }
        ("world", []) => Ok(World::from_env()?.barrier()?),
        ("over", [fabric]) => Ok(World::over(fabric, WorldOptions::default())?.barrier()?),
        ("bound", []) => bound(),
        ("exchange", [seed, epochs]) => exchange(&World::from_env()?, seed.parse()?, epochs.parse()?),
        ("wake", []) => wake(),
        ("memory", []) => super::memory::comes_back(&World::from_env()?),
        ("kept", []) => super::memory::is_kept(&World::from_env()?),
        ("refused", []) => super::memory::is_refused(&World::from_env()?),
        ("unmapped", []) => super::memory::is_given_back(&World::from_env()?),
        ("forever", []) => forever(&World::from_env()?, &mut |_, _| Ok(())),
        ("kernel", []) => forever(&World::from_env()?, &mut panic_in_kernel),
        ("main", []) => {
            // The others have ended when this one does.
            let _slow = EndsLate;
            forever(&World::from_env()?, &mut |world, _| {
                assert!(world.rank() + 1 < world.size(), "this rank panics on purpose");
                Ok(())
            })
        }
        ("exit", []) => forever(&World::from_env()?, &mut |world, _| end_the_last(world, 1)),
        ("quit", []) => forever(&World::from_env()?, &mut |world, _| end_the_last(world, 0)),
        ("quit", [wait]) => super::ending::quit(&World::from_env()?, wait),
        ("quit-late", []) => super::ending::quit_late(&World::from_env()?),
        ("leaked", []) => forever(&World::from_env()?, &mut |world, _| {
            world.barrier()?;
            std::process::exit(0)
        }),
        ("worlds", [number]) => (0..number.parse()?).try_for_each(|_| use_all_of(&World::from_env()?)),
        ("two-worlds", []) => two_worlds(),
        ("fewer-worlds", [number]) => fewer_worlds(number.parse()?),
        ("cut", [folder]) => cut(Path::new(folder)),
        ("absent", [backend]) => without_the_last(&World::from_env_with(SOON)?, Some(backend)),
        ("leave", [kind, side, given @ ..]) => {
            let kind = match *kind {
                "inline" => StreamKind::Inline,
                "threaded" => StreamKind::Threaded,
                "device" => StreamKind::Device,
                other => return Err(format!("a stream is not `{other}`").into()),
            };
            let backend = backend_names().find(|name| given.contains(name)).unwrap_or("st-rsend");
            let (world, way) = (World::from_env()?, Scenario { backend, kind });
            let of_first = given.contains(&"first").then(|| world.first(world.size())).transpose()?.flatten();
            let world = of_first.unwrap_or(world);
            match *side {
                "world" => leaving::met(&world)?,
                "host" => leaving::epochs(&world, way).map(|_| ())?,
                "sender" | "receiver" => {
                    leaving::requested(&world, kind, *side == "sender", given.contains(&"started"))?
                }
                "exchange" => leaving::exchanged(&world, way, false)?,
                "one-way" => leaving::exchanged_one_way(&world, way)?,
                "part" => leaving::exchanged_in_part(&world, way, leaving::LONG)?,
                "replay" => leaving::exchanged(&world, way, true)?,
                "reduction" => leaving::reduced(&world, way)?,
                side => leaving::streamed(&world, kind, side == "origin")?,
            }
            println!("rank {} was told", world.rank());
            Ok(())
        }
        ("early", []) => Ok(ready::too_early_for_the_stream(&World::from_env()?, StreamKind::Threaded)?),
        ("missing", []) => without_the_last(&World::from_env_with(SOON)?, None),
        ("begun", []) => super::ending::begun(&World::from_env()?),
        ("at-thread-end", []) => super::ending::at_thread_end(),
        ("other-thread", []) => super::ending::in_other_thread(),
        _ => Err(format!("there is no mode {mode} {arguments:?}").into()),
    }
}

/// Uses a world in all ways that take something of the library's for as long as it lives.
fn use_all_of(world: &World) -> Outcome {
    let (stream, grid) = small_grid(world, StreamKind::Inline)?;
    let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    StreamHalo::new(world, &stream, "active-rma", Pattern::All, 1, &mut cells)?.gather(&mut cells)?;
    if let Some(part) = world.first(1)? {
        part.barrier()?;
    }
    let window = Window::allocate::<u8>(world, &stream, 8)?;
    window.put_notify(&[1_u8], (world.rank() + 1) % world.size(), 0, 0)?;
    let mut request = window.notify_init(Source::Any, Tag::Any, 1)?;
    request.start()?;
    request.wait()?;
    Ok(())
}

fn bound() -> Outcome {
    let rank: usize = std::env::var(RANK_VARIABLE)?.parse()?;
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[rank % cores.len()]);
    sched_setaffinity(None, &one)?;
    println!("{:?}", World::from_env()?.fabric().wait_policy());
    Ok(())
}

fn two_worlds() -> Outcome {
    let (first, second) = (World::from_env()?, World::from_env()?);
    for number in 0..3 {
        let world = if number % 2 == 0 { &first } else { &second };
        // Whoever comes late is waited for, in each of them.
        if number == world.rank() {
            std::thread::sleep(Duration::from_millis(20));
        }
        use_all_of(world)?;
        let seen = world.agree::<_, streamhalo::comm::Error>("a test", Ok(number))?;
        assert!(seen.iter().all(|other| *other == number), "rank {} has seen {seen:?}", world.rank());
    }
    drop(first);
    use_all_of(&second)
}

/// What a rank says that waits for one that has gone without a word.
fn fewer_worlds(number: usize) -> Outcome {
    let rank = std::env::var(RANK_VARIABLE)?.parse::<usize>()? + 1;
    let is_last = std::env::var(SIZE_VARIABLE)?.parse::<usize>()? == rank;
    for _ in 0..number {
        use_all_of(&World::from_env()?)?;
    }
    if !is_last {
        World::from_env()?.barrier()?;
    }
    Ok(())
}

/// Ends the process of the last rank, without dropping anything.
fn end_the_last(world: &World, status: i32) -> Outcome {
    if world.rank() + 1 == world.size() {
        std::process::exit(status);
    }
    Ok(())
}

thread_local! {
    /// Of the streams of this rank.
    static KIND: Cell<StreamKind> = const { Cell::new(StreamKind::Inline) };
}

/// Waits end soon, so that a test can wait for that.
const SOON: WorldOptions = WorldOptions { policy: None, timeout: Some(Duration::from_secs(2)) };

/// The last rank stays away from an exchange, or from a barrier, until something ends it.
fn without_the_last(world: &World, backend: Option<&str>) -> Outcome {
    let (stream, grid) = small_grid(world, KIND.get())?;
    let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let halo = backend.map(|backend| StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut cells));
    let mut halo = halo.transpose()?;
    world.barrier()?;
    if world.rank() + 1 == world.size() {
        std::thread::sleep(Duration::from_secs(60));
        return Err("nothing has ended this rank".into());
    }
    match &mut halo {
        Some(halo) => gather(halo, &mut cells),
        None => {
            let missed = world.barrier();
            if world.rank() == 0 {
                assert_eq!(world.barrier(), missed, "it is tried again");
            }
            Ok(missed?)
        }
    }
}

/// Writes what a launcher that is cut off as well could not forward.
fn cut(folder: &Path) -> Outcome {
    let world = World::from_env_with(WorldOptions {
        timeout: Some(Duration::from_secs(3)),
        ..WorldOptions::default()
    })?;
    let mut file = std::fs::File::create(folder.join(format!("rank-{}", world.rank())))?;
    let mut has_begun = false;
    let ended = forever(&world, &mut |_, _| {
        if !has_begun {
            writeln!(file, "runs")?;
            has_begun = true;
        }
        Ok(())
    });
    writeln!(file, "ended: {}", ended.as_ref().err().map_or_else(String::new, ToString::to_string))?;
    ended
}

/// Takes its time where the thread panics.
struct EndsLate;

impl Drop for EndsLate {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// All backends, one after the other, with pauses that differ from rank to rank.
fn exchange(world: &World, seed: u64, epochs: u32) -> Outcome {
    let mut random = Random::new(seed ^ (world.rank() as u64) << 32);
    let mut cases: u64 = 0;
    for backend in backend_names() {
        for alternating in [false, true] {
            // Every case meets both kinds as seeds go by.
            let threaded = (seed + cases / 2 + u64::from(alternating)) % 2 == 1;
            let kind = if threaded { StreamKind::Threaded } else { StreamKind::Inline };
            let (stream, grid) = small_grid(world, kind)?;
            let specs = [
                FieldSpec { element: ElementType::F64, entity: Entity::Cell, components: 1, alternating },
                FieldSpec { element: ElementType::U8, entity: Entity::Cell, components: 3, alternating },
            ];
            let pattern = Pattern::All;
            let mut fields = FieldSet::new(&grid, &stream, &specs, &pattern, [1, 1])?;
            let mut halo = StreamHalo::new(world, &stream, backend, pattern, 1, &mut fields)?;
            for epoch in 1..=epochs {
                if random.once_in(4) {
                    std::thread::sleep(Duration::from_micros(random.between(1, 1500) as u64));
                }
                fields.fill(epoch)?;
                halo.enqueue_gather(&mut fields)?;
                fields.check(epoch)?;
                fields.swap();
            }
            fields.assert_right(&(backend, kind, alternating, world.rank()))?;
            cases += 1;
        }
    }
    println!("rank {} of {}: {cases} cases", world.rank(), world.size());
    Ok(())
}

pub(super) fn small_grid(world: &World, kind: StreamKind) -> Result<(Stream, LocalGrid<2>), HaloError> {
    let stream = stream_of(world, kind)?;
    // So that every rank has neighbours, and small as well as large messages are sent.
    let grid = GlobalGrid::new([8 * world.size(), 40], [true, true])?.partition(world)?.local(1)?;
    Ok((stream, grid))
}

/// The last rank is late by a time that no nap of its peers ends with, so that who was not woken
/// shows by being later still. Prints, for each backend: by how much the first rank was late in the
/// better quarter of all tries, in microseconds, and how often it slept.
fn wake() -> Outcome {
    const LATE: Duration = Duration::from_millis(30);
    const TRIES: usize = 16;
    let policy = WaitPolicy { spins: 1, yields: 1, sleeps: true };
    let options = WorldOptions { policy: Some(policy), ..WorldOptions::default() };
    let world = World::from_env_with(options)?;
    for backend in backend_names() {
        let (stream, grid) = small_grid(&world, StreamKind::Inline)?;
        let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
        let mut halo = StreamHalo::new(&world, &stream, backend, Pattern::All, 1, &mut cells)?;
        let mut late = Vec::new();
        let mut sleeps = 0;
        for _ in 0..TRIES {
            world.barrier()?;
            if world.rank() + 1 == world.size() {
                std::thread::sleep(LATE);
            }
            let (begun, slept) = (SystemTime::now(), sleeps_so_far()?);
            halo.gather(&mut cells)?;
            let (ended, slept) = (SystemTime::now(), sleeps_so_far()? - slept);
            let times = world.all_gather(&[begun, ended].map(since_epoch))?;
            late.push(times[0][1].saturating_sub(times[world.size() - 1][0]));
            sleeps += slept;
        }
        if world.rank() == 0 {
            late.sort_unstable();
            println!("{backend} {} {sleeps}", late[TRIES / 4]);
        }
    }
    Ok(())
}

fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// How often this thread has given up its core to wait for something.
fn sleeps_so_far() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.ok_or("the kernel does not count switches")?.trim().parse()?)
}

/// Exchanges with all backends in turn until an exchange fails, or `disturb` does something.
fn forever(world: &World, disturb: &mut dyn FnMut(&World, &mut Array<f64, 2>) -> Outcome) -> Outcome {
    let (stream, grid) = small_grid(world, KIND.get())?;
    let mut cells = Array::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let halos =
        backend_names().map(|name| StreamHalo::new(world, &stream, name, Pattern::All, 1, &mut cells));
    let mut halos = halos.collect::<Result<Vec<_>, _>>()?;
    let round = |halos: &mut [StreamHalo], cells: &mut Array<f64, 2>| -> Outcome {
        for halo in halos {
            gather(halo, cells)?;
        }
        Ok(())
    };
    round(&mut halos, &mut cells)?;
    println!("rank {} runs", world.rank());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(120) {
        round(&mut halos, &mut cells)?;
        disturb(world, &mut cells)?;
    }
    Err("nothing has happened for two minutes".into())
}

fn gather<const D: usize>(halo: &mut StreamHalo, fields: &mut impl Fields<D>) -> Outcome {
    Ok(halo.gather(fields)?)
}

fn panic_in_kernel(world: &World, cells: &mut Array<f64, 2>) -> Outcome {
    let last = world.rank() + 1 == world.size();
    let owned = cells.owned_box().tile();
    let stream = streamhalo::grid::Field::info(cells).stream.clone();
    stream.launch("explode", owned, (cells.writer()?,), move |_tile, _rows| {
        assert!(!last, "this kernel panics on purpose");
    })?;
    Ok(stream.synchronize()?)
}
