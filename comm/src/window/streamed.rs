//! Active target epochs on a stream: `MPIX_Win_post_stream`, `MPIX_Win_complete_stream` and
//! `MPIX_Win_wait_stream` of the paper (2023, section 4.4).

use super::account::Side;
use super::active::{Mode, Planned};
use super::epoch::Recorded;
use super::{Group, Window};
use crate::device::{Hold, Stream};
use crate::error::Result;
use crate::timeline::Activity;

impl Window {
    /// As [`Window::post`], once the stream has come to it. Returns at once, unless the host has to make room
    /// ([`ActiveOptions`](super::ActiveOptions)): one merged signal goes on the stream.
    ///
    /// # Errors
    /// As [`Window::post`]; [`crate::Error::WrongStream`] if the part is memory of another stream;
    /// [`crate::Error::Throttled`] or [`crate::Error::TimedOut`] as the window's options say;
    /// [`crate::Error::NotCapturable`] within a capture, here and below.
    pub fn post_stream(&self, group: &Group, stream: &Stream) -> Result<()> {
        const CALL: &str = "post_stream";
        stream.refuse_capture_of("`post_stream` of a window")?;
        self.check_group(group)?;
        let own = &self.inner().own;
        self.check_stream(own.section(), stream)?;
        let active = &mut *self.epochs(CALL)?;
        let hold = active.may_expose(CALL, own.section())?;
        let reserved = active.account.reserve(CALL, stream, group.size())?;
        active.expose(group, Mode::Stream, hold);
        own.enqueue_down();
        active.signals.each_exposure(group.ranks(), |signal, epoch| stream.write_values(signal, epoch));
        if let Some(far) = active.far.clone() {
            let exposures = active.far_exposures(group);
            let is_needed = !exposures.is_empty();
            let expose = move |_: &mut dyn FnMut() -> bool| far.expose(&exposures);
            enqueue(stream, Activity::Signal, "post_stream of a window", is_needed, expose);
        }
        active.account.queued(stream, &[Side::Exposure], reserved);
        Ok(())
    }

    /// Enqueues the operations of the access epoch and ends it, from the host's point of view. The stream goes on
    /// behind them once they are done: then gets have arrived and the sections may be written again, by what is
    /// behind them on the stream. Returns at once, unless the host has to make room
    /// ([`ActiveOptions`](super::ActiveOptions)); on an inline stream it blocks as [`Window::complete`] does.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no epoch of [`Mode::Stream`] has begun; [`crate::Error::OtherWorld`] if the stream is
    /// of another world than the window, [`crate::Error::WrongStream`] if an operation has a section of another stream,
    /// and [`crate::Error::Throttled`]: the epoch is still open then, and may be completed by another call.
    /// What goes wrong on the stream surfaces at [`Stream::synchronize`].
    pub fn complete_stream(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture_of("`complete_stream` of a window")?;
        const CALL: &str = "complete_stream";
        let active = &mut *self.epochs(CALL)?;
        let group = active.accessed(CALL, Mode::Stream)?;
        stream.check_world(&self.inner().world, "an epoch of a window")?;
        for operation in &active.operations {
            self.check_stream(operation.mirror.section(), stream)?;
        }
        let reserved = active.account.reserve(CALL, stream, active.operations.len() + group.size())?;
        if let Err(error) = active.plan(&group) {
            active.account.cancel(reserved);
            active.end_access();
            return Err(error);
        }
        let sides = active.sides(self.inner().own.section());
        active.operations.iter().for_each(Recorded::enqueue_before);
        let accesses = match &active.far {
            Some(_) => active.far_accesses(&group),
            None => Vec::new(),
        };
        let begun: Vec<_> = accesses.iter().map(|(target, epoch, _)| (*target, *epoch)).collect();
        if let Some(far) = active.far.clone() {
            let begin = move |_: &mut dyn FnMut() -> bool| far.begin(accesses).map(drop);
            enqueue(stream, Activity::Trigger, "complete_stream of a window", !begun.is_empty(), begin);
        }
        for planned in &active.planned {
            stream.enqueue_send(&planned.send, planned.epoch);
        }
        // A wait wakes whoever sleeps for its own sends; those of the others need not sleep as long as the first lasts. On a
        // device that would only end what is kept back for the wait.
        for Planned { departure, .. } in active.planned.iter().skip(1) {
            if stream.is_on_host() && !departure.signalled.is_empty() {
                stream.wake_signalled(departure);
            }
        }
        for planned in &active.planned {
            stream.wait_values(&planned.departure, planned.epoch);
        }
        if let Some(far) = active.far.clone() {
            let is_needed = !begun.is_empty();
            let finish = move |serve: &mut dyn FnMut() -> bool| far.finish(&begun, serve);
            enqueue(stream, Activity::Wait, "complete_stream of a window", is_needed, finish);
        }
        active.operations.iter().for_each(Recorded::enqueue_behind);
        active.operations.iter_mut().filter_map(|one| one.hold.take()).for_each(Hold::leave);
        active.account.queued(stream, sides, reserved);
        active.signals.complete(group.ranks());
        active.end_access();
        Ok(())
    }

    /// As [`Window::wait`], by the stream. Returns at once, except on an inline stream, which is the host: what is behind it
    /// on the stream sees what the origins have put.
    ///
    /// # Errors
    /// [`crate::Error::OutOfOrder`] if no exposure epoch of [`Window::post_stream`] has begun;
    /// [`crate::Error::WrongStream`] if the part is memory of another stream. What goes wrong on the stream surfaces
    /// at [`Stream::synchronize`].
    pub fn wait_stream(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture_of("`wait_stream` of a window")?;
        const CALL: &str = "wait_stream";
        let own = &self.inner().own;
        self.check_stream(own.section(), stream)?;
        let active = &mut *self.epochs(CALL)?;
        let group = active.exposed(CALL, Mode::Stream)?;
        let reserved = active.account.reserve(CALL, stream, 0)?;
        let hold = active.end_exposure();
        if let Some(far) = active.far.clone() {
            let exposures = active.far_exposures(&group);
            let is_needed = !exposures.is_empty();
            let wait = move |serve: &mut dyn FnMut() -> bool| far.completed(&exposures, &|| None, serve);
            enqueue(stream, Activity::Wait, "wait_stream of a window", is_needed, wait);
        }
        active.signals.each_completion(group.ranks(), |waits, epoch| stream.wait_values(waits, epoch));
        own.enqueue_up();
        hold.into_iter().for_each(Hold::leave);
        active.account.queued(stream, &[Side::Exposure], reserved);
        Ok(())
    }
}

/// Enqueues what a stream's thread has to do by itself for ranks whose memory is not mapped.
fn enqueue(
    stream: &Stream,
    activity: Activity,
    name: &str,
    is_needed: bool,
    function: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<()> + Send + 'static,
) {
    if is_needed {
        stream.enqueue_boxed(activity, name.into(), Box::new(function));
    }
}
