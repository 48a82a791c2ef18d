//! Triggered operations are few on real network interfaces: with less room than a host that runs ahead
//! would fill, every policy makes it wait, or refuses it, and nothing is lost or blocked.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;
use streamhalo::comm::fabric::rendezvous::{ADDRESS_VARIABLE, JobKey, KEY_VARIABLE, ReservedPort};
use streamhalo::comm::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};
use streamhalo::comm::fabric::{
    COUNTER_START_VARIABLE, ENTRIES_VARIABLE, PROVIDER_VARIABLE, THROTTLING_VARIABLE, libfabric_providers,
};
use streamhalo_tests::start::{self, Ended};

/// After how long ranks are given up.
const LIMIT: Duration = Duration::from_secs(120);

/// What comes of ranks, unless there is no such provider here.
fn ended(ranks: usize, arguments: &[&str], environment: &[(&str, &str)]) -> Option<Ended> {
    let has_sockets = libfabric_providers()
        .is_ok_and(|known| known.iter().any(|one| one.name == "sockets" && one.unusable.is_none()));
    if !has_sockets {
        println!("skipped: libfabric with its provider `sockets` is not installed");
        return None;
    }
    let port = ReservedPort::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("a port is free");
    let key = JobKey::generate().expect("the system has randomness").to_hex();
    let command = |rank: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throttled_rank"));
        command
            .args(arguments)
            .env(ADDRESS_VARIABLE, port.address().to_string())
            .env(KEY_VARIABLE, &key)
            .env(RANK_VARIABLE, rank.to_string())
            .env(SIZE_VARIABLE, ranks.to_string())
            .env(PROVIDER_VARIABLE, "sockets")
            .envs(environment.iter().copied());
        command
    };
    Some(start::run((0..ranks).map(command).collect(), LIMIT))
}

/// How many starts were refused on ranks that end well, on all of them.
fn refused(ranks: usize, epochs: u32, environment: &[(&str, &str)]) -> Option<u32> {
    let ended = ended(ranks, &[&epochs.to_string()], environment)?;
    assert!(ended.is_success(), "{environment:?}: {ended:#?}");
    let count = |line: &str| line.strip_suffix(" refused")?.rsplit(' ').next()?.parse::<u32>().ok();
    Some(ended.said.lines().filter_map(count).sum())
}

#[test]
fn the_host_waits_where_the_library_throttles() {
    for policy in ["adaptive", "static"] {
        // Two epochs of the exchange with most entries.
        let environment = [(THROTTLING_VARIABLE, policy), (ENTRIES_VARIABLE, "16")];
        assert_eq!(refused(3, 40, &environment).unwrap_or(0), 0, "{policy}");
    }
}

#[test]
fn the_application_is_refused_and_may_start_again() {
    let environment = [(THROTTLING_VARIABLE, "application"), (ENTRIES_VARIABLE, "16")];
    assert_ne!(refused(2, 40, &environment), Some(0));
}

#[test]
fn counters_are_set_back_near_their_end() {
    // 31 bits: the end comes within the epochs, at another one for each kind of counter.
    let environment = [(COUNTER_START_VARIABLE, "2147483600")];
    refused(2, 80, &environment);
    refused(3, 80, &[environment[0], (ENTRIES_VARIABLE, "16")]);
}

#[test]
fn an_exchange_that_cannot_fit_is_refused_on_all_ranks() {
    let Some(ended) = ended(2, &["1"], &[(ENTRIES_VARIABLE, "2")]) else { return };
    assert_refused(&ended, "triggered operations, and 2 may be outstanding");
}

/// On both ranks.
fn assert_refused(ended: &Ended, says: &str) {
    let codes: Vec<_> = ended.statuses.iter().map(|status| status.and_then(|status| status.code())).collect();
    assert_eq!(codes, [Some(1); 2], "{ended:#?}");
    let told = ended.complained.matches(says).count();
    assert_eq!(told, 2, "{ended:#?}");
}

/// What begins two exchanges in opposite orders, with so many entries.
fn opposite(backend: &str, entries: usize) -> Option<Ended> {
    ended(2, &["opposite", backend], &[(ENTRIES_VARIABLE, &entries.to_string())])
}

#[test]
fn exchanges_that_are_begun_in_opposite_orders_have_room_or_are_refused() {
    for backend in ["st-send", "notified"] {
        let Some(none) = opposite(backend, 1) else { return };
        let takes =
            none.complained.split("takes ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        let takes: usize = takes.unwrap_or_else(|| panic!("it does not say what it takes: {none:#?}"));
        for entries in [takes, 2 * takes - 1] {
            let refused = opposite(backend, entries).expect("as before");
            assert_refused(
                &refused,
                &format!("and {entries} may be outstanding, {takes} of which other exchanges"),
            );
        }
        let ended = opposite(backend, 2 * takes).expect("as before");
        assert!(ended.is_success(), "{backend}: {ended:#?}");
    }
}

#[test]
fn backends_that_are_rehearsed_share_what_room_there_is_or_are_left_out() {
    // With one there is none for any but `standard`; with less than two of st-send, for the second exchange of the shape.
    for entries in [16, 1, 4, 7] {
        let Some(ended) = opposite("auto", entries) else { return };
        assert!(ended.is_success(), "{entries}: {ended:#?}");
    }
}
