//! Triggered operations are few on real network interfaces: with less room than a host that runs ahead
//! would fill, every policy makes it wait, or refuses it, and nothing is lost or blocked.
#![cfg(target_os = "linux")]

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Output, Stdio};
use streamhalo::comm::fabric::rendezvous::{ADDRESS_VARIABLE, JobKey, KEY_VARIABLE, ReservedPort};
use streamhalo::comm::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};
use streamhalo::comm::fabric::{
    COUNTER_START_VARIABLE, ENTRIES_VARIABLE, PROVIDER_VARIABLE, THROTTLING_VARIABLE, libfabric_providers,
};

/// What the ranks print, unless there is no such provider here.
fn run(ranks: usize, epochs: u32, environment: &[(&str, &str)]) -> Option<Vec<String>> {
    let has_sockets = libfabric_providers()
        .is_ok_and(|known| known.iter().any(|one| one.name == "sockets" && one.unusable.is_none()));
    if !has_sockets {
        println!("skipped: libfabric with its provider `sockets` is not installed");
        return None;
    }
    let port = ReservedPort::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("a port is free");
    let key = JobKey::generate().expect("the system has randomness").to_hex();
    let start = |rank: usize| -> Child {
        Command::new(env!("CARGO_BIN_EXE_throttled_rank"))
            .arg(epochs.to_string())
            .env(ADDRESS_VARIABLE, port.address().to_string())
            .env(KEY_VARIABLE, &key)
            .env(RANK_VARIABLE, rank.to_string())
            .env(SIZE_VARIABLE, ranks.to_string())
            .env(PROVIDER_VARIABLE, "sockets")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the rank can be started")
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    for (rank, output) in outputs.iter().enumerate() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rank {rank} with {environment:?}: {said}");
    }
    Some(outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect())
}

/// How many starts were refused on any rank.
fn refused(said: &[String]) -> u32 {
    let lines = said.iter().flat_map(|said| said.lines());
    let counts =
        lines.filter_map(|line| line.strip_suffix(" refused")?.rsplit(' ').next()?.parse::<u32>().ok());
    counts.sum()
}

#[test]
fn the_host_waits_where_the_library_throttles() {
    for policy in ["adaptive", "static"] {
        // Two epochs of the exchange with most entries.
        let environment = [(THROTTLING_VARIABLE, policy), (ENTRIES_VARIABLE, "16")];
        if let Some(said) = run(3, 40, &environment) {
            assert_eq!(refused(&said), 0, "{policy}: {said:?}");
        }
    }
}

#[test]
fn the_application_is_refused_and_may_start_again() {
    let environment = [(THROTTLING_VARIABLE, "application"), (ENTRIES_VARIABLE, "16")];
    if let Some(said) = run(2, 40, &environment) {
        assert!(refused(&said) > 0, "{said:?}");
    }
}

#[test]
fn counters_are_set_back_near_their_end() {
    // 31 bits: the end comes within the epochs, at another one for each kind of counter.
    let environment = [(COUNTER_START_VARIABLE, "2147483600")];
    run(2, 80, &environment);
    run(3, 80, &[environment[0], (ENTRIES_VARIABLE, "16")]);
}

#[test]
fn an_exchange_that_cannot_fit_is_refused_on_all_ranks() {
    let has_sockets = libfabric_providers().is_ok_and(|known| known.iter().any(|one| one.name == "sockets"));
    if has_sockets {
        let result = std::panic::catch_unwind(|| run(2, 1, &[(ENTRIES_VARIABLE, "2")]));
        let message = *result.expect_err("there is no room").downcast::<String>().expect("a message");
        assert!(message.contains("triggered operations, and 2 may be outstanding"), "{message}");
    }
}
