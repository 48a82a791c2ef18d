//! The kernels for devices, against the host's.

use streamhalo::comm::device::{Buffer, Extents, Pitched, StoreWay};
use streamhalo::{Stream, Tile, World};

use super::super::kernel::Cell;
use super::super::pace::launch;
use crate::app::mix;
use crate::app::on_device::streams_in_turn;

/// What is in an array that no kernel may touch outside of its tile.
const UNTOUCHED: u8 = 7;

/// All cells behind a generation of those of a tile.
fn next_of<T: Cell>(world: &World, stream: &Stream, rows: Pitched, tile: Tile) -> Vec<T> {
    let (points, whole) = (rows.extents().points, rows.extents().whole());
    let array = || Buffer::<T>::zeros(world, stream, rows).expect("memory");
    let (mut now, mut next) = (array(), array());
    let random = |index: usize| mix(points[2] as u64 ^ mix(index as u64)) as u8 % 5 / 3;
    now.with_host_mut(whole, |mut cells| {
        cells.iter_mut().enumerate().for_each(|(index, cell)| *cell = T::from(random(index)));
    })
    .expect("it is there");
    next.with_host_mut(whole, |mut cells| cells.fill(T::from(UNTOUCHED))).expect("it is there");
    let (reader, writer) = (now.reader(whole).expect("all of it"), next.writer(whole).expect("all of it"));
    launch(stream, &StoreWay::new::<T>(tile), tile, (reader, writer)).expect("it fits");
    next.copy_out(whole).expect("nothing fails")
}

/// Rows that begin anywhere in words, tiles that begin and end anywhere in rows, all remainders of blocks.
fn agrees_with_the_host<T: Cell>(widths: impl Iterator<Item = usize>) {
    let world = World::alone().expect("a world of one rank");
    let (_turn, host, others) = streams_in_turn(&world);
    for width in widths {
        for (height, ghosts) in [(1, 1), (4, 1), (5, 2), (11, 3)] {
            let points = [1, height + 2 * ghosts, width + 2 * ghosts];
            let inner = |start: usize, end: usize| Tile {
                start: [0, start, start],
                end: [1, points[1] - end, points[2] - end],
            };
            // One behind the other and, if they are long, as a grid has them.
            let extents = Extents { points, components: 1 };
            let rows = [Pitched::from(extents), Pitched::aligned(extents, size_of::<T>(), ghosts)];
            for tile in [inner(ghosts, ghosts), inner(1, 1), inner(ghosts, 1)] {
                let expected = next_of::<T>(&world, &host, rows[0], tile);
                assert!(expected.contains(&T::from(UNTOUCHED)), "ghosts are not computed");
                for (stream, rows) in others.iter().flat_map(|stream| rows.map(|rows| (stream, rows))) {
                    let found = next_of::<T>(&world, stream, rows, tile);
                    assert!(found == expected, "{rows:?}, {tile} on {}", stream.device_name());
                }
            }
        }
    }
}

#[test]
fn bytes_agree_with_the_host_wherever_rows_and_tiles_begin() {
    agrees_with_the_host::<u8>((1..=21).chain([64, 197]).chain(254..=273));
}

#[test]
fn doubles_agree_with_the_host() {
    agrees_with_the_host::<f64>([1, 2, 9, 40, 65].into_iter());
}
