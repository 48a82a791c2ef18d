//! What launchers and persons set.

use super::*;
use crate::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};

type Variables<'a> = &'a [(&'a str, &'a str)];

fn read(variables: Variables) -> Result<Option<RendezvousOptions>> {
    RendezvousOptions::from_variables(&|name| {
        variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
    })
}

const ADDRESS: (&str, &str) = (ADDRESS_VARIABLE, "node-1:4711");
const SIZE: (&str, &str) = (SIZE_VARIABLE, "4");
const RANK: (&str, &str) = (RANK_VARIABLE, "3");

#[test]
fn everything_is_there() {
    let hex = key(9).to_hex();
    let read = read(&[ADDRESS, SIZE, RANK, (KEY_VARIABLE, &hex)]).expect("it can be used");
    let RendezvousOptions { address, rank, size, key, timeout } = read.expect("it is set");
    assert_eq!((address.as_str(), rank, size, timeout), ("node-1:4711", 3, 4, Some(Duration::from_secs(60))));
    assert_eq!(key.to_hex(), hex);
}

#[test]
fn nothing_is_there() {
    assert!(read(&[]).expect("that is no error").is_none());
    assert!(read(&[SIZE, RANK]).expect("that is another launcher").is_none());
}

#[test]
fn a_key_in_a_file() {
    let file = std::env::temp_dir().join(format!("streamhalo-key-{}", std::process::id()));
    std::fs::write(&file, key(5).to_hex() + "\n").expect("it can be written");
    let name = file.to_string_lossy().into_owned();
    let good = read(&[ADDRESS, SIZE, RANK, (KEY_FILE_VARIABLE, &name)]);
    std::fs::write(&file, "no key").expect("it can be written");
    let bad = read(&[ADDRESS, SIZE, RANK, (KEY_FILE_VARIABLE, &name)]);
    std::fs::remove_file(&file).expect("it is there");
    let gone = read(&[ADDRESS, SIZE, RANK, (KEY_FILE_VARIABLE, &name)]);
    assert_eq!(good.expect("it can be used").expect("it is set").key.to_hex(), key(5).to_hex());
    assert_says(&bad.expect_err("it holds no key").to_string(), &[&name, "64 hexadecimal digits", "urandom"]);
    assert_says(&gone.expect_err("it is gone").to_string(), &[&name, "cannot be read"]);
}

#[test]
fn what_cannot_be_used_is_named() {
    let hex = key(9).to_hex();
    let secret = (KEY_VARIABLE, hex.as_str());
    let cases: &[(Variables, &str, &str)] = &[
        (&[(ADDRESS_VARIABLE, "node-1"), SIZE, RANK, secret], ADDRESS_VARIABLE, "HOST:PORT"),
        (&[(ADDRESS_VARIABLE, "node-1:0"), SIZE, RANK, secret], ADDRESS_VARIABLE, "1 to 65535"),
        (&[(ADDRESS_VARIABLE, ":4711"), SIZE, RANK, secret], ADDRESS_VARIABLE, "HOST:PORT"),
        (&[ADDRESS, RANK, secret], SIZE_VARIABLE, "number of ranks"),
        (&[ADDRESS, (SIZE_VARIABLE, "100000000000"), RANK, secret], SIZE_VARIABLE, "no more than 1048576"),
        (&[ADDRESS, SIZE, secret], RANK_VARIABLE, "rank of this process"),
        (&[ADDRESS, SIZE, (RANK_VARIABLE, "4"), secret], RANK_VARIABLE, "STREAMHALO_SIZE is 4"),
        (&[ADDRESS, SIZE, RANK], KEY_VARIABLE, "make one with `head -c 32 /dev/urandom"),
        (&[ADDRESS, SIZE, RANK, secret, (KEY_FILE_VARIABLE, "job.key")], KEY_VARIABLE, "set one of them"),
        (&[ADDRESS, SIZE, RANK, (KEY_VARIABLE, "abc123")], KEY_VARIABLE, "64 hexadecimal digits"),
    ];
    for (variables, named, expected) in cases {
        let error = read(variables).expect_err(expected);
        assert!(matches!(&error, Error::BadEnvironment { variable, .. } if variable == named), "{error}");
        assert_says(&error.to_string(), &[expected]);
        assert!(!error.to_string().contains(&hex) && !error.to_string().contains("abc123"), "{error}");
    }
}

#[test]
fn keys_are_random_and_not_shown() {
    let (one, other) = (JobKey::generate().expect("there is"), JobKey::generate().expect("there is"));
    assert_ne!(one.to_hex(), other.to_hex());
    assert_eq!(JobKey::from_hex(&format!(" {}\n", one.to_hex())).expect("it is one").to_hex(), one.to_hex());
    assert_eq!(format!("{one:?}"), "JobKey(not shown)");
    for bad in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"ä".repeat(32)] {
        assert!(JobKey::from_hex(bad).is_none(), "{bad}");
    }
}
