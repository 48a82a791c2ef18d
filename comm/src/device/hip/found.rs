//! A device of HIP as it is listed.

use crate::device::select::Choosable;

/// A GPU of AMD's, as [`super::found`] lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundHipDevice {
    /// As the runtime calls it.
    pub name: String,
    /// The architecture that kernels are compiled for, with its features: `gfx90a:sramecc+:xnack-`.
    pub architecture: String,
    /// How many kernels' groups it works on at a time, or more.
    pub compute_units: u32,
    /// Its memory.
    pub total_bytes: u64,
}

impl Choosable for FoundHipDevice {
    fn label(&self) -> String {
        format!("{} ({})", self.name, self.architecture)
    }

    fn names(&self) -> Vec<&str> {
        vec![&self.name, &self.architecture]
    }

    fn model(&self) -> String {
        self.label()
    }

    fn unusable(&self) -> Option<String> {
        None
    }
}
