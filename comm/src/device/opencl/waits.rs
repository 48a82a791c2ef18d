//! Waits that kernels do in place of the stream's thread.
//!
//! A kernel that waits occupies a compute unit. So there are fewer of them at a time than the device has compute
//! units, over all its streams: those that they wait for always find one. What a kernel cannot do is left to the
//! thread: it looks at the abort word and at the clock, and tells a kernel to stop. Kernels behind a wait that was
//! stopped store and signal nothing more.

use super::context::Context;
use super::queue::Queue;
use crate::device::accelerator::{Accelerator, DeviceMemory};
use crate::device::operation::WaitSet;
use crate::device::stream::Status;
use crate::error::{Error, Result};
use crate::fabric::{GaveUp, Word};
use opencl3::event::{CL_COMPLETE, CL_RUNNING, Event};
use opencl3::kernel::Kernel;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Words that one kernel waits for.
const WORDS: usize = 4;
/// Of the words that kernels and the thread share: `stop` on the first line, `failed` on the second.
const FLAG_BYTES: usize = 128;

/// What the kernels of a stream and its thread tell each other.
pub(super) struct Flags(DeviceMemory);

impl Flags {
    pub(super) fn new(context: &Context) -> Result<Self> {
        context.allocate(FLAG_BYTES).map(Self)
    }

    /// Where the thread tells kernels to stop.
    fn stop(&self) -> *const c_void {
        self.0.base().as_ptr().cast_const().cast()
    }

    /// Where kernels see that one was stopped.
    pub(super) fn failed(&self) -> *const c_void {
        self.0.base().as_ptr().cast_const().wrapping_add(FLAG_BYTES / 2).cast()
    }

    fn raise(&self) {
        // SAFETY: aligned memory of the device that lives as long as `self`, used as an atomic by all.
        unsafe { AtomicU32::from_ptr(self.0.base().as_ptr().cast()) }.store(1, Ordering::Release);
    }
}

/// The waits of a stream that kernels do.
pub(super) struct KernelWaits {
    kernel: Kernel,
    outstanding: VecDeque<Outstanding>,
}

struct Outstanding {
    event: Event,
    waits: Arc<WaitSet>,
    value: u32,
    /// When it was first seen to run: what is before it on the queue does not count as waiting.
    since: Option<Instant>,
}

impl KernelWaits {
    pub(super) fn new(context: &Context) -> Result<Self> {
        Ok(Self { kernel: context.own_kernel("halo_wait")?, outstanding: VecDeque::new() })
    }

    /// Whether kernels of the stream still wait.
    pub(super) fn are_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Puts a wait on the queue, if the device can spare a compute unit; whether it could. The caller holds the
    /// set, whose words are on the device.
    pub(super) fn launch(
        &mut self,
        context: &Context,
        queue: &mut Queue,
        flags: &Flags,
        waits: &Arc<WaitSet>,
        value: u32,
    ) -> Result<bool> {
        if !context.reserve_waiter() {
            return Ok(false);
        }
        let failed = |error| context.failed("clSetKernelArg", &error);
        let groups = waits.words.len().div_ceil(WORDS);
        for (index, group) in waits.words.chunks(WORDS).enumerate() {
            let gives_back = index + 1 == groups;
            let words = (0..WORDS).map(|word| group.get(word).map_or(std::ptr::null(), address));
            let shared = [flags.stop(), flags.failed()];
            let waiters = if gives_back { context.waiters() } else { std::ptr::null() };
            let pointers = words.chain(shared).chain([waiters]);
            for (argument, pointer) in (0..).zip(pointers) {
                // SAFETY: the kernel's text has pointers to words there; the first and the last may be null.
                unsafe { self.kernel.set_arg_svm_pointer(argument, pointer) }.map_err(failed)?;
            }
            // SAFETY: the kernel's text has a number of that size there.
            unsafe { self.kernel.set_arg(WORDS as u32 + 3, &value) }.map_err(failed)?;
            // SAFETY: the arguments are set, and the caller holds the words; the flags and the device's count
            // live longer than the queue.
            let event = unsafe { queue.launch("a wait", &self.kernel, [1, 1, 1]) }?;
            if gives_back {
                self.outstanding.push_back(Outstanding { event, waits: waits.clone(), value, since: None });
            }
        }
        Ok(true)
    }

    /// Lets go of those that have ended, and stops all if another rank has failed or one lasts too long: the error
    /// of the stream then.
    pub(super) fn watch(&mut self, flags: &Flags, status: &Status) -> Result<()> {
        while let Some(first) = self.outstanding.front_mut() {
            // An error of the device ends it too, and surfaces as the queue comes to rest.
            let state = first.event.command_execution_status().map_or(CL_COMPLETE, |state| state.0);
            if state <= CL_COMPLETE {
                self.outstanding.pop_front();
                continue;
            }
            let context = &status.context;
            let since = (state == CL_RUNNING).then(|| *first.since.get_or_insert_with(Instant::now));
            let waited = since.map(|since| since.elapsed()).unwrap_or_default();
            let gave_up = if context.abort.failure().is_some() {
                GaveUp::PeerFailed
            } else if context.timeout.is_some_and(|timeout| waited >= timeout) {
                GaveUp::TimedOut(waited)
            } else {
                return Ok(());
            };
            flags.raise();
            let error = first.error(status, gave_up);
            self.outstanding.clear();
            return Err(error);
        }
        Ok(())
    }
}

impl Outstanding {
    fn error(&self, status: &Status, gave_up: GaveUp) -> Error {
        let late = self.waits.words.iter().find(|word| !word.cell().reached(self.value));
        // If all have come meanwhile, any is as good as another.
        let late = late.or(self.waits.words.first()).expect("a kernel waits for something");
        self.waits.name_the_late(status.context.give_up(gave_up, late, self.value), late)
    }
}

/// A word as kernels see it.
pub(super) fn address(word: &Word) -> *const c_void {
    std::ptr::from_ref(word.cell()).cast()
}
