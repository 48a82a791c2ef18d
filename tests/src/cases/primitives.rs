//! The primitives below the backends, with what each is tried with over every fabric.

use super::list::{Case, List, smaller_side};
use super::{
    active, collectives, field_reductions, leaving, messages, misused, notify, pairing, queues, ready,
    staged, stream_collectives,
};
use crate::{KINDS, Scenario};
use streamhalo::comm::{PRIMITIVES, PrimitiveRow};
use streamhalo::{StreamKind, World};

/// What a column of the tables is about.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// A backend.
    Backend(Scenario),
    /// A primitive, with a kind of stream.
    Primitive(&'static PrimitiveRow, StreamKind),
}

impl Subject {
    /// Every backend and then every primitive, on both kinds of stream.
    pub fn all() -> impl Iterator<Item = Subject> {
        let backends = crate::each_way().map(Subject::Backend);
        let primitives = PRIMITIVES.iter().flat_map(|row| KINDS.map(|kind| Subject::Primitive(row, kind)));
        backends.chain(primitives)
    }

    /// The primitives whose cases have arrays on streams, which may be a device's. Messages have sections of devices
    /// among their cases on any stream.
    pub fn on_device() -> impl Iterator<Item = Subject> {
        let rows = PRIMITIVES.iter().filter(|row| row.name != "messages");
        rows.map(|row| Subject::Primitive(row, StreamKind::Device))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Subject::Backend(way) => way.backend,
            Subject::Primitive(row, _) => row.name,
        }
    }

    /// With which kind of stream, and which backend where a primitive needs one.
    pub fn way(&self) -> Scenario {
        match self {
            Subject::Backend(way) => *way,
            Subject::Primitive(_, kind) => Scenario { backend: "st-rsend", kind: *kind },
        }
    }

    /// What it is tried with by that many ranks; with `at_length` false the least that shows the ways it takes.
    ///
    /// # Panics
    /// If a primitive has no cases: each is tried over every fabric.
    pub fn cases(&self, ranks: usize, at_length: bool) -> Vec<Case> {
        let mut list = List::default();
        match self {
            Subject::Backend(_) => return super::cases_for(ranks, at_length),
            Subject::Primitive(row, _) => match row.name {
                "messages" => two_sided(&mut list, at_length),
                "notified-access" => notified(&mut list, at_length),
                "active-target" => windows(&mut list, at_length),
                "enqueued-collectives" => enqueued_collectives(&mut list, at_length),
                "queues" => requests(&mut list, ranks, at_length),
                "enqueued-messages" => operations(&mut list, at_length),
                other => panic!("the primitive `{other}` has no cases"),
            },
        }
        list.0
    }
}

fn two_sided(list: &mut List, at_length: bool) {
    list.add("two-sided messages at random", |world, way| messages::at_random(world, way, 11));
    list.add_of_any_stream("two-sided messages round a ring", messages::ring);
    list.add("persistent two-sided messages", messages::persistent);
    list.add_of_any_stream("collective reductions", collectives::reductions);
    list.add_of_any_stream("collective moves", collectives::moves);
    list.add_of_any_stream("a rank that drops its communicator", leaving::communicators);
    list.add_of_any_stream("messages of devices at random", |world, way| staged::at_random(world, way, 31));
    list.add_of_any_stream("collective calls of devices", staged::collectives);
    list.add_of_any_stream("messages from any rank", messages::from_any);
    list.add_of_any_stream("collective barriers", collectives::barriers);
    list.add("messages that are misused", misused::messages);
    if at_length {
        for seed in 32..35 {
            list.add_of_any_stream("messages of devices at random", move |world, way| {
                staged::at_random(world, way, seed)
            });
        }
        list.add_of_any_stream("messages of devices, probed for", staged::probed);
        list.add_of_any_stream("persistent messages of devices", staged::persistent);
        list.add_of_any_stream("messages of devices that are refused", staged::refusals);
        for seed in 20..23 {
            list.add("two-sided messages at random", move |world, way| messages::at_random(world, way, seed));
        }
    }
}

fn notified(list: &mut List, at_length: bool) {
    list.add("a ping-pong of notified puts", notify::ping_pong);
    list.add("notifications by source, tag and wildcards", notify::wildcards);
    list.add("one request for many notifications", |world, way| notify::counting(world, way, 7));
    list.add("one request for many long puts", |world, way| notify::counting(world, way, 5_000));
    list.add("notified gets", notify::gets);
    list.add("notified accesses in order", |world, way| notify::in_order(world, way, 1));
    list.add("notified accumulates of floats", |world, way| notify::accumulates::<f64>(world, way, 5));
    list.add("notified accumulates of bytes", |world, way| notify::accumulates::<u8>(world, way, 40_000));
    list.add("notified fetches and swaps", notify::atomics);
    list.add("accesses that notify nobody", notify::silent);
    list.add("notified accesses behind a fence", notify::fenced);
    list.add("more notifications than rings hold", notify::more_than_rings_hold);
    list.add("notified accesses that are refused", notify::refusals);
    list.add_of_any_stream("a receiver that never reads", misused::full_ring);
    list.add("a rank that drops its window", leaving::windows);
    if at_length {
        list.add_of_any_stream("a target that never serves", misused::never_served);
        list.add("notified accumulates", |world, way| notify::accumulates::<i32>(world, way, 3_000));
        list.add("notified accumulates", |world, way| notify::accumulates::<i64>(world, way, 1));
        list.add("notified accumulates", |world, way| notify::accumulates::<f32>(world, way, 3_000));
        for seed in 2..8 {
            list.add("notified accesses in order", move |world, way| notify::in_order(world, way, seed));
        }
    }
}

fn windows(list: &mut List, at_length: bool) {
    list.add("a ring of windows", |world, way| near_the_wrap(world, || active::ring(world, way, 5)));
    list.add("a ring of windows, long", |world, way| active::ring(world, way, 9_000));
    list.add("windows in opposite orders", active::opposite_orders);
    list.add("epochs of any groups", |world, way| near_the_wrap(world, || active::at_random(world, way, 1)));
    list.add("epochs whose sections kernels write until they are completed", active::kernels_ahead);
    list.add("accumulates of floats", |world, way| active::accumulates::<f64>(world, way, 40));
    list.add("epochs with little room", active::throttled);
    list.add("epochs that are misused", misused::epochs);
    list.add("a rank that drops its window between epochs", |world, way| {
        near_the_wrap(world, || leaving::epochs(world, way))
    });
    list.add("a rank that leaves as soon as it has had all", leaving::at_once);
    if at_length {
        for seed in 2..8 {
            list.add("epochs of any groups", move |world, way| active::at_random(world, way, seed));
        }
        list.add("accumulates of u8", |world, way| active::accumulates::<u8>(world, way, 70));
        list.add("accumulates of i32", |world, way| active::accumulates::<i32>(world, way, 3_000));
        list.add("accumulates of i64", |world, way| active::accumulates::<i64>(world, way, 7));
        list.add("accumulates of f32", |world, way| active::accumulates::<f32>(world, way, 33));
    }
}

fn enqueued_collectives(list: &mut List, at_length: bool) {
    use field_reductions::{between_halves, of_fields};
    use stream_collectives::{in_flight_together, late_ranks, reductions, refused};
    list.add("reductions on a stream", |world, way| {
        near_the_wrap(world, || reductions::<f64>(world, way, &[1, 200]))
    });
    list.add("barriers with late ranks", |world, way| {
        near_the_wrap(world, || late_ranks(world, way, 2 * world.size()))
    });
    list.add("collectives and exchanges on a stream", |world, way| in_flight_together(world, way, 10));
    list.add("reductions that do not match", refused);
    list.add("reductions of fields of floats", of_fields::<f32>);
    list.add("reductions of fields that are exchanged", between_halves);
    if at_length {
        list.add("reductions of fields of bytes", of_fields::<u8>);
        list.add("reductions of fields of long floats", of_fields::<f64>);
        let sizes = [1, 30, 129, 3_000];
        list.add("reductions of bytes", move |world, way| reductions::<u8>(world, way, &sizes));
        list.add("reductions of integers", move |world, way| reductions::<i32>(world, way, &sizes));
        list.add("reductions of long integers", move |world, way| reductions::<i64>(world, way, &sizes));
        list.add("reductions of floats", move |world, way| reductions::<f32>(world, way, &sizes));
        list.add("long reductions", |world, way| reductions::<f64>(world, way, &[8_300]));
    }
}

fn requests(list: &mut List, ranks: usize, at_length: bool) {
    let side = smaller_side(ranks);
    let (plane, epochs) = ([ranks / side, side], if at_length { 30 } else { 6 });
    for (owned, ready) in [([5, 3], false), ([2, 700], false), ([5, 3], true)] {
        list.add("a halo exchange on a queue", move |world, way| {
            near_the_wrap(world, || queues::halo(world, way, plane, (owned, epochs, ready)))
        });
    }
    for &elements in sizes(at_length) {
        list.add("two queues in opposite orders", move |world, way| {
            queues::opposite_orders(world, way, elements)
        });
    }
    list.add("several messages with one tag on a queue", queues::many_messages);
    list.add("requests that are misused", misused::requests);
    list.add("requests that are matched one by one", pairing::matched_one_by_one);
    list.add("requests that are known to be matched", pairing::known_to_be_matched);
    list.add("requests that are matched together", pairing::matched_together);
    list.add("requests that are freed as soon as they are matched", pairing::freed_at_once);
    list.add("requests that are freed before their partners come", pairing::freed_before_its_partner);
    list.add("requests that are matched while their rank waits", pairing::going_on_meanwhile);
    list.add("requests that are freed while they are enqueued", queues::freed_early);
    for elements in [3, 12_000] {
        list.add("ordinary messages beside matched requests", move |world, way| {
            pairing::beside_messages(world, way, elements)
        });
        list.add("matched requests that the host starts", move |world, way| {
            pairing::started_by_the_host(world, way, elements)
        });
    }
    for elements in [2, 12_000] {
        list.add("a ready send that comes too soon", move |world, way| {
            near_the_wrap(world, || ready::too_early(world, way, elements))
        });
    }
}

fn operations(list: &mut List, at_length: bool) {
    for &elements in sizes(at_length) {
        list.add("enqueued operations", move |world, way| queues::operations(world, way, elements));
    }
    list.add("enqueued operations that are misused", misused::operations);
    list.add("enqueued operations of one tag", pairing::enqueued_in_order);
    list.add("an enqueued operation whose peer leaves", leaving::enqueued);
    list.add("a payload that a kernel writes late", queues::late_payload);
}

/// Has what is matched and made meanwhile count its epochs from just before the wrap at 2³².
pub(super) fn near_the_wrap<T>(world: &World, run: impl FnOnce() -> T) -> T {
    world.set_last_epoch(u32::MAX - 5);
    let result = run();
    world.set_last_epoch(0);
    result
}

fn sizes(at_length: bool) -> &'static [usize] {
    if at_length { &queues::SIZES } else { &queues::SIZES[1..] }
}
