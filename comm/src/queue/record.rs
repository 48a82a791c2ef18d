//! What the two ranks of a pair tell each other as they match: once, and the same way round.
//!
//! Each side says what it is about to send or to receive and where the other one finds its memory. Both check
//! what they hear against what they have said, by the same rule, so that they come to the same verdict without
//! asking again.

use crate::device::Section;
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Place, Region};
use crate::world::World;
use serde::{Deserialize, Serialize};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Direction {
    /// Sends; `ready` where the application promises that the receive has been started.
    Send { ready: bool },
    /// Receives.
    Receive,
}

impl Direction {
    pub(super) fn is_send(self) -> bool {
        matches!(self, Direction::Send { .. })
    }
}

/// A request from its own rank's side.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    pub(crate) direction: Direction,
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    pub(crate) section: Section,
}

impl Side {
    /// For messages: what it does, with whom, with which tag.
    pub(crate) fn describe(&self) -> String {
        let Self { direction, peer, tag, .. } = self;
        match direction {
            Direction::Send { ready: false } => format!("send to rank {peer} with tag {tag}"),
            Direction::Send { ready: true } => format!("ready send to rank {peer} with tag {tag}"),
            Direction::Receive => format!("receive from rank {peer} with tag {tag}"),
        }
    }
}

/// Where memory of the teller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spot {
    key: u64,
    region_bytes: usize,
    pub(super) offset: usize,
}

impl Spot {
    pub(super) fn of(place: &Place) -> Self {
        let region = place.region();
        Self { key: region.key(), region_bytes: region.bytes(), offset: place.offset() }
    }

    /// The region that it is in, mapped into this rank, and where.
    pub(super) fn map(self, world: &World, owner: usize) -> Result<(Region, usize)> {
        Ok((world.fabric().map(owner, self.key, self.region_bytes)?, self.offset))
    }
}

/// What a rank tells the other one of its side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) direction: Direction,
    pub(super) tag: u32,
    pub(super) element: ElementType,
    pub(super) elements: usize,
    /// The word that the other rank writes: a sender's for clear-to-send, a receiver's for arrival.
    pub(super) word: Spot,
    /// Under which number the other rank parts from it, if it does not map it.
    pub(super) partings: u64,
    /// The section itself, or the copy of one on a device.
    pub(super) section: Spot,
    /// Whether waits of the teller may sleep until they are woken.
    pub(super) sleeps: bool,
}

/// What a rank tells another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Said {
    /// Of a request that is to be matched.
    Side(Record),
    /// That this rank has made its half of a pair that fits, with what a wire has to tell where memory is not mapped; or
    /// why there is none.
    Made { is_send: bool, tag: u32, half: Result<Vec<u8>, NoHalf> },
}

/// Why a rank has no half of a pair that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum NoHalf {
    /// The request was freed before it had its partner.
    Freed,
    /// The rank could not make it, for that reason.
    Failed(String),
}

impl NoHalf {
    /// The error of the partner, whose side this is.
    pub(super) fn error(self, side: &Side) -> Error {
        let operation = match self {
            NoHalf::Freed => format!("it has dropped its request without a match for a {}", side.describe()),
            NoHalf::Failed(reason) => format!("its part of the match of a {}: {reason}", side.describe()),
        };
        Error::PeerFailed { rank: side.peer, operation }
    }
}

impl Said {
    /// In the form in which it travels.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| unreadable("encoding what a match tells", &error))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        postcard::from_bytes(bytes).map_err(|error| unreadable("decoding what a match tells", &error))
    }
}

impl Record {
    pub(super) fn new(side: &Side, place: &Place, (word, partings): (Spot, u64)) -> Self {
        Self {
            direction: side.direction,
            tag: side.tag,
            element: side.section.element_type(),
            elements: side.section.elements(),
            word,
            partings,
            section: Spot::of(place),
            // By the world that it was made with, whose policy may be another one.
            sleeps: side.section.stream().status().context.policy.sleeps,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.elements * self.element.bytes()
    }

    fn describe(&self) -> String {
        format!("{} {}", self.elements, self.element)
    }
}

fn unreadable(call: &'static str, error: &postcard::Error) -> Error {
    Error::System { call, reason: error.to_string() }
}

/// Whether a send fits its receive: the same element type, and no more elements than there is room for.
pub(super) fn check(sender: usize, send: &Record, receiver: usize, receive: &Record) -> Result<()> {
    if send.element == receive.element && send.elements <= receive.elements {
        return Ok(());
    }
    Err(Error::Mismatch {
        sender,
        receiver,
        tag: send.tag,
        sent: send.describe(),
        expected: format!("receives at most {}", receive.describe()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, Device, Extents};
    use crate::fabric::WaitPolicy;
    use crate::world::WorldOptions;

    fn record(direction: Direction, element: ElementType, elements: usize) -> Record {
        let spot = Spot { key: 7, region_bytes: 4096, offset: 64 };
        Record { direction, tag: 3, element, elements, word: spot, partings: 0, section: spot, sleeps: true }
    }

    #[test]
    fn peers_are_told_how_the_stream_waits() {
        for sleeps in [true, false] {
            let policy = Some(WaitPolicy { spins: 1, yields: 0, sleeps });
            let ranks = World::threads(1, WorldOptions { policy, ..WorldOptions::default() }, |world| {
                let stream = Device::host().stream(&world)?;
                let line = Extents { points: [1, 1, 8], components: 1 };
                let section = Buffer::<f64>::zeros(&world, &stream, line)?.section(0..8)?;
                let side = Side { direction: Direction::Receive, peer: 0, tag: 3, section };
                let spot = Spot { key: 7, region_bytes: 4096, offset: 64 };
                Ok::<_, Error>(Record::new(&side, side.section.place(), (spot, 0)).sleeps)
            });
            assert_eq!(ranks, Ok(vec![Ok(sleeps)]));
        }
    }

    #[test]
    fn what_is_heard_is_what_was_said() {
        let sides = [Direction::Send { ready: true }, Direction::Send { ready: false }, Direction::Receive];
        let sides = sides.map(|direction| Said::Side(record(direction, ElementType::F32, usize::MAX / 4)));
        let failed = NoHalf::Failed("there is no more memory".into());
        let halves = [Ok(vec![1, 2, 3]), Err(NoHalf::Freed), Err(failed)];
        let wires = halves.map(|half| Said::Made { is_send: true, tag: 9, half });
        for said in sides.into_iter().chain(wires) {
            let bytes = said.encode().unwrap();
            assert_eq!(Said::decode(&bytes).unwrap(), said);
            let error = Said::decode(&bytes[..bytes.len() - 1]).unwrap_err();
            assert!(matches!(error, Error::System { call: "decoding what a match tells", .. }), "{error}");
        }
    }

    #[test]
    fn a_send_may_be_shorter_but_not_longer_nor_of_another_type() {
        let send = |element, elements| record(Direction::Send { ready: false }, element, elements);
        let receive = record(Direction::Receive, ElementType::F64, 10);
        assert_eq!(check(0, &send(ElementType::F64, 10), 1, &receive), Ok(()));
        assert_eq!(check(0, &send(ElementType::F64, 0), 1, &receive), Ok(()));
        for (element, elements, sent) in
            [(ElementType::F64, 11, "11 f64"), (ElementType::I64, 10, "10 i64"), (ElementType::U8, 3, "3 u8")]
        {
            let error = check(2, &send(element, elements), 5, &receive).unwrap_err();
            let expected = Error::Mismatch {
                sender: 2,
                receiver: 5,
                tag: 3,
                sent: sent.into(),
                expected: "receives at most 10 f64".into(),
            };
            assert_eq!(error, expected);
        }
    }
}
