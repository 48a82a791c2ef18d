//! What can go wrong, with the data that a reader of the message needs.

use crate::device::Tile;
use crate::element::ElementType;
use crate::names::did_you_mean;
use std::fmt;
use std::time::Duration;

/// An error of the communication layer. Every message says what was asked, what was found and
/// what to do, and is what `main` prints of an error that it returns.
#[derive(Clone, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A backend of that name is not registered.
    #[error(
        "there is no backend `{name}`; the backends are {known}{}",
        did_you_mean(name, known.split(", "))
    )]
    UnknownBackend {
        /// What was asked for.
        name: String,
        /// The names that exist, comma separated.
        known: String,
    },
    /// A backend cannot serve the exchange that it was asked to.
    #[error("backend `{backend}` cannot be used here: {reason}")]
    BackendRefused {
        /// The backend's name.
        backend: &'static str,
        /// Why, and what to choose instead.
        reason: String,
    },
    /// A fabric of that name is not available on this machine or in this build.
    #[error("fabric `{name}` cannot be used: {reason}")]
    FabricUnavailable {
        /// The fabric's name.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A device is not there, or cannot do what was asked of it.
    #[error("device `{device}` cannot be used: {reason}")]
    DeviceUnavailable {
        /// The device, as it was asked for.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The text of a kernel is wrong.
    #[error("kernel `{kernel}` does not compile for `{device}`:\n{log}")]
    KernelDidNotCompile {
        /// The kernel's name.
        kernel: String,
        /// The device.
        device: String,
        /// What its compiler says; lines are counted from the beginning of the text.
        log: String,
    },
    /// A kernel has failed on a device, which does nothing more for this process.
    #[error(
        "{} failed on `{device}`: {reason}; the device does nothing more for this process: check which points \
         the kernel reads and writes, and start again",
        match &kernels[..] {
            [one] => format!("kernel `{one}`"),
            several => format!("one of the kernels `{}`", several.join("`, `")),
        }
    )]
    KernelFaulted {
        /// Those that may have, in the order of their first launches: all that are not known to have run.
        kernels: Vec<String>,
        /// The device.
        device: String,
        /// What its driver says.
        reason: String,
    },
    /// A kernel that is a closure was given to a device that needs a text.
    #[error(
        "kernel `{kernel}` is a closure of the host, but its stream is on `{device}`; \
         give it a text too (`launch_either`), or have the host run it (`launch_on_host`)"
    )]
    NoDeviceKernel {
        /// The kernel's name.
        kernel: String,
        /// The device.
        device: String,
    },
    /// Something cannot be a part of a period that is captured.
    #[error("{what} cannot be captured: {reason}")]
    NotCapturable {
        /// What was enqueued.
        what: String,
        /// Why, and what to do instead.
        reason: String,
    },
    /// A text of a kernel has other parameters than it was given arguments.
    #[error("kernel `{kernel}` has the parameters {expected}, but is launched with {given}")]
    KernelArguments {
        /// The kernel's name.
        kernel: &'static str,
        /// Its parameters: macro and type of each.
        expected: String,
        /// The arguments, in the same form.
        given: String,
    },
    /// A kernel would read points that are not there, or that an exchange may be filling.
    #[error(
        "kernel `{kernel}` would read the points {tile} of argument {argument}, but {bounds} may be read: {}",
        why_unreadable(tile, array)
    )]
    ReadOutOfBounds {
        /// The kernel's name.
        kernel: &'static str,
        /// Which of the arrays that it was given, counted from 0.
        argument: usize,
        /// All points of that array.
        array: Box<Tile>,
        /// The points that it would read.
        tile: Box<Tile>,
        /// The points that may be read.
        bounds: Box<Tile>,
    },
    /// Memory of a device was to be used as if it were the host's.
    #[error(
        "{what} needs memory of the host, but this is on `{device}`; `with_host` and `with_owned` bring it to the host"
    )]
    NotOnHost {
        /// What was asked for.
        what: &'static str,
        /// Where the memory is.
        device: String,
    },
    /// Messages of devices cannot be staged as was asked.
    #[error("messages of devices cannot be staged with {reason}")]
    WrongStaging {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Memory was used on a device that cannot reach it.
    #[error("{what} is not in the memory of `{device}`, whose stream uses it; allocate it with that stream")]
    WrongDevice {
        /// What was used.
        what: &'static str,
        /// The device that it was used on.
        device: String,
    },
    /// Two sides of an exchange disagree. Every rank gets this same value.
    #[error(
        "the exchange does not match: rank {sender} sends to rank {receiver} with tag {tag} {sent}, \
         but rank {receiver} {expected}; both sides must give the same peer, tag, sizes and element types"
    )]
    Mismatch {
        /// The sending rank.
        sender: usize,
        /// The receiving rank.
        receiver: usize,
        /// The tag.
        tag: u32,
        /// What the sender announced.
        sent: String,
        /// What the receiver announced.
        expected: String,
    },
    /// A rank's description of an exchange is unusable in itself. Every rank gets this same value.
    #[error("rank {rank} described its exchange wrongly: {reason}")]
    BadExchange {
        /// The rank whose description it is.
        rank: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A call that every rank must make was made with different arguments, or not by all.
    #[error("rank {rank} could not take part in `{call}`: {reason}")]
    CollectiveFailed {
        /// The collective call.
        call: &'static str,
        /// The first rank that failed.
        rank: usize,
        /// Its reason.
        reason: String,
    },
    /// Memory that peers can address could not be had.
    #[error("{bytes} bytes of {kind} memory could not be allocated: {reason}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
        /// Which memory.
        kind: &'static str,
        /// What the system said.
        reason: String,
    },
    /// A place lies outside of its region.
    #[error("{what} needs bytes {start}..{end} of a region of {region_bytes} bytes")]
    OutOfBounds {
        /// Which operation asked.
        what: &'static str,
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Size of the region.
        region_bytes: usize,
    },
    /// Elements that are changed atomically lie across their natural boundary.
    #[error(
        "{what} of {element} at byte {offset}, which is no multiple of {} bytes; place the elements on one",
        element.bytes()
    )]
    Misaligned {
        /// Which operation asked.
        what: &'static str,
        /// The first byte, from the beginning of the memory.
        offset: usize,
        /// The type of the elements.
        element: ElementType,
    },
    /// An array was used with another element type than it has.
    #[error("{what} has elements of type {found}, {asked} was asked for")]
    ElementMismatch {
        /// What was used.
        what: &'static str,
        /// The type asked for.
        asked: ElementType,
        /// The type found.
        found: ElementType,
    },
    /// A kernel was given the same memory to read and to write.
    #[error(
        "kernel `{kernel}` would read and write the same memory; give it two generations, write access alone, or points to read \
         that are not written"
    )]
    AliasedArguments {
        /// The kernel's name.
        kernel: String,
    },
    /// A kernel was to write points that it may not write.
    #[error(
        "kernel `{kernel}` was launched over the points {tile}, but may write {bounds} only of argument {argument}: {}",
        if tile.is_within(**array) {
            "the others are ghosts that peers may fill (if several steps follow an exchange, it is made with \
             `swaps_per_exchange`), owned entries that an exchange which has begun may still send (finish it first), or \
             not in what the argument was made for".to_owned()
        } else {
            format!("that array has the points {array}")
        }
    )]
    TileOutOfBounds {
        /// The kernel's name.
        kernel: String,
        /// Which of the arrays that it was given, counted from 0.
        argument: usize,
        /// All points of that array.
        array: Box<Tile>,
        /// The points of the launch.
        tile: Box<Tile>,
        /// The points that may be written.
        bounds: Box<Tile>,
    },
    /// Memory that an operation which has begun still uses was to be used otherwise.
    #[error(
        "{what} needs bytes {start}..{end} of memory that {by} still uses; wait for that first, \
         or use another part"
    )]
    InUse {
        /// What asked for it.
        what: &'static str,
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// What uses it.
        by: &'static str,
    },
    /// A rank was named that the world does not have.
    #[error("{what} names rank {rank}, but the ranks are 0..{size}")]
    WrongRank {
        /// The call.
        what: &'static str,
        /// The rank that was named.
        rank: usize,
        /// How many there are.
        size: usize,
    },
    /// A tag was used that messages cannot have.
    #[error("{what} has tag {tag}, but the largest is {largest}")]
    WrongTag {
        /// The call.
        what: &'static str,
        /// The tag.
        tag: u32,
        /// The largest that there is.
        largest: u32,
    },
    /// A message is longer than the receive that it matched. Nothing of it was written.
    #[error(
        "the message of rank {sender} with tag {tag} has {message_bytes} bytes, the receive that it matched \
         has room for {room_bytes}; give the receive as much room as the longest message needs"
    )]
    Truncated {
        /// The rank that sent it.
        sender: usize,
        /// Its tag.
        tag: u32,
        /// Its length in bytes.
        message_bytes: usize,
        /// The room of the receive in bytes.
        room_bytes: usize,
    },
    /// A message has elements of another type than the receive that it matched. Nothing of it was written.
    #[error(
        "the message of rank {sender} with tag {tag} has elements of type {found}, the receive that it \
         matched wants {asked}"
    )]
    MessageMismatch {
        /// The rank that sent it.
        sender: usize,
        /// Its tag.
        tag: u32,
        /// The type that the receive wants.
        asked: ElementType,
        /// The type that was sent.
        found: ElementType,
    },
    /// Memory of one stream was used on another.
    #[error(
        "{what} belongs to stream {owner}, but was used on stream {used}; arrays live where their stream lives"
    )]
    WrongStream {
        /// What was used.
        what: &'static str,
        /// The stream that it belongs to.
        owner: u64,
        /// The stream that it was used on.
        used: u64,
    },
    /// An exchange was started twice without a wait in between, or waited for without a start.
    #[error("`{call}` was called out of order: {reason}")]
    OutOfOrder {
        /// The call.
        call: &'static str,
        /// What has to come first.
        reason: String,
    },
    /// A request that is not matched was to be put on a queue.
    #[error(
        "`{call}` was given a {request} that is not matched: call `match_one` or `match_all` on both ranks \
         first; nothing was enqueued"
    )]
    Unmatched {
        /// The call.
        call: &'static str,
        /// The request: what it does, with whom, with which tag.
        request: String,
    },
    /// A request was waited for on another queue than the one that it was started on.
    #[error(
        "`{call}` on queue {used} was given a {request} that was started on queue {owner}; wait for it there"
    )]
    WrongQueue {
        /// The call.
        call: &'static str,
        /// The request: what it does, with whom, with which tag.
        request: String,
        /// The queue that it was started on.
        owner: u64,
        /// The queue that was to wait for it.
        used: u64,
    },
    /// Things of two worlds were used together.
    #[error("{what} was made with things of two worlds; make its stream and all else with the same one")]
    OtherWorld {
        /// What was to be made.
        what: &'static str,
    },
    /// Something that needs one known partner was asked for with a wildcard.
    #[error("`{call}` was given a receive from any source or with any tag; name both")]
    WildcardRefused {
        /// The call.
        call: &'static str,
    },
    /// A ready send was carried out before its receive had been started.
    #[error(
        "a ready send of rank {rank} to rank {peer} with tag {tag} was carried out before its receive had been \
         started; start the receive first, or use a regular send"
    )]
    ReceiverNotReady {
        /// The sending rank.
        rank: usize,
        /// The receiving rank.
        peer: usize,
        /// The tag.
        tag: u32,
    },
    /// A group of ranks that is none.
    #[error("{ranks:?} is no group of ranks: {reason}")]
    BadGroup {
        /// The ranks that were asked for.
        ranks: Vec<usize>,
        /// What is wrong with them.
        reason: String,
    },
    /// An operation of an access epoch went to a rank that is not in its group.
    #[error(
        "`{call}` to rank {target} in an access epoch of the ranks {group:?}; \
         start an epoch whose group has that rank"
    )]
    NotInGroup {
        /// The call.
        call: &'static str,
        /// The rank that it was for.
        target: usize,
        /// The group of the epoch.
        group: Vec<usize>,
    },
    /// More was queued ahead of a stream than there is room for, and the application is to make some.
    #[error(
        "`{call}` needs {entries} entries for triggered operations; {in_use} of {limit} are in use. {}",
        if entries > limit { "Use fewer operations an epoch, or allow more entries" }
        else { "Synchronise the stream, then call it again" }
    )]
    Throttled {
        /// The call, which has done nothing.
        call: &'static str,
        /// How many it needs.
        entries: usize,
        /// How many are in use.
        in_use: usize,
        /// How many there are.
        limit: usize,
    },
    /// A kernel panicked.
    #[error("kernel `{kernel}` panicked on rank {rank}: {message}")]
    KernelPanicked {
        /// The kernel's name.
        kernel: String,
        /// The rank.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// An enqueued host function failed.
    #[error("enqueued operation `{operation}` failed: {message}")]
    OperationFailed {
        /// The operation's name.
        operation: String,
        /// Its error.
        message: String,
    },
    /// Another rank failed, so this one stopped waiting for it.
    #[error("rank {rank} failed: {operation}; this rank stopped waiting for it")]
    PeerFailed {
        /// The rank that failed.
        rank: usize,
        /// What it was doing, and its own error.
        operation: String,
    },
    /// A wait lasted longer than the time-out.
    #[error(
        "rank {rank} waited {} s for {what} of rank {peer} (wanted {wanted}, found {found}); is that rank alive, and does it \
         make the same calls? The time-out is {TIMEOUT_IS}",
        in_seconds(.waited)
    )]
    TimedOut {
        /// The waiting rank.
        rank: usize,
        /// The rank it waits for.
        peer: usize,
        /// What it waits for.
        what: String,
        /// The value that it waits for: a count, or the number of an epoch.
        wanted: u32,
        /// The value that is there; it may be that of another epoch than the one before.
        found: u32,
        /// How long it has waited.
        waited: Duration,
    },
    /// The operating system refused a call.
    #[error("{call} failed: {reason}")]
    System {
        /// The call, with what it was called for.
        call: &'static str,
        /// The system's reason.
        reason: String,
    },
    /// The MPI library reported an error.
    #[error("{call} failed: {reason}")]
    Mpi {
        /// The call, by its name in the standard.
        call: &'static str,
        /// The library's code and text.
        reason: String,
    },
    /// The environment that a launcher sets for its ranks is not usable.
    #[error("{variable}=`{value}` is not usable: {reason}")]
    BadEnvironment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The ranks of a job could not meet.
    #[error("rank {rank} could not meet the other ranks at {address}: {reason}")]
    RendezvousFailed {
        /// This rank.
        rank: usize,
        /// Where rank 0 listens.
        address: String,
        /// Who did not come, or what does not fit.
        reason: String,
    },
    /// libfabric refused a call, or an operation of its failed.
    #[error("libfabric's {call} failed: {reason}")]
    Libfabric {
        /// The call.
        call: &'static str,
        /// What libfabric says, for which operation and which peer.
        reason: String,
    },
    /// A world of that size cannot be had.
    #[error("a world of {asked} ranks was asked for; {reason}")]
    BadWorldSize {
        /// The number of ranks asked for.
        asked: usize,
        /// What is possible.
        reason: String,
    },
}

/// The message, which `main` and `unwrap` print so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a kernel may not read points of an array, which has those of `array`.
pub(crate) fn why_unreadable(points: &Tile, array: &Tile) -> String {
    // A point before the first is a huge number.
    if (0..3).all(|axis| points.start[axis] <= points.end[axis] && points.end[axis] <= array.end[axis]) {
        "the others are ghosts that have not been exchanged, or whose exchange has begun and is not finished (finish it \
         first), or not in what the argument was made for, as are those that the same kernel writes"
            .to_owned()
    } else {
        format!("the array has the points {array}")
    }
}

/// What says how long waits last.
pub(crate) const TIMEOUT_IS: &str =
    "`WorldOptions::timeout` (the program `streamhalo` has it from `comm.timeout_s`)";

/// As a number of seconds, which is not 0 for a part of one, nor a tenth for what is shorter.
pub(crate) fn in_seconds(waited: &Duration) -> String {
    match (waited.as_secs(), waited.as_millis()) {
        (0, ..100) => "less than 0.1".to_owned(),
        (0, _) => format!("{:.1}", waited.as_secs_f64()),
        (seconds, _) => seconds.to_string(),
    }
}

/// The result of a call of the communication layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::{Error, in_seconds};
    use std::time::Duration;

    #[test]
    fn a_part_of_a_second_is_no_zero() {
        for (milliseconds, said) in [
            (3, "less than 0.1"),
            (99, "less than 0.1"),
            (100, "0.1"),
            (230, "0.2"),
            (999, "1.0"),
            (1_001, "1"),
            (60_012, "60"),
        ] {
            assert_eq!(in_seconds(&Duration::from_millis(milliseconds)), said);
        }
    }

    #[test]
    fn main_prints_the_message() {
        let error = Error::UnknownBackend { name: "st-rsned".into(), known: "st-send, st-rsend".into() };
        let said =
            "there is no backend `st-rsned`; the backends are st-send, st-rsend; did you mean `st-rsend`?";
        assert_eq!(format!("{error:?}"), said);
    }
}
