//! The structures as a C compiler lays them out on a 64-bit machine (measured with the headers of
//! libfabric 1.17): a field out of place would make libfabric write over something else.

use super::*;
use std::mem::{offset_of, size_of};

macro_rules! layouts {
    ($($structure:ty, $size:literal, { $($field:ident: $offset:literal),* };)*) => {
        #[test]
        fn structures_lie_as_in_c() {
            $(
                assert_eq!(size_of::<$structure>(), $size, "size of {}", stringify!($structure));
                $(assert_eq!(
                    offset_of!($structure, $field), $offset,
                    "{} of {}", stringify!($field), stringify!($structure)
                );)*
            )*
        }
    };
}

layouts! {
    FiInfo, 120, { next: 0, caps: 8, mode: 16, addr_format: 24, src_addrlen: 32, dest_addrlen: 40, src_addr: 48, dest_addr: 56, handle: 64, tx_attr: 72, rx_attr: 80, ep_attr: 88, domain_attr: 96, fabric_attr: 104, nic: 112 };
    FiTxAttr, 80, { caps: 0, mode: 8, op_flags: 16, msg_order: 24, comp_order: 32, inject_size: 40, size: 48, iov_limit: 56, rma_iov_limit: 64, tclass: 72 };
    FiRxAttr, 64, { caps: 0, mode: 8, op_flags: 16, msg_order: 24, comp_order: 32, total_buffered_recv: 40, size: 48, iov_limit: 56 };
    FiEpAttr, 96, { r#type: 0, protocol: 4, protocol_version: 8, max_msg_size: 16, msg_prefix_size: 24, max_order_raw_size: 32, max_order_war_size: 40, max_order_waw_size: 48, mem_tag_format: 56, tx_ctx_cnt: 64, rx_ctx_cnt: 72, auth_key_size: 80, auth_key: 88 };
    FiDomainAttr, 192, { domain: 0, name: 8, threading: 16, control_progress: 20, data_progress: 24, resource_mgmt: 28, av_type: 32, mr_mode: 36, mr_key_size: 40, cq_data_size: 48, cq_cnt: 56, ep_cnt: 64, tx_ctx_cnt: 72, rx_ctx_cnt: 80, max_ep_tx_ctx: 88, max_ep_rx_ctx: 96, max_ep_stx_ctx: 104, max_ep_srx_ctx: 112, cntr_cnt: 120, mr_iov_limit: 128, caps: 136, mode: 144, auth_key: 152, auth_key_size: 160, max_err_data: 168, mr_cnt: 176, tclass: 184 };
    FiFabricAttr, 32, { fabric: 0, name: 8, prov_name: 16, prov_version: 24, api_version: 28 };
    Fid, 24, { fclass: 0, context: 8, ops: 16 };
    FiOps, 56, { size: 0, close: 8, bind: 16, control: 24 };
    FidFabric, 40, { fid: 0, ops: 24, api_version: 32 };
    FiOpsFabric, 56, { size: 0, domain: 8 };
    FidDomain, 40, { fid: 0, ops: 24, mr: 32 };
    FiOpsDomain, 96, { size: 0, av_open: 8, cq_open: 16, endpoint: 24, cntr_open: 40, query_atomic: 72 };
    FiOpsMr, 32, { size: 0, reg: 8, regattr: 24 };
    FiMrAttr, 128, { mr_iov: 0, iov_count: 8, access: 16, offset: 24, requested_key: 32, context: 40, auth_key_size: 48, auth_key: 56, iface: 64, device: 72, later: 80 };
    FidMr, 40, { fid: 0, mem_desc: 24, key: 32 };
    FidEp, 80, { fid: 0, ops: 24, cm: 32, msg: 40, rma: 48, tagged: 56, atomic: 64, collective: 72 };
    FiOpsEp, 64, { size: 0, cancel: 8 };
    FiOpsCm, 80, { size: 0, setname: 8, getname: 16 };
    FiOpsRma, 80, { size: 0, write: 32, writemsg: 48, inject: 56, writedata: 64 };
    FiOpsTagged, 80, { size: 0, recv: 8, send: 32 };
    FiOpsAtomic, 112, { size: 0, write: 8, writemsg: 24 };
    FidAv, 32, { fid: 0, ops: 24 };
    FiOpsAv, 64, { size: 0, insert: 8 };
    FidCq, 32, { fid: 0, ops: 24 };
    FiOpsCq, 64, { size: 0, read: 8, readerr: 24, strerror: 56 };
    FidCntr, 32, { fid: 0, ops: 24 };
    FiOpsCntr, 64, { size: 0, read: 8, readerr: 16, add: 24, set: 32, wait: 40, adderr: 48, seterr: 56 };
    FiAvAttr, 48, { r#type: 0, rx_ctx_bits: 4, count: 8, ep_per_node: 16, name: 24, map_addr: 32, flags: 40 };
    FiCqAttr, 40, { size: 0, flags: 8, format: 16, wait_obj: 20, signaling_vector: 24, wait_cond: 28, wait_set: 32 };
    FiCntrAttr, 24, { events: 0, wait_obj: 4, wait_set: 8, flags: 16 };
    FiCqTaggedEntry, 48, { op_context: 0, flags: 8, len: 16, buf: 24, data: 32, tag: 40 };
    FiCqErrEntry, 80, { op_context: 0, flags: 8, len: 16, buf: 24, data: 32, tag: 40, olen: 48, err: 56, prov_errno: 60, err_data: 64, err_data_size: 72 };
    FiIoc, 16, { addr: 0, count: 8 };
    FiRmaIov, 24, { addr: 0, len: 8, key: 16 };
    FiRmaIoc, 24, { addr: 0, count: 8, key: 16 };
    FiMsgRma, 64, { msg_iov: 0, desc: 8, iov_count: 16, addr: 24, rma_iov: 32, rma_iov_count: 40, context: 48, data: 56 };
    FiMsgAtomic, 72, { msg_iov: 0, desc: 8, iov_count: 16, addr: 24, rma_iov: 32, rma_iov_count: 40, datatype: 48, op: 52, context: 56, data: 64 };
    FiOpRma, 80, { ep: 0, msg: 8, flags: 72 };
    FiOpAtomic, 88, { ep: 0, msg: 8, flags: 80 };
    FiOpCntr, 16, { cntr: 0, value: 8 };
    FiDeferredWork, 104, { context: 0, threshold: 64, triggering_cntr: 72, completion_cntr: 80, op_type: 88, op: 96 };
    IoVec, 16, { base: 0, len: 8 };
}
