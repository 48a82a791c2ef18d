//! `streamhalo bench halo`: time of a halo exchange, by backend.

use crate::bench::halo::{HaloBench, HaloFigures};
use crate::bench::measure;
use crate::cli::{BenchHaloArgs, Element, Neighbours};
use crate::config::nearest;
use crate::error::AppError;
use crate::report;
use comfy_table::{Cell, CellAlignment, Table};
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::fabric::FABRICS;

/// Measures and prints.
pub(super) fn bench_halo(args: &BenchHaloArgs) -> Result<u8, AppError> {
    args.check()?;
    let bench = bench_of(args)?;
    if let Some(dir) = &args.out {
        report::check_writable(dir)?;
    }
    let figures = measure(&args.fabric, bench.ranks(), bench.clone())?;
    let lines: Vec<String> =
        figures.iter().map(|one| serde_json::to_string(one).expect("figures are plain data")).collect();
    if let Some(dir) = &args.out {
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        report::replace_files(dir, &[report::OutputFile::new("bench-halo.json", text.into_bytes())])?;
    }
    if args.prints_json() {
        report::print(&(lines.join("\n") + "\n"))?;
    } else {
        report::print(&table(&bench, &figures))?;
    }
    Ok(0)
}

fn bench_of(args: &BenchHaloArgs) -> Result<HaloBench, AppError> {
    let numbers =
        |list: &[std::num::NonZeroUsize]| list.iter().map(|number| number.get()).collect::<Vec<_>>();
    let (layout, cells) = (numbers(&args.layout), numbers(&args.cells));
    let usage = |flag: &str, message: String| AppError::Usage { flag: flag.to_owned(), message };
    if cells.len() > 3 {
        return Err(usage("--cells", format!("has {} axes; there are 1 to 3", cells.len())));
    }
    if args.ranks().is_none_or(|ranks| ranks > 4096) {
        return Err(usage("--layout", "asks for more than 4096 ranks".to_owned()));
    }
    let known: Vec<&str> = backend_names().collect();
    let unknown = |name: &str, known: &[&str]| {
        let near = nearest(name, known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        format!("`{name}` is not one of {}{near}", known.join(", "))
    };
    if let Some(name) =
        args.backend.iter().find(|name| !args.all_backends() && !known.contains(&name.as_str()))
    {
        return Err(usage("--backend", unknown(name, &known)));
    }
    let fabrics: Vec<&str> = FABRICS.iter().map(|row| row.name).collect();
    if !fabrics.contains(&args.fabric.as_str()) {
        return Err(usage("--fabric", unknown(&args.fabric, &fabrics)));
    }
    let element = match args.element {
        Element::U8 => "u8",
        Element::I32 => "i32",
        Element::I64 => "i64",
        Element::F32 => "f32",
        Element::F64 => "f64",
    };
    Ok(HaloBench {
        layout,
        cells,
        element: element.to_owned(),
        width: args.width.get(),
        faces: args.pattern == Neighbours::Faces,
        alternating: args.alternating,
        backends: if args.all_backends() {
            known.iter().map(ToString::to_string).collect()
        } else {
            args.backend.clone()
        },
        fabric: args.fabric.clone(),
        seconds: args.seconds,
    })
}

fn table(bench: &HaloBench, figures: &[HaloFigures]) -> String {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut table = Table::new();
    table.load_style(report::RULED);
    table.set_header(["backend", "median us", "min us", "bytes", "messages", "path of the first message"]);
    for one in figures {
        table.add_row([
            Cell::new(&one.backend),
            right(format!("{:.2}", one.median_us)),
            right(format!("{:.2}", one.min_us)),
            right(one.bytes.to_string()),
            right(one.messages.to_string()),
            Cell::new(&one.path),
        ]);
    }
    format!(
        "halo exchange: {:?} cells of {} a rank, width {}, layout {:?}, fabric {}{}\n\n{table}\n\n\
         Times are per exchange, the slowest rank's; bytes and messages are what rank 0 sends.\n",
        bench.cells,
        bench.element,
        bench.width,
        bench.layout,
        bench.fabric,
        if bench.alternating { ", two generations" } else { "" },
    )
}
