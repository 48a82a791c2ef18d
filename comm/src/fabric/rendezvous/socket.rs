//! Sockets: listening where ranks look, and noticing peers whose machine is gone.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long rank 0 waits for a port that is taken: a rank that looks for it may have it for a moment,
/// as both ends of a connection to itself.
const TAKEN: Duration = Duration::from_secs(1);
/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Listens at rank 0's address: on it alone if it is a number, on all interfaces if it is a name.
pub(super) fn listen(address: &str) -> Result<TcpListener, String> {
    let places = places_to_listen(address)?;
    let started = Instant::now();
    loop {
        let mut last = None;
        for place in &places {
            match TcpListener::bind(place) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        let is_taken = last.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse);
        if !is_taken || started.elapsed() >= TAKEN {
            let reason = last.map_or_else(|| "the name has no address".into(), |error| error.to_string());
            return Err(format!(
                "rank 0 cannot listen there: {reason}; it must be a free port of the machine that rank 0 runs on"
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn places_to_listen(address: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(place) = address.parse::<SocketAddr>() {
        return Ok(vec![place]);
    }
    let port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match port {
        Some(("localhost", _)) => resolve(address),
        Some((_, port)) => Ok(vec![
            // Takes both kinds of addresses where the system has both.
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), port).into(),
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).into(),
        ]),
        None => Err("it is not HOST:PORT".into()),
    }
}

fn resolve(address: &str) -> Result<Vec<SocketAddr>, String> {
    let found = address.to_socket_addrs().map_err(|error| format!("the name was not found: {error}"))?;
    Ok(found.collect())
}

/// Connects to rank 0, or says why not.
pub(super) fn connect(address: &str, deadline: Option<Instant>) -> Result<TcpStream, String> {
    let mut last = "the name has no address".to_string();
    for place in resolve(address)? {
        let left = deadline.map_or(CONNECT, |end| end.saturating_duration_since(Instant::now()));
        let patience = CONNECT.min(left).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&place, patience) {
            // A socket that looks for a free port can find the very one that nobody listens at yet,
            // and is then connected to itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = format!("nobody listens at {place}");
            }
            Ok(stream) => return tune(&stream).map(|()| stream).map_err(|error| error.to_string()),
            Err(error) => last = format!("no connection to {place}: {error}"),
        }
    }
    Err(last)
}

/// Small frames go at once, and a machine that is gone is noticed within half a minute.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    // The probes above are sent only while nothing is on its way.
    sockopt::set_tcp_user_timeout(stream, 30_000)?;
    Ok(())
}
