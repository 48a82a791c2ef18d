//! `streamhalo bench`: measurements of one thing each, of all contestants in one interleaved run.

mod files;
mod halo;
mod micro;
mod view;

use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::FABRICS;

use crate::bench::micro::What;
use crate::cli::Bench;
use crate::config::nearest;
use crate::error::AppError;

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
    }
}

/// A wrong value of a flag.
fn usage(flag: &str, message: String) -> AppError {
    AppError::Usage { flag: flag.to_owned(), message }
}

/// Those of the known names that a flag asks for: `all` of them, or some.
///
/// # Errors
///
/// [`AppError::Usage`] with what was probably meant.
fn chosen(flag: &str, asked: &[String], known: &[&str]) -> Result<Vec<String>, AppError> {
    let all = asked.iter().any(|name| name == "all");
    if all && asked.len() > 1 {
        return Err(usage(flag, "`all` stands beside other names; give `all` or the names".to_owned()));
    }
    if all {
        return Ok(known.iter().map(ToString::to_string).collect());
    }
    for (index, name) in asked.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            return Err(usage(flag, unknown(name, known)));
        }
        if asked[..index].contains(name) {
            return Err(usage(flag, format!("`{name}` is there twice")));
        }
    }
    Ok(asked.to_vec())
}

fn unknown(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("`{name}` is not one of {}{near}", known.join(", "))
}

/// The backends that `--backend` asks for.
fn backends_of(asked: &[String]) -> Result<Vec<String>, AppError> {
    chosen("--backend", asked, &backend_names().collect::<Vec<_>>())
}

fn check_fabric(name: &str) -> Result<(), AppError> {
    let fabrics: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    if fabrics.contains(&name) { Ok(()) } else { Err(usage("--fabric", unknown(name, &fabrics))) }
}
