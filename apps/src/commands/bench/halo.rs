//! `streamhalo bench halo`: time of a halo exchange, by backend.

use crate::bench::halo::{HaloBench, HaloFigures};
use crate::cli::{BenchHaloArgs, Neighbours};
use crate::error::{AppError, counted};
use crate::ranks::Ranks;
use crate::report::{self, ChartLine, LineChart, OutputFile, lines_svg, right};
use crate::run::check_ranks;
use comfy_table::{Cell, ContentArrangement, Table};

use super::files::{files_of, lines, names_of};
use super::{NO_GPU, Planned, backends_of, meet, streams_of};
use crate::report::wrap::{COLUMNS, filled};

const COMMAND: &str = "streamhalo bench halo";
const NAME: &str = "halo";

/// Measures and prints.
pub(super) fn bench_halo(args: &BenchHaloArgs) -> Result<u8, AppError> {
    let figures = &args.figures;
    let planned = meet(figures).and_then(|()| bench_of(args)).map(|bench| {
        let ranks = bench.ranks();
        Planned::new(bench, NAME, (Some("--layout"), ranks), figures)
    });
    let (ranks, planned) = Ranks::gather(COMMAND, Some(&figures.fabric), planned)?;
    ranks.conclude(measure(&ranks, &planned, figures.prints_json()))
}

fn measure(ranks: &Ranks, planned: &Planned<HaloBench>, prints_json: bool) -> Result<u8, AppError> {
    let Planned { bench, out, .. } = planned;
    let mut figures = Vec::new();
    let interrupt = ranks.interrupt()?;
    ranks.carry_out(bench.ranks(), bench.clone(), &interrupt, &mut |report| figures = report)?;
    if !ranks.lead_here() {
        return Ok(0);
    }
    let written = out.as_deref().map_or(Ok(()), |dir| report::replace_files(dir, &files(bench, &figures)?));
    // What was measured is shown also where there is no room for its files.
    report::print(&if prints_json { lines(&figures) } else { table(bench, &figures) })?;
    written.map(|()| 0)
}

fn bench_of(args: &BenchHaloArgs) -> Result<HaloBench, AppError> {
    let numbers =
        |list: &[std::num::NonZeroUsize]| list.iter().map(|number| number.get()).collect::<Vec<_>>();
    let (layout, cells) = (numbers(&args.layout), numbers(&args.cells));
    if layout.len() != cells.len() {
        let (axes, cells) = (counted(layout.len(), "axis"), cells.len());
        let message = format!("has {axes} where --cells has {cells}; give one number per axis to both");
        return Err(AppError::usage("--layout", message));
    }
    let backends = backends_of(&args.backend, &args.figures.fabric)?;
    if cells.len() > 3 {
        return Err(AppError::usage("--cells", format!("has {} axes; there are 1 to 3", cells.len())));
    }
    let width = args.width.get();
    if let Some(few) = cells.iter().find(|cells| **cells < width) {
        let message = format!(
            "{width} layers are more than the {} that a rank has along an axis",
            counted(*few, "cell")
        );
        return Err(AppError::usage("--width", message));
    }
    check_ranks("--layout", args.ranks())?;
    let whole = cells.iter().chain(&layout).try_fold(1_usize, |product, axis| product.checked_mul(*axis));
    if whole.is_none() {
        return Err(AppError::usage("--cells", "of all ranks are more than 64 bits count; give fewer"));
    }
    let with_ghosts = cells.iter().map(|cells| cells.saturating_add(width).saturating_add(width));
    let mut bytes = with_ghosts.chain([args.element.bytes()]);
    let bytes = bytes.try_fold(1_usize, |product, axis| product.checked_mul(axis));
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(AppError::usage(
            "--cells",
            "of a rank take more bytes than a machine can have; give fewer",
        ));
    }
    let streams = streams_of(&args.device, &args.signals)?;
    Ok(HaloBench {
        layout,
        cells,
        element: args.element,
        width,
        faces: args.pattern == Neighbours::Faces,
        alternating: args.alternating,
        backends,
        fabric: args.figures.fabric.clone(),
        streams,
        seconds: args.seconds,
    })
}

fn files(bench: &HaloBench, figures: &[HaloFigures]) -> Result<Vec<OutputFile>, AppError> {
    let mut files = files_of(NAME, figures);
    let [_, _, svg] = names_of(NAME);
    files.push(OutputFile::new(svg, lines_svg(&chart(bench, figures))?));
    Ok(files)
}

/// A point for each contestant, at what rank 0 sends.
fn chart(bench: &HaloBench, figures: &[HaloFigures]) -> LineChart {
    let line = |one: &HaloFigures| ChartLine {
        name: label(bench, one),
        points: vec![(one.bytes as f64, [one.median_us, one.min_us, one.median_us])],
    };
    LineChart {
        title: format!("halo exchange: {:?} cells of {} a rank", bench.cells, bench.element.name()),
        below: format!(
            "width {}, layout {:?}, {}, fabric {}; medians, whiskers to the best{}",
            bench.width,
            bench.layout,
            if bench.faces { "faces" } else { "all neighbours" },
            bench.fabric,
            if is_no_gpu(figures) { "; no GPU, but the host's cores" } else { "" },
        ),
        x: "bytes that rank 0 sends".to_owned(),
        in_bytes: true,
        y: "us".to_owned(),
        lines: figures.iter().map(line).collect(),
        ..LineChart::default()
    }
}

fn label(bench: &HaloBench, one: &HaloFigures) -> String {
    let mut label = bench.streams.label(&one.backend, one.signal.as_deref());
    if let Some(chosen) = &one.chosen_backend {
        label += &format!(" ({chosen})");
    }
    if bench.streams.replay > 0 && one.replayed.is_none() {
        label += " (enqueued)";
    }
    label
}

fn is_no_gpu(figures: &[HaloFigures]) -> bool {
    figures.first().is_some_and(|one| one.is_gpu == Some(false))
}

fn table(bench: &HaloBench, figures: &[HaloFigures]) -> String {
    let mut table = Table::new();
    table
        .load_style(report::RULED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS as u16);
    table.set_header(["backend", "median us", "min us", "bytes", "messages", "path of the first message"]);
    for one in figures {
        table.add_row([
            Cell::new(label(bench, one)),
            right(format!("{:.2}", one.median_us)),
            right(format!("{:.2}", one.min_us)),
            right(one.bytes),
            right(one.messages),
            Cell::new(&one.path),
        ]);
    }
    let first = figures.first();
    let device = first.and_then(|one| one.device.as_ref()).map(|device| format!(", on {device}"));
    let head = format!(
        "halo exchange: {:?} cells of {} a rank, width {}, layout {:?}, {}, fabric {}{}{}{}",
        bench.cells,
        bench.element.name(),
        bench.width,
        bench.layout,
        if bench.faces { "faces" } else { "all neighbours" },
        bench.fabric,
        if bench.alternating { ", two generations" } else { "" },
        device.unwrap_or_default(),
        bench.streams.waits_name().map_or(String::new(), |waits| format!(", waits {waits}")),
    );
    let end = "Times are per exchange, the slowest rank's; bytes and messages are what rank 0 sends.";
    let no_gpu = if is_no_gpu(figures) { NO_GPU } else { "" };
    format!("{}\n{table}\n\n{}{}", filled(&head), filled(end), filled(no_gpu))
}
