//! Primitives with which one rank sends another a message: what `latency`, `bandwidth`, `overlap` and `loggp`
//! compare.

mod active;
pub(super) mod by_user;
mod enqueued;
mod flag;
mod messages;
mod notified;
mod payload;
mod queued;

pub(super) use messages::staged;
use payload::Payload;

use streamhalo::comm::Error;
use streamhalo::comm::window::Mode;
use streamhalo::{HaloError, Stream, StreamKind, World};

use super::answers::{Answers, given, said, zeros};
use super::micro::MicroBench;
use crate::error::AppError;

/// Messages of a window that are on their way together, as in the OSU suite.
pub(super) const WINDOW: usize = 64;

/// How much memory the messages of a window are received into: longer ones take turns.
const RECEIVED_BYTES: usize = 1 << 20;

/// What a pair of ranks sends each other messages with. Rank 0 and rank 1 make the same calls.
pub(super) trait Link {
    /// Begins a message to the peer.
    fn start(&mut self) -> Result<(), HaloError>;
    /// Waits until what was sent may be changed again.
    fn finish(&mut self) -> Result<(), HaloError>;
    /// Receives a message.
    fn recv(&mut self) -> Result<(), HaloError>;
    /// So many messages to the peer and back; who does not begin answers. Here, where a primitive's calls are known as
    /// the program is built: none is looked for between a message and its answer.
    fn ping_pong(&mut self, begins: bool, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            if !begins {
                self.recv()?;
            }
            self.start()?;
            self.finish()?;
            if begins {
                self.recv()?;
            }
        }
        self.synchronize()
    }
    /// Sends the messages of a window, and waits as [`Link::finish`].
    fn send_window(&mut self) -> Result<(), HaloError>;
    /// Receives them.
    fn recv_window(&mut self) -> Result<(), HaloError>;
    /// Sends a window and receives one.
    fn swap_windows(&mut self) -> Result<(), HaloError>;
    /// Waits for what is on a stream, if anything is.
    fn synchronize(&mut self) -> Result<(), HaloError> {
        Ok(())
    }
    /// What its messages say.
    fn payload(&mut self) -> &mut dyn Payload;
    /// Who carries out its messages.
    fn executor(&self) -> String {
        "host".to_owned()
    }
}

/// For messages of so many bytes, which are received into so many places.
type Make = fn(&World, &Stream, [usize; 2]) -> Result<Option<Box<dyn Link>>, HaloError>;

/// One row of the registry of primitives.
pub(crate) struct LinkRow {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// `None` where the fabric has none, or messages of that many bytes are not for it.
    make: Make,
}

/// Every primitive.
pub(crate) const LINKS: &[LinkRow] = &[
    LinkRow { name: "flag", make: flag::link },
    LinkRow { name: "two-sided", make: messages::link },
    LinkRow { name: "put-notify", make: notified::link },
    LinkRow { name: "put-active", make: |world, stream, size| active::link(world, stream, size, Mode::Host) },
    LinkRow {
        name: "put-stream",
        make: |world, stream, size| active::link(world, stream, size, Mode::Stream),
    },
    LinkRow { name: "enqueued", make: enqueued::link },
    LinkRow { name: "queue", make: queued::link },
];

/// The names of all primitives.
pub(crate) fn primitive_names() -> Vec<&'static str> {
    LINKS.iter().map(|row| row.name).collect()
}

/// Those of the host's memory alone, which a device has no part in, and why.
pub(crate) const OF_HOST: [(&str, &str); 2] = [
    ("flag", "is a cache line of the host's memory"),
    (
        "put-notify",
        "leaves what it puts in the host's memory, and a device has it once the window is dropped",
    ),
];

/// Those that are for some messages and fabrics only, and which these are.
pub(crate) const OF_SOME: [(&str, &str); 1] = [(
    "flag",
    "it is a cache line with room for 32 bytes, in memory that both ranks map: give such `--sizes`, over `local` or `shm`",
)];

/// A primitive between the two ranks, if it can be used for messages of that many bytes, which come in windows or one by
/// one. It has been tried. Collective.
pub(super) fn checked(
    bench: &MicroBench,
    (world, stream): (&World, &Stream),
    name: &str,
    bytes: usize,
    in_windows: bool,
) -> Result<Option<Box<dyn Link>>, AppError> {
    let row = LINKS.iter().find(|row| row.name == name);
    let row =
        row.ok_or_else(|| Error::OutOfOrder { call: "bench", reason: format!("no primitive `{name}`") })?;
    // A part of a window that is on a device is copied whole for each message: then it is for no more than one.
    let places = if in_windows || stream.kind() != StreamKind::Device { places(bytes) } else { 1 };
    let Some(mut link) = (row.make)(world, stream, [bytes, places])? else { return Ok(None) };
    check(&mut *link, bench.answers(world, name), bytes)?;
    Ok(Some(link))
}

/// In how many places messages of a window are received: in each equally often.
fn places(bytes: usize) -> usize {
    1 << (RECEIVED_BYTES / bytes).clamp(1, WINDOW).ilog2()
}

/// Messages and windows in both directions whose every byte is compared.
pub(super) fn check(link: &mut dyn Link, answers: Answers<'_>, bytes: usize) -> Result<(), AppError> {
    let own = answers.world.rank();
    for round in 0..4 {
        link.payload().fill(&|index| given(said(own, round, index)))?;
        let window = round == 2;
        match (round, own) {
            (1 | 3, _) => link.swap_windows()?,
            (_, 0) => send(link, window).and_then(|()| recv(link, window))?,
            _ => recv(link, window).and_then(|()| send(link, window))?,
        }
        link.synchronize()?;
        // A single message comes to the first place only.
        let places = if round == 0 { 1 } else { WINDOW };
        let expected = |index| said(1 - own, round, index);
        let is_wrong = |place: &&[u8]| (0..).zip(*place).any(|(index, found)| *found != expected(index));
        let found = link.payload().received()?;
        let wrong = found.chunks(bytes).take(places).find(is_wrong);
        answers.compare_all(wrong.unwrap_or_default(), expected)?;
        answers.world.barrier()?;
    }
    Ok(())
}

fn send(link: &mut dyn Link, window: bool) -> Result<(), HaloError> {
    if window {
        return link.send_window();
    }
    link.start()?;
    link.finish()
}

fn recv(link: &mut dyn Link, window: bool) -> Result<(), HaloError> {
    if window { link.recv_window() } else { link.recv() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fills_its_places_equally_often() {
        for bytes in (8..2 * RECEIVED_BYTES).step_by(1000) {
            let places = places(bytes);
            assert!(WINDOW.is_multiple_of(places), "{bytes} bytes in {places} places");
            assert!(places == 1 || places * bytes <= RECEIVED_BYTES);
            assert!(places == WINDOW || 2 * places * bytes > RECEIVED_BYTES);
        }
    }
}
