//! libfabric's objects and their tables of functions. Each table begins with its size, which says
//! how many of the functions are there; each object begins with a [`Fid`].

use super::{FiCqErrEntry, FiInfo, FiMsgAtomic, FiMsgRma, IoVec, Unused};
use std::ffi::{c_char, c_int, c_void};

/// `struct fid`: what all objects begin with.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FiOps,
}

/// `struct fi_ops`: what all objects can do.
#[repr(C)]
pub(crate) struct FiOps {
    pub(crate) size: usize,
    pub(crate) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(crate) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub(crate) control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
    pub(crate) others: [Unused; 3],
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsFabric,
    pub(crate) api_version: u32,
}

#[repr(C)]
pub(crate) struct FiOpsFabric {
    pub(crate) size: usize,
    pub(crate) domain:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int>,
    pub(crate) others: [Unused; 5],
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsDomain,
    pub(crate) mr: *const FiOpsMr,
}

/// How something of a domain is opened, with its attributes.
pub(crate) type Open<Attributes, Object> =
    unsafe extern "C" fn(*mut FidDomain, *mut Attributes, *mut *mut Object, *mut c_void) -> c_int;

#[repr(C)]
pub(crate) struct FiOpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open: Option<Open<FiAvAttr, FidAv>>,
    pub(crate) cq_open: Option<Open<FiCqAttr, FidCq>>,
    pub(crate) endpoint: Option<Open<FiInfo, FidEp>>,
    pub(crate) scalable_ep: Unused,
    pub(crate) cntr_open: Option<Open<FiCntrAttr, FidCntr>>,
    pub(crate) poll_open: Unused,
    pub(crate) stx_ctx: Unused,
    pub(crate) srx_ctx: Unused,
    pub(crate) query_atomic: Unused,
    pub(crate) query_collective: Unused,
    pub(crate) endpoint2: Unused,
}

#[repr(C)]
pub(crate) struct FiOpsMr {
    pub(crate) size: usize,
    /// Domain, memory, its length, access, offset, requested key, flags.
    pub(crate) reg: Option<
        unsafe extern "C" fn(
            *mut Fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut FidMr,
            *mut c_void,
        ) -> c_int,
    >,
    pub(crate) regv: Unused,
    /// Domain, attributes, flags.
    pub(crate) regattr:
        Option<unsafe extern "C" fn(*mut Fid, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int>,
}

#[repr(C)]
pub(crate) struct FiMrAttr {
    pub(crate) mr_iov: *const IoVec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
    /// Whose memory it is.
    pub(crate) iface: i32,
    /// The device's number, in the first four bytes.
    pub(crate) device: u64,
    /// What later versions have behind it, for those that look.
    pub(crate) later: [u64; 6],
}

#[repr(C)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsEp,
    pub(crate) cm: *const FiOpsCm,
    pub(crate) msg: Unused,
    pub(crate) rma: *const FiOpsRma,
    pub(crate) tagged: *const FiOpsTagged,
    pub(crate) atomic: *const FiOpsAtomic,
    pub(crate) collective: Unused,
}

#[repr(C)]
pub(crate) struct FiOpsEp {
    pub(crate) size: usize,
    /// Endpoint, and the context of the operation.
    pub(crate) cancel: Option<unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize>,
    pub(crate) others: [Unused; 6],
}

#[repr(C)]
pub(crate) struct FiOpsCm {
    pub(crate) size: usize,
    /// Endpoint, the address and its length.
    pub(crate) setname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, usize) -> c_int>,
    pub(crate) getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int>,
    pub(crate) others: [Unused; 7],
}

#[repr(C)]
pub(crate) struct FiOpsRma {
    pub(crate) size: usize,
    pub(crate) reads: [Unused; 3],
    /// Endpoint, source, its length and descriptor; peer, address and key there; context.
    pub(crate) write: Option<
        unsafe extern "C" fn(
            *mut FidEp,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> isize,
    >,
    pub(crate) writev: Unused,
    pub(crate) writemsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> isize>,
    pub(crate) inject: Unused,
    /// As `write`, with data for the peer's completion after the descriptor.
    pub(crate) writedata: Option<
        unsafe extern "C" fn(
            *mut FidEp,
            *const c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> isize,
    >,
    pub(crate) injectdata: Unused,
}

#[repr(C)]
pub(crate) struct FiOpsTagged {
    pub(crate) size: usize,
    /// Endpoint, destination, its length and descriptor; peer, tag, bits to ignore; context.
    pub(crate) recv: Option<
        unsafe extern "C" fn(
            *mut FidEp,
            *mut c_void,
            usize,
            *mut c_void,
            u64,
            u64,
            u64,
            *mut c_void,
        ) -> isize,
    >,
    pub(crate) recvv: Unused,
    pub(crate) recvmsg: Unused,
    /// Endpoint, source, its length and descriptor; peer, tag; context.
    pub(crate) send: Option<
        unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize,
    >,
    pub(crate) others: [Unused; 5],
}

#[repr(C)]
pub(crate) struct FiOpsAtomic {
    pub(crate) size: usize,
    pub(crate) write: Unused,
    pub(crate) writev: Unused,
    pub(crate) writemsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsgAtomic, u64) -> isize>,
    pub(crate) others: [Unused; 10],
}

#[repr(C)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsAv,
}

#[repr(C)]
pub(crate) struct FiOpsAv {
    pub(crate) size: usize,
    pub(crate) insert:
        Option<unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int>,
    pub(crate) others: [Unused; 6],
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsCq,
}

#[repr(C)]
pub(crate) struct FiOpsCq {
    pub(crate) size: usize,
    pub(crate) read: Option<unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize>,
    pub(crate) readfrom: Unused,
    pub(crate) readerr: Option<unsafe extern "C" fn(*mut FidCq, *mut FiCqErrEntry, u64) -> isize>,
    pub(crate) sread: Unused,
    pub(crate) sreadfrom: Unused,
    pub(crate) signal: Unused,
    pub(crate) strerror:
        Option<unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char>,
}

#[repr(C)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FiOpsCntr,
}

#[repr(C)]
pub(crate) struct FiOpsCntr {
    pub(crate) size: usize,
    pub(crate) read: Option<unsafe extern "C" fn(*mut FidCntr) -> u64>,
    pub(crate) readerr: Option<unsafe extern "C" fn(*mut FidCntr) -> u64>,
    pub(crate) add: Option<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
    pub(crate) set: Option<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
    pub(crate) wait: Unused,
    pub(crate) adderr: Unused,
    pub(crate) seterr: Unused,
}

#[repr(C)]
pub(crate) struct FiAvAttr {
    pub(crate) r#type: i32,
    pub(crate) rx_ctx_bits: i32,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
pub(crate) struct FiCqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: i32,
    pub(crate) wait_obj: i32,
    pub(crate) signaling_vector: i32,
    pub(crate) wait_cond: i32,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FiCntrAttr {
    pub(crate) events: i32,
    pub(crate) wait_obj: i32,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}
