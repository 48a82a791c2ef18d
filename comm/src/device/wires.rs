//! How a wire takes the payloads of a stream: straight from and to the device's memory, or by way of the host's.
//!
//! Words and announcements are the host's in any case: kernels neither post nor poll what a wire brings.

use super::accelerator::Accelerator;
use super::driver::MemoryKind;
use super::{Peers, Stream};
use crate::error::{Error, Result};
use crate::fabric::{Executor, Fabric, Region};
use crate::named::named;
use crate::world::World;
use std::sync::Arc;

/// What a wire is given of arrays on a device besides the host, where a rank's memory is not mapped: over `mpi` and
/// `ofi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wires {
    /// Addresses of the device's memory where the host has the same, or the library says that it takes them; and else
    /// copies in the host's memory.
    #[default]
    Auto,
    /// Addresses of the device's memory, also where the library cannot be asked: the user answers for it. An error where
    /// it says that it does not take them.
    Direct,
    /// Copies in the host's memory.
    Staged,
}

named!(Wires { Auto = "auto", Direct = "direct", Staged = "staged" });

/// Whose addresses those of a device's memory are: what a library has to know to use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// The host's too, at any time: any library uses them.
    Hosts,
    /// OpenCL's, which no library of networks knows: some take them for the host's, and crash.
    Opencl,
    Of(Vendor),
}

/// Why no library takes addresses of OpenCL's.
pub(super) const OF_OPENCL: &str =
    "the host does not address its arrays, and libraries take addresses of CUDA or HIP, none of OpenCL";

/// One whose addresses libraries of networks may know, with the device's number for its library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Cuda(i32),
    #[allow(dead_code, reason = "builds without HIP have no such device")]
    Hip(i32),
}

/// Whether a wire takes addresses of a GPU's memory, as far as that can be found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Takes {
    /// It does, as `because` says.
    Yes {
        because: String,
        /// Why windows of such memory are another matter, if they are.
        no_puts: Option<String>,
    },
    /// What says that it does not, and what to do.
    No(String),
    /// Why it cannot be found out.
    Unknown(String),
}

/// What a wire is given of a stream's arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// Memory of the host: that is where they are, or there is no wire.
    Plain,
    /// Addresses of the device's, and why; where they are for messages only, why not for puts into windows.
    Direct { because: String, no_puts: Option<String> },
    /// Copies in the host's memory, and why.
    Staged(String),
}

impl Wiring {
    /// The wiring of a stream on the device, or on the host.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] if addresses are asked for that the wire does not take.
    pub(super) fn of(
        fabric: &dyn Fabric,
        device: Option<&Arc<dyn Accelerator>>,
        (wires, peers): (Wires, Peers),
    ) -> Result<Self> {
        let Some(device) = device else { return Ok(Wiring::Plain) };
        let refused = |because: &str| {
            let reason = format!(
                "`device.wires` is `direct`, but {because}; choose `auto`, which says what it does, or `staged`"
            );
            Err(Error::DeviceUnavailable { device: device.name().into(), reason })
        };
        let wire = match (fabric.wire(), wires) {
            // Others have none where all ranks are on one node.
            (None, Wires::Direct) if fabric.executor() == Executor::Stream => {
                return refused(&format!("messages of the fabric `{}` go over no wire", fabric.name()));
            }
            (None, _) => return Ok(Wiring::Plain),
            (Some(_), Wires::Direct) if peers == Peers::Staged => {
                return refused(
                    "`device.peers` is `staged`, which has all messages go through the host's memory",
                );
            }
            (Some(_), _) if peers == Peers::Staged => {
                return Ok(Wiring::Staged("`device.peers` is `staged`".into()));
            }
            (Some(_), Wires::Staged) => return Ok(Wiring::Staged("`device.wires` is `staged`".into())),
            (Some(wire), _) => wire,
        };
        let takes = match device.addresses() {
            Addresses::Hosts => {
                return Ok(Wiring::Direct { because: "the host addresses its arrays".into(), no_puts: None });
            }
            Addresses::Opencl => Takes::No(OF_OPENCL.into()),
            Addresses::Of(vendor) => wire.takes(vendor),
        };
        Self::where_told(wires, takes).or_else(|because| refused(&because))
    }

    /// Where a wire has said whether it takes addresses of a GPU's memory.
    ///
    /// # Errors
    /// Why it does not, where it is to.
    fn where_told(wires: Wires, takes: Takes) -> std::result::Result<Self, String> {
        match (takes, wires) {
            (Takes::Yes { because, .. }, Wires::Direct) => Ok(Wiring::Direct { because, no_puts: None }),
            (Takes::Yes { because, no_puts }, _) => {
                let of_user = |reason| format!("{reason}; `device.wires = \"direct\"` says that it does");
                Ok(Wiring::Direct { because, no_puts: no_puts.map(of_user) })
            }
            (Takes::Unknown(_), Wires::Direct) => {
                Ok(Wiring::Direct { because: "`device.wires` is `direct`".into(), no_puts: None })
            }
            (Takes::No(because), Wires::Direct) => Err(because),
            (Takes::No(because), _) => Ok(Wiring::Staged(because)),
            (Takes::Unknown(because), _) => {
                Ok(Wiring::Staged(format!("{because}; `device.wires = \"direct\"` says that it takes them")))
            }
        }
    }

    /// Why payloads go through the host's memory, if they do; of puts into windows, or of messages.
    pub(crate) fn why_staged(&self, puts: bool) -> Option<&str> {
        match self {
            Wiring::Direct { no_puts, .. } => no_puts.as_deref().filter(|_| puts),
            Wiring::Plain => None,
            Wiring::Staged(because) => Some(because),
        }
    }
}

impl Stream {
    /// Zeroed memory where the stream lives, for payloads that a wire takes or brings. No peer maps it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn allocate_for_wire(&self, world: &World, bytes: usize) -> Result<Region> {
        let Some(device) = self.accelerator() else { return world.fabric().allocate(bytes) };
        // Of memory in pools drivers give no handles, which libraries want between the ranks of a node.
        let kind = if device.identity().is_ok() { MemoryKind::Exportable } else { MemoryKind::Device };
        Ok(Region::private(Arc::new(device.allocate(bytes, kind)?), world.rank()))
    }

    /// What a wire to ranks whose memory is not mapped is given of its arrays, and why, in words; `None` on the host,
    /// and over fabrics without a wire. See [`Wires`].
    pub fn told_of_wires(&self) -> Option<String> {
        match self.wiring() {
            Wiring::Plain => None,
            Wiring::Direct { because, no_puts } => {
                let puts = no_puts.as_ref().map(|reason| format!("; puts are staged, because {reason}"));
                let puts = puts.unwrap_or_default();
                Some(format!("straight from and to the device's memory, because {because}{puts}"))
            }
            Wiring::Staged(because) => Some(format!("staged through the host's memory, because {because}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_memory_is_given_to_those_that_take_it_and_nothing_falls_back_silently() {
        let yes = |no_puts: Option<&str>| Takes::Yes {
            because: "it says so".into(),
            no_puts: no_puts.map(str::to_owned),
        };
        let no = Takes::No("it says that it does not".into());
        let unknown = Takes::Unknown("nobody can ask it".into());
        let of = Wiring::where_told;
        let auto = of(Wires::Auto, yes(None)).expect("takes it");
        assert_eq!([auto.why_staged(false), auto.why_staged(true)], [None; 2]);
        // Messages go straight; puts into windows of which nothing is known do where the user answers for them.
        let auto = of(Wires::Auto, yes(Some("it says nothing of windows"))).expect("takes it");
        assert_eq!(auto.why_staged(false), None);
        let because = "it says nothing of windows; `device.wires = \"direct\"` says that it does";
        assert_eq!(auto.why_staged(true), Some(because));
        let direct = of(Wires::Direct, yes(Some("it says nothing of windows"))).expect("takes it");
        assert_eq!([direct.why_staged(false), direct.why_staged(true)], [None; 2]);
        let auto = of(Wires::Auto, no.clone()).expect("is staged");
        assert_eq!(auto.why_staged(false), Some("it says that it does not"));
        assert_eq!(of(Wires::Direct, no), Err("it says that it does not".into()));
        let auto = of(Wires::Auto, unknown.clone()).expect("is staged");
        assert!(auto.why_staged(false).expect("staged").starts_with("nobody can ask it; `device.wires = "));
        let direct = of(Wires::Direct, unknown).expect("the user says so");
        assert_eq!(direct, Wiring::Direct { because: "`device.wires` is `direct`".into(), no_puts: None });
    }
}
