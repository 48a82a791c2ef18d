//! Grids of several levels that nest: what goes from one to the next needs no cells of other ranks but ghosts.

use streamhalo::comm::backend::backend_names;
use streamhalo::comm::device::{Rows, RowsMut};
use streamhalo::{
    Array, Device, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, Tile, World, WorldOptions,
};
use streamhalo_tests::expect_all;

/// The coarsest level, which no number of ranks below divides.
const COARSEST: [usize; 2] = [5, 7];
const LEVELS: usize = 3;

/// A field of one level, room for what becomes of it, and its exchange.
struct Level {
    cells: Array<i64, 2>,
    smoothed: Array<i64, 2>,
    halo: StreamHalo,
}

/// Every cell becomes the sum of those around it and of itself, in numbers that wrap.
fn smooth(tile: Tile, (now, mut next): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    let columns = tile.start[2] - 1..tile.end[2] + 1;
    for (i, j) in tile.rows() {
        let rows = [j - 1, j, j + 1].map(|j| now.span(i, j, columns.clone()));
        for (x, cell) in next.row(i, j).iter_mut().enumerate() {
            let around = rows.iter().flat_map(|row| &row[x..x + 3]);
            *cell = around.fold(1, |sum: i64, value| sum.wrapping_mul(3).wrapping_add(*value));
        }
    }
}

fn copy(tile: Tile, (from, mut to): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    for (i, j) in tile.rows() {
        to.row(i, j).copy_from_slice(from.span(i, j, tile.start[2]..tile.end[2]));
    }
}

/// Of which cell of the coarser level a cell is a part, in local indices: on both levels the owned ones begin behind one ghost.
fn coarse_of(fine: usize) -> usize {
    fine.div_ceil(2)
}

/// Every coarse cell becomes a sum of the four that it is made of.
fn restrict(tile: Tile, (fine, mut coarse): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    for (i, y) in tile.rows() {
        let rows = [2 * y - 1, 2 * y].map(|y| fine.span(i, y, 2 * tile.start[2] - 1..2 * tile.end[2] - 1));
        for (x, cell) in coarse.row(i, y).iter_mut().enumerate() {
            *cell = (0..4)
                .fold(0, |sum: i64, part| sum.wrapping_mul(5).wrapping_add(rows[part / 2][2 * x + part % 2]));
        }
    }
}

/// Every fine cell becomes a sum of the coarse one that it is a part of, and of the two that it is next to, which may be ghosts.
fn prolong(tile: Tile, (coarse, mut fine): (Rows<'_, i64>, RowsMut<'_, i64>)) {
    let beside = |fine: usize| if fine.is_multiple_of(2) { coarse_of(fine) + 1 } else { coarse_of(fine) - 1 };
    let at = |y: usize, x: usize| coarse.span(0, y, x..x + 1)[0];
    for (i, y) in tile.rows() {
        for (x, cell) in (tile.start[2]..).zip(fine.row(i, y)) {
            let (own, along_y) = (at(coarse_of(y), coarse_of(x)), at(beside(y), coarse_of(x)));
            *cell = own.wrapping_mul(7).wrapping_add(along_y).wrapping_sub(at(coarse_of(y), beside(x)));
        }
    }
}

impl Level {
    fn smooth(&mut self, stream: &Stream) -> Result<(), HaloError> {
        let Self { cells, smoothed, halo } = self;
        let owned = cells.grid().owned(Entity::Cell).tile();
        halo.enqueue_gather(cells)?;
        stream.launch("smooth", owned, (cells.reader()?, smoothed.writer()?), smooth)?;
        stream.launch("copy", owned, (smoothed.reader()?, cells.writer()?), copy)?;
        Ok(())
    }

    /// A field of this level alone, from one of another.
    fn from(
        &mut self,
        stream: &Stream,
        (name, other): (&str, &Array<i64, 2>),
        kernel: fn(Tile, (Rows<'_, i64>, RowsMut<'_, i64>)),
    ) -> Result<(), HaloError> {
        let owned = self.cells.grid().owned(Entity::Cell).tile();
        stream.launch(name, owned, (other.reader()?, self.cells.writer()?), kernel)?;
        Ok(())
    }
}

/// Down from the finest level to the coarsest and up again, twice, with exchanges on each; the finest level, on rank 0.
fn cycles(world: &World, backend: &str, layout: [usize; 2]) -> Result<Option<Vec<i64>>, HaloError> {
    let stream = Device::host().stream(world)?;
    let mut grid = GlobalGrid::new(COARSEST, [true, false])?.partition_as(world, layout)?;
    let mut levels = Vec::with_capacity(LEVELS);
    for level in 0..LEVELS {
        if level > 0 {
            let coarse = grid.clone();
            grid = coarse.refined(2)?;
            assert_eq!(grid.coarsened(2)?.partition(), coarse.partition());
        }
        let local = grid.local(1)?;
        let mut cells = Array::zeros(&local, Entity::Cell, &stream)?;
        let smoothed = Array::zeros(&local, Entity::Cell, &stream)?;
        let halo = StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut cells)?;
        levels.push(Level { cells, smoothed, halo });
    }
    let finest = &mut levels[LEVELS - 1];
    finest.cells.fill(|[y, x], _| (31 * y + x * x) as i64)?;
    for _ in 0..2 {
        for fine in (1..LEVELS).rev() {
            levels[fine].smooth(&stream)?;
            let [coarse, fine] = &mut levels[fine - 1..=fine] else { unreachable!("they are two") };
            coarse.from(&stream, ("restrict", &fine.cells), restrict)?;
        }
        for coarse in 0..LEVELS - 1 {
            levels[coarse].smooth(&stream)?;
            let [coarse, fine] = &mut levels[coarse..=coarse + 1] else { unreachable!("they are two") };
            coarse.halo.enqueue_gather(&mut coarse.cells)?;
            fine.from(&stream, ("prolong", &coarse.cells), prolong)?;
        }
        levels[LEVELS - 1].smooth(&stream)?;
    }
    let whole = levels[LEVELS - 1].cells.collect(0)?;
    Ok(whole.map(|whole| whole.into_iter().collect()))
}

#[test]
fn cycles_over_levels_give_the_cells_of_one_rank() {
    let on = |backend: &str, layout: [usize; 2]| {
        let ranks = World::threads(layout[0] * layout[1], WorldOptions::default(), |world| {
            cycles(&world, backend, layout)
        });
        expect_all(ranks.expect("threads start")).into_iter().flatten().next().expect("rank 0 has them")
    };
    let alone = on("st-send", [1, 1]);
    assert_eq!(alone.len(), 20 * 28);
    for backend in backend_names() {
        for layout in [[2, 1], [1, 3], [3, 2]] {
            assert!(on(backend, layout) == alone, "{backend}, {layout:?}");
        }
    }
}
