//! Throttling: operations that are queued ahead of a stream take entries, of which there are few on real
//! network interfaces, and somebody has to make room (Namashivayam et al. 2023, section 5.2).

use crate::error::Error;
use crate::named::named;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Who makes room when all entries for triggered operations are in use, and how much.
///
/// ```
/// use streamhalo_comm::device::{Buffer, Device, Extents, StreamKind, StreamOptions};
/// use streamhalo_comm::fabric::Throttling;
/// use streamhalo_comm::window::{ActiveOptions, Group, Mode, Window};
/// use streamhalo_comm::{Error, Op, World, WorldOptions};
///
/// assert_eq!(Throttling::from_name("static"), Some(Throttling::Static));
/// for throttling in Throttling::ALL {
///     let ranks = World::threads(2, WorldOptions::default(), |world| {
///         let options = StreamOptions { kind: StreamKind::Threaded, threads: 1 };
///         let stream = Device::host().stream_with(&world, options)?;
///         let line = Extents { points: [1, 1, 1], components: 1 };
///         let [mut own, sum] = [Buffer::zeros(&world, &stream, line)?, Buffer::zeros(&world, &stream, line)?];
///         own.view_mut(line.whole())?.fill(1 + world.rank() as i64);
///         // Few entries, which the epochs ahead of the stream soon hold all of.
///         let options = ActiveOptions { throttling, entries: 4 };
///         let window = Window::active(&world, &sum.section(0..1)?, options)?;
///         // What `Throttling::Application` refuses is tried again; the others wait for the stream themselves.
///         let with_room = |enqueue: &dyn Fn() -> Result<(), Error>| match enqueue() {
///             Err(Error::Throttled { .. }) => stream.synchronize().and_then(|()| enqueue()),
///             enqueued => enqueued,
///         };
///         let peer = Group::new(&world, &[1 - world.rank()])?;
///         for _ in 0..20 {
///             with_room(&|| window.post_stream(&peer, &stream))?;
///             window.start(&peer, Mode::Stream)?;
///             window.accumulate(&own.section(0..1)?, 1 - world.rank(), 0, Op::Sum)?;
///             with_room(&|| window.complete_stream(&stream))?;
///             window.wait_stream(&stream)?;
///         }
///         stream.synchronize()?;
///         sum.copy_out(line.whole())
///     })?;
///     assert_eq!(ranks, [Ok(vec![40]), Ok(vec![20])], "{}", throttling.name());
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Throttling {
    /// The application (section 5.2.1): what finds no room is refused with [`crate::Error::Throttled`], and
    /// may be tried again once the stream was synchronised.
    Application,
    /// The host waits until all that was queued has completed (section 5.2.2).
    Static,
    /// The host waits until enough of the oldest has completed (section 5.2.3).
    #[default]
    Adaptive,
}

named!(Throttling { Application = "application", Static = "static", Adaptive = "adaptive" });

/// An account of triggered entries.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    in_use: AtomicUsize,
    /// What somebody is to have whenever he wants, once what others have taken ahead is given back.
    kept: AtomicUsize,
}

impl Budget {
    /// Of that many entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, in_use: AtomicUsize::new(0), kept: AtomicUsize::new(0) }
    }

    /// Takes `entries` of them, all or none, and says whether it could.
    pub(crate) fn try_reserve(&self, entries: usize) -> bool {
        self.try_add(&self.in_use, entries)
    }

    fn try_add(&self, to: &AtomicUsize, entries: usize) -> bool {
        let fits = |before: usize| before.checked_add(entries).filter(|sum| *sum <= self.limit);
        to.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Whether there is room for `entries` beside those that others keep, whatever is in use now: then they are kept, and may
    /// be reserved once that has completed.
    pub(crate) fn try_keep(&self, entries: usize) -> bool {
        self.try_add(&self.kept, entries)
    }

    /// Keeps `entries` no longer. They are to be released besides.
    pub(crate) fn let_go(&self, entries: usize) {
        self.kept.fetch_sub(entries, Ordering::AcqRel);
    }

    /// How many are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::Acquire)
    }

    /// Gives back `entries` that have completed.
    pub(crate) fn release(&self, entries: usize) {
        let before = self.in_use.fetch_sub(entries, Ordering::AcqRel);
        debug_assert!(before >= entries, "{entries} entries given back, {before} were taken");
    }

    /// The error of a call that found no room for `entries`.
    pub(crate) fn refusal(&self, call: &'static str, entries: usize) -> Error {
        Error::Throttled { call, entries, in_use: self.in_use(), limit: self.limit }
    }

    /// How many may be outstanding.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// How many are.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_all_or_nothing() {
        let budget = Budget::new(3);
        assert!(budget.try_reserve(2));
        assert!(!budget.try_reserve(2));
        assert_eq!(budget.in_use(), 2);
        assert!(budget.try_reserve(1));
        assert!(!budget.try_reserve(1));
        budget.release(2);
        assert!(budget.try_reserve(2));
        assert_eq!((budget.in_use(), budget.limit()), (3, 3));
        assert!(!budget.try_reserve(usize::MAX));
    }

    #[test]
    fn what_is_kept_has_room_whatever_is_in_use() {
        let budget = Budget::new(5);
        assert!(budget.try_keep(2) && budget.try_reserve(2));
        // Ahead of what is kept.
        assert!(budget.try_reserve(2));
        assert!(budget.try_keep(2) && !budget.try_reserve(2));
        assert!(!budget.try_keep(2));
        budget.release(2);
        assert!(budget.try_reserve(2));
        budget.let_go(2);
        budget.release(2);
        assert!(budget.try_keep(3));
        assert_eq!((budget.kept(), budget.in_use()), (5, 2));
    }
}
