//! The gate: rank 0 lets in who proves to be a rank, while strangers knock.
//!
//! Every handshake has a thread of its own and a deadline, so that a stranger that says nothing holds
//! up nobody. If too many are under way the oldest is dropped: a rank's takes milliseconds, and it tries
//! again.

use super::centre::Centre;
use super::handshake;
use super::link::STACK_BYTES;
use super::socket;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How long a handshake may take.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes under way beyond one for each rank.
const SPARE: usize = 64;
/// Connections accepted before the caller may look at its clock.
const AT_A_TIME: usize = 64;

pub(super) struct Gate {
    listener: TcpListener,
    centre: Arc<Centre>,
    guests: Vec<Arc<Guest>>,
    guests_most: usize,
}

/// Who has connected, and has not proved anything yet.
struct Guest {
    stream: Arc<TcpStream>,
    standing: AtomicU8,
}

/// Either the handshake ends first, or the gate ends it: never both.
const UNDER_WAY: u8 = 0;
const ENDED: u8 = 1;
const DROPPED: u8 = 2;

impl Guest {
    fn settle(&self, standing: u8) -> bool {
        self.standing.compare_exchange(UNDER_WAY, standing, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn drop_if_under_way(&self) {
        if self.settle(DROPPED) {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    fn is_under_way(&self) -> bool {
        self.standing.load(Ordering::Acquire) == UNDER_WAY
    }
}

impl Gate {
    pub(super) fn open(listener: TcpListener, centre: Arc<Centre>, size: usize) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, centre, guests: Vec::new(), guests_most: size + SPARE })
    }

    /// Starts the handshakes of who has connected since the last call. Does not block.
    pub(super) fn let_in(&mut self) {
        for _ in 0..AT_A_TIME {
            // Whatever it is, it may have passed at the next call.
            let Ok((stream, _)) = self.listener.accept() else { return };
            if stream.set_nonblocking(false).is_err() || socket::tune(&stream).is_err() {
                continue;
            }
            self.guests.retain(|guest| guest.is_under_way());
            if self.guests.len() >= self.guests_most {
                self.guests.remove(0).drop_if_under_way();
            }
            let guest = Arc::new(Guest { stream: Arc::new(stream), standing: AtomicU8::new(UNDER_WAY) });
            let (own, centre) = (guest.clone(), self.centre.clone());
            let thread = std::thread::Builder::new().name("rendezvous in".into()).stack_size(STACK_BYTES);
            if thread.spawn(move || receive(&own, &centre)).is_ok() {
                self.guests.push(guest);
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.guests.iter().for_each(|guest| guest.drop_if_under_way());
    }
}

/// The handshake of one guest; the thread then reads what the rank says until its end.
fn receive(guest: &Guest, centre: &Centre) {
    let candidate = handshake::receive(&guest.stream, centre.key(), Instant::now() + HANDSHAKE);
    let is_dropped = !guest.settle(ENDED);
    match candidate {
        Err(stranger) => {
            // Whoever waits for its answer learns that there is none.
            let _ = guest.stream.shutdown(Shutdown::Both);
            centre.count_stranger(stranger);
        }
        Ok(_) if is_dropped => {}
        Ok(candidate) => {
            if let Some((rank, link)) = centre.admit(&candidate, guest.stream.clone()) {
                link.read(&mut |frame| centre.take(rank, frame));
                centre.ended(rank);
                link.reading_ended();
            }
        }
    }
}
