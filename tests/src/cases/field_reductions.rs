//! Reductions of whole fields on a stream, whose bits are those of an inline stream of the host; and what they may be enqueued
//! between.

use super::Done;
use crate::random::mix;
use crate::{Sample, Scenario, stream_of, value};
use streamhalo::comm::device::Buffer;
use streamhalo::{
    Array, ElementType, Entity, GlobalGrid, HaloError, Op, Pattern, PerAxis, Reducible, Reduction,
    StreamHalo, StreamKind, World,
};

/// The operations of a reduction of a field.
const OPS: [Op; 3] = [Op::Sum, Op::Min, Op::Max];

fn bits_of<T: Sample>(found: &Buffer<T>) -> Result<Vec<u64>, HaloError> {
    Ok(found.copy_out(found.extents().whole())?.into_iter().map(Sample::bits).collect())
}

/// A number to be reduced. Of floats it has either sign, and so many digits that the order of additions shows; every so many of
/// them are no number if `with_nan`.
fn number<T: Sample>(value: T, with_nan: bool) -> T {
    let noise = mix(value.bits());
    let (sign, digits, nan) = match T::TYPE {
        ElementType::F32 => (1 << 31, 0xfff, f32::NAN.to_bits().into()),
        ElementType::F64 => (1 << 63, 0xffff_ffff, f64::NAN.to_bits()),
        _ => return value,
    };
    match with_nan && noise.is_multiple_of(17) {
        true => T::of_bits(nan),
        // Nothing as small as devices may take for zero.
        false if value.bits() == 0 => value,
        false => T::of_bits(value.bits() ^ (noise & (sign | digits))),
    }
}

/// The bits of all operations on one grid, of a field, of its products with one of another halo, and of one with what is no
/// number.
fn bits<T, const D: usize>(
    world: &World,
    way: Scenario,
    cells: [usize; D],
    (entity, components): (Entity, usize),
) -> Result<Vec<u64>, HaloError>
where
    T: Sample + Reducible<Total: Sample>,
{
    let stream = stream_of(world, way.kind)?;
    let parts = GlobalGrid::new(cells, std::array::from_fn(|axis| axis % 2 == 0))?.partition(world)?;
    let array = |field, halo: usize, with_nan: bool| -> Result<Array<T, D>, HaloError> {
        let local = parts.local(PerAxis::<D>::per_axis(halo))?;
        let mut array = Array::with_components(&local, entity, components, &stream)?;
        array.fill_with_ghosts(|_, _| T::SENTINEL)?;
        array.fill(|index, component| number(value(field, &index, component, 1), with_nan))?;
        Ok(array)
    };
    let (a, b, with_nan) = (array(0, 1, false)?, array(1, 0, false)?, array(2, 1, true)?);
    let mut found = Vec::new();
    for op in OPS {
        let mut reduction = Reduction::with_backend(&a, way.backend, op)?;
        reduction.enqueue(&a)?;
        found.extend(bits_of(reduction.result())?);
        reduction.enqueue_product(&b, &a)?;
        found.extend(bits_of(reduction.result())?);
        if op != Op::Sum {
            reduction.enqueue(&with_nan)?;
            found.extend(bits_of(reduction.result())?);
        }
    }
    Ok(found)
}

/// Of fields of one type, on cells, nodes and faces in one, two and three dimensions, with rows of less and more than a block.
///
/// # Errors
/// Those of reductions.
///
/// # Panics
/// On a rank whose bits are not those of the host.
pub fn of_fields<T>(world: &World, way: Scenario) -> Result<Done, HaloError>
where
    T: Sample + Reducible<Total: Sample>,
{
    let mut all = Vec::new();
    for kind in [way.kind, StreamKind::Inline] {
        let way = Scenario { kind, ..way };
        let ranks = world.size();
        let mut found = bits::<T, 1>(world, way, [2_100 * ranks + 5], (Entity::Cell, 1))?;
        found.extend(bits::<T, 1>(world, way, [ranks], (Entity::Node, 2))?);
        found.extend(bits::<T, 2>(world, way, [40 * ranks + 1, 110], (Entity::Node, 1))?);
        found.extend(bits::<T, 2>(world, way, [3, 40 * ranks], (Entity::Face(1), 3))?);
        found.extend(bits::<T, 3>(world, way, [2 * ranks + 1, 5, 34], (Entity::Node, 3))?);
        found.extend(bits::<T, 3>(world, way, [3, 70, 4 * ranks], (Entity::Cell, 1))?);
        all.push(found);
    }
    assert_eq!(all[0], all[1], "of {} as {way:?}", T::TYPE);
    let checksum = all[0].iter().fold(0, |sum, bits| mix(sum ^ bits));
    Ok(Done { checksum, ..Done::default() })
}

/// A field's sum while its ghosts are on their way, and that of a generation that has not been exchanged.
///
/// # Errors
/// Those of exchanges and reductions.
///
/// # Panics
/// On a rank that gets another sum.
pub fn between_halves(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let stream = stream_of(world, way.kind)?;
    let grid = GlobalGrid::new([3 * world.size(), 50], [true, false])?.partition(world)?.local(1)?;
    let mut cells = streamhalo::Alternating::<i64, 2>::zeros(&grid, Entity::Cell, &stream)?;
    let mut halo = StreamHalo::new(world, &stream, way.backend, Pattern::All, 1, &mut cells)?;
    let mut sum = Reduction::with_backend(cells.now(), way.backend, Op::Sum)?;
    let mut checksum = 0;
    for epoch in 1..=6 {
        let value = |index: [usize; 2]| value::<i64>(0, &index, 0, epoch) >> 20;
        cells.now_mut().fill(|index, _| value(index))?;
        sum.enqueue(cells.now())?;
        let before = sum.values()?;
        let in_flight = halo.begin_gather(&mut cells)?;
        sum.enqueue(in_flight.now())?;
        in_flight.finish()?;
        let right: i64 = (0..3 * world.size()).flat_map(|y| (0..50).map(move |x| [y, x])).map(value).sum();
        assert_eq!((&before[..], &sum.values()?[..]), (&[right][..], &[right][..]), "{way:?}");
        checksum = mix(checksum ^ right as u64);
        cells.swap();
    }
    Ok(Done::new(checksum, &halo))
}
