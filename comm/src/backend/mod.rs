//! Backends: ways to carry out a matched, persistent neighbourhood exchange.
//!
//! A backend is one file and one row of [`BACKENDS`]. [`match_exchange`] makes an [`Exchange`] out of
//! what every rank wants to send and to receive.

mod active_rma;
mod announcement;
mod auto;
mod blocks;
mod far;
mod farewell;
mod matching;
mod notified;
mod protocol;
mod reach;
mod st_rsend;
mod st_send;
mod standard;
mod step;
mod triggered;

use crate::device::{MoveTable, Sharing, Stream};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::{Executor, Place, Region, Room, Terms};
use crate::world::World;
use protocol::Protocol;
use reach::{Reach, Site};
use standard::Standard;
use std::fmt;
use std::sync::Arc;
use triggered::Triggered;

pub(crate) use auto::Known;
pub use auto::{AUTO, ExchangeShape, Measured};

/// Whether, and when, a sender may write straight into the ghosts of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direct {
    /// Never: the message is packed, for instance because it is reduced on arrival.
    Never,
    /// Once the receiver has said so for the epoch.
    WhenClear,
    /// At any time between the receiver's last two messages to the sender: the ghosts alternate
    /// between two generations, of which the sender writes the one that is not in use.
    Alternating,
}

/// One message of an exchange, as one side describes it.
#[derive(Debug, Clone)]
pub struct MessageSpec {
    /// The other rank.
    pub peer: usize,
    /// Tells messages between the same two ranks apart.
    pub tag: u32,
    /// Types and numbers of the elements, in the order in which they are packed.
    pub elements: Vec<(ElementType, usize)>,
    /// Bytes of the packed message, which may have gaps between fields.
    pub bytes: usize,
    /// The shortest contiguous run in the receiver's ghosts, in bytes.
    pub run_bytes: usize,
    /// For a receive: whether the ghosts may be written directly. Ignored for a send.
    pub direct: Direct,
    /// For a receive: the memory of each field, by phase. Ignored for a send.
    pub ghosts: Vec<[Region; 2]>,
}

/// Bytes beside each message's own, at most.
const WORDS_OF_A_MESSAGE: usize = 1024;

/// What a rank wants to exchange.
#[derive(Debug, Clone)]
pub struct ExchangeSpec {
    /// Messages to other ranks.
    pub sends: Vec<MessageSpec>,
    /// Messages from other ranks.
    pub recvs: Vec<MessageSpec>,
    /// The epoch before the first exchange, an even one. 0, except to test what happens near the wrap at 2³².
    pub last_epoch: u32,
}

impl ExchangeSpec {
    /// Why the bytes of its messages cannot be laid out, if they cannot: each has two buffers, which begin with a line,
    /// and lines of words, and all of them lie in one piece of memory.
    fn uncountable(&self) -> Option<String> {
        const MOST: usize = isize::MAX as usize / 4;
        let mut all: usize = 0;
        for (messages, way) in [(&self.sends, "sends to"), (&self.recvs, "receives from")] {
            for MessageSpec { peer, tag, elements, bytes, .. } in messages {
                let mut counted = elements.iter().map(|(element, count)| count.checked_mul(element.bytes()));
                let elements = counted.try_fold(0_usize, |sum, bytes| sum.checked_add(bytes?));
                all = all.saturating_add(*bytes).saturating_add(WORDS_OF_A_MESSAGE);
                if all > MOST || elements.is_none_or(|bytes| bytes > MOST) {
                    return Some(format!(
                        "its message with tag {tag} that it {way} rank {peer} has {bytes} bytes, or elements of as many: \
                         more than any memory holds, with the messages before it"
                    ));
                }
            }
        }
        None
    }
}

/// Where a message begins: what its moves are built for.
#[derive(Debug, Clone)]
pub enum Slot {
    /// One packed message.
    Packed(Place),
    /// The arrays themselves, one region a field.
    Ghosts(Vec<Region>),
}

/// How a message of an exchange travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The other rank.
    pub peer: usize,
    /// Payload bytes.
    pub bytes: usize,
    /// The path, such as `packed` or `straight into ghosts`.
    pub path: &'static str,
    /// Why this path.
    pub reason: String,
    /// Who carries it out.
    pub executor: Executor,
}

/// A matched exchange. Starts and waits alternate; one exchange is in flight at a time.
///
/// After matching no call allocates, and none but those of `standard` waits for the stream. From within an operation that
/// an inline stream runs, starts and waits are out of order.
pub trait Exchange: fmt::Debug {
    /// The name of the backend: of the one that was chosen, where `auto` was asked for.
    fn backend(&self) -> &'static str;
    /// How many exchanges were started, wrapping.
    fn epoch(&self) -> u32;
    /// Where the moves of the `message`-th send go in exchanges of a phase (the parity of their
    /// epoch): own staging memory, or memory of the peer.
    fn send_slot(&self, message: usize, phase: usize) -> Slot;
    /// Where the `message`-th receive has arrived; `None` if the sender fills the ghosts.
    fn recv_slot(&self, message: usize, phase: usize) -> Option<Place>;
    /// Gives the moves of every send, by phase. Once, before the first start.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], here and below where it is another call's turn; it then does nothing.
    fn bind(&mut self, moves: Vec<[Arc<MoveTable>; 2]>) -> Result<()>;
    /// Enqueues whatever tells senders that this rank is ready. Blocks only where libfabric's triggered operations carry
    /// exchanges out and the network interface has no room for those of another one, unless the application is to make it.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`]; [`Error::NotCapturable`] within a capture, for what cannot be captured;
    /// [`Error::Throttled`] or [`Error::TimedOut`] if there is no room for triggered operations.
    fn start_recvs(&mut self, stream: &Stream) -> Result<()>;
    /// Enqueues moves and sends; those whose receivers are not ready go out later. Blocks only
    /// with `standard`, which waits for the stream.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`]; [`Error::InUse`] if a view lends the host what is sent for writing; with `standard` the
    /// stream's error.
    fn start_sends(&mut self, stream: &Stream) -> Result<()>;
    /// Enqueues waking receivers that sleep: for sends whose wait does not follow soon, as the
    /// wait does it too.
    fn flush(&mut self, stream: &Stream);
    /// Enqueues waiting for all messages. Blocks on an inline stream, and with `standard`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`]; with `standard` what went wrong. Else that surfaces at
    /// [`Stream::synchronize`].
    fn wait(&mut self, stream: &Stream) -> Result<()>;
    /// How each send travels.
    fn routes(&self) -> Vec<Route>;
}

/// One row of the registry of backends.
#[derive(Clone, Copy)]
pub struct BackendRow {
    /// The name in configurations.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper that it is from.
    pub source: &'static str,
    carried: Carried,
}

/// Who carries exchanges out, and how.
#[derive(Clone, Copy)]
enum Carried {
    /// The host starts and awaits messages, whatever the fabric can do.
    ByHost,
    Triggered(Protocol),
}

impl BackendRow {
    /// Who carries out what this backend starts, over a fabric whose triggered operations are
    /// executed by `fabric`.
    pub fn executor(&self, fabric: Executor) -> Executor {
        match self.carried {
            Carried::ByHost => Executor::Host,
            Carried::Triggered(_) => fabric,
        }
    }

    /// Whether its payloads go into windows, over a wire that has some: what is put waits for a group.
    fn puts(&self) -> bool {
        matches!(self.carried, Carried::Triggered(protocol) if protocol.terms.waits_for_group)
    }
}

impl fmt::Debug for BackendRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendRow({})", self.name)
    }
}

/// Every backend that carries exchanges out; [`AUTO`] is one of them.
pub const BACKENDS: &[BackendRow] =
    &[standard::ROW, st_send::ROW, st_rsend::ROW, active_rma::ROW, notified::ROW];

/// The names of [`BACKENDS`].
pub fn backend_names() -> impl Iterator<Item = &'static str> {
    BACKENDS.iter().map(|row| row.name)
}

fn find(name: &str) -> Result<&'static BackendRow> {
    if name == "cray-mpich" {
        return Err(Error::BackendRefused {
            backend: "cray-mpich",
            reason: "the program `streamhalo` has it as another name of `standard` over MPI; say `standard`"
                .into(),
        });
    }
    BACKENDS.iter().find(|row| row.name == name).ok_or_else(|| Error::UnknownBackend {
        name: name.to_string(),
        known: backend_names().chain([AUTO]).collect::<Vec<_>>().join(", "),
    })
}

/// That there is a backend of the name that rank 0 has told, and that all others have told the same one.
///
/// # Errors
/// [`Error::BadExchange`], [`Error::UnknownBackend`], [`Error::BackendRefused`].
pub(crate) fn check_named<'n>(told: impl Iterator<Item = &'n str> + Clone) -> Result<()> {
    let Some(first) = told.clone().next() else { return Ok(()) };
    if let Some((rank, name)) = told.enumerate().find(|(_, name)| *name != first) {
        let reason = format!("it asked for backend `{name}`, rank 0 for `{first}`");
        return Err(Error::BadExchange { rank, reason });
    }
    if first == AUTO { Ok(()) } else { find(first).map(drop) }
}

/// Where exchanges are matched, and what all ranks have told of their devices.
struct Ground<'a> {
    world: &'a World,
    stream: &'a Stream,
    sharings: Vec<Sharing>,
    /// Whether exchanges are to be tried one after the other, on all ranks in the same order.
    is_rehearsal: bool,
}

impl Ground<'_> {
    /// A backend's exchange. Collective; blocks.
    fn make(&self, row: &'static BackendRow, spec: ExchangeSpec) -> Result<Box<dyn Exchange>> {
        let Self { world, stream, sharings, is_rehearsal } = self;
        let peers = spec.sends.iter().map(|message| message.peer);
        let reach = Reach::agree(world, stream, sharings.clone(), (peers, row.puts()))?;
        let site = Site { world, stream, reach: &reach };
        match row.carried {
            Carried::ByHost => Ok(Box::new(Standard::matched(&site, &spec)?)),
            Carried::Triggered(protocol) => {
                let room = if *is_rehearsal { Room::Found } else { Room::Kept };
                let terms = Terms { room, ..protocol.terms };
                Triggered::matched(&site, &spec, (row.name, Protocol { terms, ..protocol }))
            }
        }
    }
}

/// Matches what every rank wants to exchange, and gives each its part. Collective over `world`;
/// blocks. The exchange is carried out by `stream`.
///
/// `backend` is the name of one of [`BACKENDS`], or [`AUTO`] for the one of them that is the fastest for an exchange
/// like this one. What that is has been measured before, by this world or by one before it ([`World::set_measured`]), or is
/// measured now: all of them rehearse it, on memory and a stream of their own.
///
/// # Errors
/// The same on every rank: [`Error::UnknownBackend`] or [`Error::BackendRefused`] if there is no such
/// backend here, [`Error::Mismatch`] if peers, tags, byte counts or element types of the
/// two sides differ, [`Error::BadExchange`] if a rank's description is unusable in itself, or what
/// any rank failed with.
pub fn match_exchange(
    world: &World,
    stream: &Stream,
    backend: &str,
    spec: ExchangeSpec,
) -> Result<Box<dyn Exchange>> {
    // Every rank sees what all have asked for, so that none goes on alone and all say the same.
    let asked = stream.check_world(world, "an exchange");
    let own = asked.map(|()| (backend.to_string(), spec.uncountable(), stream.sharing().clone()));
    let told: Vec<(String, Option<String>, Sharing)> = world.agree("match_exchange", own)?;
    for (rank, (_, uncountable, _)) in told.iter().enumerate() {
        if let Some(reason) = uncountable {
            return Err(Error::BadExchange { rank, reason: reason.clone() });
        }
    }
    check_named(told.iter().map(|(name, ..)| name.as_str()))?;
    let sharings = told.into_iter().map(|(.., sharing)| sharing).collect();
    let ground = Ground { world, stream, sharings, is_rehearsal: false };
    if backend == AUTO { auto::make(&ground, spec) } else { ground.make(find(backend)?, spec) }
}
