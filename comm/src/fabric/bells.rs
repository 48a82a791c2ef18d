//! The words between a stream and whoever carries out what it has triggered.

use super::{FarExchange, LINE, Role, Word};
use crate::error::Result;
use crate::world::World;

/// The words of an exchange, in memory of this rank.
#[derive(Debug, Clone)]
pub(crate) struct Bells {
    /// Where the stream says that it starts to receive.
    pub(crate) start: Word,
    /// Where it says that a payload is packed, one a send.
    pub(crate) triggers: Vec<Word>,
    /// Where it waits for the payload to leave its staging memory, one a send.
    pub(crate) departures: Vec<Word>,
    /// Memory that a receiver may write to say that it is ready, one a send, for wires that need some.
    pub(crate) hearing: Vec<Word>,
    /// What it is written from.
    pub(crate) saying: Word,
}

impl Bells {
    /// Words as they are after the last epoch.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn new(world: &World, exchange: &FarExchange) -> Result<Self> {
        let (own, terms) = (world.rank(), exchange.terms);
        let sends = exchange.sends.len();
        let region = world.fabric().allocate((2 + 3 * sends) * LINE)?;
        let word = |line: usize, role: Role, from: usize, value: u32| {
            let word = region.word(line * LINE, role, from, own)?;
            word.cell().store(value);
            Ok(word)
        };
        let each = |part: usize, role: Role| -> Result<Vec<Word>> {
            let peers = exchange.sends.iter().enumerate();
            peers.map(|(i, send)| word(2 + part * sends + i, role, send.peer, terms.last_epoch)).collect()
        };
        Ok(Self {
            start: word(0, Role::Trigger, own, (terms.announced)(terms.last_epoch))?,
            saying: word(1, terms.readiness, own, 0)?,
            triggers: each(0, Role::Trigger)?,
            departures: each(1, Role::Departure)?,
            hearing: each(2, terms.readiness)?,
        })
    }
}
