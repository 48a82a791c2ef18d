//! A timeline in the trace event format of Chrome, which Perfetto and `chrome://tracing` open: a process for each
//! rank, a thread for each lane, a complete event for each span. Where the host runs ahead of its stream an arrow
//! leads from the call that enqueued an operation to where it was carried out.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use streamhalo::comm::timeline::{Activity, Lane};

use super::{ExchangeTimeline, Placed, lane_name, span_name};

/// The text of a trace file.
pub fn chrome_trace(timeline: &ExchangeTimeline) -> String {
    let mut events = names(timeline);
    events.extend(timeline.placed().map(|placed| event(&placed)));
    events.extend(arrows(timeline));
    let clocks = timeline.ranks.iter().enumerate().map(|(rank, of)| {
        json!({
            "rank": rank,
            "offset_ns": of.clock.offset_ns,
            "uncertainty_ns": of.clock.uncertainty_ns,
            "spans_dropped": of.dropped,
        })
    });
    let trace = json!({
        "displayTimeUnit": "ns",
        "otherData": {
            "app": timeline.app,
            "backend": timeline.backend,
            "fabric": timeline.fabric,
            "executor": timeline.executor,
            "stream": timeline.stream,
            "layout": timeline.layout,
            "cells": timeline.cells,
            "exchange_every": timeline.exchange_every,
            "clocks": clocks.collect::<Vec<_>>(),
        },
        "traceEvents": events,
    });
    format!("{trace}\n")
}

/// The number of a lane among those of its rank.
fn thread(lane: Lane) -> u32 {
    match lane {
        Lane::Host => 0,
        Lane::Stream(number) => u32::from(number) + 1,
    }
}

/// What processes and threads are called, and their order.
fn names(timeline: &ExchangeTimeline) -> Vec<Value> {
    let mut events = Vec::new();
    for rank in 0..timeline.ranks.len() {
        let name = format!("rank {rank}");
        events.push(json!({ "ph": "M", "name": "process_name", "pid": rank, "args": { "name": name } }));
        events.push(
            json!({ "ph": "M", "name": "process_sort_index", "pid": rank, "args": { "sort_index": rank } }),
        );
    }
    for (rank, lane) in timeline.lanes() {
        let (tid, name) = (thread(lane), lane_name(lane));
        events.push(
            json!({ "ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": { "name": name } }),
        );
        events.push(json!({
            "ph": "M", "name": "thread_sort_index", "pid": rank, "tid": tid, "args": { "sort_index": tid },
        }));
    }
    events
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn event(placed: &Placed<'_>) -> Value {
    let span = placed.span;
    let known = [
        ("operation", span.operation.map(Value::from)),
        ("peer", span.peer.map(Value::from)),
        ("bytes", span.bytes.map(Value::from)),
        ("value", span.value.map(Value::from)),
    ];
    let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut event = json!({
        "name": span_name(span),
        "cat": span.activity.name(),
        "pid": placed.rank,
        "tid": thread(span.lane),
        "ts": us(placed.begin_ns),
        "args": known.collect::<Map<_, _>>(),
    });
    match span.activity {
        // An instant, of the thread only.
        Activity::Mark => {
            event["ph"] = "i".into();
            event["s"] = "t".into();
        }
        _ => {
            event["ph"] = "X".into();
            event["dur"] = us(placed.end_ns - placed.begin_ns).into();
        }
    }
    event
}

/// From enqueueing to carrying out, where that came later than the call.
fn arrows(timeline: &ExchangeTimeline) -> Vec<Value> {
    let mut enqueued = HashMap::new();
    let mut events = Vec::new();
    for placed in timeline.placed().filter(|placed| placed.span.activity == Activity::Enqueue) {
        enqueued.insert((placed.rank, placed.span.stream, placed.span.operation), placed);
    }
    for placed in timeline.placed().filter(|placed| placed.span.lane != Lane::Host) {
        let key = (placed.rank, placed.span.stream, placed.span.operation);
        // Removed, as an arrow leads to the first span of an operation.
        let Some(call) = placed.span.operation.and_then(|_| enqueued.remove(&key)) else { continue };
        if call.end_ns > placed.begin_ns {
            continue;
        }
        let id = events.len() / 2;
        let end = |phase: &str, at: &Placed<'_>| {
            json!({
                "ph": phase, "bp": "e", "id": id, "name": "enqueued", "cat": "order",
                "pid": at.rank, "tid": thread(at.span.lane), "ts": us(at.begin_ns),
            })
        };
        events.extend([end("s", &call), end("f", &placed)]);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::super::tests::invented;
    use super::*;

    #[test]
    fn every_span_is_an_event_of_its_rank_and_lane() {
        let timeline = invented();
        let trace: Value = serde_json::from_str(&chrome_trace(&timeline)).expect("is JSON");
        let events = trace["traceEvents"].as_array().expect("is a list");
        let of_phase = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of_phase("X").len(), of_phase("i").len()), (10, 4));
        assert_eq!((of_phase("s").len(), of_phase("f").len()), (2, 2), "the host runs ahead");
        let names = of_phase("M").iter().filter(|event| event["name"] == "thread_name").count();
        assert_eq!((names, of_phase("M").len()), (4, 12));

        let pack = json!({
            "name": "pack to 1", "cat": "pack", "ph": "X", "pid": 1, "tid": 1, "ts": 0.06, "dur": 0.03,
            "args": { "operation": 4, "peer": 1, "bytes": 64, "value": 3 },
        });
        assert!(events.contains(&pack), "{trace}");
        let clock = json!({ "rank": 1, "offset_ns": -1000, "uncertainty_ns": 10, "spans_dropped": 2 });
        assert_eq!(trace["otherData"]["clocks"][1], clock);
    }
}
