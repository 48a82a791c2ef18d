//! Halo exchanges over sizes, ranks, fabrics and backends.
//!
//! Every sample sets the exchange up on its ranks, checks it, and times as many exchanges as
//! criterion asks for. Compare backends within a group; between groups and runs the machine moves.

use criterion::{BenchmarkId, Criterion, Throughput};
use std::process::exit;
use std::time::Duration;
use streamhalo::comm::ElementType;
use streamhalo::comm::backend::backend_names;
use streamhalo_apps::bench::halo::{HaloBench, TimedExchanges};
use streamhalo_apps::bench::measure;
use streamhalo_apps::bench::streams::Streams;
use streamhalo_apps::ranks::rank_main;

fn main() {
    // Ranks of the fabric `shm` are processes of this program.
    if std::env::args().nth(1).as_deref() == Some("worker") {
        exit(rank_main::<TimedExchanges>().map_or(1, i32::from));
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .configure_from_args();
    for fabric in ["local", "shm"] {
        for edge in [8, 16, 32, 64, 128] {
            sweep(&mut criterion, fabric, &[2, 1, 1], &[edge; 3], ElementType::F64);
        }
        for edge in [1024, 4096] {
            sweep(&mut criterion, fabric, &[2, 1], &[edge; 2], ElementType::U8);
        }
        // More ranks than the cores of a small machine.
        for edge in [8, 32, 64] {
            sweep(&mut criterion, fabric, &[2, 2, 1], &[edge; 3], ElementType::F64);
        }
    }
    criterion.final_summary();
}

fn sweep(criterion: &mut Criterion, fabric: &str, layout: &[usize], cells: &[usize], element: ElementType) {
    let ranks: usize = layout.iter().product();
    let mut group = criterion.benchmark_group(format!(
        "halo/{fabric}/{ranks} ranks/{}-D {}",
        cells.len(),
        element.name()
    ));
    for backend in backend_names() {
        for alternating in [false, true] {
            let bench = HaloBench {
                streams: Streams::default(),
                layout: layout.to_vec(),
                cells: cells.to_vec(),
                element,
                width: 1,
                faces: false,
                alternating,
                backends: vec![backend.to_owned()],
                fabric: fabric.to_owned(),
                seconds: 0.0,
            };
            let name = if alternating { format!("{backend}, two generations") } else { backend.to_owned() };
            group.throughput(Throughput::Elements(1));
            group.bench_function(BenchmarkId::new(name, cells[0]), |bencher| {
                bencher.iter_custom(|exchanges| {
                    let timed = TimedExchanges { bench: bench.clone(), exchanges };
                    measure(fabric, ranks, timed).unwrap_or_else(|error| panic!("{error}"))
                });
            });
        }
    }
    group.finish();
}
