//! Joining: how the ranks come together, or learn who is missing.

use super::centre::Centre;
use super::frame::{self, Head};
use super::gate::Gate;
use super::handshake::{self, Refusal};
use super::inbox::Inbox;
use super::link::{Link, STACK_BYTES};
use super::options::RendezvousOptions;
use super::socket;
use super::{GRACE, close_links};
use crate::error::in_seconds;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long rank 0 sleeps between looks at its gate.
const GATE_NAP: Duration = Duration::from_millis(2);
/// The longest that a rank sleeps between attempts.
const RETRY_NAP: Duration = Duration::from_millis(100);
/// How long one attempt may take, from the connection to rank 0's verdict: rank 0 may listen already,
/// and look only later.
const ATTEMPT: Duration = Duration::from_secs(30);
const NAP: Duration = Duration::from_millis(20);

fn deadline(options: &RendezvousOptions) -> Option<Instant> {
    options.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|end| Instant::now() >= end)
}

/// Rank 0: lets all others in. Gives the own address too.
pub(super) fn as_centre(
    listener: TcpListener,
    options: &RendezvousOptions,
    inbox: &Arc<Inbox>,
) -> Result<(Arc<Centre>, IpAddr), String> {
    let started = Instant::now();
    let deadline = deadline(options);
    let own = listener.local_addr().map(|address| address.ip().to_canonical());
    let fallback = own.ok().filter(|address| !address.is_unspecified());
    let fallback = fallback.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let centre = Centre::new(options.size, options.key.clone(), inbox.clone(), fallback);
    let mut gate = Gate::open(listener, centre.clone(), options.size)
        .map_err(|error| format!("rank 0 cannot listen there: {error}"))?;
    loop {
        gate.let_in();
        match inbox.started(GATE_NAP) {
            Some(Ok(address)) => return Ok((centre, address)),
            Some(Err(reason)) => {
                drop(gate);
                inbox.close();
                close_links(&centre.say_goodbye());
                return Err(reason);
            }
            None if has_passed(deadline) => centre.give_up_joining(0, started.elapsed()),
            None => {}
        }
    }
}

/// Another rank: finds rank 0, proves who it is, and waits for the others. Gives the own address too.
pub(super) fn as_rank(
    options: &RendezvousOptions,
    inbox: &Arc<Inbox>,
) -> Result<(Arc<Link>, IpAddr), String> {
    let started = Instant::now();
    let deadline = deadline(options);
    let link = find_centre(options, deadline)?;
    let own = begin(&link, inbox).inspect_err(|reason| {
        // Rank 0 has let it in, and would start the job with it.
        link.send(frame::encode(&Head::Failed { rank: options.rank as u32, text: reason.clone() }, &[]));
        link.say_goodbye();
    })?;

    let mut asked: Option<Instant> = None;
    let verdict = loop {
        if let Some(verdict) = inbox.started(NAP) {
            break verdict;
        }
        if let Some(asked) = asked {
            if asked.elapsed() >= GRACE {
                break Err("rank 0 let this rank in, but does not say who is missing; is it alive?".into());
            }
        } else if has_passed(deadline) {
            // Rank 0 knows who is missing, and tells all.
            let waited = started.elapsed();
            link.send(frame::encode(&Head::GaveUp { waited }, &[]));
            asked = Some(Instant::now());
        }
    };
    match verdict {
        // Over the loopback interface means on rank 0's machine, whose address the others know.
        Ok(address) if own.is_loopback() => Ok((link, address)),
        Ok(_) => Ok((link, own)),
        Err(reason) => {
            inbox.close();
            link.say_goodbye();
            close_links(&[link]);
            Err(reason)
        }
    }
}

/// Tries until rank 0 lets this rank in, or says that it will not.
fn find_centre(options: &RendezvousOptions, deadline: Option<Instant>) -> Result<Arc<Link>, String> {
    let started = Instant::now();
    let mut nap = Duration::from_millis(2);
    loop {
        let last = match attempt(options, deadline) {
            Ok(link) => return Ok(link),
            Err(Refusal::Final(reason)) => return Err(reason),
            Err(Refusal::TryAgain(reason)) => reason,
        };
        if has_passed(deadline) {
            return Err(format!(
                "rank 0 was not found there within {} s, and at last: {last}; is rank 0 started, and can this machine reach it?",
                in_seconds(&started.elapsed())
            ));
        }
        let left = deadline.map_or(nap, |end| end.saturating_duration_since(Instant::now()));
        std::thread::sleep(nap.min(left));
        nap = (nap * 2).min(RETRY_NAP);
    }
}

fn attempt(options: &RendezvousOptions, deadline: Option<Instant>) -> Result<Arc<Link>, Refusal> {
    let stream = socket::connect(&options.address, deadline).map_err(Refusal::TryAgain)?;
    let end = Instant::now() + ATTEMPT;
    let end = deadline.map_or(end, |deadline| deadline.min(end));
    handshake::introduce(&stream, &options.key, options.rank, options.size, end)?;
    Link::start(Arc::new(stream))
        .map_err(|error| Refusal::Final(format!("no thread could be started: {error}")))
}

/// Begins to hear what rank 0 says, and gives the own address.
fn begin(link: &Arc<Link>, inbox: &Arc<Inbox>) -> Result<IpAddr, String> {
    let own = link.stream().local_addr().map_err(|error| error.to_string())?;
    read_in_background(link, inbox).map_err(|error| format!("no thread could be started: {error}"))?;
    Ok(own.ip().to_canonical())
}

fn read_in_background(link: &Arc<Link>, inbox: &Arc<Inbox>) -> std::io::Result<()> {
    let (link, inbox) = (link.clone(), inbox.clone());
    let thread = std::thread::Builder::new().name("rendezvous in".into()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        link.read(&mut |frame| inbox.take(frame));
        inbox.centre_ended();
        link.reading_ended();
    })?;
    Ok(())
}
