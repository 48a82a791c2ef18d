//! Rows of the left neighbour's last column, by each of the three primitives that the paper compares (2015,
//! section VI-A). Ranks form a ring: the first one's left neighbour is the last one, which sends the corner.
//!
//! A value may be overwritten once it has been read. With notified access there is nothing to say so, and nothing
//! is needed: every row has a place of its own, and no rank begins an iteration before the last rank has ended the
//! one before, and so every rank has read all that it was sent.

use std::ops::Range;

use streamhalo::comm::window::{ActiveOptions, Group, Mode, NotifyRequest, Window};
use streamhalo::comm::{Communicator, Result, Source, Tag};

use crate::app::{Line, Trial};
use crate::config::Primitive;

/// From rank to rank round the ring, in order.
pub(super) trait Links {
    /// Sends values of these rows to the right neighbour. Blocks at most until they have left.
    fn send(&mut self, rows: Range<usize>, values: &[f64]) -> Result<()>;

    /// Waits for the values of these rows from the left neighbour.
    fn receive(&mut self, rows: Range<usize>, values: &mut [f64]) -> Result<()>;
}

/// What connects the ranks of a trial: [`connect`], or what tests put in its place.
pub(super) type Connect =
    Box<dyn Fn(&Trial<'_>, Primitive, Extent) -> Result<Option<Box<dyn Links>>> + Send + Sync>;

/// What the links of a rank have to carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Rows of the grid.
    pub(super) rows: usize,
    /// The most rows of a message.
    pub(super) block_rows: usize,
    /// How often this rank receives.
    pub(super) receives: u64,
}

/// Links by that primitive. Collective; blocks. `None` for a rank that is alone.
pub(super) fn connect(
    trial: &Trial<'_>,
    primitive: Primitive,
    extent: Extent,
) -> Result<Option<Box<dyn Links>>> {
    let (rank, size) = (trial.world.rank(), trial.world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    Ok(match primitive {
        _ if size == 1 => None,
        Primitive::Messages => {
            Some(Box::new(Messages { communicator: Communicator::new(trial.world)?, left, right }))
        }
        Primitive::ActiveTarget => Some(Box::new(Epochs::connect(trial, (left, right), extent)?)),
        Primitive::NotifiedAccess => Some(Box::new(Notified::connect(trial, (left, right), extent)?)),
    })
}

/// The one tag of all messages and notifications: those of one rank come in order.
const TAG: u32 = 0;

/// Two-sided messages.
struct Messages {
    communicator: Communicator,
    left: usize,
    right: usize,
}

impl Links for Messages {
    fn send(&mut self, _rows: Range<usize>, values: &[f64]) -> Result<()> {
        self.communicator.send(values, self.right, TAG)
    }

    fn receive(&mut self, _rows: Range<usize>, values: &mut [f64]) -> Result<()> {
        self.communicator.recv(values, self.left, TAG).map(|_| ())
    }
}

/// Puts with notification: the left neighbour writes into this rank's window, and one persistent request counts.
struct Notified {
    window: Window,
    arrived: NotifyRequest,
    right: usize,
}

impl Notified {
    fn connect(trial: &Trial<'_>, (left, right): (usize, usize), extent: Extent) -> Result<Self> {
        let window = Window::allocate::<f64>(trial.world, trial.stream, extent.rows)?;
        let arrived = window.notify_init(Source::Rank(left), Tag::Value(TAG), 1)?;
        Ok(Self { window, arrived, right })
    }
}

impl Links for Notified {
    fn send(&mut self, rows: Range<usize>, values: &[f64]) -> Result<()> {
        self.window.put_notify(values, self.right, rows.start, TAG)
    }

    fn receive(&mut self, rows: Range<usize>, values: &mut [f64]) -> Result<()> {
        self.arrived.start()?;
        self.arrived.wait()?;
        self.window.read(rows.start, values)
    }
}

/// General active target synchronisation: the receiver exposes its window anew as soon as it has read what came,
/// and computes meanwhile.
struct Epochs {
    window: Window,
    left: Group,
    right: Group,
    /// What is put, which must stay as it is until the epoch is complete.
    outgoing: Line,
    /// Exposure epochs that are still to begin.
    receives: u64,
}

impl Epochs {
    fn connect(trial: &Trial<'_>, (left, right): (usize, usize), extent: Extent) -> Result<Self> {
        let world = trial.world;
        let block = extent.block_rows.min(extent.rows);
        let incoming = Line::zeros(trial, block)?.whole()?;
        let window = Window::active(world, &incoming, ActiveOptions::default())?;
        let (left, right) = (Group::new(world, &[left])?, Group::new(world, &[right])?);
        let outgoing = Line::zeros(trial, block)?;
        let mut links = Self { window, left, right, outgoing, receives: extent.receives };
        links.expose()?;
        Ok(links)
    }

    /// Begins the next exposure epoch, if there is one.
    fn expose(&mut self) -> Result<()> {
        if self.receives == 0 {
            return Ok(());
        }
        self.receives -= 1;
        self.window.post(&self.left)
    }
}

impl Links for Epochs {
    fn send(&mut self, _rows: Range<usize>, values: &[f64]) -> Result<()> {
        let values = self.outgoing.lay_out(0, values)?;
        self.window.start(&self.right, Mode::Host)?;
        self.window.put(&values, self.right.ranks()[0], 0)?;
        self.window.complete()
    }

    fn receive(&mut self, _rows: Range<usize>, values: &mut [f64]) -> Result<()> {
        self.window.wait()?;
        self.window.read(0, values)?;
        self.expose()
    }
}
