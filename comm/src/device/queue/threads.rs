//! A device that is a thread of the host for each queue, for tests: it has memory operations, and of kernels those only that
//! wait, tell and count.

use super::Engine;
use crate::device::accelerator::{Accelerator, DeviceMemory, Reach};
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Traits, Value, next_id};
use crate::device::text::KernelText;
use crate::error::{Error, Result};
use crate::timeline::now_ns;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
    /// How many commands are on a queue that is full, and how many graphs have been put on such a one.
    pub(super) room: u64,
    pub(super) crowded: Arc<AtomicU64>,
    /// Whether marks right behind what waits are errors.
    pub(super) marks_fail: bool,
    /// Whether kernels that move are taken, and move nothing, and so are those that signal.
    pub(super) takes_moves: bool,
    /// The kernels of graphs, as they were recorded.
    pub(super) in_graphs: Arc<Mutex<Vec<String>>>,
}

impl Threads {
    /// One that a test may change before it is opened.
    pub(super) fn new() -> Self {
        let traits = Traits {
            compute_units: 1,
            group_threads: 1,
            most_group_threads: 1,
            is_gpu: true,
            has_doubles: true,
            host_reaches: true,
            kernels_signal: true,
            has_memory_operations: true,
            queues: 2,
            has_graphs: false,
            launches_block: false,
            keeps_times: true,
        };
        Self {
            id: next_id(),
            traits,
            rests: Arc::default(),
            room: u64::MAX,
            crowded: Arc::default(),
            marks_fail: false,
            takes_moves: false,
            in_graphs: Arc::default(),
        }
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
        // Not a box: moving one says that nobody else has its address.
        let mut lines: Vec<Line> = (0..bytes.div_ceil(64).max(1)).map(|_| Line([0; 8])).collect();
        let base = NonNull::new(lines.as_mut_ptr().cast()).expect("it is never empty");
        // SAFETY: aligned and that long, and in the vector until it is dropped.
        Ok(unsafe { DeviceMemory::new(base, bytes, self.id, Reach::Both, Box::new(lines)) })
    }

    unsafe fn copy_apart(&self, source: *const u8, destination: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: by the caller, and all of its memory is the host's.
        unsafe { std::ptr::copy_nonoverlapping(source, destination, bytes) };
        Ok(())
    }

    fn build(&self, _text: &KernelText) -> Result<()> {
        Ok(())
    }

    fn kernel(&self, (): &(), _name: &str, _reaches: &[*const c_void]) -> Result<()> {
        Ok(())
    }

    fn open_queue(&self, _rank: Option<usize>) -> Result<ThreadQueue> {
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
        let (room, crowded) = (self.room, self.crowded.clone());
        Ok(ThreadQueue {
            sender,
            put: 0,
            done,
            faulted: Vec::new(),
            is_broken: Arc::default(),
            times,
            rests,
            room,
            crowded,
            marks_fail: self.marks_fail,
            takes_moves: self.takes_moves,
            in_graphs: self.in_graphs.clone(),
            is_behind_wait: false,
            recorded: None,
        })
    }
}

type Command = Box<dyn FnOnce() + Send>;
/// A kernel with its arguments.
type Work = Arc<dyn Fn() + Send + Sync>;

pub(super) struct ThreadQueue {
    sender: Sender<Command>,
    put: u64,
    done: Arc<AtomicU64>,
    faulted: Vec<String>,
    /// Whether a kernel has faulted: none waits any more then.
    is_broken: Arc<AtomicBool>,
    /// Of timed marks.
    times: Arc<Mutex<HashMap<u64, u64>>>,
    rests: Arc<AtomicU64>,
    room: u64,
    crowded: Arc<AtomicU64>,
    marks_fail: bool,
    takes_moves: bool,
    in_graphs: Arc<Mutex<Vec<String>>>,
    /// Whether what was put on it last waits.
    is_behind_wait: bool,
    recorded: Option<Vec<Work>>,
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

fn address(argument: &Value<'_>) -> usize {
    let Value::Pointer(pointer) = argument else { panic!("{argument:?} is no address") };
    *pointer as usize
}

fn number(argument: &Value<'_>) -> u32 {
    let Value::U32(number) = argument else { panic!("{argument:?} is no number") };
    *number
}

/// A word that may not be there.
fn word_at(address: usize) -> Option<&'static AtomicU32> {
    (address != 0).then(|| atomic(address))
}

/// What kernels that wait do: see `kernels.h`.
fn wait(arguments: &[Value<'_>], is_broken: Arc<AtomicBool>) -> Work {
    let (words, behind): (Vec<usize>, _) = match &arguments[1] {
        Value::U64(count) => {
            let entry = |n: usize| address(&arguments[0]) + n * size_of::<u64>();
            // SAFETY: a table of so many addresses, which is there before the kernel is put on the queue.
            let read = |n| unsafe { (entry(n) as *const u64).read() } as usize;
            ((0..*count as usize).map(read).collect(), &arguments[2..])
        }
        _ => (arguments[..4].iter().map(address).collect(), &arguments[4..]),
    };
    let [stop, failed, base, place] = [0, 1, 2, 4].map(|index| address(&behind[index]));
    let [given, named] = [3, 5].map(|index| number(&behind[index]));
    Arc::new(move || {
        atomic(place).store(named, Ordering::Release);
        let wanted = word_at(base).map_or(0, |word| word.load(Ordering::Acquire)).wrapping_add(given);
        let is_late = |word: &AtomicU32| (word.load(Ordering::Acquire).wrapping_sub(wanted) as i32) < 0;
        while words.iter().filter_map(|word| word_at(*word)).any(is_late) {
            if is_broken.load(Ordering::Acquire) {
                return;
            }
            if atomic(stop).load(Ordering::Acquire) != 0 {
                atomic(failed).store(1, Ordering::Release);
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    })
}

/// Tells words their value; `increments` is none of them.
fn tell(words: &[usize], base: usize, given: u32) {
    let value = word_at(base).map_or(0, |word| word.load(Ordering::Acquire)).wrapping_add(given);
    words.iter().filter_map(|word| word_at(*word)).for_each(|word| word.store(value, Ordering::Release));
}

/// What kernels that signal do.
fn signal(arguments: &[Value<'_>]) -> Work {
    let words: Vec<usize> = arguments[..4].iter().map(address).collect();
    let (base, given) = (address(&arguments[5]), number(&arguments[6]));
    Arc::new(move || tell(&words, base, given))
}

/// What kernels of sends do but for the moves: they tell what was to be told before, and then that they have moved. By the
/// places of both among the arguments.
fn tells<const N: usize>(arguments: &[Value<'_>], places: [usize; N]) -> Work {
    let told = places.map(|place| {
        let part = &arguments[place..];
        let Value::U64(count) = part[1] else { panic!("no length") };
        let entry = |n: usize| address(&part[0]) + n * 2 * size_of::<u64>();
        // SAFETY: a table of so many addresses, each before a number, which is there before the kernel is put on the queue.
        let read = |n| unsafe { (entry(n) as *const u64).read() } as usize;
        let words: Vec<usize> = (0..count as usize).map(read).collect();
        (words, address(&part[2]), number(&part[3]))
    });
    Arc::new(move || told.iter().for_each(|(words, base, given)| tell(words, *base, *given)))
}

/// What the kernel that moves counts on does.
fn move_on(arguments: &[Value<'_>]) -> Work {
    let [counts, strides, current] = [0, 1, 3].map(|index| address(&arguments[index]));
    let Value::U64(length) = arguments[2] else { panic!("no length") };
    Arc::new(move || {
        for at in (0..length as usize).map(|index| index * size_of::<u32>()) {
            atomic(counts + at).fetch_add(atomic(strides + at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        atomic(current).store(0, Ordering::Release);
    })
}

impl CommandQueue for ThreadQueue {
    type Kernel = ();
    type Mark = u64;
    type Graph = Vec<Work>;

    unsafe fn launch(&mut self, what: &str, (): &mut (), arguments: &[Value<'_>], _: Groups) -> Result<()> {
        let work = match what {
            "a wait" | "a wait with moves" => {
                self.is_behind_wait = self.recorded.is_none();
                wait(arguments, self.is_broken.clone())
            }
            "a wait with a send" => {
                self.is_behind_wait = self.recorded.is_none();
                let receivers = [&arguments[12..14], &arguments[2..4], &arguments[14..16], &arguments[6..7]];
                let receivers = [receivers.concat(), vec![arguments[16]]].concat();
                let waits = [arguments, &receivers].map(|part| wait(part, self.is_broken.clone()));
                let tells = [24, 20].map(|place| tells(arguments, [place]));
                let failed = address(&arguments[3]);
                Arc::new(move || {
                    for (wait, tell) in waits.iter().zip(&tells) {
                        wait();
                        if atomic(failed).load(Ordering::Acquire) == 0 {
                            tell();
                        }
                    }
                })
            }
            "counts" => move_on(arguments),
            "a move" if self.takes_moves => Arc::new(|| ()),
            "a signal" if self.takes_moves => signal(arguments),
            "a send" if self.takes_moves => tells(arguments, [10, 6]),
            _ => {
                self.faulted.push(what.to_owned());
                self.is_broken.store(true, Ordering::Release);
                return Ok(());
            }
        };
        match &mut self.recorded {
            Some(recorded) => {
                self.in_graphs.lock().expect("nobody panics").push(what.to_owned());
                recorded.push(work);
                Ok(())
            }
            None => self.put(move || work()),
        }
    }

    fn begin_graph(&mut self) -> Result<()> {
        self.recorded = Some(Vec::new());
        Ok(())
    }

    fn end_graph(&mut self) -> Result<Vec<Work>> {
        Ok(self.recorded.take().expect("it has been begun"))
    }

    unsafe fn launch_graph(&mut self, graph: &mut Vec<Work>) -> Result<()> {
        self.is_behind_wait = true;
        self.crowded.fetch_add(self.is_full().into(), Ordering::Relaxed);
        graph.iter().cloned().try_for_each(|work| self.put(move || work()))
    }

    fn is_full(&self) -> bool {
        self.put - self.done.load(Ordering::Acquire) >= self.room
    }

    unsafe fn copy(&mut self, _: *const u8, _: *mut u8, _: usize) -> Result<()> {
        panic!("nothing is copied")
    }

    fn mark(&mut self) -> Result<u64> {
        if self.marks_fail && self.is_behind_wait {
            let (device, reason) = ("threads".into(), "it makes no marks".into());
            return Err(Error::DeviceUnavailable { device, reason });
        }
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
        // As of a GPU, whose every call fails then.
        self.done.load(Ordering::Acquire) >= *mark || self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    unsafe fn write_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        let address = word as usize;
        self.put(move || atomic(address).store(value, Ordering::Release))
    }

    unsafe fn wait_word(&mut self, word: *const c_void, value: u32) -> Result<()> {
        self.is_behind_wait = true;
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
