//! Who may use ghosts, and when: peers that write them ahead, several exchanges of one field, periods, and arrays that are
//! exchanged for others. Nothing is read that peers may write at the time, and whoever asks for it is told.

mod ahead;
mod in_flight;
mod periods;

use std::fmt;
use std::thread::sleep;
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::grid::{Field, Fields, GridError};
use streamhalo::{
    Alternating, Array, Entity, GlobalGrid, HaloError, LocalGrid, Op, Pattern, Period, Rows, RowsMut, Stream,
    StreamHalo, StreamHaloBuilder, StreamKind, Tile, World,
};
use streamhalo_tests::{Scenario, each_way, on_ranks, stream_of, ways_of};

/// Long enough for messages that go straight into ghosts.
const COLUMNS: usize = 60;
/// How long a kernel takes that peers are to overtake.
const SLOW: Duration = Duration::from_millis(30);

/// A rank with two rows of a grid that is periodic, unless told otherwise.
struct Rank<'w> {
    world: &'w World,
    way: Scenario,
    stream: Stream,
    grid: LocalGrid<2>,
}

impl<'w> Rank<'w> {
    fn new(world: &'w World, way: Scenario) -> Result<Self, HaloError> {
        Self::with_rows(world, way, 2)
    }

    fn with_rows(world: &'w World, way: Scenario, rows: usize) -> Result<Self, HaloError> {
        let grid = GlobalGrid::new([rows * world.size(), COLUMNS], [true; 2])?;
        let grid = grid.partition_as(world, [world.size(), 1])?.local(1)?;
        Ok(Self { world, way, stream: stream_of(world, way.kind)?, grid })
    }

    fn field(&self) -> Result<Alternating<f64, 2>, HaloError> {
        Ok(Alternating::zeros(&self.grid, Entity::Cell, &self.stream)?)
    }

    fn array(&self) -> Result<Array<f64, 2>, HaloError> {
        Ok(Array::zeros(&self.grid, Entity::Cell, &self.stream)?)
    }

    fn builder(&self) -> StreamHaloBuilder<'_> {
        StreamHalo::builder(self.world, &self.stream).backend(self.way.backend)
    }

    fn halo(&self, fields: &mut impl Fields<2>) -> Result<StreamHalo, HaloError> {
        self.builder().build(1, fields)
    }

    fn owned(&self) -> Tile {
        self.grid.owned(Entity::Cell).tile()
    }

    /// With the ghosts.
    fn whole(&self) -> Tile {
        let [height, width] = self.grid.extents(Entity::Cell);
        Tile { start: [0; 3], end: [1, height, width] }
    }

    /// What its cells hold in most of the tests.
    fn number(&self) -> f64 {
        self.world.rank() as f64
    }

    /// The numbers of the ranks above and below.
    fn neighbours(&self) -> [f64; 2] {
        let (rank, size) = (self.world.rank(), self.world.size());
        [(rank + size - 1) % size, (rank + 1) % size].map(|rank| rank as f64)
    }

    /// Fails unless the ghosts above and below hold the numbers of the ranks there. Blocks.
    fn assert_filled(&self, cells: &Array<f64, 2>) -> Result<(), HaloError> {
        assert_eq!(above_and_below(cells)?, self.neighbours(), "{self:?}");
        Ok(())
    }

    /// Enqueues filling a tile, in a while if that is asked for.
    fn fill(
        &self,
        cells: &mut Array<f64, 2>,
        tile: Tile,
        value: f64,
        is_slow: bool,
    ) -> Result<(), HaloError> {
        let body = move |tile: Tile, (mut out,): (RowsMut<'_, f64>,)| {
            sleep(if is_slow { SLOW } else { Duration::ZERO });
            tile.rows().for_each(|(i, j)| out.row(i, j).fill(value));
        };
        Ok(self.stream.launch("fill", tile, (cells.writer()?,), body)?)
    }

    /// Enqueues copying all, ghosts included, in a while if that is asked for.
    fn copy(&self, from: &Array<f64, 2>, to: &mut Array<f64, 2>, is_slow: bool) -> Result<(), HaloError> {
        let body = move |tile: Tile, (from, mut to): (Rows<'_, f64>, RowsMut<'_, f64>)| {
            sleep(if is_slow { SLOW } else { Duration::ZERO });
            tile.rows().for_each(|(i, j)| to.row(i, j).copy_from_slice(from.row(i, j)));
        };
        Ok(self.stream.launch("copy", self.whole(), (from.reader()?, to.writer()?), body)?)
    }
}

impl fmt::Debug for Rank<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}, {:?}", self.world.rank(), self.world.size(), self.way)
    }
}

/// The ghosts above and below, each of which is one number. Blocks.
fn above_and_below(cells: &Array<f64, 2>) -> Result<[f64; 2], HaloError> {
    let all = cells.copy_with_ghosts()?;
    let number = |row: usize| {
        let first = all[[row, 1]];
        let owned = 1..all.shape()[1] - 1;
        assert!(owned.into_iter().all(|column| all[[row, column]] == first), "one number: {all:?}");
        first
    };
    Ok([number(0), number(all.shape()[0] - 1)])
}

/// A rank that neighbours itself, two that have each other on both sides, and three.
fn on_each_number(rank_main: impl Fn(&Rank<'_>) -> Result<(), HaloError> + Sync) {
    for ranks in 1..=3 {
        on_ranks(ranks, |world| each_way().try_for_each(|way| rank_main(&Rank::new(world, way)?)));
    }
}

fn filled_ahead(call: &'static str) -> HaloError {
    HaloError::GhostsFilledAhead { call, index: 0 }
}

/// What is said of ghosts that an exchange may be filling.
fn ghosts_in_flight() -> GridError {
    GridError::GhostsInFlight { call: "copy_with_ghosts" }
}
