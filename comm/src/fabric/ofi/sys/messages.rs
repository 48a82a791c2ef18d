//! Descriptions of operations, immediate and deferred, and of their completions.

use super::{FidCntr, FidEp};
use std::ffi::c_void;

/// `struct iovec` of the C library.
#[repr(C)]
pub(crate) struct IoVec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

/// `struct fi_ioc`: operands of an atomic operation.
#[repr(C)]
pub(crate) struct FiIoc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

/// `struct fi_rma_iov`: bytes of a peer.
#[repr(C)]
pub(crate) struct FiRmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

/// `struct fi_rma_ioc`: elements of a peer.
#[repr(C)]
pub(crate) struct FiRmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

/// `struct fi_msg_rma`.
#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const IoVec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_msg_atomic`.
#[repr(C)]
pub(crate) struct FiMsgAtomic {
    pub(crate) msg_iov: *const FiIoc,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const FiRmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: i32,
    pub(crate) op: i32,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// `struct fi_op_rma`: a write that waits for its trigger.
#[repr(C)]
pub(crate) struct FiOpRma {
    pub(crate) ep: *mut FidEp,
    pub(crate) msg: FiMsgRma,
    pub(crate) flags: u64,
}

/// `struct fi_op_atomic`.
#[repr(C)]
pub(crate) struct FiOpAtomic {
    pub(crate) ep: *mut FidEp,
    pub(crate) msg: FiMsgAtomic,
    pub(crate) flags: u64,
}

/// `struct fi_op_cntr`.
#[repr(C)]
pub(crate) struct FiOpCntr {
    pub(crate) cntr: *mut FidCntr,
    pub(crate) value: u64,
}

/// `struct fi_deferred_work`: an entry of the queue of deferred work.
#[repr(C)]
pub(crate) struct FiDeferredWork {
    /// For the provider alone; the operation's context must point here.
    pub(crate) context: [*mut c_void; 8],
    pub(crate) threshold: u64,
    pub(crate) triggering_cntr: *mut FidCntr,
    pub(crate) completion_cntr: *mut FidCntr,
    pub(crate) op_type: i32,
    /// To the [`FiOpRma`], [`FiOpAtomic`] or [`FiOpCntr`] that `op_type` says.
    pub(crate) op: *mut c_void,
}

/// `struct fi_cq_tagged_entry`.
#[repr(C)]
pub(crate) struct FiCqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// `struct fi_cq_err_entry`.
#[repr(C)]
pub(crate) struct FiCqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: i32,
    pub(crate) prov_errno: i32,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}
