//! HIP: GPUs of AMD's, in builds with the feature `hip`.
//!
//! No GPU of AMD's has run it so far: what is tested is that all kernels compile for several of their architectures,
//! which needs none, and what does not depend on a device. The tests that need one say that they were skipped.
//!
//! Memory of the device is the runtime's, which the host does not address; words by which ranks tell each other are
//! in memory of the host that kernels reach while they run. Kernels are texts, compiled by hipRTC for the device's
//! architecture when it is opened.
//!
//! A fault of a kernel (an address that is nobody's) ends the process: the runtime calls `abort`.

#[cfg(not(feature = "hip"))]
mod disabled;
#[cfg(feature = "hip")]
mod enabled;
mod found;

#[cfg(not(feature = "hip"))]
use disabled as this;
#[cfg(feature = "hip")]
use enabled as this;
pub use found::FoundHipDevice;
pub(super) use this::open;
pub use this::{compile, found};
