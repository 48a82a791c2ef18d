//! Messages of a device, by how they are staged in the host's memory (2023 paper on Intel GPUs, figures 5 to 7).

use super::bandwidth::{Windows, answer_bytes};
use super::figure::{Figure, gigabytes_per_second};
use super::latency::RoundTrip;
use super::micro::{MicroBench, divided};
use super::primitive::{Link, WINDOW, by_user, check, staged};
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use streamhalo::World;
use streamhalo::comm::{Staging, StagingMemory, StagingScheme};

use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "staging",
    title: "messages of a device, staged in memory of the host",
    value: Value::Time,
    note: "Times are per message: half of a round trip, or of a window of 64, one way or both at once.\n\
           `user` is a program that copies by itself; a number is how many blocks there are.",
    varies: None,
    run: Run::Operations(measure),
};

/// What can be measured.
pub(crate) const OPERATIONS: [&str; 3] = ["latency", "bandwidth", "bibandwidth"];

/// The contestant that is no scheme: a program that copies by itself.
pub(crate) const USER: &str = "user";

/// The names of the schemes on the command line.
pub(crate) fn scheme_names() -> Vec<&'static str> {
    std::iter::once(USER).chain(StagingScheme::ALL.map(StagingScheme::name)).collect()
}

/// How much host memory messages that are on their way together may have.
const STAGED_BYTES: usize = 64 << 20;

/// The name of a contestant, as in `advanced-2` or `naive-pageable`.
pub(crate) fn name_of(scheme: StagingScheme, blocks: u32, memory: StagingMemory) -> String {
    let mut name = scheme.name().to_owned();
    if scheme != StagingScheme::Naive {
        name += &format!("-{blocks}");
    }
    if memory == StagingMemory::Pageable {
        name += "-pageable";
    }
    name
}

/// How a contestant of that name stages; `None` where a part of the name is no name.
fn staging_of(name: &str, threshold_bytes: usize) -> Option<Staging> {
    let mut staging = Staging { threshold_bytes, memory: StagingMemory::Pinned, ..Staging::default() };
    for part in name.split('-') {
        if let Some(scheme) = StagingScheme::from_name(part) {
            staging.scheme = scheme;
        } else if let Some(memory) = StagingMemory::from_name(part) {
            staging.memory = memory;
        } else {
            staging.blocks = part.parse().ok()?;
        }
    }
    Some(staging)
}

/// Measures all contestants at one size. Collective over two ranks.
fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    bytes: usize,
) -> Result<Vec<Figure>, AppError> {
    let named = |name: &String| match name.as_str() {
        USER => Ok(None),
        name => bench.named(name, |name| staging_of(name, bench.threshold_bytes)).map(Some),
    };
    let stagings = bench.contestants.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let device = bench.streams.of_rank(world)?;
    let at_a_time = (STAGED_BYTES / bytes).clamp(1, WINDOW);
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for (name, staging) in bench.contestants.iter().zip(stagings) {
        let stream = device.stream(world)?;
        let make = |bytes: usize, at_a_time: usize| -> Result<Box<dyn Link>, AppError> {
            let mut link = match staging {
                None => by_user::link(world, &device, &stream, bytes, at_a_time)?,
                Some(staging) => staged(world, &stream, bytes, at_a_time, staging)?,
            };
            check(&mut *link, bench.answers(world, name), bytes)?;
            Ok(link)
        };
        let (link, begins) = (make(bytes, at_a_time)?, world.rank() == 0);
        subjects.push(match operation {
            "latency" => Box::new(RoundTrip { link, begins }),
            "bandwidth" => {
                let answer = Some(make(answer_bytes(bytes), 1)?);
                Box::new(Windows { link, answer, begins })
            }
            _ => Box::new(Windows { link, answer: None, begins }),
        });
    }
    let timings = in_turns(world, bench.seconds, subjects.iter_mut().map(|subject| &mut **subject))?;
    let (messages, ways) = match operation {
        "latency" => (2.0, 1.0),
        "bandwidth" => (WINDOW as f64, 1.0),
        _ => (WINDOW as f64, 2.0),
    };
    let figures = bench.contestants.iter().zip(timings).map(|(name, timing)| {
        let figure = timing.figure(bench, (name, device.name().to_owned()), bytes).divided_by(messages);
        let rate = gigabytes_per_second(ways * bytes as f64, figure.median_us);
        let figure = Figure { operation: Some(operation.to_owned()), ..figure };
        figure.with("gb_per_s", rate)
    });
    Ok(divided("ratio_to_naive", "naive", figures.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_are_found_by_their_names() {
        for scheme in StagingScheme::ALL {
            for memory in StagingMemory::ALL {
                for blocks in [1, 2, 64] {
                    let found = staging_of(&name_of(scheme, blocks, memory), 7).expect("is a name");
                    assert_eq!((found.scheme, found.memory, found.threshold_bytes), (scheme, memory, 7));
                    assert!(scheme == StagingScheme::Naive || found.blocks == blocks);
                }
            }
        }
        assert_eq!(name_of(StagingScheme::Advanced, 2, StagingMemory::Pageable), "advanced-2-pageable");
    }
}
