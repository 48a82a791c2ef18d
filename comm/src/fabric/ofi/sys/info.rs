//! What a provider offers, and what is asked of it: `fi_info` and what hangs from it.

use super::{FidDomain, FidFabric};
use std::ffi::{c_char, c_void};

/// `struct fi_info`: one endpoint that could be had, in a list.
#[repr(C)]
pub(crate) struct FiInfo {
    pub(crate) next: *mut FiInfo,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut c_void,
    pub(crate) tx_attr: *mut FiTxAttr,
    pub(crate) rx_attr: *mut FiRxAttr,
    pub(crate) ep_attr: *mut FiEpAttr,
    pub(crate) domain_attr: *mut FiDomainAttr,
    pub(crate) fabric_attr: *mut FiFabricAttr,
    pub(crate) nic: *mut c_void,
}

/// `struct fi_tx_attr`: the sending half of an endpoint.
#[repr(C)]
pub(crate) struct FiTxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

/// `struct fi_rx_attr`: the receiving half.
#[repr(C)]
pub(crate) struct FiRxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

/// `struct fi_ep_attr`.
#[repr(C)]
pub(crate) struct FiEpAttr {
    pub(crate) r#type: i32,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

/// `struct fi_domain_attr`.
#[repr(C)]
pub(crate) struct FiDomainAttr {
    pub(crate) domain: *mut FidDomain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: i32,
    pub(crate) control_progress: i32,
    pub(crate) data_progress: i32,
    pub(crate) resource_mgmt: i32,
    pub(crate) av_type: i32,
    pub(crate) mr_mode: i32,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
}

/// `struct fi_fabric_attr`.
#[repr(C)]
pub(crate) struct FiFabricAttr {
    pub(crate) fabric: *mut FidFabric,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}
