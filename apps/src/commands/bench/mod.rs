//! `streamhalo bench`: measurements of one thing each, of all contestants in one interleaved run.

mod files;
mod halo;
mod micro;
mod view;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::FABRICS;
use streamhalo::{Device, Signals, StreamKind, Waits};

use self::files::names_of;
use super::check_room_for;
use crate::bench::micro::split_device;
use crate::bench::streams::Streams;
use crate::bench::what::What;
use crate::cli::{Bench, FigureArgs, SignalArgs, StreamArgs};
use crate::commands::DEVICES;
use crate::config::{check_replayed, known_backends, nearest, own_name};
use crate::error::AppError;
use crate::occupied::Occupied;
use crate::ranks::{Prepared, adopt};
use crate::run::no_memory_operations;

/// Measures, prints, and writes what was asked for.
pub(super) fn bench(what: &Bench) -> Result<u8, AppError> {
    match what {
        Bench::Halo(args) => halo::bench_halo(args),
        Bench::Pingpong(args) => micro::pingpong(args),
        Bench::Latency(args) => micro::primitives("streamhalo bench latency", What::Latency, args),
        Bench::Bandwidth(args) => micro::primitives("streamhalo bench bandwidth", What::Bandwidth, args),
        Bench::Bibandwidth(args) => {
            micro::primitives("streamhalo bench bibandwidth", What::Bibandwidth, args)
        }
        Bench::Collectives(args) => micro::collectives(args),
        Bench::Overlap(args) => micro::primitives("streamhalo bench overlap", What::Overlap, args),
        Bench::Loggp(args) => micro::primitives("streamhalo bench loggp", What::Loggp, args),
        Bench::Throttle(args) => micro::throttle(args),
        Bench::Copies(args) => micro::copies(args),
        Bench::Staging(args) => micro::staging(args),
        Bench::Moves(args) => micro::moves(args),
    }
}

/// A measurement that can be done as far as one process can tell.
struct Planned<B> {
    bench: B,
    /// What its files are called after.
    name: &'static str,
    /// How many it needs, behind the flag that says so, if it has one.
    ranks: (Option<&'static str>, usize),
    out: Option<PathBuf>,
    /// That nobody else writes there.
    _occupied: Option<Occupied>,
}

impl<B> Planned<B> {
    fn new(bench: B, name: &'static str, ranks: (Option<&'static str>, usize), args: &FigureArgs) -> Self {
        Self { bench, name, ranks, out: args.out.clone(), _occupied: None }
    }
}

/// Makes this process the rank that its flags say, if they do.
fn meet(args: &FigureArgs) -> Result<(), AppError> {
    check_fabric(&args.fabric)?;
    adopt(&args.rendezvous, &args.fabric)
}

impl<B: Serialize> Prepared for Planned<B> {
    fn asked(&self) -> Value {
        serde_json::to_value(&self.bench).expect("a bench is plain data")
    }

    fn most_ranks(&self) -> (Option<&'static str>, usize) {
        self.ranks
    }

    fn prepare_to_lead(&mut self) -> Result<(), AppError> {
        let names = names_of(self.name);
        self._occupied = self.out.as_deref().map(|dir| check_room_for(dir, &names)).transpose()?;
        Ok(())
    }
}

/// Those of the known names that a flag asks for: `all` of them, or some.
///
/// # Errors
///
/// [`AppError::Usage`] with what was probably meant.
fn chosen(flag: &str, asked: &[String], known: &[&str]) -> Result<Vec<String>, AppError> {
    let all = asked.iter().any(|name| name == "all");
    if all && asked.len() > 1 {
        return Err(AppError::usage(flag, "`all` stands beside other names; give `all` or the names"));
    }
    if all {
        return Ok(known.iter().map(ToString::to_string).collect());
    }
    for (index, name) in asked.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            return Err(AppError::usage(flag, unknown(name, &[known, &["all"]].concat())));
        }
        if asked[..index].contains(name) {
            return Err(AppError::usage(flag, format!("`{name}` is there twice")));
        }
    }
    Ok(asked.to_vec())
}

/// As [`chosen`], but gives the values that have these names.
fn chosen_of<T: Copy, const N: usize>(
    flag: &str,
    asked: &[String],
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, AppError> {
    let chosen = chosen(flag, asked, &all.map(name))?;
    let of = |chosen: &String| all.into_iter().find(|one| name(*one) == chosen).expect("is one of them");
    Ok(chosen.iter().map(of).collect())
}

fn unknown(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("`{name}` is not one of {}{near}", known.join(", "))
}

/// The backends that `--backend` asks for.
fn backends_of(asked: &[String], fabric: &str) -> Result<Vec<String>, AppError> {
    // `all` are those to compare: `auto` is one of them.
    match asked {
        [all] if all == "all" => Ok(backend_names().map(str::to_owned).collect()),
        _ => chosen("--backend", &own_names(asked, fabric)?, &known_backends()),
    }
}

/// What `--backend` names, each as it calls itself.
fn own_names(asked: &[String], fabric: &str) -> Result<Vec<String>, AppError> {
    let own = |name: &String| own_name(name, fabric).map(str::to_owned);
    asked.iter().map(own).collect::<Result<_, _>>().map_err(|message| AppError::usage("--backend", message))
}

/// What to think of figures of a device that computes on the host's cores.
const NO_GPU: &str = "This device computes on the host's cores: its figures say nothing about a GPU.\n";

const HOST: &str = "host";

/// The streams of a device that is no host.
fn streams_on(device: &str) -> Result<Streams, AppError> {
    check_kind(device, &DEVICES.iter().copied().filter(|kind| *kind != HOST).collect::<Vec<_>>())?;
    // Where there is none ranks need not begin.
    let (kind, select) = split_device(device);
    Device::check(kind, select).map_err(|error| AppError::usage("--device", error.to_string()))?;
    Ok(Streams { device: Some(device.to_owned()), ..Streams::default() })
}

fn check_kind(device: &str, kinds: &[&str]) -> Result<(), AppError> {
    let (kind, select) = split_device(device);
    if !kinds.contains(&kind) {
        return Err(AppError::usage("--device", unknown(kind, kinds)));
    }
    if kind == HOST && !select.is_empty() {
        return Err(AppError::usage(
            "--device",
            format!("there is one `{HOST}`, of which `{select}` selects nothing"),
        ));
    }
    Ok(())
}

/// The streams that the flags ask for, where those of the host may be of either kind.
fn streams_with(args: &StreamArgs, signals: &SignalArgs) -> Result<Streams, AppError> {
    if args.device != HOST && args.stream != StreamKind::Inline {
        let message = "is for the host; the streams of a device are all of one kind";
        return Err(AppError::usage("--stream", message));
    }
    streams_of(&args.device, signals)
}

/// The streams that the flags ask for.
fn streams_of(device: &str, signals: &SignalArgs) -> Result<Streams, AppError> {
    let SignalArgs { signal, waits, replay } = signals;
    check_kind(device, &DEVICES)?;
    check_replayed(*replay).map_err(|(found, expected)| {
        AppError::usage("--replay", format!("{replay} is {found}; give {expected}"))
    })?;
    if device == HOST {
        let given = [("--signal", !signal.is_empty()), ("--waits", waits.is_some())];
        if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            let message = "is for devices; streams of the host have one way: name one by --device";
            return Err(AppError::usage(flag, message));
        }
        return Ok(Streams { replay: *replay, ..Streams::default() });
    }
    let (kind, _) = split_device(device);
    let mut signals = match &signal[..] {
        [] => vec![Signals::default()],
        asked => chosen_of("--signal", asked, Signals::ALL, Signals::name)?,
    };
    if signal.iter().any(|name| name == "all") {
        // It is one of the others.
        signals.retain(|way| *way != Signals::Auto);
    }
    if let Some(message) = no_memory_operations(kind) {
        // Asked for by name it is refused; it is no part of `all`.
        if signal.iter().any(|name| name == Signals::Memop.name()) {
            return Err(AppError::usage("--signal", message));
        }
        signals.retain(|way| *way != Signals::Memop);
    }
    let waits = match waits {
        Some(name) => Waits::from_name(name)
            .ok_or_else(|| AppError::usage("--waits", unknown(name, &Waits::ALL.map(Waits::name))))?,
        None => Waits::default(),
    };
    Ok(Streams { signals, waits, replay: *replay, ..streams_on(device)? })
}

fn check_fabric(name: &str) -> Result<(), AppError> {
    let fabrics: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    if fabrics.contains(&name) { Ok(()) } else { Err(AppError::usage("--fabric", unknown(name, &fabrics))) }
}
