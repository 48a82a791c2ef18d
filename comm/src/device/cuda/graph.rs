//! Graphs of CUDA: kernels that a stream has recorded, launched together (CUDA's guide, "CUDA Graphs").

use super::context::Context;
use super::sys::{self, CUgraph, CUgraphExec, check};
use crate::error::Result;
use std::ptr::null_mut;
use std::sync::Arc;

/// A graph that can be launched.
pub(super) struct Graph {
    context: Arc<Context>,
    executable: CUgraphExec,
    /// The names of its kernels, each once.
    kernels: Vec<String>,
    /// How many it has.
    length: usize,
}

// SAFETY: a handle of the driver, which any thread may use while no other does.
unsafe impl Send for Graph {}

impl Graph {
    /// Of what has been recorded, by kernels of those names; takes the recording over.
    pub(super) fn new(context: &Arc<Context>, recorded: CUgraph, mut kernels: Vec<String>) -> Result<Self> {
        let length = kernels.len();
        kernels.sort_unstable();
        kernels.dedup();
        let mut executable = null_mut();
        let made = context.enter().and_then(|_current| {
            // SAFETY: a handle is written; the recording has just been made, and has kernels only.
            let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, recorded, 0) };
            // SAFETY: what can be launched does not need it. There is nobody to tell of a failure.
            let _ = unsafe { sys::cuGraphDestroy(recorded) };
            check("cuGraphInstantiate", made)?;
            // Now, and not as it is first launched: it takes memory of the device, for which the driver may have to wait.
            // SAFETY: both handles live; nothing on the stream ever waits for a rank.
            let put = unsafe { sys::cuGraphUpload(executable, context.own_stream()) };
            check("cuGraphUpload", put).and_then(|()| context.finish_own()).inspect_err(|_| {
                // SAFETY: made above, and on no stream.
                let _ = unsafe { sys::cuGraphExecDestroy(executable) };
            })
        });
        made.map_err(|failure| context.failed(failure))?;
        Ok(Self { context: context.clone(), executable, kernels, length })
    }

    pub(super) fn raw(&self) -> CUgraphExec {
        self.executable
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(String::as_str)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: streams hold it until they have come to rest. There is nobody to tell of a failure.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}
