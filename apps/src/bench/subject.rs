//! A field whose exchange is timed: filled from global indices and checked before.

use super::answers::{Answers, given};
use super::halo::HaloBench;
use super::streams::{Replayed, captured};
use super::turns;
use streamhalo::comm::backend::Route;
use streamhalo::comm::{Element, ElementType, Error};
use streamhalo::grid::Fields;
use streamhalo::{Alternating, Array, Entity, GlobalGrid, HaloError, Pattern, Stream, StreamHalo, World};

use crate::error::AppError;

/// An exchange that can be timed, whatever its dimension and element type.
pub(super) trait Subject: turns::Subject {
    /// The backend that carries it out.
    fn backend(&self) -> &'static str;
    /// How the messages of this rank travel.
    fn routes(&self) -> Vec<Route>;
    /// Bytes that this rank sends in an exchange.
    fn bytes(&self) -> usize;
    /// How many exchanges are replayed together, if any are.
    fn replayed(&self) -> Option<usize>;
}

/// Sets an exchange up on this rank and checks it. Collective.
pub(super) fn subject(
    bench: &HaloBench,
    world: &World,
    (backend, stream): (&str, &Stream),
) -> Result<Box<dyn Subject>, AppError> {
    match bench.cells.len() {
        1 => with_element::<1>(bench, world, (backend, stream)),
        2 => with_element::<2>(bench, world, (backend, stream)),
        _ => with_element::<3>(bench, world, (backend, stream)),
    }
}

fn with_element<const D: usize>(
    bench: &HaloBench,
    world: &World,
    on: (&str, &Stream),
) -> Result<Box<dyn Subject>, AppError> {
    match bench.element {
        ElementType::U8 => checked::<u8, D>(bench, world, on, |hash| hash as u8),
        ElementType::I32 => checked::<i32, D>(bench, world, on, |hash| hash as i32),
        ElementType::I64 => checked::<i64, D>(bench, world, on, |hash| hash as i64),
        ElementType::F32 => checked::<f32, D>(bench, world, on, |hash| (hash % (1 << 20)) as f32),
        ElementType::F64 => checked::<f64, D>(bench, world, on, |hash| (hash % (1 << 40)) as f64),
        other => {
            let reason = format!("`bench halo` has no values of {} to exchange", other.name());
            Err(Error::OutOfOrder { call: "bench", reason }.into())
        }
    }
}

enum Field<T, const D: usize> {
    Single(Array<T, D>),
    Double(Alternating<T, D>),
}

struct Exchanged<T, const D: usize> {
    field: Field<T, D>,
    halo: StreamHalo,
    replayed: Replayed,
}

fn checked<T: Element, const D: usize>(
    bench: &HaloBench,
    world: &World,
    (backend, stream): (&str, &Stream),
    value: fn(u64) -> T,
) -> Result<Box<dyn Subject>, AppError> {
    let layout: [usize; D] = std::array::from_fn(|axis| bench.layout[axis]);
    let cells: [usize; D] = std::array::from_fn(|axis| bench.cells[axis] * layout[axis]);
    let grid = GlobalGrid::new(cells, [true; D])?.partition_as(world, layout)?.local(bench.width)?;
    let pattern = if bench.faces { Pattern::Faces } else { Pattern::All };
    let global = |index: [usize; D]| {
        let hash = index.iter().fold(0_u64, |hash, i| hash.wrapping_mul(1_000_003).wrapping_add(*i as u64));
        value(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 13)
    };
    // The same of other points.
    let [other, third] = [1, 2].map(|by| move |index: [usize; D]| global(index.map(|i| i + by)));
    let mut exchanged = if bench.alternating {
        let mut field = Alternating::<T, D>::zeros(&grid, Entity::Cell, stream)?;
        for _ in 0..2 {
            field.now_mut().fill(|index, _| given(global(index)))?;
            field.swap();
        }
        let halo = StreamHalo::new(world, stream, backend, pattern, bench.width, &mut field)?;
        Exchanged { field: Field::Double(field), halo, replayed: None }
    } else {
        let mut field = Array::<T, D>::zeros(&grid, Entity::Cell, stream)?;
        field.fill(|index, _| given(global(index)))?;
        let halo = StreamHalo::new(world, stream, backend, pattern, bench.width, &mut field)?;
        Exchanged { field: Field::Single(field), halo, replayed: None }
    };
    // Exchanges take turns with two sets of buffers, or generations: the second is to bring something else.
    exchanged.exchange_and(|field| check(field, bench, (world, backend), global))?;
    exchanged.fill(|index| given(other(index)))?;
    exchanged.exchange_and(|field| check(field, bench, (world, backend), other))?;
    exchanged.capture(world, bench.streams.replay)?;
    if exchanged.replayed.is_some() {
        exchanged.fill(|index| given(third(index)))?;
        turns::Subject::repeat(&mut exchanged, bench.streams.replay)?;
        match &exchanged.field {
            Field::Single(field) => check(field, bench, (world, backend), third)?,
            // What was exchanged before a swap is nobody's to look at any more: what is exchanged behind is.
            Field::Double(_) => {
                for _ in 0..2 {
                    exchanged.exchange_and(|field| check(field, bench, (world, backend), third))?;
                }
            }
        }
    }
    Ok(Box::new(exchanged))
}

/// Compares every cell that the exchange fills with what its global index says.
fn check<T: Element, const D: usize>(
    field: &Array<T, D>,
    bench: &HaloBench,
    (world, backend): (&World, &str),
    global: impl Fn([usize; D]) -> T,
) -> Result<(), AppError> {
    let (owned, cells) = (field.owned_box(), field.copy_with_ghosts()?);
    let answers = Answers { world, bench: "halo", contestant: backend };
    answers.compare(cells.indexed_iter().filter_map(|(index, found)| {
        let local: [usize; D] = std::array::from_fn(|axis| index[axis]);
        let outside = (0..D).filter(|&axis| !(owned.start[axis]..owned.end[axis]).contains(&local[axis]));
        let is_filled = !bench.faces || outside.count() <= 1;
        let expected = field.grid().to_global(Entity::Cell, local).map(&global)?;
        is_filled.then_some((local, *found, expected))
    }))
}

impl<T: Element, const D: usize> Exchanged<T, D> {
    /// Other values, in both generations, which have been exchanged.
    fn fill(&mut self, value: impl Fn([usize; D]) -> T) -> Result<(), AppError> {
        match &mut self.field {
            Field::Single(field) => field.fill(|index, _| value(index))?,
            Field::Double(field) => {
                for _ in 0..2 {
                    field.now_mut().fill(|index, _| value(index))?;
                    field.swap();
                }
            }
        }
        Ok(())
    }

    /// One exchange, then a look at what it was about.
    fn exchange_and(
        &mut self,
        look: impl FnOnce(&Array<T, D>) -> Result<(), AppError>,
    ) -> Result<(), AppError> {
        match &mut self.field {
            Field::Single(field) => {
                self.halo.gather(field)?;
                look(field)
            }
            Field::Double(field) => {
                self.halo.gather(field)?;
                look(field.now())?;
                field.swap();
                Ok(())
            }
        }
    }

    fn enqueue(&mut self, exchanges: usize) -> Result<(), HaloError> {
        match &mut self.field {
            Field::Single(field) => repeat(&mut self.halo, field, exchanges, |_| {}),
            Field::Double(field) => repeat(&mut self.halo, field, exchanges, Alternating::swap),
        }
    }

    /// Has so many exchanges be replayed together, if they can be captured. Collective.
    fn capture(&mut self, world: &World, exchanges: usize) -> Result<(), AppError> {
        let stream = self.halo.stream().clone();
        self.replayed = captured(world, &stream, exchanges, || self.enqueue(exchanges))?;
        Ok(())
    }
}

impl<T: Element, const D: usize> Subject for Exchanged<T, D> {
    fn backend(&self) -> &'static str {
        self.halo.backend()
    }

    fn routes(&self) -> Vec<Route> {
        self.halo.routes()
    }

    fn bytes(&self) -> usize {
        self.halo.bytes_per_exchange()
    }

    fn replayed(&self) -> Option<usize> {
        self.replayed.as_ref().map(|(_, exchanges)| *exchanges)
    }
}

impl<T: Element, const D: usize> turns::Subject for Exchanged<T, D> {
    /// Fields alternate.
    fn step(&self) -> usize {
        self.replayed.as_ref().map_or(2, |(_, exchanges)| *exchanges)
    }

    fn repeat(&mut self, exchanges: usize) -> Result<(), HaloError> {
        match &self.replayed {
            Some((period, each)) => self.halo.stream().replay(period, (exchanges / each) as u64)?,
            None => self.enqueue(exchanges)?,
        }
        Ok(self.halo.stream().synchronize()?)
    }
}

fn repeat<F: Fields<D>, const D: usize>(
    halo: &mut StreamHalo,
    field: &mut F,
    exchanges: usize,
    after: impl Fn(&mut F),
) -> Result<(), HaloError> {
    for _ in 0..exchanges {
        halo.enqueue_gather(field)?;
        after(field);
    }
    Ok(())
}
