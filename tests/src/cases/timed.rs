//! Timelines of a device's stream: the device says when it did what, on the host's clock.

use super::periods::Stepped;
use crate::{Scenario, stream_of};
use streamhalo::comm::device::Count;
use streamhalo::comm::timeline::{Activity, Lane, Span, Timeline, now_ns};
use streamhalo::{HaloError, Pattern, World};

const STREAM: Lane = Lane::Stream(0);
/// Steps that are recorded: two by themselves, and two of a period, twice.
const STEPS: usize = 6;
/// By how much the device's clock may be taken for another time of the host's.
const SLACK_NS: u64 = 5_000_000;

fn those(timeline: &Timeline, lane: Lane, activity: Activity) -> Vec<&Span> {
    timeline.spans.iter().filter(|span| span.lane == lane && span.activity == activity).collect()
}

/// Steps before, while and after a timeline is kept; the same cells come out as without.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If something is missing in the timeline, or not where it belongs.
pub fn timed(world: &World, way: Scenario) -> Result<(), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, 40, Pattern::All)?;
    let is_captured = way.backend != "standard";
    let period = is_captured.then(|| stepped.capture(2)).transpose()?;
    let replay = |stepped: &mut Stepped, times: usize| match &period {
        Some(period) => Ok(stream.replay(period, times as u64)?),
        None => stepped.steps(2 * times),
    };
    replay(&mut stepped, 1)?;
    stream.synchronize()?;
    let graphs = stream.count(Count::Graphs);
    world.barrier()?;
    let before = now_ns();
    stream.record_timeline(10_000)?;
    stepped.steps(STEPS - 4)?;
    replay(&mut stepped, 2)?;
    stream.mark("end");
    stream.synchronize()?;
    let after = now_ns();
    let timeline = stream.take_timeline().expect("one is kept");
    assert_eq!(stream.count(Count::Graphs), graphs, "a graph would be one span");
    check(&timeline, [before, after], stepped.halo.bytes_per_exchange(), &way);
    // Without any timeline it goes on as before.
    stepped.steps(2)?;
    replay(&mut stepped, 2)?;
    stream.synchronize()?;
    // Where there is but one kernel that may wait, it may be another rank's.
    if world.size() == 1 {
        assert_eq!(stream.count(Count::Graphs) > graphs, graphs > 0, "{way:?}");
    }
    stepped.assert_after(2 + STEPS + 6, &way)?;
    world.barrier()?;
    Ok(())
}

fn check(timeline: &Timeline, [before, after]: [u64; 2], bytes: usize, way: &Scenario) {
    assert_eq!(timeline.dropped, 0, "{way:?}");
    let lane: Vec<&Span> = timeline.spans.iter().filter(|span| span.lane == STREAM).collect();
    let mut last: Option<&Span> = None;
    for span in &lane {
        assert!(span.begin_ns <= span.end_ns, "{way:?}: {span:?}");
        let is_within = before <= span.begin_ns + SLACK_NS && span.end_ns <= after + SLACK_NS;
        assert!(is_within, "{way:?}: {span:?} is not within {before} and {after}");
        // A wait of the stream's thread has what the thread does meanwhile in it.
        let is_part = last.is_some_and(|last| last.activity == Activity::Wait && span.end_ns <= last.end_ns);
        if !is_part {
            assert!(
                last.is_none_or(|last| last.end_ns <= span.begin_ns),
                "{way:?}: {span:?} overlaps {last:?}"
            );
            last = Some(span);
        }
    }
    let calls = timeline.spans.iter().filter(|span| span.lane == Lane::Host && span.operation.is_some());
    for (number, call) in calls.enumerate() {
        assert_eq!(call.operation, Some(number as u64), "{way:?}: {call:?}");
        let first = lane.iter().find(|span| span.operation == call.operation);
        let first = first.unwrap_or_else(|| panic!("{way:?}: nothing was done of {call:?}"));
        assert!(call.begin_ns <= first.begin_ns + SLACK_NS, "{way:?}: {first:?} came before {call:?}");
    }
    let kernels = those(timeline, STREAM, Activity::Kernel);
    assert!(
        kernels.len() == STEPS && kernels.iter().all(|span| span.name == "spread"),
        "{way:?}: {kernels:?}"
    );
    assert_eq!(those(timeline, STREAM, Activity::Mark).len(), 1, "{way:?}");
    assert_eq!(those(timeline, Lane::Host, Activity::Mark).len(), 1, "{way:?}");
    let has_payload = |span: &&&Span| span.activity == Activity::Pack || span.name == "pack and signal";
    let sent: usize = lane.iter().filter(has_payload).filter_map(|span| span.bytes).sum();
    assert_eq!(sent, STEPS * bytes, "{way:?}");
    let waits = if way.backend == "standard" { Lane::Host } else { STREAM };
    let waits = those(timeline, waits, Activity::Wait);
    if bytes > 0 {
        assert!(waits.len() >= STEPS, "{way:?}: {waits:?}");
    }
    // What is computed of ghosts comes behind the wait for them.
    if waits.len() == STEPS && way.backend != "standard" {
        for (wait, kernel) in waits.iter().zip(&kernels) {
            assert!(wait.end_ns <= kernel.begin_ns, "{way:?}: {kernel:?} before {wait:?} had ended");
        }
    }
}
