//! Moves between a field of a device and packed messages: one kernel for all neighbours, one for each (2023, section
//! 5.4), and beside them copies of as many bytes, which are what the device's memory allows.

use super::answers::{Answers, given};
use super::figure::{Figure, gigabytes_per_second};
use super::micro::{MicroBench, divided};
use super::turns::{Subject, in_turns};
use super::what::{Row, Run, Value};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use streamhalo::comm::device::{Buffer, Copier, Extents, Move, MoveTable, Section};
use streamhalo::comm::{ElementType, Op};
use streamhalo::{HaloError, Stream, Tile, World};

use crate::app::mix;
use crate::error::AppError;

pub(super) const ROW: Row = Row {
    name: "moves",
    title: "moves between a cube with ghosts and packed messages, on a device",
    value: Value::GigabytesPerSecond,
    note: "`copy` is the device's own, of as many bytes; `fused` one kernel; `apart` one per neighbour.\n\
           `pack` and `unpack` are of all 26. Payload bytes; 1 GB is 10^9 bytes.",
    varies: Some("cells"),
    run: Run::Operations(measure),
};

/// What can be measured: faces across one axis, and all 26 neighbours, packed and unpacked.
pub(crate) const OPERATIONS: [&str; 5] = ["z-faces", "y-faces", "x-faces", "pack", "unpack"];

/// What does it, in turns.
pub(crate) const CONTESTANTS: [&str; 3] = [COPY, FUSED, APART];

/// The vendor's copy.
const COPY: &str = "copy";
/// One kernel.
const FUSED: &str = "fused";
/// One kernel for each neighbour.
const APART: &str = "apart";

/// Messages begin on such boundaries.
const ALIGNMENT: usize = 64;

/// What is moved, besides how many cells there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boxes {
    /// Layers of cells that a message consists of, and of ghosts.
    pub width: usize,
    /// Bytes of a cell.
    pub cell_bytes: usize,
}

/// Measures all contestants at one size.
fn measure(
    bench: &MicroBench,
    world: &World,
    operation: &str,
    cells: usize,
) -> Result<Vec<Figure>, AppError> {
    let boxes = bench.boxes.as_ref().expect("the command gives them");
    let device = bench.streams.of_rank(world)?;
    let stream = device.stream(world)?;
    let mut ends = Ends::new(world, &stream, boxes, operation, cells)?;
    let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
    for name in &bench.contestants {
        subjects.push(match name.as_str() {
            COPY => Box::new(Copies::checked(
                &stream,
                Copier::new(&device)?,
                ends.bytes,
                bench.answers(world, name),
            )?),
            name => Box::new(ends.checked(&stream, name, bench.answers(world, name))?),
        });
    }
    let timings = in_turns(world, bench.seconds, subjects.iter_mut().map(|subject| &mut **subject))?;
    let figures = bench.contestants.iter().zip(timings).map(|(name, timing)| {
        let figure = timing.figure(bench, (name, device.name().to_owned()), ends.bytes);
        let [rate, best] = [figure.median_us, figure.min_us]
            .map(|microseconds| gigabytes_per_second(ends.bytes as f64, microseconds));
        let figure = Figure { operation: Some(operation.to_owned()), ..figure };
        let figure = figure.with("gb_per_s", rate).with("best_gb_per_s", best);
        figure.with("cells", cells as f64).with("width", boxes.width as f64)
    });
    Ok(divided("ratio_to_fused", FUSED, divided("ratio_to_copy", COPY, figures.collect())))
}

/// A field with ghosts all around, and where messages lie packed.
struct Ends {
    field: Buffer<u8>,
    packed: Buffer<u8>,
    /// Of the field, and where each is packed. In bytes along the fastest axis.
    parts: Vec<(Tile, usize)>,
    moves: Vec<Move>,
    /// Without what lies between messages.
    bytes: usize,
    is_unpack: bool,
}

impl Ends {
    fn new(
        world: &World,
        stream: &Stream,
        boxes: &Boxes,
        operation: &str,
        cells: usize,
    ) -> Result<Self, HaloError> {
        let is_unpack = operation == "unpack";
        let (mut parts, mut length) = (Vec::new(), 0);
        for offset in offsets_of(operation) {
            let tile = part(offset, boxes, cells, is_unpack);
            parts.push((tile, length));
            length += tile.points().next_multiple_of(ALIGNMENT);
        }
        let across = cells + 2 * boxes.width;
        let extents = Extents { points: [across, across, across * boxes.cell_bytes], components: 1 };
        let field = Buffer::<u8>::zeros(world, stream, extents)?;
        let line = Extents { points: [1, 1, length], components: 1 };
        let packed = Buffer::<u8>::zeros(world, stream, line)?;
        let mut moves = Vec::new();
        for (tile, at) in &parts {
            let [planes, rows, run_bytes] = tile.extents();
            let row = across * boxes.cell_bytes;
            let inside = (field.place(tile.start)?, [across * row, row]);
            let outside = (packed.place([0, 0, *at])?, [rows * run_bytes, run_bytes]);
            let (from, to) = if is_unpack { (outside, inside) } else { (inside, outside) };
            moves.push(Move {
                source: from.0,
                source_strides: from.1,
                destination: to.0,
                destination_strides: to.1,
                counts: [planes, rows],
                run_bytes,
                element: ElementType::U8,
                op: Op::Replace,
            });
        }
        let bytes = parts.iter().map(|(tile, _)| tile.points()).sum();
        let mut ends = Self { field, packed, parts, moves, bytes, is_unpack };
        let (from, across) = if is_unpack { (&mut ends.packed, 1) } else { (&mut ends.field, across) };
        // Plane by plane: a field may be larger than what the host has room for.
        for plane in 0..across {
            let tile = of_planes(from.extents(), plane..plane + 1);
            let first = plane * tile.points();
            from.with_host_mut(tile, |mut view| {
                let bytes = view.as_slice_mut().expect("whole planes lie in a row");
                bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = given(at_byte(first + index)));
            })?;
        }
        Ok(ends)
    }

    /// Kernels that have moved every byte: one, or one for each neighbour.
    fn checked(&mut self, stream: &Stream, name: &str, answers: Answers<'_>) -> Result<Tables, AppError> {
        let at_once = if name == FUSED { self.moves.len() } else { 1 };
        let made = self.moves.chunks(at_once).map(|moves| MoveTable::new(&[moves.to_vec()]).map(Arc::new));
        let mut tables = Tables { stream: stream.clone(), tables: made.collect::<Result<_, _>>()? };
        let to = if self.is_unpack { &mut self.field } else { &mut self.packed };
        for plane in 0..to.extents().points[0] {
            to.with_host_mut(of_planes(to.extents(), plane..plane + 1), |mut view| view.fill(0))?;
        }
        tables.repeat(1)?;
        let [_, rows, row] = self.field.extents().points;
        for (tile, at) in &self.parts {
            let [_, tile_rows, run] = tile.extents();
            let packed = |[z, y, x]: [usize; 3]| {
                let [z, y, x] = [z - tile.start[0], y - tile.start[1], x - tile.start[2]];
                at + (z * tile_rows + y) * run + x
            };
            let points = (tile.start[0]..tile.end[0]).flat_map(|z| {
                (tile.start[1]..tile.end[1])
                    .flat_map(move |y| (tile.start[2]..tile.end[2]).map(move |x| [z, y, x]))
            });
            let found = match self.is_unpack {
                true => self.field.copy_out(*tile)?,
                false => {
                    let line = Tile { start: [0, 0, *at], end: [1, 1, at + tile.points()] };
                    self.packed.copy_out(line)?
                }
            };
            let expected = |[z, y, x]: [usize; 3]| match self.is_unpack {
                true => at_byte(packed([z, y, x])),
                false => at_byte((z * rows + y) * row + x),
            };
            answers.compare(points.zip(found).map(|(point, found)| (point, found, expected(point))))?;
        }
        Ok(tables)
    }
}

/// What is in a source at a byte.
fn at_byte(index: usize) -> u8 {
    (mix(index as u64 / 8) >> (8 * (index % 8))) as u8
}

fn of_planes(extents: Extents, planes: std::ops::Range<usize>) -> Tile {
    let [_, rows, points] = extents.points;
    Tile { start: [planes.start, 0, 0], end: [planes.end, rows, points] }
}

/// Where the neighbours are.
fn offsets_of(operation: &str) -> Vec<[isize; 3]> {
    let axis = ["z-faces", "y-faces", "x-faces"].iter().position(|name| *name == operation);
    let all = (0..27).map(|number| [number / 9 - 1, number / 3 % 3 - 1, number % 3 - 1]);
    let is_meant = |offset: &[isize; 3]| match axis {
        Some(axis) => offset[axis] != 0 && offset.iter().filter(|one| **one != 0).count() == 1,
        None => *offset != [0; 3],
    };
    all.filter(is_meant).collect()
}

/// The cells that are sent to a neighbour, or the ghosts that it fills, in bytes along the fastest axis.
fn part(offset: [isize; 3], boxes: &Boxes, cells: usize, ghosts: bool) -> Tile {
    let Boxes { width, cell_bytes } = *boxes;
    let bounds = offset.map(|offset| match (offset, ghosts) {
        (0, _) => [width, width + cells],
        (-1, false) => [width, 2 * width],
        (-1, true) => [0, width],
        (_, false) => [cells, cells + width],
        (_, true) => [width + cells, 2 * width + cells],
    });
    let side = |end: usize| [bounds[0][end], bounds[1][end], bounds[2][end] * cell_bytes];
    Tile { start: side(0), end: side(1) }
}

/// Kernels that move, one after the other.
struct Tables {
    stream: Stream,
    tables: Vec<Arc<MoveTable>>,
}

impl Subject for Tables {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        for _ in 0..times {
            self.tables.iter().try_for_each(|table| self.stream.enqueue_move(table))?;
        }
        Ok(self.stream.synchronize()?)
    }
}

/// Copies within the device.
struct Copies {
    copier: Copier,
    from: Section,
    to: Section,
}

impl Copies {
    /// Copies that have copied every byte.
    fn checked(
        stream: &Stream,
        copier: Copier,
        bytes: usize,
        answers: Answers<'_>,
    ) -> Result<Self, AppError> {
        let (world, line) = (answers.world, Extents { points: [1, 1, bytes], components: 1 });
        let [mut from, to] =
            [Buffer::<u8>::zeros(world, stream, line)?, Buffer::<u8>::zeros(world, stream, line)?];
        from.with_host_mut(line.whole(), |mut view| {
            view.iter_mut().enumerate().for_each(|(index, byte)| *byte = given(at_byte(index)));
        })?;
        let mut copies = Self { copier, from: from.section(0..bytes)?, to: to.section(0..bytes)? };
        copies.repeat(1)?;
        answers.compare_all(&to.copy_out(line.whole())?, at_byte)?;
        Ok(copies)
    }
}

impl Subject for Copies {
    fn repeat(&mut self, times: usize) -> Result<(), HaloError> {
        Ok(self.copier.within(&self.from, &self.to, times)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_of_owned_cells_and_fill_the_ghosts_once() {
        let boxes = Boxes { width: 2, cell_bytes: 4 };
        assert_eq!(offsets_of("y-faces"), [[0, -1, 0], [0, 1, 0]]);
        assert_eq!(part([0, 0, 1], &boxes, 5, false).start[2], 20);
        let ghosts = offsets_of("unpack").into_iter().map(|one| part(one, &boxes, 5, true).points());
        assert_eq!(ghosts.sum::<usize>(), 4 * (9 * 9 * 9 - 5 * 5 * 5));
        let is_owned = |tile: Tile| {
            (0..3).all(|axis| {
                let cell = if axis == 2 { 4 } else { 1 };
                tile.start[axis] >= 2 * cell && tile.end[axis] <= 7 * cell
            })
        };
        assert!(offsets_of("pack").into_iter().all(|one| is_owned(part(one, &boxes, 5, false))));
    }
}
