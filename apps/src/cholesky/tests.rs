//! The factorisation against known factors and against the matrix multiplied out, and that the comparisons can fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use streamhalo::comm::Result;
use streamhalo::comm::fabric::Role;

use super::driver::Cholesky;
use super::links::{self, Links};
use super::matrix::Matrix;
use crate::app::Verified;
use crate::app::played::{play, reference};
use crate::app::recorded::{notifications, recorded};
use crate::app::values::decode;
use crate::config::{Primitive, RunConfig};
use crate::error::AppError;

fn cholesky(settings: &str, rows: usize) -> Cholesky {
    let text = format!("app = {{ name = 'cholesky', {settings} }}\ngrid.cells = {rows}\n");
    Cholesky::open(&RunConfig::of(&text)).expect("is right")
}

/// Tiles that travel in their notification, that are sent eagerly, and that are too long for it; more ranks than
/// tiles; one tile.
#[test]
fn every_primitive_finds_the_known_factor() {
    for (tile, rows, steps) in [(2, 16, 3), (8, 40, 2), (40, 160, 1), (6, 6, 2), (1, 3, 2), (4, 12, 0)] {
        let settings = format!("tile = {tile}, steps = {steps}");
        let cholesky = cholesky(&settings, rows);
        let reference = reference(&cholesky);
        for (backend, _) in Primitive::BACKENDS {
            for ranks in [1, 2, 3, 8] {
                let answer = play(&cholesky, &[ranks], backend).answer;
                let said = cholesky.difference(&answer, &reference);
                assert_eq!(said, None, "{settings} {rows} {backend} {ranks}");
                assert_eq!(answer.checksum, reference.checksum, "{settings} {rows} {backend} {ranks}");
            }
        }
    }
}

/// One notification and one payload for each tile that a rank sends to each of its children.
#[test]
fn tiles_are_told_of_one_by_one() {
    let (tile, side, ranks, steps) = (4, 4, 3, 2);
    let cholesky = cholesky(&format!("tile = {tile}, steps = {steps}"), side * tile);
    let (outcome, events) = recorded(&cholesky, &[ranks], "notified");
    let schedule = super::schedule::Schedule { side, ranks };
    let mut expected = vec![vec![0; ranks]; ranks];
    for (tile, from) in schedule.all().flat_map(|tile| (0..ranks).map(move |rank| (tile, rank))) {
        let children = schedule.hop(tile, from).map_or(Vec::new(), |hop| hop.children);
        children.into_iter().for_each(|to| expected[from][to] += steps);
    }
    assert_eq!(notifications(&events), expected);
    assert_eq!(steps * outcome.messages_per_exchange, expected.concat().iter().sum::<u64>());
    let payloads: Vec<_> = events.iter().flatten().filter(|event| event.role == Role::Payload).collect();
    assert!(payloads.iter().all(|event| event.bytes == tile * tile * size_of::<f64>()));
    assert_eq!(payloads.len() as u64, steps * outcome.messages_per_exchange);
}

/// Keeps the second tile of the matrix, which rank 1 computes and rank 2 waits for, until the fourth has come to
/// rank 2, of rank 0.
struct OutOfOrder {
    links: Box<dyn Links>,
    rank: usize,
    /// By rank 2, and by rank 1.
    has_come: Sender<usize>,
    may_go: Arc<Mutex<Receiver<usize>>>,
}

impl Links for OutOfOrder {
    fn send(&mut self, tile: usize, values: &[f64], ranks: &[usize]) -> Result<()> {
        if (self.rank, tile) == (1, 1) {
            let may_go = self.may_go.lock().expect("nobody panics");
            let next = || may_go.recv_timeout(LONG).expect("rank 2 takes the fourth tile while it waits");
            while next() != 3 {}
        }
        self.links.send(tile, values, ranks)
    }

    fn next(&mut self, waits: bool) -> Result<Option<usize>> {
        let tile = self.links.next(waits)?;
        if let Some(tile) = tile.filter(|_| self.rank == 2) {
            self.has_come.send(tile).expect("rank 1 is there");
        }
        Ok(tile)
    }

    fn read(&mut self, tile: usize, values: &mut [f64]) -> Result<()> {
        self.links.read(tile, values)
    }

    fn finish(&mut self) -> Result<()> {
        self.links.finish()
    }
}

/// More than all of it takes.
const LONG: Duration = Duration::from_secs(20);

/// A rank takes any tile from any source, also while it waits for a certain one: who waited for that alone would never
/// get it here.
#[test]
fn tiles_may_come_in_any_order() {
    for backend in ["standard", "notified"] {
        let mut cholesky = cholesky("tile = 4, steps = 1", 16);
        let (has_come, may_go) = channel();
        let (has_come, may_go) = (Mutex::new(has_come), Arc::new(Mutex::new(may_go)));
        cholesky.connect = Box::new(move |trial, primitive, extent| {
            let links = links::connect(trial, primitive, extent)?;
            let has_come = has_come.lock().expect("nobody panics").clone();
            let (rank, may_go) = (trial.world.rank(), may_go.clone());
            Ok(links.map(|links| Box::new(OutOfOrder { links, rank, has_come, may_go }) as Box<dyn Links>))
        });
        let answer = play(&cholesky, &[3], backend).answer;
        assert_eq!(cholesky.difference(&answer, &reference(&cholesky)), None, "{backend}");
    }
}

/// Updates are made in one order, so that rounded factors are the same whatever comes first.
#[test]
fn every_primitive_and_number_of_ranks_gives_the_same_bits_of_rounded_factors() {
    let with_tile = |tile: usize| cholesky(&format!("tile = {tile}, steps = 2, values = 'reals'"), 72);
    let mut checksums = Vec::new();
    for tile in [8, 12] {
        let cholesky = with_tile(tile);
        let reference = reference(&cholesky);
        let expected = play(&cholesky, &[1], "notified").answer;
        assert_eq!(cholesky.difference(&expected, &reference), None);
        for (backend, _) in Primitive::BACKENDS {
            for ranks in [2, 4, 7] {
                assert!(play(&cholesky, &[ranks], backend).answer == expected, "{tile} {backend} {ranks}");
            }
        }
        checksums.push(expected.checksum);
    }
    assert_ne!(checksums[0], checksums[1], "tiles of other sizes are rounded differently");
}

/// Element by element from the definition, row after row.
#[test]
fn the_factor_is_that_of_the_textbook() {
    let cholesky = cholesky("tile = 8, steps = 1, values = 'reals'", 48);
    let matrix = Matrix::new(cholesky.initial(), 48, 0);
    let mut textbook = vec![0.0; 48 * 48];
    for row in 0..48 {
        for column in 0..=row {
            let before = (0..column).map(|k| textbook[row * 48 + k] * textbook[column * 48 + k]);
            let rest = matrix.at(row, column) - before.sum::<f64>();
            textbook[row * 48 + column] =
                if row == column { f64::sqrt(rest) } else { rest / textbook[column * 48 + column] };
        }
    }
    let found = play(&cholesky, &[3], "notified").answer.state.expect("was asked for");
    for (index, (found, right)) in decode::<f64>(&found).zip(textbook).enumerate() {
        assert!((found - right).abs() < 1e-12, "{index}: {found}, not {right}");
    }
}

/// Loses one of the tiles that a rank receives: what was there stays.
struct Forgetful {
    links: Box<dyn Links>,
    /// The number of the tile, and the factorisation.
    lost: (usize, u64),
    /// How often that tile has come.
    times: u64,
}

impl Links for Forgetful {
    fn send(&mut self, tile: usize, values: &[f64], ranks: &[usize]) -> Result<()> {
        self.links.send(tile, values, ranks)
    }

    fn next(&mut self, waits: bool) -> Result<Option<usize>> {
        self.links.next(waits)
    }

    fn read(&mut self, tile: usize, values: &mut [f64]) -> Result<()> {
        let before = values.to_vec();
        self.links.read(tile, values)?;
        if tile == self.lost.0 {
            if self.times == self.lost.1 {
                values.copy_from_slice(&before);
            }
            self.times += 1;
        }
        Ok(())
    }

    fn is_ordered(&self) -> bool {
        self.links.is_ordered()
    }

    fn finish(&mut self) -> Result<()> {
        self.links.finish()
    }
}

/// The negative control of the factorisation: without any one of the tiles that a rank gets the check fails.
#[test]
fn a_tile_that_is_dropped_is_found() {
    const TILES: usize = 10;
    for values in ["integers", "reals"] {
        let steps = 2;
        let settings = format!("tile = 4, steps = {steps}, values = '{values}'");
        let reference = reference(&cholesky(&settings, 16));
        for (backend, _) in Primitive::BACKENDS {
            for ranks in [2, 3] {
                let mut lost = 0;
                for (rank, tile, step) in (0..ranks).flat_map(|rank| {
                    (0..TILES).flat_map(move |tile| (0..steps).map(move |step| (rank, tile, step)))
                }) {
                    let mut cholesky = cholesky(&settings, 16);
                    cholesky.connect = Box::new(move |trial, primitive, extent| {
                        let links = links::connect(trial, primitive, extent)?;
                        Ok(links.map(|links| match trial.world.rank() == rank {
                            true => {
                                Box::new(Forgetful { links, lost: (tile, step), times: 0 }) as Box<dyn Links>
                            }
                            false => links,
                        }))
                    });
                    let said = cholesky.difference(&play(&cholesky, &[ranks], backend).answer, &reference);
                    let schedule = super::schedule::Schedule { side: 4, ranks };
                    let tile = schedule.all().nth(tile).expect("there are ten");
                    let comes = schedule.hop(tile, rank).is_some_and(|hop| hop.parent.is_some());
                    assert_eq!(
                        said.is_some(),
                        comes,
                        "{values}, {backend}: rank {rank}, tile {tile:?}, {step}"
                    );
                    lost += usize::from(comes);
                }
                assert!(lost > TILES / 2, "only {lost} tiles were lost");
            }
        }
    }
}

/// The negative control of the comparison.
#[test]
fn a_value_that_is_off_is_found() {
    for (values, change) in [("integers", 1.0), ("reals", 1e-11)] {
        let cholesky = cholesky(&format!("tile = 4, steps = 2, values = '{values}'"), 12);
        let reference = reference(&cholesky);
        let right = play(&cholesky, &[2], "notified").answer;
        assert_eq!(cholesky.difference(&right, &reference), None);
        let offset = 8 * (7 * 12 + 5);
        let mut wrong = right.clone();
        let bytes = &mut wrong.state.as_mut().expect("is there")[offset..offset + 8];
        let value = f64::from_le_bytes((&*bytes).try_into().expect("eight bytes"));
        bytes.copy_from_slice(&(value + change).to_le_bytes());
        let said = cholesky.difference(&wrong, &reference).expect("differs");
        let begins = if values == "reals" { "L Lᵀ is not A: " } else { "1 of 144 values differ" };
        assert!(said.starts_with(begins), "{said}");
        wrong.state.as_mut().expect("is there").truncate(8);
        let said = cholesky.difference(&wrong, &reference).expect("differs");
        assert!(said.contains("there are 1 of "), "{said}");
        if values == "reals" {
            // Of the first of two factors, of which there are 12 rows.
            let mut wrong = right;
            wrong.state.as_mut().expect("is there")[8 * (12 * 12 + 5) + 6] ^= 1;
            let said = cholesky.difference(&wrong, &reference).expect("differs");
            assert!(said.starts_with("L Lᵀ x is not A x in step 0: 1 of 12 values differ"), "{said}");
        }
    }
    let cholesky = cholesky("tile = 4, steps = 2", 12);
    let (reference, mut wrong) = (reference(&cholesky), play(&cholesky, &[2], "notified").answer);
    wrong.checksum.replace_range(0..1, "x");
    assert!(cholesky.difference(&wrong, &reference).expect("differs").contains("an earlier one"));
}

/// Whoever waits for it can stop it at any row of any step.
#[test]
fn the_reference_asks_at_every_row_whether_to_go_on() {
    for values in ["integers", "reals"] {
        let cholesky = cholesky(&format!("tile = 4, steps = 3, values = '{values}'"), 12);
        for stopped_at in [1, 12, 13, 36] {
            let asked = AtomicUsize::new(0);
            let go_on = || match asked.fetch_add(1, Ordering::Relaxed) + 1 {
                now if now == stopped_at => Err(AppError::Interrupted { signal: 2 }),
                _ => Ok(()),
            };
            assert!(matches!(cholesky.reference(&go_on), Err(AppError::Interrupted { signal: 2 })));
            assert_eq!(asked.into_inner(), stopped_at, "{values}");
        }
    }
}
