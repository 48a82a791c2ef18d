//! What the ranks of an exchange tell each other before it, where the memory that they tell of lies, and whether it fits
//! together.

use super::{Direct, MessageSpec};
use crate::communicator::{Blocks, INTERNAL};
use crate::element::ElementType;
use crate::error::{Error, Result};
use crate::fabric::LINE;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};

/// Payloads up to this travel on the lines of their own completion word.
pub(super) const INLINE_BYTES: usize = 224;
/// Where such a payload begins: behind the word and its writer's parting.
const INLINE_OFFSET: usize = 32;

/// The number of the next receive of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// What a rank tells the others of one message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) peer: usize,
    pub(super) tag: u32,
    /// A receive's among all of its rank, by which two-sided messages are matched: another exchange may have the same tag.
    pub(super) number: u32,
    pub(super) elements: Vec<(ElementType, usize)>,
    pub(super) bytes: usize,
    pub(super) run_bytes: usize,
    pub(super) direct: Direct,
    /// In the teller's words: a send's for the receiver's readiness, twice, or a receive's for arrivals, by buffer.
    pub(super) words: [usize; 2],
    /// In the teller's inbox, or beside its words if the message is staged: a receive's buffers.
    pub(super) slots: [usize; 2],
    /// In which blocks the teller would stage it, if in several.
    pub(super) blocks: Option<Blocks>,
    pub(super) ghosts: Vec<[(u64, usize); 2]>,
}

/// What a rank tells the others.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Announcement {
    pub(super) sends: Vec<Told>,
    pub(super) recvs: Vec<Told>,
    /// Keys and bytes. The words are in the inbox, unless the host does not reach that.
    pub(super) inbox: (u64, usize),
    pub(super) words: (u64, usize),
    /// Under which number peers over a wire part from the words; 0 where there is no wire.
    pub(super) partings: u64,
    pub(super) last_epoch: u32,
    /// Whether its waits may sleep until they are woken.
    pub(super) sleeps: bool,
    /// What its stream runs on.
    pub(super) device: String,
}

/// What a rank's inbox and its words consist of, as they are laid out.
pub(super) struct Layout {
    pub(super) inbox_bytes: usize,
    /// `None`: in the inbox.
    pub(super) words_bytes: Option<usize>,
}

impl Layout {
    /// Begins with the counts of arrivals.
    pub(super) fn new(words_apart: bool) -> Self {
        match words_apart {
            true => Self { inbox_bytes: 0, words_bytes: Some(2 * LINE) },
            false => Self { inbox_bytes: 2 * LINE, words_bytes: None },
        }
    }

    fn take_inbox(&mut self, bytes: usize) -> usize {
        let offset = self.inbox_bytes;
        self.inbox_bytes += bytes.next_multiple_of(LINE);
        offset
    }

    /// Beside the words.
    fn take(&mut self, bytes: usize) -> usize {
        let words = self.words_bytes.as_mut().unwrap_or(&mut self.inbox_bytes);
        let offset = *words;
        *words += bytes.next_multiple_of(LINE);
        offset
    }

    /// A word, and the buffer whose payload it announces: beside the words if it is `staged`, and on the same lines, if
    /// it is there and the payload is small.
    fn take_slot(&mut self, bytes: usize, staged: bool) -> (usize, usize) {
        if (staged || self.words_bytes.is_none()) && bytes <= INLINE_BYTES {
            let word = self.take(INLINE_OFFSET + bytes);
            return (word, word + INLINE_OFFSET);
        }
        (self.take(LINE), if staged { self.take(bytes) } else { self.take_inbox(bytes) })
    }
}

pub(super) fn tell_send(message: &MessageSpec, layout: &mut Layout) -> Told {
    let word = layout.take(LINE);
    tell(message, [word; 2], [0; 2])
}

pub(super) fn tell_recv(message: &MessageSpec, layout: &mut Layout, staged: bool) -> Told {
    let [first, second] = [0, 1].map(|_| layout.take_slot(message.bytes, staged));
    let told = tell(message, [first.0, second.0], [first.1, second.1]);
    // Among the tags that are compared: those above are taken in order.
    Told { number: NEXT.fetch_add(1, Ordering::Relaxed) % INTERNAL, ..told }
}

fn tell(message: &MessageSpec, words: [usize; 2], slots: [usize; 2]) -> Told {
    Told {
        peer: message.peer,
        tag: message.tag,
        number: 0,
        elements: message.elements.clone(),
        bytes: message.bytes,
        run_bytes: message.run_bytes,
        direct: message.direct,
        words,
        slots,
        blocks: None,
        ghosts: message
            .ghosts
            .iter()
            .map(|field| [0, 1].map(|phase| (field[phase].key(), field[phase].bytes())))
            .collect(),
    }
}

/// The same verdict on every rank, since every rank sees the same announcements.
pub(super) fn check_all(all: &[Announcement]) -> Result<()> {
    for (rank, told) in all.iter().enumerate() {
        let bad = |reason: String| Error::BadExchange { rank, reason };
        if !told.last_epoch.is_multiple_of(2) {
            return Err(bad(format!(
                "it starts after epoch {}, but the first exchange has an odd epoch",
                told.last_epoch
            )));
        }
        if told.last_epoch != all[0].last_epoch {
            return Err(bad(format!(
                "it starts after epoch {}, rank 0 after {}",
                told.last_epoch, all[0].last_epoch
            )));
        }
        if told.device != all[0].device {
            return Err(bad(format!(
                "its stream is on `{}`, that of rank 0 on `{}`; choose one device for all ranks",
                told.device, all[0].device
            )));
        }
        for (messages, way, is_received) in
            [(&told.sends, "sends to", false), (&told.recvs, "receives from", true)]
        {
            for (index, message) in messages.iter().enumerate() {
                let Told { peer, tag, bytes, .. } = message;
                if *peer >= all.len() {
                    return Err(bad(format!("it {way} rank {peer}, but the world has {} ranks", all.len())));
                }
                if messages[..index].iter().any(|other| (other.peer, other.tag) == (*peer, *tag)) {
                    return Err(bad(format!(
                        "it {way} rank {peer} twice with tag {tag}; give each message its own tag"
                    )));
                }
                if is_received && message.direct != Direct::Never && message.ghosts.is_empty() {
                    return Err(bad(format!(
                        "its message with tag {tag} from rank {peer} may go straight into its ghosts, of which it names \
                         none; name those of each field, or say `Direct::Never`"
                    )));
                }
                let needed: usize =
                    message.elements.iter().map(|(element, count)| element.bytes() * count).sum();
                if *bytes == 0 || *bytes < needed {
                    return Err(bad(format!(
                        "its message with tag {tag} that {way} rank {peer} has {bytes} bytes for {needed} bytes of elements"
                    )));
                }
            }
        }
    }
    for (sender, told) in all.iter().enumerate() {
        for send in &told.sends {
            let receiver = send.peer;
            let recv = find(&all[receiver].recvs, sender, send.tag);
            let mismatch = |expected: String| Error::Mismatch {
                sender,
                receiver,
                tag: send.tag,
                sent: describe(send),
                expected,
            };
            match recv {
                None => return Err(mismatch("has no receive for it".into())),
                Some(recv) if recv.elements != send.elements || recv.bytes != send.bytes => {
                    return Err(mismatch(format!("expects {}", describe(recv))));
                }
                Some(_) => {}
            }
        }
    }
    for (receiver, told) in all.iter().enumerate() {
        for recv in &told.recvs {
            if find(&all[recv.peer].sends, receiver, recv.tag).is_none() {
                return Err(Error::Mismatch {
                    sender: recv.peer,
                    receiver,
                    tag: recv.tag,
                    sent: "nothing".into(),
                    expected: format!("expects {}", describe(recv)),
                });
            }
        }
    }
    Ok(())
}

pub(super) fn find(messages: &[Told], peer: usize, tag: u32) -> Option<&Told> {
    messages.iter().find(|message| (message.peer, message.tag) == (peer, tag))
}

fn describe(message: &Told) -> String {
    let elements: Vec<String> =
        message.elements.iter().map(|(element, count)| format!("{count} {element}")).collect();
    format!("{} bytes ({})", message.bytes, elements.join(" + "))
}
