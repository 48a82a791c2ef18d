//! The lower half of the fabric over libfabric (OFI), whose providers reach the networks of
//! machines: `cxi` (Slingshot), `verbs`, `tcp` and others.
//!
//! libfabric is loaded when it is first asked for ([`library`]). Its interface is declared in
//! [`sys`]; everything above checks what is called and what comes back. Two ways lead over it:
//!
//! - with *triggered operations* ([`work`], providers `cxi` and `sockets`) the network interface
//!   carries out, by itself, what waits for a counter ([`counter`]); a stream adds to that counter;
//! - otherwise a progress thread posts [`immediate`] operations and polls for [`completion`].
//!
//! `sockets` is slow and no longer maintained, but runs anywhere: on it the first way is tested.

mod call;
mod choice;
mod completion;
mod counter;
mod endpoint;
mod immediate;
mod library;
mod memory;
mod provider;
mod sys;
#[cfg(test)]
mod tests;
mod turns;
mod work;

pub(crate) use call::Posted;
pub(crate) use completion::Completion;
pub(crate) use counter::Counter;
pub(crate) use endpoint::{Endpoint, EndpointOptions, PeerAddress};
pub(crate) use library::Library;
pub(crate) use memory::{LocalSlice, MemoryRegion, RemotePlace};
pub use provider::{Provider, providers};
pub(crate) use work::{DeferredAtomic, DeferredCounterAdd, DeferredWrite};
