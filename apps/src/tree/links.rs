//! Contributions up and totals down, by each of the three primitives that the paper compares (2015, section VI-B).
//!
//! With notified access a rank's window has one place for the total from its parent, and behind it one for each
//! child. "We use the counting feature to wait for all incoming children with a single request." A child sends its
//! next contribution after it has got the total, and so after its parent has read the last one.

use streamhalo::comm::window::{ActiveOptions, Group, Mode, NotifyRequest, Window};
use streamhalo::comm::{Communicator, Result, Source, Tag};

use super::place::Place;
use crate::app::{Line, Trial};
use crate::config::Primitive;

/// Between a rank, its parent and its children. Called in this order; where there is no parent, or there are no
/// children, their calls are left out.
pub(super) trait Links {
    /// Waits for what all children have sent, one behind the other.
    fn receive_contributions(&mut self, contributions: &mut [f64]) -> Result<()>;

    /// Sends this rank's contribution to its parent.
    fn send_contribution(&mut self, contribution: &[f64]) -> Result<()>;

    /// Waits for the total.
    fn receive_total(&mut self, total: &mut [f64]) -> Result<()>;

    /// Sends the total to all children.
    fn send_total(&mut self, total: &[f64]) -> Result<()>;
}

/// Links by that primitive, for so many values. Collective; blocks.
pub(super) fn connect(
    trial: &Trial<'_>,
    primitive: Primitive,
    place: &Place,
    elements: usize,
) -> Result<Box<dyn Links>> {
    let place = place.clone();
    Ok(match primitive {
        Primitive::Messages => {
            Box::new(Messages { communicator: Communicator::new(trial.world)?, place, elements })
        }
        Primitive::ActiveTarget => Box::new(Epochs::connect(trial, place, elements)?),
        Primitive::NotifiedAccess => Box::new(Notified::connect(trial, place, elements)?),
    })
}

/// The tag of contributions.
const UP: u32 = 0;

/// The tag of totals.
const DOWN: u32 = 1;

/// The links of ranks that have a parent call its half only.
const NO_PARENT: &str = "the root has no parent to call";

/// Two-sided messages.
struct Messages {
    communicator: Communicator,
    place: Place,
    elements: usize,
}

impl Links for Messages {
    fn receive_contributions(&mut self, contributions: &mut [f64]) -> Result<()> {
        for (child, contribution) in self.place.children.clone().zip(contributions.chunks_mut(self.elements))
        {
            self.communicator.recv(contribution, child, UP)?;
        }
        Ok(())
    }

    fn send_contribution(&mut self, contribution: &[f64]) -> Result<()> {
        self.communicator.send(contribution, self.place.parent.expect(NO_PARENT), UP)
    }

    fn receive_total(&mut self, total: &mut [f64]) -> Result<()> {
        self.communicator.recv(total, self.place.parent.expect(NO_PARENT), DOWN).map(|_| ())
    }

    fn send_total(&mut self, total: &[f64]) -> Result<()> {
        self.place.children.clone().try_for_each(|child| self.communicator.send(total, child, DOWN))
    }
}

/// Puts with notification.
struct Notified {
    window: Window,
    /// One request for the notifications of all children, if there are any.
    children: Option<NotifyRequest>,
    parent: Option<NotifyRequest>,
    place: Place,
    elements: usize,
}

impl Notified {
    fn connect(trial: &Trial<'_>, place: Place, elements: usize) -> Result<Self> {
        let children = place.children.len();
        let window = Window::allocate::<f64>(trial.world, trial.stream, (1 + children) * elements)?;
        let of_children =
            (children > 0).then(|| window.notify_init(Source::Any, Tag::Value(UP), children as u32));
        let of_parent = place.parent.map(|rank| window.notify_init(Source::Rank(rank), Tag::Value(DOWN), 1));
        Ok(Self {
            children: of_children.transpose()?,
            parent: of_parent.transpose()?,
            window,
            place,
            elements,
        })
    }

    fn wait_and_read(
        window: &Window,
        request: &mut Option<NotifyRequest>,
        offset: usize,
        values: &mut [f64],
    ) -> Result<()> {
        let request = request.as_mut().expect("only who has them waits for children or a parent");
        request.start()?;
        request.wait()?;
        window.read(offset, values)
    }
}

impl Links for Notified {
    fn receive_contributions(&mut self, contributions: &mut [f64]) -> Result<()> {
        Self::wait_and_read(&self.window, &mut self.children, self.elements, contributions)
    }

    fn send_contribution(&mut self, contribution: &[f64]) -> Result<()> {
        let offset = (1 + self.place.sibling) * self.elements;
        self.window.put_notify(contribution, self.place.parent.expect(NO_PARENT), offset, UP)
    }

    fn receive_total(&mut self, total: &mut [f64]) -> Result<()> {
        Self::wait_and_read(&self.window, &mut self.parent, 0, total)
    }

    fn send_total(&mut self, total: &[f64]) -> Result<()> {
        self.place.children.clone().try_for_each(|child| self.window.put_notify(total, child, 0, DOWN))
    }
}

/// General active target synchronisation: a rank exposes its window to its children, and then to its parent.
struct Epochs {
    window: Window,
    children: Group,
    /// Of one rank, or of none.
    parent: Group,
    /// What is put, which must stay as it is until the epoch is complete.
    outgoing: Line,
    place: Place,
    elements: usize,
}

impl Epochs {
    fn connect(trial: &Trial<'_>, place: Place, elements: usize) -> Result<Self> {
        let world = trial.world;
        let incoming = Line::zeros(trial, (1 + place.children.len()) * elements)?.whole()?;
        let window = Window::active(world, &incoming, ActiveOptions::default())?;
        let children = Group::new(world, &place.children.clone().collect::<Vec<_>>())?;
        let parent = Group::new(world, place.parent.as_slice())?;
        let outgoing = Line::zeros(trial, elements)?;
        Ok(Self { window, children, parent, outgoing, place, elements })
    }

    /// One access epoch: the values into a place of each of the ranks.
    fn put(&mut self, targets: Group, values: &[f64], offset: usize) -> Result<()> {
        let values = self.outgoing.lay_out(0, values)?;
        self.window.start(&targets, Mode::Host)?;
        targets.ranks().iter().try_for_each(|target| self.window.put(&values, *target, offset))?;
        self.window.complete()
    }
}

impl Links for Epochs {
    fn receive_contributions(&mut self, contributions: &mut [f64]) -> Result<()> {
        self.window.post(&self.children)?;
        self.window.wait()?;
        self.window.read(self.elements, contributions)
    }

    fn send_contribution(&mut self, contribution: &[f64]) -> Result<()> {
        // The parent finds the place for the total ready.
        self.window.post(&self.parent)?;
        self.put(self.parent.clone(), contribution, (1 + self.place.sibling) * self.elements)
    }

    fn receive_total(&mut self, total: &mut [f64]) -> Result<()> {
        self.window.wait()?;
        self.window.read(0, total)
    }

    fn send_total(&mut self, total: &[f64]) -> Result<()> {
        self.put(self.children.clone(), total, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Between;
    use crate::ranks::on_threads;
    use streamhalo::{Device, WorldOptions};

    const CHILDREN: usize = 16;

    /// One request for all children: it has nothing to say before the last of them has put, and then no notification
    /// is left, of any.
    #[test]
    fn one_notification_counts_for_all_children() {
        let ranks = on_threads(1 + CHILDREN, WorldOptions::default(), |world| {
            let stream = Device::host().stream(world)?;
            let (backend, layout, between) = ("notified", &[1 + CHILDREN][..], Between::default());
            let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
            let (rank, size) = (world.rank(), world.size());
            let mut links = Notified::connect(&trial, Place::new(rank, size, CHILDREN), 1)?;
            for last in [CHILDREN, 1, 7] {
                let own = [rank as f64];
                if rank > 0 && rank != last {
                    links.send_contribution(&own)?;
                }
                world.barrier()?;
                if rank == 0 {
                    let children = links.children.as_mut().expect("has children");
                    children.start()?;
                    assert!(children.test()?.is_none(), "rank {last} has not put anything");
                }
                world.barrier()?;
                if rank == last {
                    links.send_contribution(&own)?;
                }
                if rank == 0 {
                    links.children.as_mut().expect("has children").wait()?;
                    assert!(links.window.probe(Source::Any, Tag::Any)?.is_none());
                    let mut contributions = [0.0; CHILDREN];
                    links.window.read(1, &mut contributions)?;
                    assert_eq!(contributions, std::array::from_fn(|child| child as f64 + 1.0));
                }
                world.barrier()?;
            }
            Ok(())
        });
        ranks.expect("nothing fails");
    }
}
