//! Real sockets on the loopback interface; ranks are threads. No test may run for ever.

mod calls;
mod environment;
mod failures;
mod joining;
mod strangers;

use super::*;
use crate::fabric::{Fabric, LocalFabric, WaitContext, WaitPolicy};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;

/// Longer than any test needs, on a busy machine too.
const WATCHDOG: Duration = Duration::from_secs(60);
/// For whatever should not come to a time-out.
const AMPLE: Duration = Duration::from_secs(30);
/// For whatever should.
const BRIEF: Duration = Duration::from_millis(400);
/// For whatever should, but only once other ranks have come: it is longer than a busy machine holds them up.
const SOME: Duration = Duration::from_secs(2);

/// Runs a test on a thread of its own, and fails if it does not end.
fn watched<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(test());
    });
    match receiver.recv_timeout(WATCHDOG) {
        Ok(result) => result,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(_) => std::panic::resume_unwind(thread.join().expect_err("it has panicked")),
    }
}

/// A listener of rank 0 and how to reach it.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    let address = listener.local_addr().expect("it has an address");
    (listener, address)
}

fn key(seed: u8) -> JobKey {
    JobKey::from_hex(&format!("{seed:02x}").repeat(JobKey::BYTES)).expect("it has the right length")
}

fn options(address: SocketAddr, rank: usize, size: usize, timeout: Duration) -> RendezvousOptions {
    RendezvousOptions { address: address.to_string(), rank, size, key: key(7), timeout: Some(timeout) }
}

fn context(rank: usize, timeout: Duration) -> WaitContext {
    let end = LocalFabric::ends(1).expect("there is memory").remove(0);
    let abort = end.abort();
    WaitContext { rank, policy: WaitPolicy::for_ranks(64), timeout: Some(timeout), abort, calls: false }
}

/// Runs ranks that have met, each on its thread, whose waits last that long at most.
fn job<T: Send>(
    size: usize,
    timeout: Duration,
    rank_main: impl Fn(Arc<Rendezvous>, &WaitContext) -> T + Sync,
) -> Vec<T> {
    let (listener, address) = listener();
    let mut listener = Some(listener);
    let rank_main = &rank_main;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let listener = if rank == 0 { listener.take() } else { None };
                scope.spawn(move || {
                    let options = options(address, rank, size, AMPLE);
                    let joined = match listener {
                        Some(listener) => Rendezvous::from_listener(listener, &options),
                        None => Rendezvous::join(&options),
                    };
                    rank_main(joined.expect("the ranks meet"), &context(rank, timeout))
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// The reason why the ranks did not meet.
fn reason(result: Result<Arc<Rendezvous>>) -> String {
    match result {
        Err(Error::RendezvousFailed { reason, .. }) => reason,
        other => panic!("expected that they do not meet, got {other:?}"),
    }
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{text}` does not say `{part}`");
    }
}
