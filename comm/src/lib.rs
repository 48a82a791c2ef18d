//! Devices, streams, fabrics and exchange backends.
#![deny(missing_docs)]

pub mod backend;
mod collective;
pub mod device;
mod element;
mod error;
pub mod fabric;
mod world;

pub use element::{Element, ElementType, Op};
pub use error::{Error, Result};
pub use world::{World, WorldOptions};
