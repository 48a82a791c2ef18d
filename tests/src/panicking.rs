//! Functions of the application that panic on a stream.

use std::panic::{set_hook, take_hook};
use streamhalo::Stream;
use streamhalo::comm::Error;

/// That a stream fails with what a host function, or whoever is told the time, panics with, and that nothing waits for the
/// operations behind it. `make` makes a stream of its own for each.
pub fn assert_panics_are_told(make: impl Fn() -> Stream) {
    type Enqueue = fn(&Stream);
    let enqueue: [(&str, Enqueue); 2] = [
        ("reading the tide table", |stream| {
            stream.enqueue_host("reading the tide table", || panic!("it is wet"));
        }),
        ("telling the time", |stream| stream.enqueue_clock(|at_ns| panic!("it is late: {at_ns}"))),
    ];
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let results = enqueue.map(|(name, enqueue)| {
        let stream = make();
        enqueue(&stream);
        stream.enqueue_host("a mark", || Ok(()));
        (name, stream.synchronize(), stream.synchronize())
    });
    set_hook(hook);
    for (name, first, second) in results {
        let Err(Error::OperationFailed { operation, message }) = &first else { panic!("{first:?}") };
        assert_eq!(operation, name);
        assert!(message.starts_with("it panicked: it is "), "{message}");
        assert_eq!(first, second);
    }
}
