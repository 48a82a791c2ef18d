//! Exchanges of which one side is made: what this rank tells its peers, and what becomes of it with what
//! they tell.

use super::active::ActiveTarget;
use super::messages::Messages;
use super::of_device::{OfDevice, within};
use super::windows::OwnWindow;
use crate::error::{Error, Result};
use crate::fabric::carrier::{Carried, Carrier};
use crate::fabric::mpi::Communicator;
use crate::fabric::{Bells, Executor, Fabric, FarExchange, HalfOpen, OpenExchange, PerMessage, Role};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The tags of an exchange's messages, in the order of its sends and receives.
#[derive(Debug, Default)]
pub(super) struct Tags {
    pub(super) sends: Vec<MessageTags>,
    pub(super) recvs: Vec<MessageTags>,
}

/// The tags of one message: of its payload, and of its receiver's readiness.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageTags {
    pub(super) payload: i32,
    pub(super) readiness: i32,
}

/// What a rank tells of one message: the tag that it receives with, which is that of the payload of a
/// receive and of the readiness for a send, and where a receive lies in its window.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Ear {
    pub(super) tag: i32,
    pub(super) offset: usize,
}

impl Tags {
    /// From what both sides have told.
    pub(super) fn new(own: &PerMessage<Ear>, theirs: &PerMessage<Ear>) -> Self {
        let pair =
            |payload: &Ear, readiness: &Ear| MessageTags { payload: payload.tag, readiness: readiness.tag };
        Self {
            sends: theirs.sends.iter().zip(&own.sends).map(|(theirs, own)| pair(theirs, own)).collect(),
            recvs: own.recvs.iter().zip(&theirs.recvs).map(|(own, theirs)| pair(own, theirs)).collect(),
        }
    }
}

/// This rank's side of an exchange.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) communicator: Communicator,
    pub(super) carrier: Arc<Carrier>,
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) exchange: FarExchange,
    pub(super) bells: Bells,
    /// What peers are told.
    pub(super) own: PerMessage<Ear>,
}

impl Half {
    /// Whether it takes a window.
    pub(super) fn is_active(&self) -> bool {
        self.exchange.terms.readiness == Role::Exposure
    }

    /// The exchange, with what the peers have told, and with a window if it takes one. Does not communicate.
    pub(super) fn complete(
        self,
        theirs: &PerMessage<Ear>,
        window: Option<Arc<OwnWindow>>,
    ) -> Result<OpenExchange> {
        let Self { communicator, carrier, fabric, exchange, bells, own } = self;
        let tags = Tags::new(&own, theirs);
        let (terms, is_active) = (exchange.terms, window.is_some());
        let device = exchange.device.clone();
        let mut made = Some((exchange, window));
        let load = within(device.as_ref(), || {
            let load: Box<dyn Carried> = match made.take().expect("called once") {
                (exchange, Some(window)) => {
                    let offsets: Vec<usize> = theirs.sends.iter().map(|ear| ear.offset).collect();
                    Box::new(ActiveTarget::new(&communicator, exchange, &bells, &tags, &offsets, window)?)
                }
                (exchange, None) => Box::new(Messages::new(&communicator, exchange, &bells, &tags)?),
            };
            Ok(load)
        })?;
        let load = match device {
            Some(device) => OfDevice::new(device, load),
            None => load,
        };
        let load = carrier.carry(load)?;
        // A fabric of the host is not dropped by the thread of a stream, which may not call MPI.
        let executor = carrier.executor();
        let kept = (executor != Executor::Host).then(|| fabric.clone());
        Ok(OpenExchange {
            starts: vec![bells.start],
            triggers: bells.triggers,
            departures: bells.departures,
            executor,
            path: match (is_active, terms.buffers) {
                (true, _) => "packed, MPI put",
                (false, 2) => "packed, MPI ready send",
                (false, _) => "packed, MPI send",
            },
            reason: "the peer's memory is not mapped",
            arm: None,
            // The library keeps what comes too soon.
            early: None,
            _fabric: fabric,
            guard: Arc::new((load, kept)),
        })
    }
}

impl HalfOpen for Half {
    fn complete(mut self: Box<Self>, theirs: &[u8]) -> Result<OpenExchange> {
        let theirs: Ear = postcard::from_bytes(theirs)
            .map_err(|error| Error::System { call: "decoding a message", reason: error.to_string() })?;
        let is_send = self.exchange.sends.len() == 1;
        if is_send {
            // It starts with its trigger.
            self.bells.start = self.bells.triggers[0].clone();
        }
        let [sends, recvs] =
            [is_send, !is_send].map(|has_one| if has_one { vec![theirs] } else { Vec::new() });
        let mut opened = Half::complete(*self, &PerMessage { sends, recvs }, None)?;
        opened.path = "MPI message";
        if is_send {
            opened.starts.clear();
        }
        Ok(opened)
    }
}
