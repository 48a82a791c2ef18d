//! What ranks that are processes do with their devices: told in words, and reported in lines.

use crate::cases::{ALTERNATING, CELLS};
use crate::ranks::{MEMORY, set_device};
use crate::{
    Cell, FieldSet, FieldSpec, on_ranks, set_peers, set_signals, set_waits, set_wires, stream_of,
    try_backend_cells, ways_of,
};
use std::collections::BTreeMap;
use streamhalo::ElementType::U8;
use streamhalo::comm::Staging;
use streamhalo::comm::backend::backend_names;
use streamhalo::comm::device::Count;
use streamhalo::{
    Device, Entity, GlobalGrid, HaloError, MemoryMode, Pattern, Peers, Signals, StreamHalo, StreamKind,
    Waits, Wires, World,
};

/// Does with the streams of a device that this rank makes from now on what the words say: the names of memory modes,
/// `waits-kernel`, `waits-proxy`, `merged`, `memop`, `wires-direct`, `wires-staged`, `staged` or, for every second rank,
/// `odd-staged`; and the device is one of OpenCL unless a word is `cuda` or `hip`.
///
/// # Errors
/// A word that says nothing.
pub fn set_ways(words: &[&str], rank: usize) -> Result<(), String> {
    for word in words {
        match *word {
            "cuda" => set_device(Device::cuda),
            "hip" => set_device(Device::hip),
            "waits-kernel" => set_waits(Waits::Kernel),
            "waits-proxy" => set_waits(Waits::Proxy),
            "merged" => set_signals(Signals::Merged),
            "memop" => set_signals(Signals::Memop),
            "wires-direct" => set_wires(Wires::Direct),
            "wires-staged" => set_wires(Wires::Staged),
            "staged" => set_peers(Peers::Staged),
            "odd-staged" if rank % 2 == 1 => set_peers(Peers::Staged),
            "odd-staged" => {}
            other => {
                MEMORY.set(MemoryMode::from_name(other).ok_or_else(|| format!("`{other}` says nothing"))?)
            }
        }
    }
    Ok(())
}

/// At least how long a message of a world is that stages in blocks, and how often it is exchanged.
pub const LONG_BYTES: usize = 512 << 10;
/// See [`LONG_BYTES`].
pub const LONG_EPOCHS: u32 = 2;
const LONG_ROW: usize = 8192;

/// Gathers with every backend around a ring of ranks, of small and of large messages, and reports how they went, by
/// lines: `rank R BACKEND waits W merged M overlaps O staged S`, how many waits and sends were kernels' alone, how many
/// messages left while later ones were copied, and how many moves went between the device's memory and the host's; and
/// for each message
/// `route R>PEER BACKEND BYTES PATH: REASON`. Collective.
///
/// # Errors
/// Those of exchanges.
///
/// # Panics
/// On a rank that gets a wrong value, or has waited for a stream that it need not wait for.
pub fn try_routes(world: &World, mut report: impl FnMut(String)) -> Result<(), HaloError> {
    let (rank, size) = (world.rank(), world.size());
    for way in ways_of(StreamKind::Device) {
        let stream = stream_of(world, way.kind)?;
        // Single passes into ghosts, messages that are packed, and some that fit the lines of their words.
        let mut cases = vec![
            (600, vec![ALTERNATING], 10),
            (4, vec![CELLS], 10),
            (90, vec![CELLS, FieldSpec::array(U8, Entity::Cell, 3)], 10),
        ];
        if world.staging() != Staging::default() {
            // Copies of its blocks take longer than enqueueing them.
            cases.push((
                LONG_ROW,
                vec![FieldSpec::array(U8, Entity::Cell, LONG_BYTES / LONG_ROW)],
                LONG_EPOCHS,
            ));
        }
        for (row, specs, epochs) in cases {
            let grid =
                GlobalGrid::new([4 * size, row], [true; 2])?.partition_as(world, [size, 1])?.local(1)?;
            let mut fields = FieldSet::new(&grid, &stream, &specs, &Pattern::All, [1, 1])?;
            let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut fields)?;
            let epochs = if way.backend == "standard" { epochs.min(4) } else { epochs };
            for epoch in 1..=epochs {
                fields.fill(epoch)?;
                let before = stream.synchronizations();
                halo.enqueue_gather(&mut fields)?;
                let waited = stream.synchronizations() - before;
                assert_eq!(waited, u64::from(way.backend == "standard"), "{way:?}");
                fields.check(epoch)?;
                fields.swap();
            }
            fields.assert_right(&way)?;
            for route in halo.routes() {
                let (peer, bytes, path) = (route.peer, route.bytes, route.path);
                report(format!("route {rank}>{peer} {} {bytes} {path}: {}", way.backend, route.reason));
            }
        }
        let (waits, merged) = (stream.count(Count::KernelWaits), stream.count(Count::MergedSends));
        let (overlaps, staged) = (stream.count(Count::StagedOverlaps), stream.count(Count::StagedMoves));
        let backend = way.backend;
        report(format!(
            "rank {rank} {backend} waits {waits} merged {merged} overlaps {overlaps} staged {staged}"
        ));
    }
    Ok(())
}

/// The cells of the backends between that many threads of the host, by backend.
pub fn cells_on_host(ranks: usize) -> BTreeMap<String, Cell> {
    let mut of_ranks = on_ranks(ranks, |world| {
        let mut cells = Vec::new();
        try_backend_cells(world, StreamKind::Inline, |cell| cells.push(cell))?;
        Ok(cells)
    });
    of_ranks.swap_remove(0).into_iter().map(|cell| (cell.backend.clone(), cell)).collect()
}

/// Checks what a job of `conformance_rank shm device` with these words has said: every backend, with the answers of the
/// host, carried out by one of `by`, or the host.
///
/// # Panics
/// If it is otherwise.
pub fn check_cells(said: &str, words: &str, on_host: &BTreeMap<String, Cell>, by: &[&str]) {
    let cells: Vec<Cell> = said.lines().filter_map(|line| line.parse().ok()).collect();
    let names: Vec<&str> = cells.iter().map(|cell| cell.backend.as_str()).collect();
    assert_eq!(names, backend_names().collect::<Vec<_>>(), "{words}: {said}");
    for cell in &cells {
        assert_eq!((cell.stream.as_str(), cell.fabric.as_str()), ("device", "shm"));
        assert_eq!(cell.outcome, on_host[&cell.backend].outcome, "{cell}, {words}");
        let mut executors = cell.executor.split('+');
        let allowed = if cell.backend == "standard" { &["host"] } else { by };
        assert!(executors.all(|one| one == "none" || allowed.contains(&one)), "{cell}, {words}");
    }
}
