//! Measurements that `streamhalo bench` and the benches of the workspace share.

pub mod halo;
pub mod ranks;
mod subject;
