//! The measurements over sizes: from flags to figures.

use streamhalo::StreamKind;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::{Staging, StagingMemory, StagingScheme};

use super::files::{files_of, lines, names_of};
use super::view::View;
use super::{HOST, Planned, backends_of, chosen, chosen_of, meet, own_names, streams_on, streams_with};
use crate::bench::collectives::{self, ON_STREAMS, OPERATIONS, can_do};
use crate::bench::copies;
use crate::bench::figure::Figure;
use crate::bench::micro::MicroBench;
use crate::bench::moves::{self, Boxes};
use crate::bench::primitive::{OF_HOST, OF_SOME, primitive_names};
use crate::bench::staging;
use crate::bench::streams::Streams;
use crate::bench::throttle::policy_names;
use crate::bench::what::What;
use crate::cli::{
    CollectivesArgs, CopiesArgs, FigureArgs, MovesArgs, PingpongArgs, PrimitiveArgs, SignalArgs, Sizes,
    StagingArgs, ThrottleArgs, TimedArgs,
};
use crate::error::{AppError, counted};
use crate::ranks::Ranks;
use crate::report::{self, OutputFile, lines_svg};
use crate::run::check_ranks;

/// `streamhalo bench pingpong`
pub(super) fn pingpong(args: &PingpongArgs) -> Result<u8, AppError> {
    let fabric = &args.timed.figures.fabric;
    let checked = || Ok((streams_with(&args.stream, &args.signals)?, backends_of(&args.backend, fabric)?));
    let bench = || {
        checked().map(|(streams, contestants)| MicroBench {
            streams,
            ..between_two(What::Pingpong, &args.timed, &args.sizes, args.stream.stream, contestants)
        })
    };
    measure("streamhalo bench pingpong", &args.timed.figures, bench, &[])
}

/// `streamhalo bench latency` and its like.
pub(super) fn primitives(command: &'static str, what: What, args: &PrimitiveArgs) -> Result<u8, AppError> {
    let checked = || {
        let streams = streams_with(&args.stream, &SignalArgs::default())?;
        let mut names = primitive_names();
        if matches!(what, What::Overlap | What::Loggp) {
            // It is no message, and has no part that could be hidden.
            names.retain(|name| *name != "flag");
        }
        if args.stream.device != HOST {
            let is_of_host = |name: &str| OF_HOST.iter().find(|(of_host, _)| *of_host == name);
            let mut asked = args.primitive.iter().filter(|name| names.contains(&name.as_str()));
            if let Some((name, reason)) = asked.find_map(|name| is_of_host(name)) {
                let message = format!("`{name}` {reason}: leave it out, or give `--device {HOST}`");
                return Err(AppError::usage("--primitive", message));
            }
            names.retain(|name| is_of_host(name).is_none());
        }
        Ok((chosen("--primitive", &args.primitive, &names)?, streams))
    };
    let bench = || {
        checked().map(|(contestants, streams)| MicroBench {
            streams,
            ..between_two(what, &args.timed, &args.sizes, args.stream.stream, contestants)
        })
    };
    measure(command, &args.timed.figures, bench, &args.primitive)
}

/// `streamhalo bench collectives`
pub(super) fn collectives(args: &CollectivesArgs) -> Result<u8, AppError> {
    let checked = || {
        if let Some(odd) = args.sizes.0.iter().find(|bytes| *bytes % 8 != 0) {
            let message =
                format!("{} cannot be divided into doubles; give multiples of 8", counted(*odd, "byte"));
            return Err(AppError::usage("--sizes", message));
        }
        check_ranks("--ranks", Some(args.ranks.get()))?;
        let operations = chosen("--operation", &args.operation, &OPERATIONS)?;
        let contestants: Vec<&str> = std::iter::once(collectives::HOST).chain(backend_names()).collect();
        let asked = own_names(&args.backend, &args.timed.figures.fabric)?;
        let contestants = chosen("--backend", &asked, &contestants)?;
        check_pairs(args, &operations, &contestants)?;
        Ok((operations, contestants, streams_with(&args.stream, &SignalArgs::default())?))
    };
    let bench = || {
        checked().map(|(operations, contestants, streams)| MicroBench {
            ranks: args.ranks.get(),
            operations,
            streams,
            ..between_two(What::Collectives, &args.timed, &args.sizes, args.stream.stream, contestants)
        })
    };
    measure("streamhalo bench collectives", &args.timed.figures, bench, &[])
}

/// That every operation that was asked for by name is done by somebody, and that every contestant that was asked for by
/// name does something: it would be missing from the table without a word.
fn check_pairs(
    args: &CollectivesArgs,
    operations: &[String],
    contestants: &[String],
) -> Result<(), AppError> {
    let is_named = |asked: &[String]| asked.iter().all(|name| name != "all");
    let by_nobody = |operation: &&String| !contestants.iter().any(|name| can_do(name, operation));
    if let Some(operation) = operations.iter().find(by_nobody).filter(|_| is_named(&args.operation)) {
        let host = collectives::HOST;
        let message = format!(
            "`{operation}` is done by `{host}` only; {} can do {}. Give one of these, or `--backend {host}`",
            contestants.join(", "),
            ON_STREAMS.join(" and ")
        );
        return Err(AppError::usage("--operation", message));
    }
    let does_nothing = |name: &&String| !operations.iter().any(|operation| can_do(name, operation));
    if let Some(name) = contestants.iter().find(does_nothing).filter(|_| is_named(&args.backend)) {
        let message = format!(
            "`{name}` can do {}, and none of {}. Leave it out, or give one of these",
            ON_STREAMS.join(" and "),
            operations.join(", ")
        );
        return Err(AppError::usage("--backend", message));
    }
    Ok(())
}

/// `streamhalo bench throttle`
pub(super) fn throttle(args: &ThrottleArgs) -> Result<u8, AppError> {
    let checked = || {
        if args.stream.device == HOST && args.stream.stream == StreamKind::Inline {
            let message = "`inline` carries each operation out in the call that enqueues it, so that no entries are ever in \
                           use; give `threaded`";
            return Err(AppError::usage("--stream", message));
        }
        // A put and the signal behind it.
        if args.entries.0.contains(&1) {
            return Err(AppError::usage("--entries", "1 entry is too few: an epoch takes 2 at a time"));
        }
        one("--size", &args.size)?;
        let contestants = chosen("--policy", &args.policy, &policy_names())?;
        Ok((contestants, streams_with(&args.stream, &SignalArgs::default())?))
    };
    let bench = || {
        checked().map(|(contestants, streams)| MicroBench {
            entries: args.entries.0.clone(),
            streams,
            ..between_two(What::Throttle, &args.timed, &args.size, args.stream.stream, contestants)
        })
    };
    measure("streamhalo bench throttle", &args.timed.figures, bench, &[])
}

/// The size of a flag that takes no list.
fn one(flag: &'static str, sizes: &Sizes) -> Result<usize, AppError> {
    match sizes.0[..] {
        [size] => Ok(size),
        _ => Err(AppError::usage(flag, "is one size")),
    }
}

/// For one rank, which sends nothing.
fn refuse_fabrics(timed: &TimedArgs, does: &str) -> Result<(), AppError> {
    if timed.figures.fabric == "local" {
        return Ok(());
    }
    Err(AppError::usage("--fabric", format!("nothing is sent: one rank {does}, over `local`")))
}

/// `streamhalo bench copies`
pub(super) fn copies(args: &CopiesArgs) -> Result<u8, AppError> {
    let checked = || {
        let operations = chosen("--operation", &args.operation, &copies::OPERATIONS)?;
        refuse_fabrics(&args.timed, "copies")?;
        let contestants = chosen("--memory", &args.memory, &copies::memory_names())?;
        Ok((operations, contestants, streams_on(&args.device)?))
    };
    let bench = || {
        checked().map(|(operations, contestants, streams)| MicroBench {
            ranks: 1,
            operations,
            streams,
            ..between_two(What::Copies, &args.timed, &args.sizes, StreamKind::Inline, contestants)
        })
    };
    measure("streamhalo bench copies", &args.timed.figures, bench, &[])
}

/// `streamhalo bench staging`
pub(super) fn staging(args: &StagingArgs) -> Result<u8, AppError> {
    let checked = || {
        let StagingArgs { scheme, blocks, memory, threshold, .. } = args;
        let schemes = chosen("--scheme", scheme, &staging::scheme_names())?;
        check_staging(args, &schemes)?;
        let usual = Staging::default();
        let memories = match &memory[..] {
            [] => vec![usual.memory],
            asked => chosen_of("--memory", asked, StagingMemory::ALL, StagingMemory::name)?,
        };
        let threshold_bytes = threshold
            .as_ref()
            .map_or(Ok(usual.threshold_bytes), |threshold| one("--threshold", threshold))?;
        let cut_blocks = if blocks.is_empty() { &[usual.blocks][..] } else { blocks };
        let operations = chosen("--operation", &args.operation, &staging::OPERATIONS)?;
        let mut contestants = Vec::new();
        for scheme in &schemes {
            let Some(scheme) = StagingScheme::from_name(scheme) else {
                contestants.push(staging::USER.to_owned());
                continue;
            };
            let blocks = if scheme == StagingScheme::Naive { &[1][..] } else { cut_blocks };
            for memory in &memories {
                contestants.extend(blocks.iter().map(|blocks| staging::name_of(scheme, *blocks, *memory)));
            }
        }
        Ok((operations, contestants, threshold_bytes, streams_on(&args.device)?))
    };
    let bench = || {
        checked().map(|(operations, contestants, threshold_bytes, streams)| MicroBench {
            operations,
            streams,
            threshold_bytes,
            ..between_two(What::Staging, &args.timed, &args.sizes, StreamKind::Inline, contestants)
        })
    };
    measure("streamhalo bench staging", &args.timed.figures, bench, &[])
}

/// That every flag says something of one of the schemes: it would be ignored.
fn check_staging(args: &StagingArgs, schemes: &[String]) -> Result<(), AppError> {
    let StagingArgs { blocks, memory, threshold, .. } = args;
    let schemes_of = || schemes.iter().filter_map(|name| StagingScheme::from_name(name));
    let (stages, cuts) =
        (schemes_of().count() > 0, schemes_of().any(|scheme| scheme != StagingScheme::Naive));
    for (flag, is_given, has_use, who) in [
        ("--memory", !memory.is_empty(), stages, "schemes"),
        ("--blocks", !blocks.is_empty(), cuts, "schemes that cut messages"),
        ("--threshold", threshold.is_some(), cuts, "schemes that cut messages"),
    ] {
        if is_given && !has_use {
            let message = format!("is for {who}, and `--scheme {}` is none of them", schemes.join(","));
            return Err(AppError::usage(flag, message));
        }
    }
    Ok(())
}

/// `streamhalo bench moves`
pub(super) fn moves(args: &MovesArgs) -> Result<u8, AppError> {
    let checked = || {
        refuse_fabrics(&args.timed, "moves")?;
        if let Some(few) = args.cells.0.iter().find(|cells| **cells < args.width.get()) {
            let message = format!(
                "of {} along an axis {} cannot be packed",
                counted(*few, "cell"),
                counted(args.width.get(), "layer")
            );
            return Err(AppError::usage("--cells", message));
        }
        Ok((chosen("--operation", &args.operation, &moves::OPERATIONS)?, streams_on(&args.device)?))
    };
    let bench = || {
        checked().map(|(operations, streams)| {
            let cell_bytes = args.element.bytes();
            let contestants = moves::CONTESTANTS.map(str::to_owned).to_vec();
            MicroBench {
                ranks: 1,
                operations,
                streams,
                boxes: Some(Boxes { width: args.width.get(), cell_bytes }),
                ..between_two(What::Moves, &args.timed, &args.cells, StreamKind::Inline, contestants)
            }
        })
    };
    measure("streamhalo bench moves", &args.timed.figures, bench, &[])
}

/// A measurement between two ranks, of one thing, without budgets.
fn between_two(
    what: What,
    timed: &TimedArgs,
    sizes: &Sizes,
    stream: StreamKind,
    contestants: Vec<String>,
) -> MicroBench {
    MicroBench {
        what,
        fabric: timed.figures.fabric.clone(),
        ranks: 2,
        sizes: sizes.0.clone(),
        contestants,
        operations: Vec::new(),
        entries: Vec::new(),
        stream,
        streams: Streams::default(),
        boxes: None,
        threshold_bytes: 0,
        seconds: timed.seconds,
    }
}

/// Measures, prints, and writes what is planned once this process is a rank: it is told then if another one has made a mistake.
/// Each of the `primitives` that were asked for by name has to be measured.
fn measure(
    command: &'static str,
    args: &FigureArgs,
    bench: impl FnOnce() -> Result<MicroBench, AppError>,
    primitives: &[String],
) -> Result<u8, AppError> {
    let planned = meet(args).and_then(|()| bench()).map(|bench| {
        let (name, ranks) = (bench.what.row().name, bench.ranks);
        // All others are for as many as they are for.
        let flag = (bench.what == What::Collectives).then_some("--ranks");
        Planned::new(bench, name, (flag, ranks), args)
    });
    let (ranks, planned) = Ranks::gather(command, Some(&args.fabric), planned)?;
    ranks.conclude(carry_out(&ranks, &planned, args.prints_json(), primitives))
}

fn carry_out(
    ranks: &Ranks,
    planned: &Planned<MicroBench>,
    prints_json: bool,
    primitives: &[String],
) -> Result<u8, AppError> {
    let Planned { bench, name, out, .. } = planned;
    let mut figures = Vec::new();
    let mut printed = Ok(());
    ranks.carry_out(bench.ranks, bench.clone(), &ranks.interrupt()?, &mut |report| {
        if prints_json && printed.is_ok() {
            printed = report::print(&lines(&report));
        }
        figures.extend(report);
    })?;
    if !ranks.lead_here() {
        return Ok(0);
    }
    let view = View::new(bench, &figures);
    let complete = check_measured(primitives, &figures);
    let written = out.as_deref().filter(|_| complete.is_ok()).map_or(Ok(()), |dir| {
        let mut files = files_of(name, &figures);
        let [_, _, plot] = names_of(name);
        files.push(OutputFile::new(plot, lines_svg(&view.chart())?));
        report::replace_files(dir, &files)
    });
    // What was measured is shown also where there is no room for its files, and written where nobody can be shown it.
    if !prints_json && !figures.is_empty() {
        printed = report::print(&view.table());
    }
    printed?;
    complete.and(written).map(|()| 0)
}

/// That every primitive that was asked for by name has a figure: it would be missing from the table without a word. Which
/// of them have is known only where the ranks are.
fn check_measured(asked: &[String], figures: &[Figure]) -> Result<(), AppError> {
    let is_missing = |(name, _): &&(&str, &str)| {
        asked.iter().any(|asked| asked == name) && figures.iter().all(|figure| figure.backend != *name)
    };
    OF_SOME.iter().find(is_missing).map_or(Ok(()), |(name, reason)| {
        let message = format!("`{name}` is not measured: {reason}, or leave it out");
        Err(AppError::usage("--primitive", message))
    })
}
