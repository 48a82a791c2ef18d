//! Heat in a plate that is insulated all round: boundary conditions, and cells that need no ghosts computed while these
//! are on their way.
use std::error::Error;
use std::f64::consts::PI;
use streamhalo::prelude::*;

const CELLS: [usize; 2] = [40, 64]; // [y, x]
const CONDUCTED: f64 = 0.2; // to each neighbour in a step, of the difference
const STEPS: i32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let world = World::from_env()?; // one rank, or those of `mpiexec` or `streamhalo launch`
    let stream = Device::host().stream(&world)?;
    let grid = GlobalGrid::new(CELLS, [false, false])?.partition(&world)?.local(1)?;
    let mut heat = Alternating::<f64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    heat.now_mut().fill(|cell, _| wave(cell))?;
    let mut halo = StreamHalo::new(&world, &stream, "st-send", Pattern::Faces, 1, &mut heat)?;
    let owned = grid.owned(Entity::Cell);
    // What reads no ghosts, be they of other ranks or beyond a wall: these are made when all others have come.
    let inner = owned.shrink([1, 1]);

    for _ in 0..STEPS {
        let mut in_flight = halo.begin_gather(&mut heat)?;
        stream.launch("inner", inner.tile(), in_flight.now_and_next()?, conduct)?;
        in_flight.finish()?;
        // No flux through the plate's edges: the ghosts beyond are what is beside them within. Those at corners are of no
        // use to anybody: cells have four neighbours, and `Pattern::Faces` fills no corners beside other ranks.
        for (axis, side) in [(0, Side::Low), (0, Side::High), (1, Side::Low), (1, Side::High)] {
            heat.now_mut().enqueue_boundary(axis, side, &[Boundary::Even])?;
        }
        for rim in owned.without(inner) {
            stream.launch("rim", rim.tile(), heat.now_and_next()?, conduct)?;
        }
        heat.swap();
    }

    // A wave whose crests are at the walls keeps its shape, and becomes lower by the same factor in each step.
    let [y, x] = CELLS.map(|cells| (PI / (2 * cells) as f64).sin().powi(2));
    let factor = (1.0 - 4.0 * CONDUCTED * (y + x)).powi(STEPS);
    let found = heat.now().owned()?;
    let is_right = grid
        .owned_global(Entity::Cell)
        .indices()
        .zip(found.iter())
        .all(|(cell, heat)| (heat - factor * wave(cell)).abs() < 1e-12);
    let are_right = world.all_gather(&is_right)?;
    assert!(are_right.iter().all(|right| *right), "right on each rank: {are_right:?}");
    if world.rank() == 0 {
        println!("after {STEPS} steps the wave is {factor:.4} of what it was, on {} rank(s)", world.size());
    }
    Ok(())
}

/// Half a wave along each axis.
fn wave(cell: [usize; 2]) -> f64 {
    cell.iter().zip(CELLS).map(|(index, cells)| (PI * (*index as f64 + 0.5) / cells as f64).cos()).product()
}

/// One step of the cells of a tile.
fn conduct(tile: Tile, (now, mut next): (Rows<'_, f64>, RowsMut<'_, f64>)) {
    let columns = tile.start[2]..tile.end[2];
    for (i, y) in tile.rows() {
        let [above, below] = [y - 1, y + 1].map(|y| now.span(i, y, columns.clone()));
        let here = now.span(i, y, columns.start - 1..columns.end + 1).windows(3);
        for (x, (cell, near)) in next.row(i, y).iter_mut().zip(here).enumerate() {
            let around = near[0] + near[2] + above[x] + below[x];
            *cell = near[1] + CONDUCTED * (around - 4.0 * near[1]);
        }
    }
}
