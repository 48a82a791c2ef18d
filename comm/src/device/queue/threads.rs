//! A device that is a thread of the host for each queue, for tests: it has memory operations, and no kernels.

use super::Engine;
use crate::device::accelerator::{Accelerator, DeviceMemory, Reach};
use crate::device::driver::{CommandQueue, Driver, MemoryKind, Traits, Value, next_id};
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use crate::timeline::now_ns;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A device with memory operations only, whose kernels fault if there are any.
#[derive(Debug)]
pub(super) struct Threads {
    id: u64,
    pub(super) traits: Traits,
    /// How often queues have come to rest because they were told to.
    pub(super) rests: Arc<AtomicU64>,
}

impl Threads {
    /// One that a test may change before it is opened.
    pub(super) fn new() -> Self {
        let traits = Traits {
            compute_units: 1,
            group_threads: 1,
            is_gpu: true,
            has_doubles: true,
            host_reaches: true,
            kernels_signal: true,
            has_memory_operations: true,
            waiting_queues: 2,
            has_graphs: false,
            launches_block: false,
            keeps_times: true,
        };
        Self { id: next_id(), traits, rests: Arc::default() }
    }

    pub(super) fn open(self) -> Arc<dyn Accelerator> {
        Arc::new(Engine::new(self).expect("there is nothing to compile"))
    }
}

#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "only its size and place matter")] [u64; 8]);

impl Driver for Threads {
    type Queue = ThreadQueue;
    type Program = ();
    type Kernel = ();

    fn name(&self) -> &str {
        "threads"
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn allocate(&self, bytes: usize, _kind: MemoryKind) -> Result<DeviceMemory> {
        let lines: Vec<Line> = (0..bytes.div_ceil(64).max(1)).map(|_| Line([0; 8])).collect();
        let mut lines = lines.into_boxed_slice();
        let base = NonNull::new(lines.as_mut_ptr().cast()).expect("it is never empty");
        // SAFETY: aligned and that long, and in the box until it is dropped.
        Ok(unsafe { DeviceMemory::new(base, bytes, self.id, Reach::Both, Box::new(lines)) })
    }

    fn build(&self, _text: &KernelText) -> Result<()> {
        Ok(())
    }

    fn kernel(&self, (): &(), _name: &str, _reaches: &[*const c_void]) -> Result<()> {
        Ok(())
    }

    fn open_queue(&self) -> Result<ThreadQueue> {
        let (sender, commands) = channel::<Command>();
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        std::thread::spawn(move || {
            for command in commands {
                command();
                counter.fetch_add(1, Ordering::Release);
            }
        });
        let (times, rests) = (Arc::default(), self.rests.clone());
        Ok(ThreadQueue { sender, put: 0, done, faulted: Vec::new(), times, rests })
    }
}

type Command = Box<dyn FnOnce() + Send>;

pub(super) struct ThreadQueue {
    sender: Sender<Command>,
    put: u64,
    done: Arc<AtomicU64>,
    faulted: Vec<String>,
    /// Of timed marks.
    times: Arc<Mutex<HashMap<u64, u64>>>,
    rests: Arc<AtomicU64>,
}

impl ThreadQueue {
    fn put(&mut self, command: impl FnOnce() + Send + 'static) -> Result<()> {
        self.put += 1;
        self.sender.send(Box::new(command)).expect("the thread runs as long as the queue");
        Ok(())
    }
}

/// A word of memory by its address, that the test keeps.
fn atomic(address: usize) -> &'static AtomicU32 {
    // SAFETY: the address of an aligned word that the test holds until its streams have come to rest.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

impl CommandQueue for ThreadQueue {
    type Kernel = ();
    type Mark = u64;
    type Graph = ();

    unsafe fn launch(&mut self, what: &str, (): &mut (), _: &[Value<'_>], _: [usize; 3]) -> Result<()> {
        self.faulted.push(what.to_owned());
        Ok(())
    }

    unsafe fn copy(&mut self, _: *const u8, _: *mut u8, _: usize) -> Result<()> {
        panic!("nothing is copied")
    }

    fn mark(&mut self) -> Result<u64> {
        Ok(self.put)
    }

    fn timed_mark(&mut self) -> Result<u64> {
        let (times, number) = (self.times.clone(), self.put + 1);
        self.put(move || {
            times.lock().expect("nobody panics").insert(number, now_ns());
        })?;
        Ok(number)
    }

    fn nanoseconds(&self, first: &u64, second: &u64) -> Result<i64> {
        let times = self.times.lock().expect("nobody panics");
        Ok(times[second].cast_signed() - times[first].cast_signed())
    }

    fn has_passed(&self, mark: &u64) -> bool {
        self.done.load(Ordering::Acquire) >= *mark
    }

    unsafe fn write_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let address = word as usize;
        self.put(move || atomic(address).store(value, Ordering::Release))
    }

    unsafe fn wait_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let address = word as usize;
        self.put(move || {
            while (atomic(address).load(Ordering::Acquire).wrapping_sub(value) as i32) < 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        })
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.rests.fetch_add(1, Ordering::Relaxed);
        let (sender, done) = mpsc::channel();
        self.put(move || sender.send(()).expect("somebody waits"))?;
        done.recv().expect("the thread runs as long as the queue");
        if self.faulted.is_empty() {
            return Ok(());
        }
        let (device, reason) = ("threads".into(), "ILLEGAL_ADDRESS".into());
        Err(Error::KernelFaulted { kernels: self.faulted.clone(), device, reason })
    }
}
