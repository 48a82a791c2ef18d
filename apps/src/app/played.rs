//! Trials of an application on threads, for tests of what comes of them.

use streamhalo::{Device, StreamOptions, WorldOptions};

use super::{Answer, Application, Between, Outcome, Trial};
use crate::ranks::on_threads;

/// What comes of a trial on the ranks of a layout, which all have the same results.
pub(crate) fn play(application: &dyn Application, layout: &[usize], backend: &str) -> Outcome {
    play_on(&Device::host(), StreamOptions::default(), application, layout, backend)
}

/// The same with streams of a device.
pub(crate) fn play_on(
    device: &Device,
    options: StreamOptions,
    application: &dyn Application,
    layout: &[usize],
    backend: &str,
) -> Outcome {
    application.check_layout(layout).expect("fits");
    let outcomes = on_threads(layout.iter().product(), WorldOptions::default(), |world| {
        let (stream, between) = (device.stream_with(world, options)?, Between::default());
        // Before anything waits on the device for another rank.
        application.device_kernels().into_iter().try_for_each(|text| stream.compile(text))?;
        let trial = Trial { world, stream: &stream, backend, layout, wants_state: true, between };
        application.run_trial(&trial)
    });
    let mut outcomes = outcomes.expect("nothing fails");
    assert!(outcomes.iter().all(|outcome| outcome.answer.result == outcomes[0].answer.result), "{layout:?}");
    outcomes.swap_remove(0)
}

/// What the answer must be.
pub(crate) fn reference(application: &dyn Application) -> Answer {
    application.reference(&|| Ok(())).expect("nobody stops it")
}
