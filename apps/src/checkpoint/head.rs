//! What stands before the payload.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use streamhalo::ElementType;

use super::CheckpointError;

/// A byte that is not ASCII, both ends of a line, and the end of a text: as PNG has it.
const SIGNATURE: [u8; 8] = *b"\x89HALO\r\n\x1a";
/// The format that this program writes and reads.
const VERSION: u32 = 1;
/// What stands before the text.
const PROLOGUE_BYTES: usize = 48;
/// Payloads begin at multiples of it, as blocks of disks and pages do.
const ALIGNMENT_BYTES: usize = 4096;
/// A text is far shorter: there are at most [`MOST_BLOCKS`] checksums in it.
const MOST_TEXT_BYTES: usize = 1 << 20;

/// So many blocks keep the text short, whatever the payload.
const MOST_BLOCKS: u64 = 1024;
/// The least that one checksum is for.
const LEAST_BLOCK_BYTES: u64 = 1 << 16;

/// What a checkpoint is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Who has written it.
    pub(super) program: String,
    /// Steps that are finished.
    pub(super) step: u64,
    /// What determines the answer, by the keys of a configuration.
    pub(super) settings: Map<String, Value>,
    /// What belongs to the answer besides the cells, in the application's own form.
    pub(super) carried: Map<String, Value>,
    /// The type of a value, by its name.
    pub(super) element: String,
    /// Cells per axis, the slowest of three first; grids with fewer have 1 along the first of them.
    pub(super) cells: [usize; 3],
    /// Bytes of a block of the payload; the last one may be shorter.
    pub(super) block_bytes: u64,
    /// The checksum of each block, in hexadecimal.
    pub(super) blocks: Vec<String>,
}

impl Head {
    /// That of a payload whose checksums are not known yet.
    pub(super) fn new(
        step: u64,
        settings: Map<String, Value>,
        carried: Map<String, Value>,
        element: ElementType,
        cells: [usize; 3],
    ) -> Self {
        let payload_bytes = cells.iter().product::<usize>() as u64 * element.bytes() as u64;
        let block_bytes = payload_bytes.div_ceil(MOST_BLOCKS).next_power_of_two().max(LEAST_BLOCK_BYTES);
        // Of the same length as those that follow, so that the payload's place is known.
        let unknown = blake3::hash(b"").to_hex().to_string();
        Self {
            program: format!("streamhalo {}", env!("CARGO_PKG_VERSION")),
            step,
            settings,
            carried,
            element: element.name().to_owned(),
            cells,
            block_bytes,
            blocks: vec![unknown; payload_bytes.div_ceil(block_bytes) as usize],
        }
    }

    /// What stands before the payload.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("is plain data");
        let start = (PROLOGUE_BYTES + text.len()).next_multiple_of(ALIGNMENT_BYTES);
        text.resize(start - PROLOGUE_BYTES, b' ');
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::try_from(text.len()).expect("a text is short").to_le_bytes());
        bytes.extend(blake3::hash(&text).as_bytes());
        bytes.extend(text);
        bytes
    }

    /// Reads a head, and gives where the payload begins and the checksum of the text, which is another one for
    /// every other checkpoint.
    pub(super) fn read(file: &mut File, path: &Path) -> Result<(Self, u64, String), CheckpointError> {
        let owned = || path.to_owned();
        let truncated = |found: usize, needed: usize| CheckpointError::Truncated {
            path: owned(),
            found_bytes: found as u64,
            needed_bytes: needed as u64,
            at_least: true,
        };
        let mut read = |most: usize| {
            let mut bytes = Vec::with_capacity(most);
            let read = file.by_ref().take(most as u64).read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|source| CheckpointError::Unreadable { path: owned(), source })
        };
        let prologue = read(PROLOGUE_BYTES)?;
        let common = prologue.len().min(SIGNATURE.len());
        if prologue[..common] != SIGNATURE[..common] {
            return Err(CheckpointError::Foreign { path: owned() });
        }
        if prologue.len() < PROLOGUE_BYTES {
            return Err(truncated(prologue.len(), PROLOGUE_BYTES));
        }
        let number = |at: usize| u32::from_le_bytes(prologue[at..at + 4].try_into().expect("are four bytes"));
        if number(8) != VERSION {
            return Err(CheckpointError::Version { path: owned(), found: number(8), supported: VERSION });
        }
        let damaged = |what: &str| CheckpointError::Damaged { path: owned(), what: what.to_owned() };
        let text_bytes = number(12) as usize;
        if text_bytes > MOST_TEXT_BYTES {
            return Err(damaged("what says how long its head is is no such length"));
        }
        let text = read(text_bytes)?;
        if text.len() < text_bytes {
            return Err(truncated(prologue.len() + text.len(), PROLOGUE_BYTES + text_bytes));
        }
        let checksum = blake3::hash(&text);
        if checksum.as_bytes()[..] != prologue[16..] {
            return Err(damaged("its head is not what was written"));
        }
        let head: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(&format!("its head is not understood: {error}")))?;
        let blocks = head.payload_bytes().filter(|_| head.block_bytes > 0);
        let blocks = blocks.map(|bytes| bytes.div_ceil(head.block_bytes));
        if blocks != Some(head.blocks.len() as u64) {
            return Err(damaged("its head contradicts itself"));
        }
        Ok((head, (PROLOGUE_BYTES + text_bytes) as u64, checksum.to_hex().to_string()))
    }

    /// Bytes of the payload, if there can be so many.
    pub(super) fn payload_bytes(&self) -> Option<u64> {
        let element = ElementType::from_name(&self.element)?.bytes();
        let bytes = self.cells.iter().try_fold(element, |bytes, cells| bytes.checked_mul(*cells))?;
        u64::try_from(bytes).ok()
    }

    /// Where a block begins in the payload, and its bytes.
    pub(super) fn block(&self, index: usize) -> (u64, u64) {
        let start = index as u64 * self.block_bytes;
        let payload_bytes = self.payload_bytes().expect("was checked when it was made");
        (start, self.block_bytes.min(payload_bytes - start))
    }
}
