//! Numbers of libfabric's interface, under its own names.

/// The version of the interface that these declarations follow.
pub(crate) const INTERFACE: u32 = version(1, 17);
/// The oldest version whose structures have the fields that are used.
pub(crate) const OLDEST: u32 = version(1, 15);

/// A version as libfabric writes it.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// What an endpoint can do, and what an operation was.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_TAGGED: u64 = 1 << 3;
pub(crate) const FI_ATOMIC: u64 = 1 << 4;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_TRIGGER: u64 = 1 << 20;
pub(crate) const FI_HMEM: u64 = 1 << 47;
pub(crate) const FI_RMA_EVENT: u64 = 1 << 56;
/// To `fi_getinfo`: the address given is that of this side.
pub(crate) const FI_SOURCE: u64 = 1 << 57;

// What a provider wants of its caller: memory of its own in every context.
pub(crate) const FI_CONTEXT: u64 = 1 << 59;
pub(crate) const FI_CONTEXT2: u64 = 1 << 52;

// The order in which operations of one endpoint arrive at another.
pub(crate) const FI_ORDER_WAW: u64 = 1 << 4;
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;

// What the provider wants of whoever registers memory.
pub(crate) const FI_MR_LOCAL: i32 = 1 << 2;
pub(crate) const FI_MR_VIRT_ADDR: i32 = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: i32 = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: i32 = 1 << 6;
pub(crate) const FI_MR_RMA_EVENT: i32 = 1 << 8;
pub(crate) const FI_MR_ENDPOINT: i32 = 1 << 9;
/// Only asked for with [`FI_HMEM`].
pub(crate) const FI_MR_HMEM: i32 = 1 << 10;
/// All that this module honours.
pub(crate) const MR_MODES: i32 =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT;

// Enumerations.
pub(crate) const FI_HMEM_SYSTEM: i32 = 0;
pub(crate) const FI_HMEM_CUDA: i32 = 1;
pub(crate) const FI_HMEM_ROCR: i32 = 2;
pub(crate) const FI_AV_TABLE: i32 = 2;
pub(crate) const FI_EP_RDM: i32 = 3;
pub(crate) const FI_THREAD_SAFE: i32 = 1;
pub(crate) const FI_CQ_FORMAT_TAGGED: i32 = 4;
pub(crate) const FI_WAIT_NONE: i32 = 0;
pub(crate) const FI_UINT32: i32 = 5;
pub(crate) const FI_ATOMIC_WRITE: i32 = 11;
pub(crate) const FI_OP_WRITE: i32 = 5;
pub(crate) const FI_OP_ATOMIC: i32 = 6;
pub(crate) const FI_OP_CNTR_ADD: i32 = 10;

// Commands of `fi_control`.
pub(crate) const FI_ENABLE: i32 = 6;
pub(crate) const FI_QUEUE_WORK: i32 = 11;

/// Any sender.
pub(crate) const FI_ADDR_UNSPEC: u64 = u64::MAX;

// Errors that mean something other than failure.
pub(crate) const FI_EAGAIN: i32 = 11;
pub(crate) const FI_ENOSPC: i32 = 28;
pub(crate) const FI_ENODATA: i32 = 61;
pub(crate) const FI_ECANCELED: i32 = 125;
pub(crate) const FI_ETOOSMALL: i32 = 257;
pub(crate) const FI_EAVAIL: i32 = 259;
