//! Where processes meet that nobody but themselves tells of each other: a host and a port where rank 0
//! waits, and a key that ranks show. The environment of a process says both.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use streamhalo::comm::fabric::MOST_RANKS;
use streamhalo::comm::fabric::rendezvous::{
    ADDRESS_VARIABLE, JobKey, KEY_FILE_VARIABLE, KEY_VARIABLE, ReservedPort,
};
use streamhalo::comm::fabric::shm::{RANK_VARIABLE, SIZE_VARIABLE};

use crate::cli::RendezvousArgs;
use crate::error::AppError;

/// Whether ranks over a fabric can meet so.
pub(super) fn is_for(fabric: &str) -> bool {
    fabric.ends_with("ofi")
}

/// How many ranks meet at the rendezvous that the environment names, if it names one.
pub(super) fn ranks() -> Option<usize> {
    std::env::var_os(ADDRESS_VARIABLE)?;
    // What is no number is refused with its reason when the world is made.
    Some(std::env::var(SIZE_VARIABLE).ok().and_then(|size| size.parse().ok()).unwrap_or(1))
}

/// A rendezvous for ranks that this program starts. It keeps the port while they run.
#[derive(Debug)]
pub(super) struct Rendezvous {
    port: ReservedPort,
    key: JobKey,
}

impl Rendezvous {
    /// One on this machine, with a port that is free and a key that nobody knows.
    ///
    /// # Errors
    ///
    /// That the system has neither.
    pub(super) fn on_this_machine() -> Result<Self, AppError> {
        let port = ReservedPort::on(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        Ok(Self { port, key: JobKey::generate()? })
    }

    /// Tells a rank. Its number and the number of ranks are told by whoever starts it.
    pub(super) fn tell(&self, command: &mut Command) {
        command.env(ADDRESS_VARIABLE, self.port.address().to_string());
        command.env(KEY_VARIABLE, self.key.to_hex()).env_remove(KEY_FILE_VARIABLE);
    }
}

/// Makes this process the rank that its flags say, if they do. An environment cannot be changed under a
/// program that runs, so that the program starts again in its place.
///
/// # Errors
///
/// [`AppError::Usage`] for flags that do not fit each other or the fabric, or a key that is missing.
pub(crate) fn adopt(args: &RendezvousArgs, fabric: &str) -> Result<(), AppError> {
    let Some(asked) = variables(args)? else { return Ok(()) };
    let usage = |message: String| Err(AppError::usage("--rank-zero", message));
    if !is_for(fabric) {
        return usage(format!(
            "is where ranks over `ofi` and `shm+ofi` meet, not those over `{fabric}`; choose one of these"
        ));
    }
    if [KEY_VARIABLE, KEY_FILE_VARIABLE].iter().all(|name| std::env::var_os(name).is_none()) {
        return usage(format!(
            "needs a key in the environment that all ranks know and nobody else: name a file with {} random \
             hexadecimal digits in {KEY_FILE_VARIABLE}, as from `openssl rand -hex {} > job.key`, or give \
             them in {KEY_VARIABLE}",
            2 * JobKey::BYTES,
            JobKey::BYTES
        ));
    }
    if asked.iter().all(|(name, value)| std::env::var_os(name).as_ref() == Some(value)) {
        return Ok(());
    }
    let program = std::env::current_exe();
    let error = match program {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).envs(asked).exec(),
        Err(error) => error,
    };
    usage(format!("this program cannot start again as that rank: {error}"))
}

/// What the environment of the rank has to say.
fn variables(args: &RendezvousArgs) -> Result<Option<[(&'static str, OsString); 3]>, AppError> {
    // The command line is refused where only some of the three are there.
    let (Some(address), Some(size), Some(rank)) = (&args.rank_zero, args.world_size, args.rank) else {
        return Ok(None);
    };
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if port.and_then(|port| port.parse::<u16>().ok()).is_none() {
        let message = format!("`{address}` is not HOST:PORT, as in node1:7000");
        return Err(AppError::usage("--rank-zero", message));
    }
    if size.get() > MOST_RANKS {
        let message = format!("{size} are too many: no more than {MOST_RANKS} ranks can meet");
        return Err(AppError::usage("--world-size", message));
    }
    if rank >= size.get() {
        return Err(AppError::usage(
            "--rank",
            format!("{rank} is none of the {size} ranks, which count from 0"),
        ));
    }
    Ok(Some([
        (ADDRESS_VARIABLE, address.into()),
        (SIZE_VARIABLE, size.to_string().into()),
        (RANK_VARIABLE, rank.to_string().into()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn args(address: &str, size: usize, rank: usize) -> RendezvousArgs {
        RendezvousArgs {
            rank_zero: Some(address.to_owned()),
            world_size: NonZeroUsize::new(size),
            rank: Some(rank),
        }
    }

    fn refused(args: &RendezvousArgs) -> String {
        variables(args).expect_err("is wrong").to_string()
    }

    #[test]
    fn ranks_are_told_a_place_and_a_key_of_their_own() {
        let told = |rendezvous: Rendezvous| {
            let mut command = Command::new("nothing");
            rendezvous.tell(&mut command);
            let value = |name: &str| {
                let found = command.get_envs().find(|(key, _)| *key == name)?.1?;
                Some(found.to_str().expect("is text").to_owned())
            };
            (value(ADDRESS_VARIABLE).expect("is told"), value(KEY_VARIABLE).expect("is told"))
        };
        let [(address, key), (_, other)] =
            [(); 2].map(|()| told(Rendezvous::on_this_machine().expect("there is a port")));
        assert!(address.strip_prefix("127.0.0.1:").is_some_and(|port| port.parse::<u16>().is_ok()));
        assert!(key.len() == 2 * JobKey::BYTES && key.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(key, other);
    }

    #[test]
    fn flags_become_the_environment_of_a_rank() {
        let variables = variables(&args("[::1]:7000", 4, 3)).expect("is right").expect("are given");
        let found = variables.map(|(name, value)| format!("{name}={}", value.display()));
        assert_eq!(found, ["STREAMHALO_RENDEZVOUS=[::1]:7000", "STREAMHALO_SIZE=4", "STREAMHALO_RANK=3"]);
        assert_eq!(super::variables(&RendezvousArgs::default()).expect("nothing is asked"), None);
    }

    #[test]
    fn flags_that_make_no_rank_are_refused() {
        for address in ["node1", "node1:", ":7000", "node1:70000"] {
            assert!(refused(&args(address, 2, 0)).contains("HOST:PORT"), "{address}");
        }
        assert!(refused(&args("node1:7000", 2, 2)).contains("2 is none of the 2 ranks"));
        assert!(refused(&args("node1:7000", usize::MAX, 0)).contains("no more than 1048576"));
    }

    #[test]
    fn other_fabrics_have_no_rendezvous() {
        let error = adopt(&args("node1:7000", 2, 0), "mpi").expect_err("is for `ofi`");
        assert!(error.to_string().contains("not those over `mpi`"), "{error}");
    }
}
