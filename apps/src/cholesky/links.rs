//! Tiles from rank to rank, by each of the three primitives that the paper compares (2015, section VI-C).
//!
//! With notified access "the source simply issues an `MPI_Put_notify` with a specially crafted tag": the number of the
//! tile. The target has one request, for any source and any tag, and reads the number off the notification.
//!
//! **What is put is not overwritten before it is used.** Every tile of the triangle has a place of its own in every
//! rank's window, as `tiles_array[x][y]` has in the paper, and a factorisation puts each there once. A rank reads a
//! tile out of the window as soon as it is told of it. No rank puts tiles of the next factorisation before all have
//! passed the barrier between the two, and no rank comes to it before it has read all tiles that are sent to it, whose
//! number it knows from the schedule.
//!
//! Messages carry the number in their tag, and are probed for. Active target epochs say nothing of what was put: a rank
//! exposes one place, for one tile after the other in the order of the schedule, each for the rank that it comes from.
//! So tiles must be passed on in that order too.

use streamhalo::comm::window::{ActiveOptions, Group, Mode, NotifyRequest, Window};
use streamhalo::comm::{Communicator, Request, Result, Source, Status, Tag, wait_all};

use crate::app::{Line, Trial};
use crate::config::Primitive;

/// Tiles to and from other ranks.
pub(super) trait Links {
    /// Sends a tile to these ranks.
    fn send(&mut self, tile: usize, values: &[f64], ranks: &[usize]) -> Result<()>;

    /// The next tile that has come, whichever it is; none if there is none and `waits` is not set.
    fn next(&mut self, waits: bool) -> Result<Option<usize>>;

    /// The values of the tile that was last said to have come. Once for each.
    fn read(&mut self, tile: usize, values: &mut [f64]) -> Result<()>;

    /// Whether tiles come in the order of their numbers only: a rank may then send one only after all with smaller
    /// numbers that it gets have come.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Waits until all that was sent has left. Ends a factorisation.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What connects the ranks of a trial: [`connect`], or what tests put in its place.
pub(super) type Connect =
    Box<dyn Fn(&Trial<'_>, Primitive, Extent) -> Result<Option<Box<dyn Links>>> + Send + Sync>;

/// What the links of a rank have to carry.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    /// Tiles of the triangle.
    pub(super) tiles: usize,
    /// Values of a tile.
    pub(super) values: usize,
    /// The tiles that this rank gets, by their numbers, and from whom.
    pub(super) incoming: Vec<(usize, usize)>,
    /// How often it gets them.
    pub(super) steps: u64,
}

/// Links by that primitive. Collective; blocks. `None` for a rank that is alone.
pub(super) fn connect(
    trial: &Trial<'_>,
    primitive: Primitive,
    extent: Extent,
) -> Result<Option<Box<dyn Links>>> {
    Ok(match primitive {
        _ if trial.world.size() == 1 => None,
        Primitive::Messages => Some(Box::new(Messages::connect(trial, &extent)?)),
        Primitive::ActiveTarget => Some(Box::new(Epochs::connect(trial, extent)?)),
        Primitive::NotifiedAccess => Some(Box::new(Notified::connect(trial, &extent)?)),
    })
}

/// Two-sided messages: "a combination of `MPI_Probe` and `MPI_Recv`".
struct Messages {
    communicator: Communicator,
    /// A place for each tile: what is on its way stays as it is.
    outgoing: Line,
    sent: Vec<Request>,
    found: Option<Status>,
}

impl Messages {
    fn connect(trial: &Trial<'_>, extent: &Extent) -> Result<Self> {
        let outgoing = Line::zeros(trial, extent.tiles * extent.values);
        let agreed = trial.world.agree("cholesky", outgoing.as_ref().map(|_| ()));
        let (_, communicator) = (agreed?, Communicator::new(trial.world)?);
        Ok(Self { communicator, outgoing: outgoing?, sent: Vec::new(), found: None })
    }
}

impl Links for Messages {
    fn send(&mut self, tile: usize, values: &[f64], ranks: &[usize]) -> Result<()> {
        if ranks.is_empty() {
            return Ok(());
        }
        // A send that would wait for its receiver could wait for one that does the same.
        self.sent.retain_mut(|request| !matches!(request.test(), Ok(Some(_))));
        let values = self.outgoing.lay_out(tile * values.len(), values)?;
        for rank in ranks {
            self.sent.push(self.communicator.isend(&values, *rank, tile as u32)?);
        }
        Ok(())
    }

    fn next(&mut self, waits: bool) -> Result<Option<usize>> {
        self.found = match waits {
            true => Some(self.communicator.probe(Source::Any, Tag::Any)?),
            false => self.communicator.iprobe(Source::Any, Tag::Any)?,
        };
        Ok(self.found.map(|status| status.tag as usize))
    }

    fn read(&mut self, _tile: usize, values: &mut [f64]) -> Result<()> {
        let Status { source, tag, .. } = self.found.take().expect("a tile has come");
        self.communicator.recv(values, source, tag).map(|_| ())
    }

    fn finish(&mut self) -> Result<()> {
        wait_all(&mut self.sent)?;
        self.sent.clear();
        Ok(())
    }
}

/// Puts with notification.
struct Notified {
    window: Window,
    /// "any source, any tag, and `expected_count=1`".
    arrived: NotifyRequest,
    is_started: bool,
}

impl Notified {
    fn connect(trial: &Trial<'_>, extent: &Extent) -> Result<Self> {
        let window = Window::allocate::<f64>(trial.world, trial.stream, extent.tiles * extent.values)?;
        let arrived = window.notify_init(Source::Any, Tag::Any, 1)?;
        Ok(Self { window, arrived, is_started: false })
    }
}

impl Links for Notified {
    fn send(&mut self, tile: usize, values: &[f64], ranks: &[usize]) -> Result<()> {
        let place = tile * values.len();
        ranks.iter().try_for_each(|rank| self.window.put_notify(values, *rank, place, tile as u32))
    }

    fn next(&mut self, waits: bool) -> Result<Option<usize>> {
        if !std::mem::replace(&mut self.is_started, true) {
            self.arrived.start()?;
        }
        let notification = if waits { Some(self.arrived.wait()?) } else { self.arrived.test()? };
        self.is_started = notification.is_none();
        Ok(notification.map(|notification| notification.tag as usize))
    }

    fn read(&mut self, tile: usize, values: &mut [f64]) -> Result<()> {
        self.window.read(tile * values.len(), values)
    }
}

/// General active target synchronisation: an epoch for each tile and each child.
struct Epochs {
    window: Window,
    /// One for each rank, of it alone.
    groups: Vec<Group>,
    /// What is put, which must stay as it is until the epoch is complete.
    outgoing: Line,
    /// The tiles that come, and from whom, again and again.
    incoming: Vec<(usize, usize)>,
    /// Exposure epochs that have ended.
    ended: usize,
    /// All that there will be.
    exposures: usize,
}

impl Epochs {
    fn connect(trial: &Trial<'_>, extent: Extent) -> Result<Self> {
        let world = trial.world;
        let incoming = Line::zeros(trial, extent.values)?.whole()?;
        let window = Window::active(world, &incoming, ActiveOptions::default())?;
        let groups = (0..world.size()).map(|rank| Group::new(world, &[rank])).collect::<Result<_>>()?;
        let outgoing = Line::zeros(trial, extent.values)?;
        let exposures = extent.incoming.len() * extent.steps as usize;
        let mut links = Self { window, groups, outgoing, incoming: extent.incoming, ended: 0, exposures };
        links.expose()?;
        Ok(links)
    }

    /// The tile of the exposure epoch that has begun, or is about to, and from whom it comes.
    fn current(&self) -> (usize, usize) {
        self.incoming[self.ended % self.incoming.len()]
    }

    /// Begins the next exposure epoch, if there is one: before the tile is waited for, so that its sender need not
    /// wait as long.
    fn expose(&mut self) -> Result<()> {
        if self.ended == self.exposures {
            return Ok(());
        }
        self.window.post(&self.groups[self.current().1])
    }
}

impl Links for Epochs {
    fn send(&mut self, _tile: usize, values: &[f64], ranks: &[usize]) -> Result<()> {
        if ranks.is_empty() {
            return Ok(());
        }
        let values = self.outgoing.lay_out(0, values)?;
        ranks.iter().try_for_each(|rank| {
            self.window.start(&self.groups[*rank], Mode::Host)?;
            self.window.put(&values, *rank, 0)?;
            self.window.complete()
        })
    }

    fn next(&mut self, waits: bool) -> Result<Option<usize>> {
        let has_come = if waits { self.window.wait().map(|()| true) } else { self.window.test() };
        Ok(has_come?.then(|| self.current().0))
    }

    fn read(&mut self, _tile: usize, values: &mut [f64]) -> Result<()> {
        self.window.read(0, values)?;
        self.ended += 1;
        self.expose()
    }

    fn is_ordered(&self) -> bool {
        true
    }
}
