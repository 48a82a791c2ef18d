//! What the ranks of an application say to each other, for tests of how they do it.

use streamhalo::comm::fabric::{Event, Role};
use streamhalo::{Device, World, WorldOptions};

use super::played::reference;
use super::{Application, Between, Outcome, Trial};
use crate::error::AppError;

/// Runs on as many threads as the layout has ranks, verifies the answer, and gives what came of it and what each rank
/// has told others, in its order.
pub(crate) fn recorded(
    application: &dyn Application,
    layout: &[usize],
    backend: &str,
) -> (Outcome, Vec<Vec<Event>>) {
    let ranks = layout.iter().product();
    let results = World::recorded_threads(ranks, WorldOptions::default(), |world, recording| {
        let (stream, between) = (Device::host().stream(&world)?, Between::default());
        // Messages that bring a state to rank 0 are none of the application's.
        let trial = Trial { world: &world, stream: &stream, backend, layout, wants_state: false, between };
        let outcome = application.run_trial(&trial)?;
        Ok::<_, AppError>((outcome, recording.take()))
    });
    let results = results.expect("there are threads").into_iter();
    let results: Vec<_> = results.map(|result| result.expect("nothing fails")).collect();
    let answer = &results[0].0.answer;
    assert_eq!(application.difference(answer, &reference(application)), None);
    (results[0].0.clone(), results.into_iter().map(|(_, events)| events).collect())
}

/// How many notifications each rank has sent to each: `[from][to]`.
pub(crate) fn notifications(events: &[Vec<Event>]) -> Vec<Vec<u64>> {
    let ranks = events.len();
    let of_rank = |events: &Vec<Event>| {
        let mut sent = vec![0; ranks];
        let notifications = events.iter().filter(|event| event.role == Role::Notification);
        notifications.for_each(|event| sent[event.to] += 1);
        sent
    };
    events.iter().map(of_rank).collect()
}
