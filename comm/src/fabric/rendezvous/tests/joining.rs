//! Who comes, when, and who does not.

use super::*;
use std::net::TcpStream;
use std::thread;

/// Joins ranks with the given delays, in milliseconds; `None` never comes.
fn join_all(timeouts: &[Duration], delays: &[Option<u64>]) -> Vec<Result<Arc<Rendezvous>>> {
    let port = ReservedPort::on(Ipv4Addr::LOCALHOST.into()).expect("there is a free port");
    let size = delays.len();
    thread::scope(|scope| {
        let coming = delays.iter().enumerate().filter_map(|(rank, delay)| Some((rank, (*delay)?)));
        let ranks: Vec<_> = coming
            .map(|(rank, delay)| {
                let options = options(port.address(), rank, size, timeouts[rank]);
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(delay));
                    Rendezvous::join(&options)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

#[test]
fn ranks_come_in_any_order() {
    watched(|| {
        for delays in [
            &[0][..],
            &[0, 40],
            &[40, 0],
            &[0, 20, 40, 60, 80],
            &[80, 60, 40, 20, 0],
            &[40, 80, 0, 60, 20],
            &[0, 0, 0, 0, 0],
            &[400, 0],
        ] {
            let delays: Vec<Option<u64>> = delays.iter().copied().map(Some).collect();
            let ends = join_all(&vec![AMPLE; delays.len()], &delays);
            for (rank, end) in ends.into_iter().enumerate() {
                let end = end.expect("they meet");
                assert_eq!((end.rank(), end.size()), (rank, delays.len()));
                assert_eq!(end.local_address(), Ipv4Addr::LOCALHOST);
            }
        }
    });
}

#[test]
fn who_is_missing_is_named_on_all() {
    watched(|| {
        // Rank 0 waits shortest: whose time-out ends it is certain then.
        let ends = join_all(&[SOME, AMPLE, AMPLE, AMPLE], &[Some(0), Some(0), None, Some(0)]);
        assert_eq!(ends.len(), 3);
        let reasons: Vec<String> = ends.into_iter().map(reason).collect();
        reasons
            .iter()
            .for_each(|reason| assert_says(reason, &["rank 2 did not come within ", " s; are they started"]));
    });
}

#[test]
fn several_who_are_missing_are_named_on_all() {
    watched(|| {
        let ends = join_all(&[SOME, AMPLE, AMPLE, AMPLE, AMPLE], &[Some(0), None, Some(0), None, None]);
        ends.into_iter().for_each(|end| assert_says(&reason(end), &["ranks 1, 3 and 4 did not come"]));
    });
}

#[test]
fn who_waits_shortest_ends_it_for_all() {
    watched(|| {
        let started = Instant::now();
        let ends = join_all(&[AMPLE, SOME, AMPLE], &[Some(0), Some(0), None]);
        let expected = ["rank 2 did not come within ", " s, and rank 1 waits no longer"];
        ends.into_iter().for_each(|end| assert_says(&reason(end), &expected));
        assert!(started.elapsed() < AMPLE);
    });
}

#[test]
fn without_rank_0_the_address_is_named() {
    watched(|| {
        let ends = join_all(&[BRIEF; 2], &[None, Some(0)]);
        for end in ends {
            let error = end.expect_err("nobody listens").to_string();
            assert_says(&error, &["rank 1", "at 127.0.0.1:", "not found there within ", "refused"]);
        }
    });
}

#[test]
fn two_processes_claim_one_rank() {
    watched(|| {
        let (listener, address) = listener();
        thread::scope(|scope| {
            let centre =
                scope.spawn(move || Rendezvous::from_listener(listener, &options(address, 0, 3, AMPLE)));
            let twins =
                [(); 2].map(|()| scope.spawn(move || Rendezvous::join(&options(address, 1, 3, AMPLE))));
            for end in twins.into_iter().chain([centre]) {
                let reason = reason(end.join().expect("no rank panics"));
                assert_says(&reason, &["two processes claim rank 1: one at 127.0.0.1:"]);
            }
        });
    });
}

#[test]
fn sizes_differ() {
    watched(|| {
        let (listener, address) = listener();
        thread::scope(|scope| {
            let other = scope.spawn(move || Rendezvous::join(&options(address, 1, 3, AMPLE)));
            let centre = Rendezvous::from_listener(listener, &options(address, 0, 2, AMPLE));
            for end in [centre, other.join().expect("no rank panics")] {
                assert_says(
                    &reason(end),
                    &["rank 1 at 127.0.0.1:", "as one of 3 ranks, but rank 0 as one of 2"],
                );
            }
        });
    });
}

/// Without the checks that `join` makes beforehand. Gives the connection of a rank that was let in.
fn introduce(address: SocketAddr, rank: usize, size: usize) -> std::result::Result<TcpStream, String> {
    let stream = TcpStream::connect(address).expect("rank 0 listens");
    let deadline = Instant::now() + AMPLE;
    let introduced = handshake::introduce(&stream, &key(7), rank, size, deadline);
    introduced.map(|()| stream).map_err(|refusal| format!("{refusal:?}"))
}

#[test]
fn ranks_that_cannot_be() {
    watched(|| {
        for (rank, expected) in
            [(2, "claims rank 2, but the ranks run from 0 to 1"), (0, "two processes claim rank 0")]
        {
            let (listener, address) = listener();
            thread::scope(|scope| {
                let centre =
                    scope.spawn(move || Rendezvous::from_listener(listener, &options(address, 0, 2, AMPLE)));
                assert_says(&introduce(address, rank, 2).expect_err("it is refused"), &[expected]);
                assert_says(&reason(centre.join().expect("no rank panics")), &[expected]);
            });
        }
        let (_, address) = listener();
        let error = Rendezvous::join(&options(address, 2, 2, AMPLE)).expect_err("it is refused");
        assert!(matches!(error, Error::BadWorldSize { asked: 2, .. }), "{error}");
    });
}

#[test]
fn a_rank_that_comes_and_goes_ends_it_for_all() {
    watched(|| {
        let (listener, address) = listener();
        thread::scope(|scope| {
            let centre =
                scope.spawn(move || Rendezvous::from_listener(listener, &options(address, 0, 4, AMPLE)));
            let stays = introduce(address, 2, 4).expect("it is let in");
            drop(introduce(address, 1, 4).expect("it is let in, and goes"));
            let expected =
                "rank 1 failed: it is gone: its connection to rank 0 ended before all ranks had come";
            assert_says(&reason(centre.join().expect("no rank panics")), &[expected]);
            stays.set_read_timeout(Some(AMPLE)).expect("it is a socket");
            let told = frame::read(&mut &stays).expect("it is told").head;
            assert_eq!(told, Head::Closed { reason: expected.into() });
        });
    });
}

#[test]
fn a_taken_port_is_refused() {
    watched(|| {
        let (_listener, address) = listener();
        let error = Rendezvous::join(&options(address, 0, 2, AMPLE)).expect_err("the port is taken");
        assert_says(&error.to_string(), &["rank 0 cannot listen there", "free port", &address.to_string()]);
    });
}

#[test]
fn a_name_is_listened_at_on_all_interfaces() {
    watched(|| {
        let port = ReservedPort::on(Ipv4Addr::UNSPECIFIED.into()).expect("there is a free port");
        let listener = socket::listen(&format!("a-name-of-no-machine:{}", port.address().port()));
        let bound = listener.expect("it can listen").local_addr().expect("it has an address");
        assert!(bound.ip().is_unspecified());
        assert_eq!(bound.port(), port.address().port());
    });
}

#[test]
fn a_reserved_port_is_given_to_nobody_else() {
    watched(|| {
        let port = ReservedPort::on(Ipv4Addr::LOCALHOST.into()).expect("there is a free port");
        let others: Vec<TcpListener> = (0..500).map(|_| listener().0).collect();
        let others = others.iter().map(|other| other.local_addr().expect("it has an address"));
        assert!(!others.into_iter().any(|other| other == port.address()));
        drop(socket::listen(&port.address().to_string()).expect("rank 0 may have it"));
    });
}

/// The address of this machine on its way out, if it has one.
fn outside_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent; the address is one of those kept for documents.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn an_address_that_others_reach_is_preferred() {
    let Some(outside) = outside_address() else {
        eprintln!("skipped: this machine has the loopback interface alone");
        return;
    };
    watched(move || {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        thread::scope(|scope| {
            let ranks = [(1, loopback), (2, SocketAddr::from((outside, port)))].map(|(rank, address)| {
                scope.spawn(move || Rendezvous::join(&options(address, rank, 3, AMPLE)))
            });
            let centre = Rendezvous::from_listener(listener, &options(loopback, 0, 3, AMPLE));
            assert_eq!(centre.expect("they meet").local_address(), outside);
            for rank in ranks {
                let rank = rank.join().expect("no rank panics").expect("they meet");
                assert_eq!(rank.local_address(), outside, "rank {}", rank.rank());
            }
        });
    });
}
