//! Requests for notifications.

use super::unexpected::{ANY, Entry, Wanted};
use super::{Notified, State};
use crate::error::{Error, Result};
use crate::source::{Source, Tag};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

/// What a target is told of an access that has notified it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notification {
    /// The rank that has made the access.
    pub source: usize,
    /// The access's tag.
    pub tag: u32,
}

impl From<Entry> for Notification {
    fn from(entry: Entry) -> Self {
        Self { source: entry.source() as usize, tag: entry.tag() }
    }
}

/// A persistent request for notifications: complete once as many have come as it expects, from its source and
/// with its tag, since it was started. It is freed when dropped; until then it keeps the memory of its window in use.
///
/// Made by [`Window::notify_init`](super::super::Window::notify_init); belongs to the thread of its rank. It has
/// 32 bytes, and lies on one cache line (2015, section IV-B).
#[repr(C, align(32))]
pub struct NotifyRequest {
    notified: Rc<Notified>,
    wanted: Wanted,
    expected: u32,
    /// How many have matched, or [`INACTIVE`].
    matched: u32,
    last: Entry,
}

const _: () = assert!(size_of::<NotifyRequest>() == 32 && align_of::<NotifyRequest>() == 32);

/// Before the first start.
const INACTIVE: u32 = u32::MAX;

impl NotifyRequest {
    pub(crate) fn new(notified: Rc<Notified>, source: Source, tag: Tag, expected: u32) -> Self {
        let wanted = wanted(source, tag);
        Self { notified, wanted, expected, matched: INACTIVE, last: Entry::default() }
    }

    /// Begins to count. Notifications that have come already and that nobody has asked for count as well. Does
    /// not block. `MPI_Start`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it was started before and is not complete.
    #[inline]
    pub fn start(&mut self) -> Result<()> {
        if self.matched < self.expected {
            return Err(out_of_order("NotifyRequest::start", "its last start is not complete; wait for it"));
        }
        self.matched = 0;
        Ok(())
    }

    /// Whether it is complete: then the last notification that it has counted. It remains complete until it is
    /// started again. Does not block. `MPI_Test`.
    ///
    /// Notifications are matched in the order in which they have come, by whichever request is tested first;
    /// what the request does not match stays for others, however much that becomes. Those of one rank come in the order of
    /// its accesses; those of several in any order, even where one rank has waited for the other before its access.
    ///
    /// ```
    /// use streamhalo_comm::device::Device;
    /// use streamhalo_comm::window::{Notification, Window};
    /// use streamhalo_comm::{Error, Source, Tag, World, WorldOptions};
    ///
    /// let ranks = World::threads(2, WorldOptions::default(), |world| {
    ///     let stream = Device::host().stream(&world)?;
    ///     let window = Window::allocate::<f64>(&world, &stream, 4)?;
    ///     if world.rank() == 0 {
    ///         window.put_notify(&[2.5, 3.5], 1, 0, 7)?;
    ///     } else {
    ///         let mut request = window.notify_init(Source::Any, Tag::Any, 1)?;
    ///         request.start()?;
    ///         let notification = loop {
    ///             if let Some(notification) = request.test()? {
    ///                 break notification;
    ///             }
    ///             std::thread::yield_now(); // ... what else there is to do ...
    ///         };
    ///         assert_eq!(notification, Notification { source: 0, tag: 7 });
    ///         let mut come = [0.0; 2];
    ///         window.read(0, &mut come)?;
    ///         assert_eq!(come, [2.5, 3.5]);
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(ranks, [Ok(()), Ok(())]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it was never started; [`Error::PeerFailed`] as [`NotifyRequest::wait`]; what a wire says.
    #[inline]
    pub fn test(&mut self) -> Result<Option<Notification>> {
        if self.matched == INACTIVE {
            return Err(out_of_order("NotifyRequest::test", "start the request first"));
        }
        let Self { notified, wanted, expected, matched, last } = self;
        if matched < expected {
            let state = &mut *notified.state.borrow_mut();
            advance(state, (*wanted, wanted.from()), *expected, matched, last);
            if matched == expected {
                notified.serve_at_times(state);
            } else {
                // Who only tests has no other calls in which to do what others ask for.
                if state.serve()? {
                    advance(state, (*wanted, wanted.from()), *expected, matched, last);
                }
                state.failure()?;
                return Self::look_last(notified, state, (*wanted, *expected), matched, last);
            }
        }
        Ok(Some(Notification::from(*last)))
    }

    /// Looks whether what an incomplete request expects will not come, and then once more for what had been sent before.
    #[inline(never)]
    fn look_last(
        notified: &Notified,
        state: &mut State,
        (wanted, expected): (Wanted, u32),
        matched: &mut u32,
        last: &mut Entry,
    ) -> Result<Option<Notification>> {
        let Some(error) = notified.in_vain(state, wanted.from()) else { return Ok(None) };
        advance(state, (wanted, wanted.from()), expected, matched, last);
        if *matched == expected { Ok(Some(Notification::from(*last))) } else { Err(error) }
    }

    /// Blocks until it is complete, and gives the last notification that it has counted. `MPI_Wait`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if it was never started; [`Error::PeerFailed`] if its source, or every other rank
    /// if it takes any, has failed or dropped its end of the window; [`Error::TimedOut`].
    #[inline]
    pub fn wait(&mut self) -> Result<Notification> {
        // Most of them are there, or about to come.
        if self.await_puts() || self.look() { Ok(Notification::from(self.last)) } else { self.wait_long() }
    }

    /// Waits a moment for what mostly completes it, short puts of one source; whether it is complete. What lies between an
    /// arrival and its answer is here, and nothing else: it is short, and returns in a register.
    #[inline(never)]
    fn await_puts(&mut self) -> bool {
        let Self { notified, wanted, expected, matched, last } = self;
        let state = &mut *notified.state.borrow_mut();
        let (Wanted { source, tag }, expected) = (*wanted, *expected);
        if *matched >= expected || notified.serve_at_times(state) {
            return false;
        }
        if source == ANY || !state.unexpected.is_empty() {
            return false;
        }
        // How this rank waits is on lines of its own, which a notification that is there does not need.
        let looks = || notified.context.policy.spins.min(LOOKS_AT_ONCE);
        while let Some(entry) = state.await_put(source as usize, tag, looks) {
            (*matched, *last) = (*matched + 1, entry);
            if *matched == expected {
                return true;
            }
        }
        false
    }

    /// Looks for a while for what completes it, whatever it is; whether that has come.
    #[inline(never)]
    fn look(&mut self) -> bool {
        let Self { notified, wanted, expected, matched, last } = self;
        let (wanted, expected) = (*wanted, *expected);
        if *matched < expected {
            let (state, from) = (&mut *notified.state.borrow_mut(), wanted.from());
            advance(state, (wanted, from), expected, matched, last);
            let mut rounds = notified.context.policy.spins.min(LOOKS).div_ceil(LOOKS_AT_ONCE);
            while *matched < expected && rounds > 0 && !state.has_failed() {
                let before = *matched;
                match from.and_then(|source| state.await_put(source, wanted.tag, || LOOKS_AT_ONCE)) {
                    Some(entry) => (*matched, *last) = (before + 1, entry),
                    None => advance(state, (wanted, from), expected, matched, last),
                }
                rounds -= u32::from(*matched == before);
            }
        }
        *matched == expected
    }

    #[inline(never)]
    fn wait_long(&mut self) -> Result<Notification> {
        if self.matched == INACTIVE {
            return Err(out_of_order("NotifyRequest::wait", "start the request first"));
        }
        let Self { notified, wanted, expected, matched, last } = self;
        let (wanted, expected) = (*wanted, *expected);
        let source = wanted.from();
        let had_come = Cell::new(*matched);
        let what = || {
            let already = had_come.get();
            let (source, tag) = described(wanted);
            format!("{expected} notifications from {source} with {tag}, of which {already} had come,")
        };
        let notified: &Notified = notified;
        let state = &mut *notified.state.borrow_mut();
        notified.wait(state, (source, true), &what, &mut |state| {
            advance(state, (wanted, source), expected, matched, last);
            if *matched < expected && state.serve()? {
                advance(state, (wanted, source), expected, matched, last);
            }
            had_come.set(*matched);
            Ok(*matched == expected)
        })?;
        Ok(Notification::from(*last))
    }

    /// How many notifications have matched since it was started; as many as it expects if it is complete.
    pub fn matched(&self) -> u32 {
        if self.matched == INACTIVE { 0 } else { self.matched }
    }

    /// How many notifications complete it.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// Frees it: as dropping it does. `MPI_Request_free`.
    pub fn free(self) {}
}

/// Looks before a wait gives others a chance.
const LOOKS: u32 = 1_000;
/// Of these, looks at nothing but the line that the next packet of the source comes in.
const LOOKS_AT_ONCE: u32 = 50;

/// Counts what has come, of the queue first; `from` is [`Wanted::from`].
#[inline(always)]
fn advance(
    state: &mut State,
    (wanted, from): (Wanted, Option<usize>),
    expected: u32,
    matched: &mut u32,
    last: &mut Entry,
) {
    if !state.unexpected.is_empty() {
        advance_by_queue(state, wanted, expected, matched, last);
    }
    while *matched < expected {
        let Some(entry) = state.next_arrival((wanted, from)) else { return };
        (*matched, *last) = (*matched + 1, entry);
    }
}

#[inline(never)]
fn advance_by_queue(state: &mut State, wanted: Wanted, expected: u32, matched: &mut u32, last: &mut Entry) {
    while *matched < expected {
        let Some(entry) = state.unexpected.take(wanted) else { return };
        (*matched, *last) = (*matched + 1, entry);
    }
}

pub(super) fn wanted(source: Source, tag: Tag) -> Wanted {
    Wanted {
        source: match source {
            Source::Any => ANY,
            Source::Rank(rank) => rank as u32,
        },
        tag: match tag {
            Tag::Any => ANY,
            Tag::Value(tag) => tag,
        },
    }
}

fn described(wanted: Wanted) -> (Source, Tag) {
    let source = if wanted.source == ANY { Source::Any } else { Source::Rank(wanted.source as usize) };
    let tag = if wanted.tag == ANY { Tag::Any } else { Tag::Value(wanted.tag) };
    (source, tag)
}

#[cold]
fn out_of_order(call: &'static str, reason: &str) -> Error {
    Error::OutOfOrder { call, reason: reason.into() }
}

impl fmt::Debug for NotifyRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, tag) = described(self.wanted);
        write!(f, "NotifyRequest({} of {} from {source} with {tag})", self.matched(), self.expected)
    }
}
