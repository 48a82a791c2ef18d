//! Graphs of HIP: kernels that a stream has recorded, launched together.

use super::driver::Context;
use super::library::GraphFunctions;
use crate::error::Result;
use hip_sys::hiprt;
use std::ptr::null_mut;
use std::sync::Arc;

/// A graph that can be launched.
pub(super) struct Graph {
    functions: GraphFunctions,
    executable: hiprt::hipGraphExec_t,
    /// The names of its kernels, each once.
    kernels: Vec<String>,
    /// How many it has.
    length: usize,
    /// Behind what is of it.
    _context: Arc<Context>,
}

// SAFETY: HIP's graphs may be used by any thread, by one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Of what has been recorded, by kernels of those names; takes the recording over.
    pub(super) fn new(
        context: &Arc<Context>,
        functions: GraphFunctions,
        recorded: hiprt::hipGraph_t,
        mut kernels: Vec<String>,
    ) -> Result<Self> {
        let length = kernels.len();
        kernels.sort_unstable();
        kernels.dedup();
        let mut executable = null_mut();
        // SAFETY: a place for the answer, and none for a log; the recording has just been made, and has kernels only.
        let made = unsafe { (functions.instantiate)(&mut executable, recorded, null_mut(), null_mut(), 0) };
        // SAFETY: what can be launched does not need it. There is nobody to tell of a failure.
        let _ = unsafe { (functions.destroy)(recorded) };
        context.check("a graph", made)?;
        Ok(Self { functions, executable, kernels, length, _context: context.clone() })
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(String::as_str)
    }

    /// Puts it on a stream; what the runtime says.
    ///
    /// # Safety
    /// As of launches of all its kernels; the stream must live.
    pub(super) unsafe fn launch(&mut self, stream: hiprt::hipStream_t) -> u32 {
        // SAFETY: both live; the rest is by the caller.
        unsafe { (self.functions.launch)(self.executable, stream) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: streams hold it until they have come to rest. There is nobody to tell of a failure.
        let _ = unsafe { (self.functions.destroy_executable)(self.executable) };
    }
}
