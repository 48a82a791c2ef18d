//! Matching persistent requests (2026, section III-C, table II).

use super::matcher::{MatchState, Matcher};
use super::record::Side;
use crate::communicator::{Communicator, Host, PersistentRequest};
use crate::error::{Error, Result};
use crate::fabric::WaitContext;
use crate::world::World;
use std::cell::RefCell;
use std::rc::Rc;
use std::slice::from_mut;
use std::time::Duration;

/// Blocks until a request has its partner (`MPI_Match`): the persistent request of the peer for the same tag
/// whose call of this kind came in the same place among all for that peer, tag and direction. That is so until
/// both are freed. Which side calls first does not matter. Between queues the pair then needs no more matching;
/// the host may still start the request, which meets ordinary messages then, as before.
///
/// A request that is being matched already, since a call before has timed out or [`imatch_one`] has begun it, is not
/// matched anew: that match is waited for. A match that was begun is not taken back, also if the request is freed: the
/// peer's request that comes next for it then has a partner that is gone, and what is started of it fails with
/// [`Error::PeerFailed`].
///
/// # Errors
/// [`Error::WildcardRefused`] for a receive from any source or with any tag, and [`Error::OutOfOrder`] for a
/// request that is active, or matched already. Else, on both ranks, [`Error::Mismatch`] if the element types
/// differ or more is sent than there is room for; the requests are then unmatched, and may be freed.
/// [`Error::TimedOut`] if the peer does not match its own, after which the match goes on. [`Error::PeerFailed`] if a rank
/// has failed, or if the peer has freed the request that would have been the partner, has dropped its communicator, or
/// could not make its part of the pair. [`Error::OutOfMemory`] for the copy of a section on a device.
pub fn match_one(request: &mut PersistentRequest) -> Result<()> {
    begin("match_one", from_mut(request), true)?.wait()
}

/// As [`match_one`], for several requests (`MPI_Matchall`), which may be of one's own and of any number of
/// peers: this rank says all that it has to say before it waits for anything.
///
/// # Errors
/// As [`match_one`]; those that are refused at once leave all of them as they were. The others are the first
/// that is found once it is known for all requests whether they match.
pub fn match_all(requests: &mut [PersistentRequest]) -> Result<()> {
    begin("match_all", requests, true)?.wait()
}

/// Begins to match a request (`MPI_Imatch`). Does not block. It goes on in whatever blocks the rank's thread, and is not
/// taken back if the result is dropped.
///
/// ```
/// use streamhalo_comm::device::{Buffer, Device, Extents};
/// use streamhalo_comm::queue::imatch_one;
/// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
///
/// let ranks = World::threads(2, WorldOptions::default(), |world| {
///     let stream = Device::host().stream(&world)?;
///     let communicator = Communicator::new(&world)?;
///     let line = Extents { points: [1, 1, 8], components: 1 };
///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
///     let mut request = match world.rank() {
///         0 => communicator.send_init(&cells.section(0..8)?, 1, 7)?,
///         _ => communicator.recv_init(&cells.section(0..8)?, 0, 7)?,
///     };
///     let mut matching = imatch_one(&mut request)?;
///     while !matching.test()? {
///         // ... what else is to be set up ...
///         std::thread::yield_now();
///     }
///     assert!(request.is_matched());
///     Ok::<_, Error>(())
/// })?;
/// assert_eq!(ranks, [Ok(()), Ok(())]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// As [`match_one`], for what is refused at once, and [`Error::OutOfOrder`] for a request that is being matched.
pub fn imatch_one(request: &mut PersistentRequest) -> Result<MatchRequest> {
    begin("imatch_one", from_mut(request), false)
}

/// Begins to match several requests, with one request to wait for them all (`MPI_Imatchall`). Does not block.
///
/// ```
/// use streamhalo_comm::device::{Buffer, Device, Extents};
/// use streamhalo_comm::queue::imatch_all;
/// use streamhalo_comm::{Communicator, Error, World, WorldOptions};
///
/// let ranks = World::threads(2, WorldOptions::default(), |world| {
///     let stream = Device::host().stream(&world)?;
///     let communicator = Communicator::new(&world)?;
///     let line = Extents { points: [1, 1, 8], components: 1 };
///     let cells = Buffer::<f64>::zeros(&world, &stream, line)?;
///     let peer = 1 - world.rank();
///     let receive = communicator.recv_init(&cells.section(0..4)?, peer, 7)?;
///     let send = communicator.send_init(&cells.section(4..8)?, peer, 7)?;
///     let mut requests = [receive, send];
///     let mut matching = imatch_all(&mut requests)?;
///     // ... what else is to be set up ...
///     matching.wait()?;
///     assert!(requests.iter().all(|request| request.is_matched()));
///     Ok::<_, Error>(())
/// })?;
/// assert_eq!(ranks, [Ok(()), Ok(())]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// As [`imatch_one`].
pub fn imatch_all(requests: &mut [PersistentRequest]) -> Result<MatchRequest> {
    begin("imatch_all", requests, false)
}

/// Begins what has not begun; with `joins` others are waited for too.
fn begin(call: &'static str, requests: &mut [PersistentRequest], joins: bool) -> Result<MatchRequest> {
    let mut sides = Vec::with_capacity(requests.len());
    for request in requests.iter() {
        let side = request.side().ok_or(Error::WildcardRefused { call })?;
        let refused = if request.match_state().is_matched() {
            Some("is matched already, which lasts until it is freed")
        } else if request.match_state().is_posted() && !joins {
            Some("is being matched")
        } else if request.is_active() {
            Some("has been started; wait for it first")
        } else {
            None
        };
        if let Some(reason) = refused {
            return Err(Error::OutOfOrder { call, reason: format!("the {} {reason}", side.describe()) });
        }
        // Of what was begun before, and is nobody's any more: not behind what this call says to peers.
        request.communicator().matcher().borrow_mut().failure()?;
        sides.push(side);
    }
    let mut matching = MatchRequest { waiting: Vec::with_capacity(requests.len()), failed: None };
    for (request, side) in requests.iter().zip(sides) {
        let communicator = request.communicator().clone();
        if !(joins && request.match_state().is_open())
            && let Err(error) = post(&communicator, &side, request.match_state())
        {
            // Peers have been told of those before it, which somebody has to wait for.
            matching.failed.get_or_insert(error);
        }
        let (peer, what) = (side.peer, side.describe());
        matching.waiting.push(Waiting {
            communicator,
            peer,
            what,
            match_state: request.match_state().clone(),
        });
    }
    Ok(matching)
}

/// Tells the peer of a half.
fn post(communicator: &Communicator, side: &Side, half: &Rc<MatchState>) -> Result<()> {
    let (world, matcher) = (communicator.world(), &mut communicator.matcher().borrow_mut());
    matcher.post(world, side, half)?;
    answer(world, communicator.host(), matcher, Vec::new())
}

/// Requests that are being matched. Neither persistent nor to be cancelled.
#[derive(Debug)]
#[must_use = "a match is known to be complete once this has been tested or waited for"]
pub struct MatchRequest {
    waiting: Vec<Waiting>,
    /// The first error that was found.
    failed: Option<Error>,
}

#[derive(Debug)]
struct Waiting {
    communicator: Communicator,
    peer: usize,
    what: String,
    match_state: Rc<MatchState>,
}

impl Waiting {
    /// Whether the peer still has to hear that this rank has made its half, which is lost with the communicator.
    fn is_untold(&self) -> bool {
        self.communicator.host().lock().has_untold(self.peer)
    }
}

impl MatchRequest {
    /// Whether all are matched. Does not block. As in the example of [`imatch_one`].
    ///
    /// # Errors
    /// As [`match_all`], once it is known for all of them whether they match.
    pub fn test(&mut self) -> Result<bool> {
        let mut heard: Option<&Communicator> = None;
        for one in &self.waiting {
            if !heard.is_some_and(|heard| heard.is_same(&one.communicator)) {
                hear(&one.communicator)?;
                heard = Some(&one.communicator);
            }
        }
        let failed = &mut self.failed;
        self.waiting.retain(|one| {
            if let Some(error) = one.match_state.tell_error() {
                failed.get_or_insert(error);
            }
            one.match_state.is_posted() || one.is_untold()
        });
        match &self.failed {
            // Whoever asks again is told again.
            Some(error) if self.waiting.is_empty() => Err(error.clone()),
            failed => Ok(failed.is_none() && self.waiting.is_empty()),
        }
    }

    /// Blocks until all are matched.
    ///
    /// # Errors
    /// As [`match_all`].
    pub fn wait(&mut self) -> Result<()> {
        let Some(first) = self.waiting.first() else { return self.test().map(|_| ()) };
        let context = first.communicator.world().wait_context().clone();
        let requests = self.waiting.len();
        let this = RefCell::new(self);
        context.poll(&mut || this.borrow_mut().test(), &|waited| {
            this.borrow().late(context.rank, requests, waited)
        })
    }

    /// The error of a wait for so many requests that has taken too long.
    fn late(&self, rank: usize, requests: usize, waited: Duration) -> Error {
        match (&self.failed, self.waiting.as_slice()) {
            (None, [one, ..]) => Error::TimedOut {
                rank,
                peer: one.peer,
                what: format!("the match of a {}", one.what),
                wanted: requests as u32,
                found: (requests - self.waiting.len()) as u32,
                waited,
            },
            // What is wrong says more than that something else is late.
            (Some(error), _) => error.clone(),
            (None, []) => unreachable!("what all are matched of is not late"),
        }
    }
}

/// Takes in what the peers have told.
pub(super) fn hear(communicator: &Communicator) -> Result<()> {
    communicator.progress()?;
    let mut matcher = communicator.matcher().borrow_mut();
    matcher.failure()?;
    let told = communicator.host().lock().take_told();
    go_further(communicator.world(), communicator.host(), &mut matcher, told)
}

/// Goes on with what was begun, whatever the rank waits for: its peers' matches need its answers. Whether peers still have
/// to say something, for which nothing wakes whoever waits for something else.
pub(crate) fn go_on(world: &World, host: &Host, matcher: &RefCell<Matcher>) -> bool {
    // Whoever has it goes on.
    let Ok(mut matcher) = matcher.try_borrow_mut() else { return false };
    if !matcher.is_matching() {
        return false;
    }
    let Some(told) = host.try_lock().map(|mut engine| engine.take_told()) else { return false };
    if let Err(error) = go_further(world, host, &mut matcher, told) {
        matcher.keep(error);
    }
    true
}

/// Answers what the peers have told, and gives up what is expected of those that have left: otherwise all later waits of
/// this rank would look for it, and never sleep for long.
fn go_further(world: &World, host: &Host, matcher: &mut Matcher, told: Vec<(usize, Vec<u8>)>) -> Result<()> {
    answer(world, host, matcher, told)?;
    while let Some(peer) = matcher.awaited(|peer| host.lock().has_left(peer)) {
        // It has said before whatever it had to say.
        let mut engine = host.lock();
        engine.hear_out()?;
        let told = engine.take_told();
        drop(engine);
        answer(world, host, matcher, told)?;
        matcher.forget(peer, |side| left(world.wait_context(), side));
    }
    Ok(())
}

/// The error of a half whose peer has dropped its communicator.
fn left(context: &WaitContext, side: &Side) -> Error {
    if context.abort.failure().is_some() {
        return context.peer_failure();
    }
    let operation = format!("it has dropped its communicator without a match for a {}", side.describe());
    Error::PeerFailed { rank: side.peer, operation }
}

/// Takes in what the peers have told, and tells them what the matcher has for them. Without the engine: what was matched may
/// be the last use of a stream, whose thread needs it to come to its end.
fn answer(world: &World, host: &Host, matcher: &mut Matcher, told: Vec<(usize, Vec<u8>)>) -> Result<()> {
    for (source, bytes) in told {
        matcher.hear(world, source, &bytes)?;
    }
    matcher.take_outbox().into_iter().try_for_each(|(peer, bytes)| host.lock().tell(peer, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents};
    use crate::queue::match_one;
    use crate::world::WorldOptions;

    /// Whether somebody waits for the match or has dropped it, and also where the peer has told of its own half.
    #[test]
    fn nothing_more_is_expected_of_a_peer_that_has_left() {
        let results = World::threads(3, WorldOptions::default(), |world| -> Result<bool> {
            let communicator = Communicator::new(&world)?;
            let stream = Device::host().stream(&world)?;
            let buffer = Buffer::<f64>::zeros(&world, &stream, Extents { points: [1, 1, 9], components: 1 })?;
            let section = buffer.section(0..3)?;
            let mut unheard = communicator.recv_init(&section, 0, 2)?;
            if world.rank() == 2 {
                drop(imatch_all(std::slice::from_mut(&mut unheard))?);
                drop((unheard, communicator));
                world.barrier()?;
                return Ok(false);
            }
            let other = 1 - world.rank();
            let to_other = match world.rank() {
                0 => communicator.send_init(&section, other, 1)?,
                _ => communicator.recv_init(&section, other, 1)?,
            };
            let to_leaver = |tag| communicator.send_init(&section, 2, tag);
            let mut dropped = to_leaver(4)?;
            drop(imatch_all(std::slice::from_mut(&mut dropped))?);
            let mut requests = [to_other, to_leaver(1)?, to_leaver(2)?];
            let mut matching = imatch_all(&mut requests)?;
            assert!(communicator.matcher().borrow().is_matching());
            let told = matching.wait();
            assert!(matches!(told, Err(Error::PeerFailed { rank: 2, .. })), "{told:?}");
            assert!(requests[0].is_matched());
            let again = match_one(&mut requests[1]);
            assert!(matches!(again, Err(Error::PeerFailed { rank: 2, .. })), "{again:?}");
            world.barrier()?;
            // An error of before, which a question that has none leaves to the next call.
            communicator
                .matcher()
                .borrow_mut()
                .keep(Error::Unmatched { call: "none", request: "none".into() });
            assert!(requests[0].is_matched());
            let kept = imatch_all(&mut requests[2..]).map(drop);
            assert!(matches!(kept, Err(Error::Unmatched { call: "none", .. })), "{kept:?}");
            // The same while this rank waits for something else.
            drop(imatch_all(&mut requests[2..])?);
            go_on(&world, communicator.host(), communicator.matcher());
            Ok(communicator.matcher().borrow().is_matching())
        });
        for result in results.expect("threads start") {
            assert_eq!(result, Ok(false));
        }
    }
}
