//! What a library is asked for, between two ranks.

use super::{barrier, until, wait};
use crate::device::{Takes, Vendor};
use crate::error::Error;
use crate::fabric::mpi::abi::Handle;
use crate::fabric::mpi::request::Status;
use crate::fabric::mpi::{Communicator, Group, Mpi, RequestSet, Window};
use std::ffi::{c_int, c_void};
use std::path::Path;

/// What the library says of addresses of GPUs, on a machine that may have none.
pub(super) fn gpus(mpi: &Mpi) {
    let kinds = mpi.kinds();
    println!("kinds of memory: {kinds:?}");
    assert!(kinds.is_none_or(|kinds| kinds.contains("system")), "all libraries serve the host's");
    for (vendor, name, device) in
        [(Vendor::Cuda(0), "CUDA", "/dev/nvidiactl"), (Vendor::Hip(0), "HIP", "/dev/kfd")]
    {
        let said = mpi.takes(vendor);
        println!("{said:?}");
        let (takes, said) = match said {
            Takes::Yes { because, .. } => (true, because),
            Takes::No(said) | Takes::Unknown(said) => (false, said),
        };
        assert!(said.contains(name) && said.contains("MPI"), "{said}");
        assert!(!takes || Path::new(device).exists(), "{said}");
    }
}

pub(super) fn first_ranks(comm: &Communicator) {
    if comm.rank() == Ok(0) {
        let alone = comm.first(1).expect("takes the first rank alone");
        assert_eq!((alone.rank(), alone.size()), (Ok(0), Ok(1)));
        alone.free().expect("can be freed");
    }
    // Libraries send messages of their own for it, which no receive of ours takes.
    let (peer, mut received) = (1 - comm.rank().expect("is known"), [0u8; 8]);
    // SAFETY: cancelled, and waited for, below.
    let mut open = unsafe { comm.irecv(received.as_mut_ptr(), 8, peer, 0) }.expect("is posted");
    let both = comm.first(2).expect("takes both");
    assert_eq!((both.rank(), open.test()), (comm.rank(), Ok(None)));
    both.free().expect("can be freed");
    open.cancel().expect("can be cancelled");
    until("the end of a cancelled receive", || open.test());
}

/// A communicator that an application has split off has the tags of all others.
pub(super) fn tags(mpi: &'static Mpi, comm: &Communicator) {
    type Split = unsafe extern "C" fn(Handle, c_int, c_int, *mut Handle) -> c_int;
    let split = mpi.library.symbol(c"MPI_Comm_split").expect("all libraries have it");
    // SAFETY: the function of this name has this type, with handles widened to a register.
    let split = unsafe { std::mem::transmute::<*const c_void, Split>(split) };
    let mut handle = 0;
    // SAFETY: the handle is a communicator's; the place lives through the call; both ranks make it.
    assert_eq!(unsafe { split(comm.handle, 0, 0, &raw mut handle) }, 0);
    // SAFETY: the call has made it.
    let part = unsafe { Communicator::from_raw(mpi, handle) }.expect("both are in it");
    assert_eq!(part.tag_upper_bound(), comm.tag_upper_bound());
    part.free().expect("can be freed");
}

pub(super) fn messages(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let sent = [rank as u8 + 1; 24];
    // SAFETY: waited for below, before the array ends.
    let send = unsafe { comm.isend(sent.as_ptr(), sent.len(), peer, 77) }.expect("is sent");
    let seen = until("a probe", || comm.iprobe(77));
    assert_eq!(seen, Status { source: peer, tag: 77, bytes: 24 });
    let mut received = [0u8; 64];
    // SAFETY: waited for at once.
    let receive = unsafe { comm.irecv(received.as_mut_ptr(), 64, peer, 77) }.expect("is posted");
    assert_eq!(wait("a message", receive), seen);
    assert_eq!(received[..24], [peer as u8 + 1; 24]);
    wait("a send", send);

    // SAFETY: cancelled, and waited for, below.
    let mut never = unsafe { comm.irecv(received.as_mut_ptr(), 64, peer, 78) }.expect("is posted");
    assert_eq!(never.test(), Ok(None));
    never.cancel().expect("can be cancelled");
    until("the end of a cancelled receive", || never.test());
}

pub(super) fn collectives(comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let mut data = [if rank == 1 { 5u8 } else { 0 }; 9];
    // SAFETY: waited for at once.
    wait("a broadcast", unsafe { comm.ibcast(data.as_mut_ptr(), 9, 1) }.expect("is started"));
    assert_eq!(data, [5; 9]);

    let (sent, mut received) = ([10 * rank as u8, 10 * rank as u8 + 1], [0u8; 2]);
    // SAFETY: waited for at once; both have a byte for each of two ranks.
    let given = unsafe { comm.ialltoall(sent.as_ptr(), received.as_mut_ptr(), 1) };
    wait("what each gives each", given.expect("is started"));
    assert_eq!(received, [rank as u8, 10 + rank as u8]);
}

/// Several persistent messages each way, more than once, with set and single starts; the second round is
/// with ready sends, which a barrier makes right.
pub(super) fn persistent(mpi: &'static Mpi, comm: &Communicator) {
    const MESSAGES: usize = 5;
    const BYTES: usize = 3000;
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let mut sent = [[0u8; BYTES]; MESSAGES];
    let mut received = [[0u8; BYTES]; MESSAGES];
    let (to, from) = (sent.as_mut_ptr(), received.as_mut_ptr());
    for ready in [false, true] {
        let (mut sends, mut receives) = (RequestSet::new(mpi), RequestSet::new(mpi));
        for message in 0..MESSAGES {
            let tag = message as i32;
            let (to, from) = (to.wrapping_add(message).cast(), from.wrapping_add(message).cast());
            // SAFETY: the arrays outlive the sets, and are used between the starts only.
            let receive = unsafe { comm.recv_init(from, BYTES, peer, tag) };
            assert_eq!(receives.push(receive.expect("is made")), message);
            let send = if ready {
                // SAFETY: as above.
                unsafe { comm.rsend_init(to, BYTES, peer, tag) }
            } else {
                // SAFETY: as above.
                unsafe { comm.send_init(to, BYTES, peer, tag) }
            };
            assert_eq!(sends.push(send.expect("is made")), message);
        }
        let mut completed = Vec::with_capacity(MESSAGES);
        assert_eq!(receives.test_some(&mut completed), Ok(false), "none is active");
        for round in 1..4u8 {
            for message in 0..MESSAGES {
                let value = 10 * round + message as u8 + 100 * rank as u8;
                // SAFETY: in bounds, and no send is active.
                unsafe { to.wrapping_add(message).cast::<u8>().write_bytes(value, BYTES) };
            }
            // SAFETY: none is active.
            unsafe { receives.start(0) }.expect("starts");
            // SAFETY: none of these is active.
            unsafe { receives.start_all(1..MESSAGES) }.expect("start");
            barrier(comm);
            // SAFETY: none is active, and all receives are started.
            unsafe { sends.start_all(0..MESSAGES) }.expect("start");
            let mut seen = [0; MESSAGES];
            until("persistent messages", || {
                let active = receives.test_some(&mut completed)?;
                completed.iter().for_each(|index| seen[*index] += 1);
                Ok((!active).then_some(()))
            });
            assert_eq!(seen, [1; MESSAGES], "each completes once");
            until("persistent sends", || Ok((!sends.test_some(&mut completed)?).then_some(())));
            for message in 0..MESSAGES {
                let value = 10 * round + message as u8 + 100 * peer as u8;
                // SAFETY: in bounds, and the receive has completed.
                let got = unsafe { from.wrapping_add(message).read() };
                assert!(got == [value; BYTES], "message {message} of round {round}");
            }
        }
        // Dropped while a receive is active, to which no message comes.
        // SAFETY: none is active; the arrays outlive the set.
        unsafe { receives.start(2) }.expect("starts");
        drop(receives);
        barrier(comm);
    }
}

/// Memory of a window.
#[repr(align(64))]
struct Aligned<T>(T);

pub(super) fn windows(comm: &Communicator) {
    const BYTES: usize = 4096;
    let rank = comm.rank().expect("is known");
    let peer = 1 - rank;
    let mut memory = Aligned([0u8; BYTES]);
    let base: *mut u8 = (&raw mut memory.0).cast();
    // SAFETY: freed below, before the memory is.
    let window = unsafe { Window::create(base, BYTES, comm) }.expect("is made");
    let group = Group::new(comm, &[peer]).expect("is made");
    for (round, nocheck) in [(1u8, false), (2, true), (3, true)] {
        // SAFETY: the window's memory is read after the test below; nobody has started, by the barrier
        // below and by that of the round before.
        unsafe { window.post(&group, nocheck) }.expect("is posted");
        barrier(comm);
        // SAFETY: the posts are made, by the barrier.
        unsafe { window.start(&group, nocheck) }.expect("is started");
        let data = vec![round + 10 * rank as u8; BYTES / 2];
        // SAFETY: in bounds; the data stays until it has completed.
        unsafe { window.put(data.as_ptr(), BYTES / 2, peer, BYTES / 4) }.expect("is put");
        window.complete().expect("completes");
        until("the other side of a window", || Ok(window.test()?.then_some(())));
        let value = round + 10 * peer as u8;
        for (offset, expected) in [(0, 0), (BYTES / 4, value), (3 * BYTES / 4 - 1, value), (BYTES - 1, 0)] {
            // SAFETY: in bounds, and nobody writes now.
            assert_eq!(unsafe { base.wrapping_add(offset).read() }, expected, "byte {offset}");
        }
        barrier(comm);
    }
    drop(group);
    window.free().expect("can be freed");
}

pub(super) fn errors(comm: &Communicator) {
    let data = [0u8; 4];
    // SAFETY: no send comes of it.
    let error = unsafe { comm.isend(data.as_ptr(), 4, 7, 0) }.expect_err("there is no rank 7");
    let Error::Mpi { call: "MPI_Isend", reason } = &error else { panic!("{error:?}") };
    assert!(reason.contains("rank"), "{reason}");
    // SAFETY: no send comes of it.
    let error = unsafe { comm.send_init(data.as_ptr(), 4, 0, -5) }.expect_err("-5 is no tag");
    assert!(matches!(error, Error::Mpi { call: "MPI_Send_init", .. }), "{error:?}");
    // SAFETY: no send comes of it.
    let error = unsafe { comm.isend(data.as_ptr(), usize::MAX, 0, 0) }.expect_err("is too much");
    assert!(error.to_string().contains("split it"), "{error}");
    // An error leaves the next call alone.
    assert_eq!(comm.size(), Ok(2));

    let mut memory = Aligned([0u8; 2]);
    let base: *mut u8 = (&raw mut memory.0).cast();
    // SAFETY: no window comes of it.
    let error = unsafe { Window::create(base.wrapping_add(1), 1, comm) }.expect_err("lies badly");
    assert!(error.to_string().contains("not aligned"), "{error}");
    // SAFETY: freed below.
    let window = unsafe { Window::create(base, 1, comm) }.expect("is made");
    let itself = Group::new(comm, &[comm.rank().expect("is known")]).expect("is made");
    // SAFETY: nothing is put.
    unsafe { window.post(&itself, false) }.expect("is posted");
    // SAFETY: the post above is this rank's own.
    unsafe { window.start(&itself, false) }.expect("is started");
    // SAFETY: nothing is put.
    let error = unsafe { window.put(data.as_ptr(), 1, 7, 0) }.expect_err("there is no rank 7");
    assert!(matches!(error, Error::Mpi { call: "MPI_Put", .. }), "{error:?}");
    window.complete().expect("completes");
    until("the end of an exposure", || Ok(window.test()?.then_some(())));
    window.free().expect("can be freed");
}

/// A message that is longer than its receive, among others that are not.
pub(super) fn truncated(mpi: &'static Mpi, comm: &Communicator) {
    let rank = comm.rank().expect("is known");
    let (sent, mut received) = ([3u8; 8], [[0u8; 4]; 3]);
    if rank == 0 {
        for (tag, bytes) in [(0, 4), (1, 8), (2, 4)] {
            // SAFETY: waited for at once.
            let send = unsafe { comm.isend(sent.as_ptr(), bytes, 1, tag) };
            wait("a send", send.expect("is sent"));
        }
        return;
    }
    let mut set = RequestSet::new(mpi);
    let base: *mut u8 = (&raw mut received).cast();
    for tag in 0..3 {
        // SAFETY: in bounds; used after the set has ended.
        let receive = unsafe { comm.recv_init(base.wrapping_add(4 * tag as usize), 4, 0, tag) };
        set.push(receive.expect("is made"));
    }
    // SAFETY: none is active.
    unsafe { set.start_all(0..3) }.expect("start");
    let mut completed = Vec::new();
    let (mut failed, mut seen) = (None, [0; 3]);
    until("messages", || {
        let active = match set.test_some(&mut completed) {
            Ok(active) => active,
            Err(error) => failed.replace(error).is_none(),
        };
        completed.iter().for_each(|index| seen[*index] += 1);
        Ok((!active).then_some(()))
    });
    let error = failed.expect("one was too long");
    assert!(matches!(error, Error::Mpi { call: "MPI_Testsome", .. }), "{error:?}");
    let said = error.to_string();
    let explained = said.contains("request 1: ") && said.to_lowercase().contains("truncated");
    // What was seen complete in one call, some libraries do not tell apart.
    let among = said.split_once('[').and_then(|(_, rest)| rest.split_once("], the library does not say why"));
    let is_among = among.is_some_and(|(requests, _)| requests.split(", ").any(|request| request == "1"));
    assert!(explained || is_among, "{said}");
    assert_eq!(seen, [1; 3], "{error}");
    drop(set);
    assert_eq!((received[0], received[2]), ([3; 4], [3; 4]));
}

/// Two threads that call at the same time, each on a communicator of its own.
pub(super) fn several_threads(comm: &Communicator) {
    let peer = 1 - comm.rank().expect("is known");
    let own = [comm.duplicate().expect("can be had"), comm.duplicate().expect("can be had")];
    std::thread::scope(|scope| {
        for (thread, comm) in own.iter().enumerate() {
            scope.spawn(move || {
                let mut received = 0u64;
                for round in 0..500u64 {
                    let sent = 2 * round + thread as u64;
                    let (from, to) = ((&raw const sent).cast(), (&raw mut received).cast());
                    // SAFETY: waited for in this round.
                    let receive = unsafe { comm.irecv(to, 8, peer, 0) }.expect("is posted");
                    // SAFETY: waited for in this round.
                    let send = unsafe { comm.isend(from, 8, peer, 0) }.expect("is sent");
                    wait("a message of a thread", receive);
                    wait("a send of a thread", send);
                    assert_eq!(received, sent);
                    // An error is told to the thread that has made it, and to no other.
                    if thread == 0 {
                        // SAFETY: no send comes of it.
                        assert!(unsafe { comm.isend(from, 8, 9, 0) }.is_err());
                    }
                }
            });
        }
    });
    own.into_iter().for_each(|comm| comm.free().expect("can be freed"));
}
