//! Running models, and demanding that one fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Explores a model with at most `preemptions` switches away from a thread that could go on.
pub(crate) fn holds(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// How a broken protocol shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A wake-up is lost: all threads sleep.
    Deadlock,
    /// Payload is read that was not written yet or was overwritten already, or two accesses to it
    /// are not ordered: which of them the checker comes to first depends on the model.
    Payload,
    /// Two accesses to payload are not ordered, whatever they find.
    Race,
    /// An epoch that comes, or has come, is said not to.
    Denial,
}

impl Flaw {
    fn tells(self, message: &str) -> bool {
        let race = message.contains("Causality violation");
        match self {
            Flaw::Deadlock => message.contains("deadlock"),
            Flaw::Payload => race || message.contains(OTHER_EPOCH),
            Flaw::Race => race,
            Flaw::Denial => message.contains(DENIED),
        }
    }
}

/// What models panic with that have read a wrong payload.
pub(crate) const OTHER_EPOCH: &str = "the payload of another epoch was unpacked";

/// What models panic with in which a writer is said not to come to what it comes to.
pub(crate) const DENIED: &str = "an epoch that comes was denied";

/// Explores a model in which a rule is missing, and demands that the flaw is found.
pub(crate) fn is_refuted(flaw: Flaw, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let explored = catch_unwind(AssertUnwindSafe(|| holds(preemptions, model)));
    let panic = explored.expect_err("the checker has found no flaw in a protocol without one of its rules");
    let message = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default();
    assert!(flaw.tells(&message), "the model was to fail with {flaw:?}, and failed with: {message}");
}

#[test]
#[should_panic(expected = "the checker has found no flaw")]
fn a_sound_model_is_not_refuted() {
    is_refuted(Flaw::Deadlock, 2, || {
        loom::thread::spawn(|| {}).join().unwrap();
    });
}
