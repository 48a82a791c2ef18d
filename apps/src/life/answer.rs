//! What the ranks of a game have come to together, and what it must be.

use serde_json::{Map, Value};
use streamhalo::prelude::{Alternating, Entity, LocalGrid};

use super::bits;
use super::checksum::{Checksum, population};
use super::driver::Life;
use super::kernel::Cell;
use super::reference::Reference;
use crate::app::{Answer, Stored, Trial, Verified, size_of_all};
use crate::error::AppError;

impl<T: Cell + Stored> Verified for Life<T> {
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError> {
        let [height, width] = self.grid.cells();
        let mut cells = vec![0; height * width];
        for (y, row) in cells.chunks_exact_mut(width).enumerate() {
            self.initial.fill_row(y, 0, row);
        }
        let mut reference = Reference::new(height, width, cells, self.grid.periodic());
        for _ in 0..self.steps {
            go_on()?;
            reference.step();
        }
        Ok(Answer {
            checksum: reference.checksum().to_string(),
            result: result(reference.population()),
            state: Some(bits::pack([reference.cells()])),
        })
    }

    /// The reference keeps numbers of live cells, of this generation and the next one.
    fn bytes_to_verify(&self) -> usize {
        size_of_all(self.grid.cells()).saturating_mul(2 * size_of::<usize>())
    }

    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String> {
        if found == reference {
            return None;
        }
        let [height, width] = self.grid.cells();
        let pairs = found.state.iter().flatten().zip(reference.state.iter().flatten());
        let differ: Vec<u8> = pairs.map(|(found, right)| found ^ right).collect();
        Some(match bits::live(&differ).next() {
            Some(first) => format!(
                "{} of {} cells differ, the first at [{}, {}]",
                bits::live(&differ).count(),
                height * width,
                first / width,
                first % width
            ),
            None if found.checksum != reference.checksum => {
                format!("no cell differs, but the checksum is {}, not {}", found.checksum, reference.checksum)
            }
            None => {
                let [found, right] = [found, reference].map(|answer| &answer.result["population"]);
                format!("no cell differs, but the population is {found}, not {right}")
            }
        })
    }
}

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
    let partition = grid.subdomain().partition();
    let [height, width] = partition.grid().cells();
    trial.whole(&own, |parts| {
        let mut state = bits::none(height * width);
        for (rank, part) in parts.iter().enumerate() {
            let owned = partition.owned_cells(rank);
            let row_cells = owned.extents()[1];
            for cell in bits::live(part) {
                let (y, x) = (owned.start[0] + cell / row_cells, owned.start[1] + cell % row_cells);
                bits::set(&mut state, y * width + x);
            }
        }
        state
    })
}

/// What is told of a state besides.
fn result(population: u64) -> Map<String, Value> {
    Map::from_iter([("population".to_owned(), Value::from(population))])
}
