//! The tiles that a rank has, how they get to the ranks that need them, and the factor that they are together.

use streamhalo::comm::Error;

use super::driver::Cholesky;
use super::links::{Extent, Links};
use super::matrix::Matrix;
use super::schedule::{Hop, Schedule};
use crate::app::Trial;
use crate::app::values::{checksum_of_row, encode, zeros};
use crate::error::AppError;

/// What one rank works with.
pub(super) struct Process {
    pub(super) schedule: Schedule,
    pub(super) rank: usize,
    /// By the number of the tile, as are the next two: what this rank has to do with it, if anything.
    hops: Vec<Option<Hop>>,
    /// Rows and columns of a tile.
    size: usize,
    /// Row-major; those of the factor once they are here, before that what this rank computes them from.
    pub(super) tiles: Vec<Vec<f64>>,
    is_here: Vec<bool>,
    /// The numbers of those that come from other ranks, and how many of them have come in this factorisation.
    incoming: Vec<usize>,
    have_come: usize,
    links: Option<Box<dyn Links>>,
}

impl Process {
    /// Space for the needed tiles, and the connections. Collective.
    pub(super) fn new(app: &Cholesky, trial: &Trial<'_>) -> Result<Self, AppError> {
        let (schedule, rank) = (app.schedule(trial), trial.world.rank());
        let hops: Vec<_> = schedule.all().map(|tile| schedule.hop(tile, rank)).collect();
        let (tile, values) = (app.settings.tile, app.settings.tile * app.settings.tile);
        let tiles = hops.iter().map(|hop| if hop.is_some() { zeros([tile; 2]) } else { Ok(Vec::new()) });
        let tiles = tiles.collect::<Result<_, _>>()?;
        let from = |(number, hop): (usize, &Option<Hop>)| Some((number, hop.as_ref()?.parent?));
        let incoming: Vec<_> = hops.iter().enumerate().filter_map(from).collect();
        let extent = Extent { tiles: hops.len(), values, incoming: incoming.clone(), steps: app.steps };
        Ok(Self {
            links: (app.connect)(trial, trial.primitive(), extent)?,
            tiles,
            is_here: vec![false; hops.len()],
            incoming: incoming.into_iter().map(|(number, _)| number).collect(),
            have_come: 0,
            size: tile,
            schedule,
            rank,
            hops,
        })
    }

    /// Lays a matrix out in the tiles that this rank computes, and forgets the last factor.
    pub(super) fn lay_out(&mut self, matrix: &Matrix) {
        let (schedule, size) = (self.schedule, self.size);
        let own = schedule.all().zip(&mut self.tiles).skip(self.rank).step_by(schedule.ranks);
        for ([row, column], values) in own {
            for (index, value) in values.iter_mut().enumerate() {
                *value = matrix.at(row * size + index / size, column * size + index % size);
            }
        }
        self.is_here.fill(false);
        self.have_come = 0;
    }

    /// Receives until a tile is here.
    pub(super) fn wait_for(&mut self, number: usize) -> Result<(), Error> {
        while !self.is_here[number] {
            self.receive(true)?;
        }
        Ok(())
    }

    /// Sends a tile that this rank has computed to its first children.
    pub(super) fn broadcast(&mut self, number: usize) -> Result<(), Error> {
        self.is_here[number] = true;
        if self.links.as_ref().is_some_and(|links| links.is_ordered()) {
            while self.incoming.get(self.have_come).is_some_and(|next| *next < number) {
                self.receive(true)?;
            }
        }
        self.pass_on(number)
    }

    /// Passes on what has come meanwhile, as far as it may come in any order.
    pub(super) fn forward(&mut self) -> Result<(), Error> {
        while self.links.as_ref().is_some_and(|links| !links.is_ordered()) && self.receive(false)? {}
        Ok(())
    }

    /// Receives the next tile, whichever it is, and passes it on. Whether there was one; if it `waits` there is.
    fn receive(&mut self, waits: bool) -> Result<bool, Error> {
        let Some(links) = self.links.as_mut().filter(|_| self.have_come < self.incoming.len()) else {
            return Ok(false);
        };
        let Some(number) = links.next(waits)? else { return Ok(false) };
        links.read(number, &mut self.tiles[number])?;
        self.have_come += 1;
        self.is_here[number] = true;
        self.pass_on(number)?;
        Ok(true)
    }

    /// Receives what is still to come, and waits until all that was sent has left. Ends a factorisation.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        while self.have_come < self.incoming.len() {
            self.receive(true)?;
        }
        self.links.as_mut().map_or(Ok(()), |links| links.finish())
    }

    fn pass_on(&mut self, number: usize) -> Result<(), Error> {
        match (&mut self.links, &self.hops[number]) {
            (Some(links), Some(hop)) => links.send(number, &self.tiles[number], &hop.children),
            _ => Ok(()),
        }
    }

    /// How many tiles this rank sends in a factorisation, each to each of its children.
    pub(super) fn messages(&self) -> usize {
        self.hops.iter().flatten().map(|hop| hop.children.len()).sum()
    }

    /// The tiles that this rank computes: first row and column of the matrix, and values.
    fn own(&self) -> impl Iterator<Item = (usize, usize, &[f64])> {
        let own = self.schedule.all().zip(&self.tiles).skip(self.rank).step_by(self.schedule.ranks);
        own.map(|([row, column], values)| (row * self.size, column * self.size, values.as_slice()))
    }

    /// This rank's part of the checksum of the factor.
    pub(super) fn checksum(&self) -> u64 {
        let of_tile = |(first_row, first_column, values): (usize, usize, &[f64])| {
            let rows = values.chunks_exact(self.size).zip(first_row..);
            // Of a tile on the diagonal what is on and below it.
            rows.map(|(values, row)| {
                checksum_of_row([0, row, first_column], &values[..self.size.min(row + 1 - first_column)])
            })
            .fold(0, u64::wrapping_add)
        };
        self.own().map(of_tile).fold(0, u64::wrapping_add)
    }

    /// The factor on rank 0, row by row with what is above the diagonal; the others get nothing. Collective.
    pub(super) fn whole(&self, trial: &Trial<'_>) -> Result<Option<Vec<u8>>, AppError> {
        let (schedule, size) = (self.schedule, self.size);
        let rows = schedule.side * size;
        let own: Vec<u8> = self.own().flat_map(|(_, _, values)| encode(values)).collect();
        trial.whole(&own, |parts| {
            let mut state = vec![0; rows * rows * size_of::<f64>()];
            let mut rests: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            for tile @ [row, column] in schedule.all() {
                let rest = &mut rests[schedule.owner(tile)];
                let (values, behind) = rest.split_at(size * size * size_of::<f64>());
                *rest = behind;
                for (index, values) in values.chunks_exact(size * size_of::<f64>()).enumerate() {
                    let start = ((row * size + index) * rows + column * size) * size_of::<f64>();
                    state[start..start + values.len()].copy_from_slice(values);
                }
            }
            state
        })
    }
}
