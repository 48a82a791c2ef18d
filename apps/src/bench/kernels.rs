//! The kernels of `life` and `stencil3d`, without exchanges, on one core or on several at once: what each takes, and
//! what it must take at least on this machine.
//!
//! At least, that is the longest of: moving every cell in once and out once, measured as the fastest of four copies;
//! its loads and stores, in the first-level cache; and what computes, on registers. They are measured in turns with
//! the kernel. Each begins its turn with two rounds that do not count, and generations change places after each round, so
//! that it finds in the caches what its own last rounds left there, as in a run.

use std::hint::black_box;
use std::mem::swap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use streamhalo::comm::device::{StoreWay, past_caches};
use streamhalo::prelude::{Alternating, Entity, GlobalGrid};
use streamhalo::{Device, HaloError, Stream, Tile, World, WorldOptions};

use super::answers::{Answers, given};
use super::units::{choose, compute, copy_row, copy_row_past, lanes, load_and_store};
use crate::app::values::Real;
use crate::app::{LINE_BYTES, Stored, Vectors};
use crate::error::AppError;
use crate::life::kernel::{Cell, Sweep};
use crate::life::pace::{launch_life, launch_sweep};
use crate::life::wave::rule_in_registers;
use crate::stencil3d::device::Factors;
use crate::stencil3d::driver::launch;
use crate::stencil3d::kernel::{Rule, Shape};

/// How long the turns of each measurement last at least: meanwhile a virtual core moves from one of the machine's cores
/// to another.
const SPREAD: Duration = Duration::from_secs(2);

/// Generations of a sweep of `life`: as many as `configs/life/wide-halo.toml` has from one exchange to the next.
const GENERATIONS: usize = 8;

/// Cells that a contestant computes in one turn, so that a turn is short and there are many.
const CELLS_OF_A_TURN: usize = 1 << 16;

/// Vectors that go through loads, stores or computing instructions in one turn, about.
const VECTORS_OF_A_TURN: usize = 1 << 14;

/// What cells need.
#[derive(Clone, Copy)]
struct Needs {
    /// What a vector of them loads and stores, as words and as a loop of so many rounds that says how many vectors they
    /// were.
    moving: &'static str,
    moves: fn(usize) -> usize,
    /// What computes, likewise, and how many cells one of what is counted has.
    computing: &'static str,
    compute: fn(usize) -> usize,
    computed_cells: usize,
    /// How many steps there are for each time that cells are moved.
    steps: usize,
}

impl Needs {
    /// Of `life`: a vector of cells becomes bits, and comes of them. What computes is of bytes the rule on bits, and of doubles,
    /// which are fewer in a vector, to choose the cells.
    fn of_life<T: Cell>() -> Self {
        let is_bytes = size_of::<T>() == 1;
        Self {
            moving: "1 load, 1 store",
            moves: load_and_store::<T, 1, 1>,
            computing: if is_bytes { "the rule on bits" } else { "1 choice" },
            compute: if is_bytes { rule_in_registers } else { choose::<T> },
            computed_cells: if is_bytes { 1 } else { lanes::<T>() },
            steps: 1,
        }
    }

    /// Of several generations in one sweep: each on bits, which cells become once and come of once.
    fn of_sweep<T: Cell>(generations: usize) -> Self {
        Self {
            moving: "1 load, 1 store",
            moves: load_and_store::<T, 1, 1>,
            computing: "the rule on bits",
            compute: rule_in_registers,
            computed_cells: 1,
            steps: generations,
        }
    }

    /// Of rows, of which four side by side load least: those four, three times or once and cut twice, the two beside them,
    /// four on either side along z, and the source, divided by four.
    fn of_7_points<T: Real>() -> Self {
        let is_cut = lanes::<T>() * size_of::<T>() == LINE_BYTES;
        Self {
            moving: if is_cut { "3.75 loads, 1 store" } else { "5.75 loads, 1 store" },
            moves: if is_cut { load_and_store::<T, 15, 4> } else { load_and_store::<T, 23, 4> },
            computing: if is_cut {
                "3 sums, 1 product, 4 fused, 2 cuts"
            } else {
                "3 sums, 1 product, 4 fused"
            },
            compute: if is_cut { compute::<T, 3, 1, 4, 2> } else { compute::<T, 3, 1, 4, 0> },
            computed_cells: lanes::<T>(),
            steps: 1,
        }
    }

    /// Likewise, of which three load five rows in each of three planes, and the source; and sums along z can be shared.
    fn of_27_points<T: Real>() -> Self {
        Self {
            moving: "5.33 loads, 1 store",
            moves: load_and_store::<T, 16, 3>,
            computing: "5 sums, 2 products, 7 fused, 2 cuts",
            // In two loops, which have registers enough.
            compute: |rounds| {
                compute::<T, 3, 1, 4, 1>(rounds);
                compute::<T, 2, 1, 3, 1>(rounds)
            },
            computed_cells: lanes::<T>(),
            steps: 1,
        }
    }
}

/// How a field is copied row by row. No way is the fastest everywhere, and a limit is what the fastest takes.
#[derive(Clone, Copy)]
enum Way {
    /// As the C library copies a row.
    Library,
    /// In vectors, with lines asked for some rows ahead, as kernels do.
    Vectors,
    /// The same, stored past the caches, as kernels do with fields that none holds.
    Past,
}

/// Elements by which the second half of a copy in one piece is off the first one, so that their addresses do not end in
/// the same bits.
const SKEW: usize = 33 * 64;

/// How fast a kernel is, in nanoseconds for a cell and step.
#[derive(Clone, Debug)]
pub struct Speed {
    /// Which kernel.
    pub name: String,
    /// Cells per axis, slowest first.
    pub cells: Vec<usize>,
    /// Bytes of both generations.
    pub bytes: usize,
    /// What it takes.
    pub kernel_ns: f64,
    /// What it must take at least: each bound with its name.
    pub bounds_ns: Vec<(String, f64)>,
}

impl Speed {
    /// The highest bound, and its name.
    pub fn limit(&self) -> (&str, f64) {
        let highest = self.bounds_ns.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        highest.map_or(("nothing", 0.0), |(name, ns)| (name, *ns))
    }
}

/// Measures each kernel whose name contains `part` on so many cores at once, each with fields of its own, some that fit
/// into the caches and one that does not; `report` hears of each at once. The least of `rounds` turns counts, of which
/// each is the slowest core's, and of as many more as two seconds hold. Blocks.
///
/// # Errors
///
/// That there is not enough memory, or a kernel whose answer is wrong.
pub fn measure_kernels(
    part: &str,
    cores: NonZeroUsize,
    rounds: usize,
    report: impl Fn(&Speed) + Sync,
) -> Result<(), AppError> {
    let measured = World::threads(cores.get(), WorldOptions::default(), |world| -> Result<(), AppError> {
        let stream = Device::host().stream(&world)?;
        let go =
            Measurement { world: &world, stream: &stream, part, rounds, spread: SPREAD, report: &report };
        for generations in [1, GENERATIONS] {
            for extents in [[12, 1024], [512, 400], [512, 512], [2048, 2048], [8192, 8192], [8200, 8200]] {
                go.life::<u8>("life, u8", extents, generations)?;
            }
            for extents in [[12, 128], [128, 128], [512, 512], [1024, 1024], [4096, 4096], [4100, 4100]] {
                go.life::<f64>("life, f64", extents, generations)?;
            }
        }
        for is_full in [false, true] {
            let points = if is_full { 27 } else { 7 };
            for extents in [[8; 3], [16; 3], [32; 3], [64; 3], [112; 3], [256; 3], [250; 3]] {
                go.stencil::<f32>(&format!("stencil3d, {points} points, f32"), extents, is_full)?;
                go.stencil::<f64>(&format!("stencil3d, {points} points, f64"), extents, is_full)?;
            }
        }
        Ok(())
    });
    measured?.into_iter().collect()
}

/// What all measurements share.
struct Measurement<'a> {
    world: &'a World,
    stream: &'a Stream,
    part: &'a str,
    rounds: usize,
    spread: Duration,
    report: &'a (dyn Fn(&Speed) + Sync),
}

impl Measurement<'_> {
    fn life<T: Cell + Stored>(
        &self,
        name: &str,
        extents: [usize; 2],
        generations: usize,
    ) -> Result<(), AppError> {
        // Of nine cells three live everywhere, so that all live next, and none after that.
        let first = |x| T::from(u8::from(x % 3 == 0));
        if generations == 1 {
            return self.measure::<T, 2>(name, extents, Needs::of_life::<T>(), (first, 1.0), launch_life);
        }
        let sweep = Sweep { generations, changes: [[generations; 2]; 2] };
        self.measure::<T, 2>(
            &format!("{name}, {generations} generations"),
            extents,
            Needs::of_sweep::<T>(generations),
            (first, 0.0),
            |stream, store_way, tile, cells| launch_sweep(stream, sweep, store_way, tile, cells),
        )
    }

    fn stencil<T: Real>(&self, name: &str, extents: [usize; 3], is_full: bool) -> Result<(), AppError> {
        let weights = match is_full {
            true => [1.0 / 27.0; 8],
            false => [0.4, 0.1, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0],
        };
        let rule = Rule { is_full, weights: weights.map(T::from_f64), source: T::default() };
        let shape = Shape(extents.map(|cells| vec![T::default(); cells + 2]));
        let factors = Factors::new(self.world, self.stream, shape)?;
        let needs = if is_full { Needs::of_27_points::<T>() } else { Needs::of_7_points::<T>() };
        self.measure::<T, 3>(
            name,
            extents,
            needs,
            (|_| T::from(1_u8), 1.0),
            |stream, store_way, tile, cells| launch(stream, rule, &factors, store_way, tile, cells),
        )
    }

    /// A kernel that makes of what stands in each row at first one number in all cells.
    fn measure<T: Vectors + Stored + From<u8>, const D: usize>(
        &self,
        name: &str,
        extents: [usize; D],
        needs: Needs,
        (first, last): (impl Fn(usize) -> T, f64),
        sweep: impl Fn(&Stream, &StoreWay, Tile, &mut Alternating<T, D>) -> Result<(), HaloError>,
    ) -> Result<(), AppError> {
        if !name.contains(self.part) {
            return Ok(());
        }
        let (world, stream) = (self.world, self.stream);
        // Each rank has all extents for itself.
        let [mut global, mut layout] = [extents, [1; D]];
        global[0] *= world.size();
        layout[0] = world.size();
        let grid = GlobalGrid::new(global, [true; D])?.partition_as(world, layout)?.local(needs.steps)?;
        let mut field = Alternating::zeros(&grid, Entity::Cell, stream)?;
        for _generation in 0..2 {
            field.now_mut().fill_with_ghosts(|index, _| given(first(index[D - 1])))?;
            field.swap();
        }
        let tile = grid.owned(Entity::Cell).tile();
        let store_way = StoreWay::new::<T>(tile);
        sweep(stream, &store_way, tile, &mut field)?;
        field.swap();
        let answers = Answers { world, bench: "kernels", contestant: name };
        // Sums of rounded weights are about one.
        let rounded = |cell: f64| if (cell - 1.0).abs() <= 1e-5 { 1.0 } else { cell };
        field.now().with_owned(|owned| {
            answers.compare(owned.indexed_iter().map(|(index, cell)| (index, rounded(cell.to_f64()), last)))
        })??;
        field.swap();

        let cells = tile.points();
        let times = CELLS_OF_A_TURN.div_ceil(cells);
        // A round goes through several vectors of a row.
        let rounds = VECTORS_OF_A_TURN / 8;
        let mut pieces = vec![T::from(1); 2 * cells + SKEW];
        let (mut from, others) = pieces.split_at_mut(cells);
        let mut to = &mut others[SKEW..];
        let [mut kernel_ns, mut copy_ns, mut move_ns, mut compute_ns] = [f64::INFINITY; 4];
        let (begun, mut round) = (Instant::now(), 0);
        // Rank 0 decides for all.
        while world.all_gather(&(round < self.rounds || begun.elapsed() < self.spread))?[0] {
            round += 1;
            least(world, &mut kernel_ns, || {
                for _ in 0..times {
                    sweep(stream, &store_way, tile, &mut field)?;
                    field.swap();
                }
                Ok(times * cells)
            })?;
            for way in [Way::Library, Way::Vectors, Way::Past] {
                least(world, &mut copy_ns, || {
                    for _ in 0..times {
                        copy(stream, tile, &mut field, way)?;
                        field.swap();
                    }
                    Ok(times * cells)
                })?;
            }
            // In one piece, which the C library copies around the caches if it is large.
            least(world, &mut copy_ns, || {
                for _ in 0..times {
                    black_box(&mut *to).copy_from_slice(black_box(&*from));
                    swap(&mut from, &mut to);
                }
                Ok(times * cells)
            })?;
            least(world, &mut move_ns, || Ok((needs.moves)(rounds)))?;
            least(world, &mut compute_ns, || Ok((needs.compute)(VECTORS_OF_A_TURN / 8)))?;
        }
        stream.synchronize()?;
        if world.rank() > 0 {
            return Ok(());
        }

        let steps = needs.steps as f64;
        let bounds_ns = vec![
            ("a copy".to_owned(), copy_ns / steps),
            (needs.moving.to_owned(), move_ns / lanes::<T>() as f64 / steps),
            (needs.computing.to_owned(), compute_ns / needs.computed_cells as f64),
        ];
        (self.report)(&Speed {
            name: name.to_owned(),
            cells: extents.to_vec(),
            bytes: 2 * cells * size_of::<T>(),
            kernel_ns: kernel_ns / steps,
            bounds_ns,
        });
        Ok(())
    }
}

/// Takes the time of something that says how often it has been done, the third time that it is called, as each of two
/// generations has been written by then; keeps the least time for one, of the slowest rank's. All begin at once, but for
/// what a barrier lets them come apart: a turn of some microseconds may be counted of ranks that hardly met.
fn least(
    world: &World,
    least_ns: &mut f64,
    mut turn: impl FnMut() -> Result<usize, HaloError>,
) -> Result<(), AppError> {
    turn()?;
    turn()?;
    world.barrier()?;
    let started = Instant::now();
    let times = turn()?;
    let ns = started.elapsed().as_secs_f64() * 1e9 / times as f64;
    *least_ns = least_ns.min(world.all_max(ns)?);
    Ok(())
}

fn copy<T: Vectors, const D: usize>(
    stream: &Stream,
    tile: Tile,
    field: &mut Alternating<T, D>,
    way: Way,
) -> Result<(), HaloError> {
    stream.launch("copy", tile, field.now_and_next()?, move |tile, (now, mut next)| {
        past_caches(|stores| {
            for (row, (i, j)) in next.rows().zip(tile.rows()) {
                let from = now.span(i, j, tile.start[2]..tile.end[2]);
                match way {
                    Way::Library => row.copy_from_slice(from),
                    Way::Vectors => copy_row(from, row),
                    Way::Past => copy_row_past(stores, from, row),
                }
            }
        });
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::bench::answers::spoil;
    use crate::ranks::on_threads;

    /// Measures one kernel on few cells, after so many cells a wrong one, and gives for how long.
    fn measured(before: Option<usize>, spread: Duration) -> Result<Duration, AppError> {
        let took = on_threads(1, WorldOptions::default(), |world| {
            let (stream, begun) = (Device::host().stream(world)?, Instant::now());
            if let Some(before) = before {
                spoil(before);
            }
            let report = |_: &Speed| ();
            let go = Measurement { world, stream: &stream, part: "", rounds: 1, spread, report: &report };
            go.life::<u8>("life, u8", [4, 64], 1)?;
            Ok(begun.elapsed())
        });
        took.map(|took| took[0])
    }

    #[test]
    fn a_wrong_cell_is_found_before_anything_is_timed() {
        let said = measured(Some(3), Duration::ZERO).expect_err("a cell is wrong").to_string();
        assert!(
            said.starts_with("rank 0 failed: bench kernels: a wrong answer of `life, u8`: 0.0 is at"),
            "{said}"
        );
    }

    #[test]
    fn sweeps_are_measured_on_several_cores_and_told_once() {
        let (spread, told) = (Duration::ZERO, AtomicUsize::new(0));
        on_threads(2, WorldOptions::default(), |world| {
            let stream = Device::host().stream(world)?;
            let report = |speed: &Speed| {
                told.fetch_add(1, Ordering::Relaxed);
                assert_eq!(
                    (speed.name.as_str(), &speed.cells[..]),
                    ("life, u8, 8 generations", &[16, 64][..])
                );
                let (_, limit_ns) = speed.limit();
                assert!(0.0 < limit_ns && limit_ns < speed.kernel_ns, "{speed:?}");
            };
            let go = Measurement {
                world,
                stream: &stream,
                part: "generations",
                // Of each the least counts: a turn that another program interrupts is one of several.
                rounds: 20,
                spread,
                report: &report,
            };
            go.life::<u8>("life, u8", [16, 64], GENERATIONS)
        })
        .expect("cells are right");
        assert_eq!(told.into_inner(), 1);
    }

    #[test]
    fn turns_go_on_until_they_are_spread_over_time() {
        // One round of these takes a fraction of it.
        let spread = Duration::from_secs(1);
        assert!(measured(None, spread).expect("cells are right") >= spread);
    }
}
