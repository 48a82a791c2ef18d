//! What streams of all kinds tell of the time.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use streamhalo::Stream;
use streamhalo::comm::timeline::now_ns;

/// Reads the clock on a stream, which is told when it was, in order; and not once it has failed, which it has then.
pub fn assert_tells_the_time(stream: &Stream) {
    const NAP: Duration = Duration::from_millis(5);
    // By how much the clock of a device may be compared wrongly, on a busy machine.
    const SLACK_NS: u64 = 2_000_000;
    let told = Arc::new(Mutex::new(Vec::new()));
    let read_clock = || {
        let told = told.clone();
        stream.enqueue_clock(move |at_ns| told.lock().expect("nobody panics").push(at_ns));
    };
    let begun = now_ns();
    read_clock();
    stream.enqueue_host("a nap", || {
        std::thread::sleep(NAP);
        Ok(())
    });
    read_clock();
    stream.synchronize().expect("nothing fails");
    let ended = now_ns();
    let times = told.lock().expect("nobody panics").clone();
    let [first, second] = times[..] else { panic!("{times:?}") };
    assert!(begun <= first + SLACK_NS && second <= ended + SLACK_NS, "{begun} {first} {second} {ended}");
    assert!(second + SLACK_NS >= first + NAP.as_nanos() as u64, "{first} {second}");
    stream.enqueue_host("a fault", || Err("on purpose".into()));
    read_clock();
    stream.synchronize().expect_err("it has failed");
    assert_eq!(told.lock().expect("nobody panics").len(), 2, "a stream that has failed tells nothing");
}
