//! The cells of rings in mapped memory: a packet on a cache line.

use super::{Header, WordCell};
use std::ptr::NonNull;

/// Packets that a sender may be ahead of its receiver: enough for those that send many at once, which fewer would slow down,
/// and few, since lines that go to and fro between two cores come faster the sooner they come again.
pub(super) const CELLS: usize = 16;
/// Lines from a cell to the next: cores fetch lines beside those that they are asked for, and would take them from the
/// other core, which looks at them or is about to write them.
const STRIDE: usize = 3;
/// The longest payload that travels in its packet's cell.
pub(crate) const INLINE_BYTES: usize = 32;
/// The longest that leaves room for a receipt behind it.
pub(super) const BEFORE_RECEIPT_BYTES: usize = INLINE_BYTES - size_of::<u32>();

/// A packet, on a cache line of its own.
#[repr(C, align(64))]
pub(super) struct Cell {
    number: WordCell,
    pub(super) head: Head,
    pub(super) inline: [u8; INLINE_BYTES],
}

const _: () = assert!(size_of::<Cell>() == 64 && size_of::<Head>() == 24);

/// A [`Header`] with the length of the payload, in words that are written and read as such.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Kind and flags in a byte each, the length in two, and the tag.
    first: u64,
    /// Bytes and ticket.
    second: u64,
    offset: u64,
}

/// Where the length is in its word.
const LENGTH_SHIFT: u32 = 16;

impl Head {
    #[inline(always)]
    pub(super) fn new(header: Header, length: usize) -> Self {
        let Header { kind, flags, tag, bytes, ticket, offset } = header;
        let first =
            u64::from(kind) | u64::from(flags) << 8 | (length as u64) << LENGTH_SHIFT | u64::from(tag) << 32;
        Self { first, second: u64::from(bytes) | u64::from(ticket) << 32, offset }
    }

    #[inline(always)]
    pub(super) fn header(self) -> Header {
        let Self { first, second, offset } = self;
        let (kind, flags) = (u16::from(first as u8), u16::from((first >> 8) as u8));
        let (tag, bytes, ticket) = ((first >> 32) as u32, second as u32, (second >> 32) as u32);
        Header { kind, flags, tag, bytes, ticket, offset }
    }

    #[inline(always)]
    pub(super) fn length(self) -> usize {
        usize::from((self.first >> LENGTH_SHIFT) as u16)
    }

    #[inline(always)]
    pub(super) fn opening(self) -> Opening {
        Opening(self.first & !(u64::from(u16::MAX) << LENGTH_SHIFT))
    }
}

/// Kind, flags and tag of a packet in one number: who knows what comes compares them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening(u64);

impl Opening {
    #[inline(always)]
    pub(crate) fn new(kind: u16, flags: u16, tag: u32) -> Self {
        Head::new(Header { kind, flags, tag, ..Header::default() }, 0).opening()
    }
}

/// What the cells of a ring take.
pub(super) const CELLS_BYTES: usize = CELLS * STRIDE * size_of::<Cell>();

/// Where the cells of a mapped ring lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells(NonNull<Cell>);

impl Cells {
    /// # Safety
    /// There are cells of a ring, which stay mapped while this or what it gives is used.
    pub(super) unsafe fn new(first: NonNull<u8>) -> Self {
        Self(first.cast())
    }

    /// What lies behind the last one.
    pub(super) fn end(self) -> NonNull<u8> {
        // SAFETY: a ring has that much for its cells.
        unsafe { self.0.cast().add(CELLS_BYTES) }
    }

    #[inline(always)]
    pub(super) fn at(self, index: usize) -> InRing {
        debug_assert!(index < CELLS);
        // SAFETY: a ring has room for `CELLS` cells so far apart, and counters of rings give places below that.
        InRing(unsafe { self.0.add(index * STRIDE) })
    }
}

/// A cell of a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct InRing(NonNull<Cell>);

impl InRing {
    #[inline(always)]
    pub(super) fn line(self) -> *const Cell {
        self.0.as_ptr()
    }

    /// The number of its packet.
    #[inline(always)]
    pub(super) fn number(&self) -> &WordCell {
        // SAFETY: the number is the first field of a cell, which is mapped.
        unsafe { self.0.cast().as_ref() }
    }

    /// Where the payload of a packet lies that travels in its cell.
    #[inline(always)]
    pub(super) fn inline(self) -> *mut u8 {
        // SAFETY: the cell is mapped.
        unsafe { (&raw mut (*self.0.as_ptr()).inline).cast() }
    }

    #[inline(always)]
    fn place_of_receipt(self) -> *mut u32 {
        // SAFETY: it is the last word of the cell's payload, which begins at a multiple of eight bytes.
        unsafe { self.inline().add(BEFORE_RECEIPT_BYTES).cast() }
    }

    /// The receipt that its packet has with it.
    ///
    /// # Safety
    /// As [`InRing::head`]; and the packet has a receipt.
    #[inline(always)]
    pub(super) unsafe fn receipt(self) -> u32 {
        // SAFETY: by the caller.
        unsafe { self.place_of_receipt().read() }
    }

    /// Stores a receipt, behind a payload that is elsewhere, or of at most [`BEFORE_RECEIPT_BYTES`].
    ///
    /// # Safety
    /// As [`InRing::set_head`].
    #[inline(always)]
    pub(super) unsafe fn set_receipt(self, receipt: u32) {
        // SAFETY: by the caller.
        unsafe { self.place_of_receipt().write(receipt) };
    }

    #[inline(always)]
    fn place_of_head(self) -> *mut Head {
        // SAFETY: the cell is mapped.
        unsafe { &raw mut (*self.0.as_ptr()).head }
    }

    /// What its packet says.
    ///
    /// # Safety
    /// The packet has come, and is not released: its sender does not write to the cell.
    #[inline(always)]
    pub(super) unsafe fn head(self) -> Head {
        // SAFETY: by the caller.
        unsafe { self.place_of_head().read() }
    }

    /// Stores what its packet says.
    ///
    /// # Safety
    /// The receiver is done with the packet before, and looks at this once its number has come.
    #[inline(always)]
    pub(super) unsafe fn set_head(self, head: Head) {
        // SAFETY: by the caller.
        unsafe { self.place_of_head().write(head) };
    }
}
