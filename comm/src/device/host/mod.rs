//! The host as a device: streams whose operations run on its cores.

pub(super) mod accumulate;
pub(super) mod ahead;
pub(super) mod copy;
pub(super) mod kernel;
pub(super) mod lane;
pub(super) mod rows;
pub(super) mod store_way;
pub(super) mod streaming;
pub(super) mod worker;
