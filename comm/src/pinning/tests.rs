//! Which cores threads of ranks may use, pinned and not.

use super::*;
use crate::device::{Device, StreamKind, StreamOptions};
use crate::fabric::WaitPolicy;
use crate::world::WorldOptions;
use std::sync::mpsc::channel;
use std::thread::{available_parallelism, spawn};

fn cores() -> usize {
    available_parallelism().expect("it is known").get()
}

/// Of a thread of its own, so that those of other tests are not pinned.
fn aside<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    spawn(body).join().expect("it does not panic")
}

fn own_cores() -> Vec<usize> {
    allowed().expect("it is told")
}

#[test]
fn a_thread_need_not_share_the_core_that_its_starter_is_pinned_to() {
    let (all, own, started) = aside(|| {
        let all = cores();
        let _pinned = Pinned::to_core(own_cores()[0]).expect("it may");
        let unpinned = unpinned();
        let started = aside(move || {
            let inherited = cores();
            unpinned();
            (inherited, cores())
        });
        (all, cores(), started)
    });
    assert_eq!((own, started), (1, (1, all)));
}

/// Under a launcher works of several worlds follow each other on one thread.
#[test]
fn worlds_on_one_thread_find_the_same_cores_and_wait_alike() {
    aside(|| {
        let all = own_cores();
        let mut found = Vec::new();
        for _ in 0..2 {
            let world = World::alone().expect("it can be made");
            let first = world.first_with(1, WorldOptions::default());
            let world = first.expect("there is a rank").expect("it is this one");
            found.push((cores(), world.wait_context().policy, WaitPolicy::for_ranks(2)));
            let pinned = world.pin().expect("it may");
            // Also within each other, whose cores are those of the thread all the same.
            drop(world.pin().expect("it may"));
            assert_eq!((cores(), own_cores()), (1, all.clone()));
            drop(pinned);
        }
        assert_eq!(found[0].0, all.len());
        assert_eq!(found[0], found[1]);
    });
}

/// What each is pinned to afterwards counts for nobody: they have not become more than there are cores.
#[test]
fn ranks_that_are_pinned_wait_as_before() {
    let policies = World::threads(2, WorldOptions::default(), |world| {
        let _pinned = world.pin()?;
        let part = world.first_with(2, WorldOptions::default())?.expect("both ranks are in it");
        Ok::<_, Error>([&world, &part].map(|world| world.wait_context().policy))
    });
    for policies in policies.expect("threads can be started") {
        assert_eq!(policies, Ok([WaitPolicy::for_ranks(2); 2]));
    }
}

/// The newest of a thread's guards keeps it, whichever of the others go.
#[test]
fn guards_may_go_in_any_order() {
    aside(|| {
        let all = own_cores();
        let [first, last] = [all[0], all[all.len() - 1]];
        let to = |core: usize| Pinned::to_core(core).expect("it may");
        let here = || {
            let allowed = sched_getaffinity(None).expect("it is told");
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect::<Vec<_>>()
        };
        // As `pin = world.pin()?` has it, over and over.
        let mut pin = to(first);
        for core in [last, first, last] {
            pin = to(core);
            assert_eq!(here(), [core], "{pin:?}");
        }
        drop(pin);
        assert_eq!(here(), all);

        let [one, two, three] = [first, last, first].map(to);
        drop(one);
        assert_eq!(here(), [first]);
        drop(three);
        assert_eq!(here(), [last]);
        assert_eq!(own_cores(), all);
        drop(two);
        assert_eq!(here(), all);
        // Nothing is left of them.
        drop(to(last));
        assert_eq!((here(), own_cores()), (all.clone(), all));
    });
}

#[test]
fn ranks_of_one_process_take_one_core_after_the_other() {
    let all = own_cores();
    let pinned = World::threads(3, WorldOptions::default(), |world| {
        let _pinned = world.pin()?;
        let allowed = sched_getaffinity(None).map_err(failed("sched_getaffinity"))?;
        Ok::<_, Error>((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect::<Vec<_>>())
    });
    let pinned: Result<Vec<_>> = pinned.expect("threads can be started").into_iter().collect();
    assert_eq!(pinned, Ok((0..3).map(|rank| vec![all[rank % all.len()]]).collect()));
}

/// So that they neither hold it up nor are measured under other conditions than those of streams that were made before.
#[test]
fn the_threads_of_a_stream_do_not_share_the_core_that_its_rank_is_pinned_to() {
    aside(|| {
        let all = cores();
        let world = World::alone().expect("it can be made");
        let _pinned = world.pin().expect("it may");
        let options = StreamOptions { kind: StreamKind::Threaded, threads: 2 };
        let stream = Device::host().stream_with(&world, options).expect("it can be opened");
        let another = stream.another(&world).expect("it can be opened");
        for stream in [&stream, &another] {
            let (tell, told) = channel();
            stream.enqueue_host("counting cores", move || {
                tell.send(cores()).map_err(|error| error.to_string())
            });
            assert_eq!(told.recv(), Ok(all), "{stream:?}");
        }
        let pool = stream.threads().expect("it has two");
        assert_eq!(pool.broadcast(|_| cores()), [all; 2]);
    });
}
