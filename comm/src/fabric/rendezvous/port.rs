//! A free port for rank 0 that nobody else takes before rank 0 does.

use crate::error::{Error, Result};
use std::net::{IpAddr, SocketAddr};

/// A port that a launcher keeps for rank 0 of its job: bound, but not listened at, so that rank 0 can
/// bind it as well, while the system gives it to nobody who asks for any free port. Keep it until
/// the job has ended.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _socket: std::os::fd::OwnedFd,
}

impl ReservedPort {
    /// Reserves a port of that address of this machine.
    ///
    /// # Errors
    /// [`Error::System`] if the machine does not have the address, or no free port.
    pub fn on(address: IpAddr) -> Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let reserve = || {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            // Two sockets may share a port if both say so and neither listens yet; listeners of the
            // standard library do.
            rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddr::new(address, 0))?;
            let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok(Self { address, _socket: socket })
        };
        reserve().map_err(|error: rustix::io::Errno| Error::System {
            call: "reserving a port for rank 0",
            reason: format!("{error}, at {address}"),
        })
    }

    /// Where rank 0 is to listen, for [`RendezvousOptions::address`](super::RendezvousOptions::address).
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
