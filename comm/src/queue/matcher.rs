//! Who belongs to whom: requests are paired by peer, tag and the order of the calls that match them.

use super::pair::Pair;
use super::record::{Direction, NoHalf, Record, Said, Side, check};
use super::words::{End, Words};
use crate::device::Mirror;
use crate::error::{Error, Result};
use crate::fabric::{FarExchange, FarRecv, FarSend, HalfOpen, Listening, Place, Role, Room, Terms, Word};
use crate::world::World;
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

/// How far a request has come with its match. Shared by the request, by whoever waits for the match, and by the
/// matcher, which does not keep it alive.
#[derive(Debug, Default)]
pub(crate) struct MatchState(RefCell<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unmatched,
    /// The peer has been told, and has not answered.
    Posted,
    Matched(Box<Pair>),
    Failed {
        error: Error,
        /// Whether somebody knows.
        is_told: bool,
    },
}

impl MatchState {
    /// Whether it has a partner.
    pub(crate) fn is_matched(&self) -> bool {
        matches!(*self.0.borrow(), State::Matched(_))
    }

    /// Whether it waits for a partner.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(*self.0.borrow(), State::Posted)
    }

    /// Whether a match was begun that nobody knows the end of.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.0.borrow(), State::Posted | State::Failed { is_told: false, .. })
    }

    /// Tells the error of a match that has failed, after which it may be tried again.
    pub(super) fn tell_error(&self) -> Option<Error> {
        match &mut *self.0.borrow_mut() {
            State::Failed { error, is_told } => {
                *is_told = true;
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Does something with the pair, if there is one.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Pair) -> T) -> Option<T> {
        match &mut *self.0.borrow_mut() {
            State::Matched(pair) => Some(act(pair)),
            _ => None,
        }
    }

    fn decide(&self, result: Result<Pair>) {
        *self.0.borrow_mut() = match result {
            Ok(pair) => State::Matched(Box::new(pair)),
            Err(error) => State::Failed { error, is_told: false },
        };
    }
}

/// Whom a half is for: the peer, the tag, and whether this rank is the sender.
type Key = (usize, u32, bool);

/// Pairs requests of one communicator.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    words: Words,
    /// Halves of this rank that their peers have been told of, in the order of the calls.
    ours: HashMap<Key, VecDeque<Posted>>,
    /// What peers have told of halves that have no partner here yet.
    theirs: HashMap<Key, VecDeque<Record>>,
    /// Pairs that fit, until their peers say that they have made theirs: who frees a request then takes nothing away
    /// that its peer has yet to map, or that a wire has yet to be told of.
    opening: HashMap<Key, VecDeque<Opening>>,
    /// What is to be said, to whom.
    outbox: Vec<(usize, Vec<u8>)>,
    /// What went wrong while the rank waited for something else.
    failed: Option<Error>,
}

/// A half that its peer has been told of.
#[derive(Debug)]
struct Posted {
    half: Weak<MatchState>,
    side: Side,
    mirror: Mirror,
    word: Word,
    /// Has partings of a peer over a wire come to the word.
    listening: Option<Listening>,
    told: Record,
}

/// A pair that fits, and what this rank has made of it.
#[derive(Debug)]
struct Opening {
    half: Weak<MatchState>,
    side: Side,
    made: Result<Made>,
}

#[derive(Debug)]
enum Made {
    Near(Box<Pair>),
    /// This rank's half of what carries a message of so many bytes.
    Far {
        mirror: Mirror,
        bytes: usize,
        end: Box<End>,
        wire: Box<dyn HalfOpen>,
    },
    /// Nothing, of a request that was freed. Its peer may have mapped nothing yet of what it was told of.
    Nothing {
        _told: (Mirror, Word),
    },
}

impl Matcher {
    /// Begins to match a half.
    pub(super) fn post(&mut self, world: &World, side: &Side, half: &Rc<MatchState>) -> Result<()> {
        let role = if side.direction.is_send() { Role::ClearToSend } else { Role::Completion };
        let mirror = Mirror::new(world, &side.section)?;
        let (word, spot) = self.words.take(world, role, side.peer)?;
        word.set(world.last_epoch());
        let partings = world.fabric().partings().filter(|_| !world.fabric().is_mapped(side.peer));
        let listening = partings.map(|partings| {
            let number = partings.number();
            (number, partings.listen(number, vec![word.clone()]))
        });
        let (number, listening) = listening.unzip();
        let told = Record::new(side, mirror.place(), (spot, number.unwrap_or(0)));
        self.outbox.push((side.peer, Said::Side(told.clone()).encode()?));
        *half.0.borrow_mut() = State::Posted;
        let posted = Posted { half: Rc::downgrade(half), side: side.clone(), mirror, word, listening, told };
        let key = (side.peer, side.tag, side.direction.is_send());
        match take_first(&mut self.theirs, key) {
            Some(record) => self.join(world, posted, &record),
            None => {
                self.ours.entry(key).or_default().push_back(posted);
                Ok(())
            }
        }
    }

    /// Takes in what a peer has told.
    pub(super) fn hear(&mut self, world: &World, source: usize, bytes: &[u8]) -> Result<()> {
        match Said::decode(bytes)? {
            Said::Side(record) => {
                let key = (source, record.tag, !record.direction.is_send());
                match take_first(&mut self.ours, key) {
                    Some(posted) => self.join(world, posted, &record),
                    None => {
                        self.theirs.entry(key).or_default().push_back(record);
                        Ok(())
                    }
                }
            }
            Said::Made { is_send, tag, half } => {
                // It was said in answer to this rank's side, for pairs in the order in which they were found.
                if let Some(opening) = take_first(&mut self.opening, (source, tag, !is_send)) {
                    opening.complete(half);
                }
                Ok(())
            }
        }
    }

    /// What is to be said, to whom.
    pub(super) fn take_outbox(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether peers have still to say something to halves of this rank.
    pub(super) fn is_matching(&self) -> bool {
        !self.ours.is_empty() || !self.opening.is_empty()
    }

    /// A peer for which that is true, if one has still to say something to halves of this rank.
    pub(super) fn awaited(&self, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut peers = self.ours.keys().chain(self.opening.keys()).map(|(peer, ..)| *peer);
        peers.find(|peer| is_wanted(*peer))
    }

    /// Drops all halves for a peer that has left, which will say nothing more; they fail with what `left` makes of them.
    pub(super) fn forget(&mut self, peer: usize, left: impl Fn(&Side) -> Error) {
        let is_of_peer = |key: &Key| key.0 == peer;
        self.theirs.retain(|key, _| !is_of_peer(key));
        let posted = self.ours.extract_if(|key, _| is_of_peer(key)).flat_map(|(_, posted)| posted);
        let posted = posted.map(|posted| (posted.half, posted.side));
        let opening = self.opening.extract_if(|key, _| is_of_peer(key)).flat_map(|(_, opening)| opening);
        for (half, side) in posted.chain(opening.map(|opening| (opening.half, opening.side))) {
            half.upgrade().inspect(|half| half.decide(Err(left(&side))));
        }
    }

    /// Keeps an error for the next call that can give it.
    pub(super) fn keep(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Gives what was kept.
    pub(super) fn failure(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Joins both halves, or has a wire begin to, and says so. A request that was dropped meanwhile has used up its
    /// partner all the same.
    fn join(&mut self, world: &World, posted: Posted, record: &Record) -> Result<()> {
        let Posted { half, side, mirror, word, listening, told } = posted;
        let (own, peer, is_send) = (world.rank(), side.peer, side.direction.is_send());
        let fits = if is_send { check(own, &told, peer, record) } else { check(peer, record, own, &told) };
        if let Err(error) = fits {
            // The peer finds the same.
            half.upgrade().inspect(|half| half.decide(Err(error)));
            return Ok(());
        }
        let (said, made) = if half.strong_count() == 0 {
            (Err(NoHalf::Freed), Ok(Made::Nothing { _told: (mirror, word) }))
        } else {
            let made = if world.fabric().is_mapped(peer) {
                let pair = Pair::near(world, (side.clone(), mirror), word, record);
                pair.map(|pair| (Vec::new(), Made::Near(Box::new(pair))))
            } else {
                let send = if is_send { &told } else { record };
                let begun = begin(world, &mut self.words, (&side, mirror.place()), &word, send);
                let end = Box::new(End::new(world, word, listening, record));
                begun.map(|(said, wire)| (said, Made::Far { mirror, bytes: send.bytes(), end, wire }))
            };
            match made {
                Ok((said, made)) => (Ok(said), Ok(made)),
                Err(error) => (Err(NoHalf::Failed(error.to_string())), Err(error)),
            }
        };
        let said = Said::Made { is_send, tag: side.tag, half: said };
        self.outbox.push((peer, said.encode()?));
        self.opening.entry((peer, side.tag, is_send)).or_default().push_back(Opening { half, side, made });
        Ok(())
    }
}

/// Takes the first of those with a key, and keeps nothing for keys of which there are none any more.
fn take_first<T>(all: &mut HashMap<Key, VecDeque<T>>, key: Key) -> Option<T> {
    let Entry::Occupied(mut of_key) = all.entry(key) else { return None };
    let first = of_key.get_mut().pop_front();
    if of_key.get().is_empty() {
        of_key.remove();
    }
    first
}

/// Has the wire make this rank's half of a message.
fn begin(
    world: &World,
    words: &mut Words,
    (side, place): (&Side, &Place),
    own: &Word,
    send: &Record,
) -> Result<(Vec<u8>, Box<dyn HalfOpen>)> {
    let wire = world.fabric().wire().ok_or_else(|| Error::OperationFailed {
        operation: format!("the match of a {}", side.describe()),
        message: "nothing carries messages to that rank".into(),
    })?;
    let terms = Terms { last_epoch: world.last_epoch(), room: Room::Shared, ..Terms::CLEAR_TO_SEND };
    let with_clearance = send.direction != Direction::Send { ready: true };
    let (peer, bytes) = (side.peer, send.bytes());
    let (sends, recvs) = match side.direction {
        Direction::Send { .. } => {
            let (staging, clear) = (place.clone(), own.clone());
            (
                vec![FarSend {
                    peer,
                    tag: side.tag,
                    block: None,
                    bytes,
                    staging,
                    awaits: with_clearance,
                    clear,
                }],
                Vec::new(),
            )
        }
        Direction::Receive => {
            let (slots, arrivals) = ([place.clone(), place.clone()], [own.clone(), own.clone()]);
            let announces = with_clearance;
            (
                Vec::new(),
                vec![FarRecv { peer, tag: side.tag, block: None, bytes, slots, arrivals, announces }],
            )
        }
    };
    // Arrivals are flagged, not counted; the wire wants the words all the same.
    let mut count = || Ok(words.take(world, Role::Notification, peer)?.0);
    let counts = [count()?, count()?];
    wire.begin_pair(world, FarExchange { terms, sends, recvs, counts, device: None })
}

impl Opening {
    /// Decides the half, when the peer has made its own, or could not.
    fn complete(self, theirs: std::result::Result<Vec<u8>, NoHalf>) {
        let Some(half) = self.half.upgrade() else { return };
        let theirs = theirs.map_err(|none| none.error(&self.side));
        let pair = self.made.and_then(|made| match (made, theirs?) {
            (Made::Near(pair), _) => Ok(*pair),
            (Made::Far { mirror, bytes, end, wire }, theirs) => {
                Pair::far((self.side, mirror), bytes, *end, wire.complete(&theirs)?)
            }
            (Made::Nothing { .. }, _) => unreachable!("a request that was freed waits for nothing"),
        });
        half.decide(pair);
    }
}
