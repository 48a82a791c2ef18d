//! Periods: exchanges and kernels that are captured once and replayed, between steps that are enqueued as ever.

use super::Done;
use crate::{Scenario, stream_of};
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::comm::device::Count;
use streamhalo::{
    Alternating, Entity, Event, GlobalGrid, HaloError, KernelText, Pattern, Period, Rows, RowsMut, Stream,
    StreamHalo, Tile, World,
};

/// Each cell from itself and from three around it, so that a ghost of another epoch spoils all that follows.
static SPREAD: KernelText = KernelText {
    name: "spread",
    source: "KERNEL(spread)(TILE, READS(i64, now), WRITES(i64, next)) {\n    POINT(i, j, k);\n    \
             AT(next, i, j, k) = (AT(now, i, j, k) + 3 * AT(now, i, j - 1, k - 1) + 5 * AT(now, i, j + 1, k) \
             + 7 * AT(now, i, j, k + 1)) % 1000003;\n}\n",
    reach: [0, 1, 1],
};

fn spread(here: i64, corner: i64, below: i64, right: i64) -> i64 {
    (here + 3 * corner + 5 * below + 7 * right) % 1_000_003
}

fn first(row: usize, column: usize) -> i64 {
    (row * 7919 + column * 104_729 + 11) as i64 % 1_000_003
}

/// What the whole grid is after some steps, by one loop over it.
fn expected([rows, columns]: [usize; 2], steps: usize) -> Vec<i64> {
    let mut now: Vec<i64> = (0..rows * columns).map(|cell| first(cell / columns, cell % columns)).collect();
    for _ in 0..steps {
        let at = |row: usize, column: usize| now[row % rows * columns + column % columns];
        let next = |cell: usize| {
            let (row, column) = (cell / columns, cell % columns);
            let corner = at(row + rows - 1, column + columns - 1);
            spread(at(row, column), corner, at(row + 1, column), at(row, column + 1))
        };
        now = (0..rows * columns).map(next).collect();
    }
    now
}

/// Cells that are computed step by step, each of which begins with an exchange.
#[derive(Debug)]
pub struct Stepped {
    /// Of all that is enqueued.
    pub stream: Stream,
    /// The exchange.
    pub halo: StreamHalo,
    /// What is exchanged and computed.
    pub cells: Alternating<i64, 2>,
    grid: [usize; 2],
    tile: Tile,
}

impl Stepped {
    /// A periodic grid of that many columns, cut across its rows, which ranks have unevenly many of.
    pub fn new(
        world: &World,
        stream: &Stream,
        way: Scenario,
        columns: usize,
        pattern: Pattern,
    ) -> Result<Self, HaloError> {
        Self::on(world, stream, way, ([true; 2], columns), pattern)
    }

    /// The same, but nobody is above the first rank, and each gets ghosts from the one above it and from nobody else.
    pub fn one_way(world: &World, stream: &Stream, way: Scenario, columns: usize) -> Result<Self, HaloError> {
        Self::on(world, stream, way, ([false; 2], columns), Pattern::Offsets(vec![vec![-1, 0]]))
    }

    fn on(
        world: &World,
        stream: &Stream,
        way: Scenario,
        (periodic, columns): ([bool; 2], usize),
        pattern: Pattern,
    ) -> Result<Self, HaloError> {
        let size = [2 * world.size() + 1, columns];
        let grid = GlobalGrid::new(size, periodic)?.partition_as(world, [world.size(), 1])?.local(1)?;
        let mut cells = Alternating::zeros(&grid, Entity::Cell, stream)?;
        cells.now_mut().fill(|[row, column], _| first(row, column))?;
        let halo = StreamHalo::new(world, stream, way.backend, pattern, 1, &mut cells)?;
        Ok(Self { stream: stream.clone(), halo, cells, grid: size, tile: grid.owned(Entity::Cell).tile() })
    }

    /// What the rank owns.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// Enqueues a step.
    pub fn step(&mut self) -> Result<(), HaloError> {
        self.halo.enqueue_gather(&mut self.cells)?;
        self.compute()
    }

    /// Enqueues what comes behind the exchange.
    pub fn compute(&mut self) -> Result<(), HaloError> {
        let arguments = self.cells.now_and_next()?;
        let body = |tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)| {
            for (i, j) in tile.rows() {
                let around = tile.start[2] - 1..tile.end[2] + 1;
                let [above, here, below] = [j - 1, j, j + 1].map(|j| now.span(i, j, around.clone()));
                for (k, cell) in next.row(i, j).iter_mut().enumerate() {
                    *cell = spread(here[k + 1], above[k], below[k + 1], here[k + 2]);
                }
            }
        };
        self.stream.launch_either(&SPREAD, self.tile, arguments, body)?;
        self.cells.swap();
        Ok(())
    }

    /// Enqueues some steps.
    pub fn steps(&mut self, steps: usize) -> Result<(), HaloError> {
        (0..steps).try_for_each(|_| self.step())
    }

    /// Captures some steps.
    pub fn capture(&mut self, steps: usize) -> Result<Period, HaloError> {
        let stream = self.stream.clone();
        stream.capture(|_| self.steps(steps))
    }

    /// The owned cells. Blocks.
    pub fn owned(&self) -> Result<Vec<i64>, HaloError> {
        Ok(self.cells.now().with_owned(|owned| owned.iter().copied().collect())?)
    }

    /// Fails unless the owned cells are what the whole grid is there after so many steps. Blocks.
    pub fn assert_after(&self, steps: usize, context: &dyn std::fmt::Debug) -> Result<(), HaloError> {
        let owned = self.cells.now().grid().owned_global(Entity::Cell);
        let columns = self.grid[1];
        let whole = expected(self.grid, steps);
        let part = &whole[owned.start[0] * columns..owned.end[0] * columns];
        assert!(self.owned()? == part, "other cells after {steps} steps of {context:?}");
        Ok(())
    }
}

/// Some steps, captured periods of two lengths, and steps in between, next to the same steps without any capture. Where an
/// exchange cannot be captured, that is said, and it goes on as ever.
pub fn periods(world: &World, way: Scenario, columns: usize, pattern: &Pattern) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut captured = Stepped::new(world, &stream, way, columns, pattern.clone())?;
    let mut plain = Stepped::new(world, &stream, way, columns, pattern.clone())?;
    captured.steps(2)?;
    match captured.capture(2) {
        Ok(period) => {
            assert_ne!(way.backend, "standard");
            captured.steps(2)?;
            let before = stream.synchronizations();
            stream.replay(&period, 3)?;
            captured.steps(4)?;
            stream.replay(&period, 1)?;
            assert_eq!(stream.synchronizations(), before, "{way:?}");
            let longer = captured.capture(4)?;
            stream.replay(&longer, 2)?;
            stream.replay(&period, 2)?;
        }
        Err(HaloError::Communication(Error::NotCapturable { what, reason })) => {
            let by_host = way.backend == "standard" && what.contains("`standard`");
            assert!(by_host || reason.contains("network interface"), "{what}: {reason}");
            captured.steps(26)?;
        }
        Err(error) => return Err(error),
    }
    plain.steps(28)?;
    let cells = captured.owned()?;
    assert!(cells == plain.owned()?, "a captured run differs from one that is not, {way:?}");
    if *pattern == Pattern::All {
        captured.assert_after(28, &way)?;
    }
    let checksum = cells.iter().fold(0, |sum: u64, cell| sum.wrapping_mul(31).wrapping_add(*cell as u64));
    Ok(Done::new(checksum, &captured.halo))
}

/// A hundred exchanges, enqueued one by one or as a period of ten that is replayed: the host sleeps until they are done.
/// Gives the period, if it is one, and how often the device has replayed it by itself.
pub fn without_the_host(
    world: &World,
    way: Scenario,
    is_captured: bool,
) -> Result<(Option<Period>, u64), HaloError> {
    let stream = stream_of(world, way.kind)?;
    let mut stepped = Stepped::new(world, &stream, way, 50, Pattern::All)?;
    let period = if is_captured { Some(stepped.capture(10)?) } else { None };
    world.barrier()?;
    let before = stream.synchronizations();
    match &period {
        Some(period) => stream.replay(period, 10)?,
        None => stepped.steps(100)?,
    }
    let done = Event::new();
    stream.record(&done);
    // Asleep, but for a look.
    while !done.is_complete() && stream.check().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(stream.synchronizations(), before, "{way:?}");
    stepped.assert_after(100, &way)?;
    Ok((period, stream.count(Count::Graphs)))
}
