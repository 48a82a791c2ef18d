//! A glider that crosses the boundaries between ranks: the Game of Life on any number of them.
use std::error::Error;
use streamhalo::prelude::*;

const GLIDER: [[usize; 2]; 5] = [[31, 32], [32, 33], [33, 31], [33, 32], [33, 33]]; // [y, x]

fn main() -> Result<(), Box<dyn Error>> {
    let world = World::from_env()?; // one rank, or those of `mpiexec` or `streamhalo launch`
    let stream = Device::host().stream(&world)?;
    let grid = GlobalGrid::new([64, 64], [true, true])?.partition(&world)?.local(1)?;
    let mut cells = Alternating::<u8, 2>::zeros(&grid, Entity::Cell, &stream)?;
    cells.now_mut().fill(|cell, _| u8::from(GLIDER.contains(&cell)))?;
    let mut halo = StreamHalo::new(&world, &stream, "st-rsend", Pattern::All, 1, &mut cells)?;

    for _ in 0..100 {
        halo.enqueue_gather(&mut cells)?; // pack, send, wait, unpack: all on the stream
        stream.launch("life", grid.owned(Entity::Cell).tile(), cells.now_and_next()?, life)?;
        cells.swap();
    }
    stream.synchronize()?; // a threaded stream that has room makes the host wait nowhere else

    let owned = cells.now().owned()?;
    let entries = grid.owned_global(Entity::Cell).indices().zip(owned.iter());
    let own: Vec<[usize; 2]> = entries.filter(|(_, cell)| **cell == 1).map(|(index, _)| index).collect();
    let mut live = world.all_gather(&own)?.concat();
    live.sort_unstable();
    // In 4 generations a glider moves by one cell on both axes.
    assert_eq!(live, GLIDER.map(|cell| cell.map(|i| i + 25)), "on {} ranks", world.size());
    if world.rank() == 0 {
        println!("{} live cells after 100 generations on {} rank(s): {live:?}", live.len(), world.size());
    }
    Ok(())
}

/// Rule B3/S23 on the cells of a tile; a row has the ghosts on both sides of its cells.
fn life(tile: Tile, (now, mut next): (Rows<'_, u8>, RowsMut<'_, u8>)) {
    let columns = tile.start[2] - 1..tile.end[2] + 1;
    for (i, j) in tile.rows() {
        let rows = [j - 1, j, j + 1].map(|j| now.span(i, j, columns.clone()));
        for (x, cell) in next.row(i, j).iter_mut().enumerate() {
            let living: u8 = rows.iter().map(|row| row[x..x + 3].iter().sum::<u8>()).sum();
            *cell = u8::from(living == 3 || (living == 4 && rows[1][x + 1] == 1));
        }
    }
}
