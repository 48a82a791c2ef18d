//! libfabric as C sees it: structures, tables of functions and constants of its interface 1.17, the
//! part of it that is used here.
//!
//! Later versions append to these structures, so what libfabric hands out may be longer than what
//! is declared, and what it reads must be handed over in memory that it has allocated itself
//! (`fi_dupinfo`). Nothing here is ever copied by value out of such memory.

mod constants;
mod info;
mod messages;
mod objects;

pub(crate) use constants::*;
pub(crate) use info::*;
pub(crate) use messages::*;
pub(crate) use objects::*;

use std::ffi::c_void;

/// A function of a table that is not used here.
pub(crate) type Unused = *const c_void;

/// Zeroed memory is a value of the structure: it consists of numbers, pointers and optional
/// functions.
///
/// # Safety
/// That must be so.
pub(crate) unsafe trait Zeroed: Sized {
    /// The value of which every byte is zero.
    fn zeroed() -> Self {
        // SAFETY: the implementor vouches for it.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! zeroed {
    ($($structure:ty),* $(,)?) => {
        // SAFETY: numbers and pointers only.
        $(unsafe impl Zeroed for $structure {})*
    };
}

zeroed!(
    FiAvAttr,
    FiCqAttr,
    FiMrAttr,
    FiCntrAttr,
    FiCqTaggedEntry,
    FiCqErrEntry,
    FiMsgRma,
    FiMsgAtomic,
    FiOpRma,
    FiOpAtomic,
    FiOpCntr,
    FiDeferredWork,
    FiIoc,
    FiRmaIoc,
    FiRmaIov,
    IoVec,
);

#[cfg(test)]
#[cfg(target_pointer_width = "64")]
mod layout;
