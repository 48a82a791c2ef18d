//! What the ranks of a game have come to together.

use serde_json::{Map, Value};
use streamhalo::prelude::{Alternating, Entity, LocalGrid};

use super::bits;
use super::checksum::{Checksum, population};
use super::kernel::Cell;
use crate::app::{Answer, Trial};
use crate::error::AppError;

/// What the ranks have computed together. Collective.
pub(super) fn answer<T: Cell>(
    trial: &Trial<'_>,
    grid: &LocalGrid<2>,
    cells: &Alternating<T, 2>,
) -> Result<Answer, AppError> {
    let owned: Vec<u8> = cells.now().with_owned(|owned| owned.iter().map(|cell| cell.to_byte()).collect())?;
    let rows = || owned.chunks_exact(grid.owned(Entity::Cell).extents()[1]);
    let [first_y, first_x] = grid.owned_global(Entity::Cell).start;
    let mut checksum = Checksum::default();
    for (y, row) in rows().enumerate() {
        checksum.add_row(first_y + y, first_x, row);
    }
    let live = rows().map(population).sum();
    Ok(Answer {
        checksum: Checksum::from(trial.all_sum(checksum.value())?).to_string(),
        result: result(trial.all_sum(live)?),
        state: if trial.wants_state { whole_state(trial, grid, bits::pack(rows()))? } else { None },
    })
}

/// The state of the whole grid on rank 0, from the owned cells of every rank. Collective.
fn whole_state(trial: &Trial<'_>, grid: &LocalGrid<2>, own: Vec<u8>) -> Result<Option<Vec<u8>>, AppError> {
    let parts = trial.gather(&own)?;
    let partition = grid.subdomain().partition();
    let [height, width] = partition.grid().cells();
    let mut state = bits::none(height * width);
    for (rank, part) in parts.iter().enumerate() {
        let owned = partition.owned_cells(rank);
        let row_cells = owned.extents()[1];
        for cell in bits::live(part) {
            let (y, x) = (owned.start[0] + cell / row_cells, owned.start[1] + cell % row_cells);
            bits::set(&mut state, y * width + x);
        }
    }
    Ok((trial.world.rank() == 0).then_some(state))
}

/// What is told of a state besides.
pub(super) fn result(population: u64) -> Map<String, Value> {
    Map::from_iter([("population".to_owned(), Value::from(population))])
}
