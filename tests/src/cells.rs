//! The cells of the conformance tables: every backend and every primitive on every kind of stream, over one
//! world.

use crate::cases::{Case, Done, Subject};
use crate::random::mix;
use crate::{KINDS, ways_of};
use std::fmt;
use std::str::FromStr;
use std::time::Instant;
use streamhalo::comm::fabric::Executor;
use streamhalo::comm::{By, Error};
use streamhalo::{HaloError, StreamKind, World};

/// Where it is set, rank 0 says on its standard error how long each case has taken.
const TIMES_VARIABLE: &str = "STREAMHALO_TEST_TIMES";

/// How many of the cases are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// All of them.
    All,
    /// Those that are tried over every fabric.
    Few,
    /// The first of them: that there is an answer, and who carries it.
    First,
}

impl Amount {
    fn of(self, subject: &Subject, ranks: usize) -> Vec<Case> {
        let mut cases = subject.cases(ranks, self == Self::All);
        if self == Self::First {
            cases.truncate(1);
        }
        cases
    }
}

/// What came of all cases in one way. Its text is one line, which can be read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The backend or primitive.
    pub backend: String,
    /// The kind of stream.
    pub stream: String,
    /// The fabric.
    pub fabric: String,
    /// Who carried the messages of all ranks; `none` where there were none.
    pub executor: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// Whether a cell is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All ranks got every value right.
    Passed {
        /// Of the values of all ranks.
        checksum: u64,
    },
    /// The backend cannot be used over this fabric.
    Refused {
        /// As the error says.
        reason: String,
    },
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, stream, fabric, executor, outcome } = self;
        write!(f, "cell {backend} {stream} {fabric} {executor} ")?;
        match outcome {
            Outcome::Passed { checksum } => write!(f, "passed {checksum:016x}"),
            Outcome::Refused { reason } => write!(f, "refused: {}", reason.replace('\n', " ")),
        }
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.splitn(7, ' ').collect();
        let &["cell", backend, stream, fabric, executor, verdict, rest] = words.as_slice() else {
            return Err(format!("`{line}` is no cell"));
        };
        let outcome = match verdict {
            "passed" => Outcome::Passed {
                checksum: u64::from_str_radix(rest, 16).map_err(|error| format!("`{rest}`: {error}"))?,
            },
            "refused:" => Outcome::Refused { reason: rest.into() },
            other => return Err(format!("`{other}` is no verdict")),
        };
        let [backend, stream, fabric, executor] = [backend, stream, fabric, executor].map(String::from);
        Ok(Self { backend, stream, fabric, executor, outcome })
    }
}

/// Tries that many of the cases that fit the world in every way, and hands on each cell as it comes, on every
/// rank. Collective.
///
/// # Errors
/// The first error of a case, if it is not that the backend cannot be used here.
///
/// # Panics
/// On a rank that gets a wrong value.
pub fn try_cells(world: &World, amount: Amount, report: impl FnMut(Cell)) -> Result<(), HaloError> {
    try_subjects(world, Subject::all(), amount, report)
}

/// As [`try_cells`], every backend on streams of one kind, in the cases that are tried over every fabric.
///
/// # Errors
/// As [`try_cells`].
///
/// # Panics
/// As [`try_cells`].
pub fn try_backend_cells(world: &World, kind: StreamKind, report: impl FnMut(Cell)) -> Result<(), HaloError> {
    try_subjects(world, ways_of(kind).map(Subject::Backend), Amount::Few, report)
}

/// As [`try_cells`], every primitive with arrays on streams of a device.
///
/// # Errors
/// As [`try_cells`].
///
/// # Panics
/// As [`try_cells`].
pub fn try_primitive_cells(world: &World, report: impl FnMut(Cell)) -> Result<(), HaloError> {
    try_subjects(world, Subject::on_device(), Amount::Few, report)
}

fn try_subjects(
    world: &World,
    subjects: impl Iterator<Item = Subject>,
    amount: Amount,
    mut report: impl FnMut(Cell),
) -> Result<(), HaloError> {
    for subject in subjects {
        let mut all = Done::default();
        let mut refusal = None;
        let is_first = subject.way().kind != KINDS[1];
        let cases = amount.of(&subject, world.size()).into_iter();
        for case in cases.filter(|case| is_first || !case.is_of_any_stream) {
            let begun = Instant::now();
            let outcome = case.run(world, subject.way());
            if world.rank() == 0 && std::env::var_os(TIMES_VARIABLE).is_some() {
                let milliseconds = 1e3 * begun.elapsed().as_secs_f64();
                eprintln!(
                    "{milliseconds:8.1} ms: {} {:?}, {}",
                    subject.name(),
                    subject.way().kind,
                    case.name
                );
            }
            match outcome {
                Ok(done) => all.add(&done),
                Err(HaloError::Communication(
                    error @ (Error::BackendRefused { .. } | Error::FabricUnavailable { .. }),
                )) => {
                    refusal = Some(error.to_string());
                    break;
                }
                Err(error) => {
                    eprintln!("rank {}, `{}`, {subject:?}: {error}", world.rank(), case.name);
                    return Err(error);
                }
            }
        }
        if let Subject::Primitive(row, kind) = subject {
            let others = (0..world.size()).filter(|peer| *peer != world.rank());
            if row.by != By::Fabric {
                // Who it is follows from whose memory is mapped.
                let fabric = world.fabric();
                let by = |peer| match fabric.is_mapped(peer) {
                    true if kind == StreamKind::Device => Executor::Proxy,
                    true => Executor::Stream,
                    false => fabric.executor(),
                };
                all.executors = others.map(|peer| row.executor(by(peer)).to_string()).collect();
            }
        }
        let told = world.all_gather(&(all.checksum, all.executors))?;
        let checksum = told.iter().fold(0, |sum, (checksum, _)| mix(sum ^ 1).wrapping_add(*checksum));
        let mut executors: Vec<String> = told.into_iter().flat_map(|(_, executors)| executors).collect();
        executors.sort();
        executors.dedup();
        report(Cell {
            backend: subject.name().into(),
            stream: match subject.way().kind {
                StreamKind::Inline => "inline".into(),
                other => format!("{other:?}").to_lowercase(),
            },
            fabric: world.fabric().name().into(),
            executor: if executors.is_empty() { "none".into() } else { executors.join("+") },
            outcome: match refusal {
                Some(reason) => Outcome::Refused { reason },
                None => Outcome::Passed { checksum },
            },
        });
    }
    Ok(())
}
