//! Links: a connection between a rank and rank 0 after the handshake.
//!
//! A thread of its own writes, so that nobody blocks on a peer that does not read, and another one
//! reads, so that failures are seen at once.

use super::frame::{self, Frame, Head};
use crate::locks::lock;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a writer that cannot write looks whether it should give up.
const WRITE_PATIENCE: Duration = Duration::from_millis(100);
/// The threads need little, and rank 0 has many.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// One connection. Its threads share it.
#[derive(Debug)]
pub(super) struct Link {
    stream: Arc<TcpStream>,
    /// `None` after the last frame.
    queue: Mutex<Option<Sender<Arc<[u8]>>>>,
    abandoned: AtomicBool,
    reader_ended: AtomicBool,
    writer_ended: AtomicBool,
}

impl Link {
    /// Starts the thread that writes. The caller runs [`Link::read`] on another one.
    pub(super) fn start(stream: Arc<TcpStream>) -> io::Result<Arc<Self>> {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        let (sender, receiver) = channel();
        let link = Arc::new(Self {
            stream,
            queue: Mutex::new(Some(sender)),
            abandoned: AtomicBool::new(false),
            reader_ended: AtomicBool::new(false),
            writer_ended: AtomicBool::new(false),
        });
        let own = link.clone();
        let thread = std::thread::Builder::new().name("rendezvous out".into()).stack_size(STACK_BYTES);
        thread.spawn(move || own.write(&receiver))?;
        Ok(link)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Puts bytes in line to be written. Never blocks; in vain after the end, which the reader tells.
    pub(super) fn send(&self, bytes: Arc<[u8]>) {
        if let Some(queue) = &*lock(&self.queue) {
            let _ = queue.send(bytes);
        }
    }

    /// Says goodbye; nothing can be sent afterwards. Does not wait until it is written.
    pub(super) fn say_goodbye(&self) {
        self.send(frame::encode(&Head::Goodbye, &[]));
        lock(&self.queue).take();
    }

    fn write(&self, queue: &Receiver<Arc<[u8]>>) {
        let written = queue.iter().try_for_each(|bytes| self.write_all(&bytes));
        // After an error the reader must see the end; else the peer may still have something to say.
        let _ = self.stream.shutdown(if written.is_ok() { Shutdown::Write } else { Shutdown::Both });
        self.writer_ended.store(true, Ordering::Release);
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&*self.stream).write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
                        && !self.abandoned.load(Ordering::Acquire) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands every frame that comes to `take`, until the connection ends. Blocks. After a goodbye the
    /// own side says goodbye as well, so that both ends close.
    pub(super) fn read(&self, take: &mut dyn FnMut(Frame)) {
        let mut wire = BufReader::new(&*self.stream);
        while let Ok(frame) = frame::read(&mut wire) {
            let is_last = frame.head == Head::Goodbye;
            take(frame);
            if is_last {
                self.say_goodbye();
            }
        }
        // What is no frame ends a link as well.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The reader has told the end of the link.
    pub(super) fn reading_ended(&self) {
        self.reader_ended.store(true, Ordering::Release);
    }

    /// Waits until both threads have ended, which they do after the goodbyes of both sides, and ends
    /// them at the deadline.
    pub(super) fn close(&self, deadline: Instant) {
        let ended = || self.reader_ended.load(Ordering::Acquire) && self.writer_ended.load(Ordering::Acquire);
        while !ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.cut();
    }

    /// Ends the connection without a word.
    pub(super) fn cut(&self) {
        self.abandoned.store(true, Ordering::Release);
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
