//! Kernels as text: the bits of the host, on grids of all shapes.

use super::{alone, gpu};
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::{KernelText, Stream, StreamKind, Tile, World};
use streamhalo_tests::cases::boundaries::of_fields;
use streamhalo_tests::{Scenario, assert_tells_the_time, on_ranks};

/// Products that could be contracted, a quotient, and what is around a point.
static MIX: KernelText = KernelText {
    name: "mix",
    source: "KERNEL(mix)(TILE, READS(f64, in), WRITES(f64, out)) {\n    POINT(i, j, k);\n    \
             const f64 here = AT(in, i, j, k);\n    \
             AT(out, i, j, k) = (here * here + AT(in, i, j, k + 1) * AT(in, i, j, k - 1)) / (1.5 + here * here);\n}\n",
    reach: [0, 0, 1],
};

fn mix(world: &World, stream: &Stream, [nz, ny, nx]: [usize; 3]) -> Result<Vec<u64>, Error> {
    let extents = Extents { points: [nz, ny, nx], components: 1 };
    let mut from = Buffer::<f64>::zeros(world, stream, extents)?;
    let mut to = Buffer::<f64>::zeros(world, stream, extents)?;
    from.with_host_mut(extents.whole(), |mut view| {
        view.iter_mut().enumerate().for_each(|(n, value)| *value = 1.0 / (n % 1009 + 3) as f64);
    })?;
    let tile = Tile { start: [0, 0, 1], end: [nz, ny, nx - 1] };
    let arguments = (from.reader(extents.whole())?, to.writer(extents.whole())?);
    stream.launch_either(&MIX, tile, arguments, |tile, (from, mut to)| {
        for (i, j) in tile.rows() {
            let read = from.span(i, j, tile.start[2] - 1..tile.end[2] + 1);
            for (k, out) in to.row(i, j).iter_mut().enumerate() {
                let [left, here, right] = [read[k], read[k + 1], read[k + 2]];
                *out = (here * here + right * left) / (1.5 + here * here);
            }
        }
    })?;
    Ok(to.copy_out(extents.whole())?.into_iter().map(f64::to_bits).collect())
}

#[test]
fn kernels_give_the_bits_of_the_host() {
    let Some((_, _turn)) = gpu() else { return };
    let (world, [device, host]) = alone();
    // More rows than a grid has blocks along an axis; few points and many; planes.
    for shape in
        [[1, 1, 3], [1, 1, 5000], [1, 70_000, 3], [1, 300_000, 3], [3, 5, 70], [40, 1, 33], [7, 1000, 130]]
    {
        let found = mix(&world, &device, shape).expect("nothing fails");
        assert!(found == mix(&world, &host, shape).expect("nothing fails"), "{shape:?}");
    }
}

#[test]
fn boundary_conditions_are_what_the_place_in_the_grid_says() {
    let Some((_, _turn)) = gpu() else { return };
    let way = Scenario { backend: "st-send", kind: StreamKind::Device };
    on_ranks(2, |world| {
        of_fields::<u8>(world, way, |a, x| a.wrapping_mul(2).wrapping_sub(x))?;
        of_fields::<f32>(world, way, |a, x| a + a - x)?;
        of_fields::<f64>(world, way, |a, x| a + a - x).map(drop)
    });
}

#[test]
fn the_device_tells_the_time() {
    let Some((_, _turn)) = gpu() else { return };
    let (_world, [device, _]) = alone();
    assert_tells_the_time(&device);
}

#[test]
fn memory_is_used_again_and_comes_zeroed() {
    let Some((_, _turn)) = gpu() else { return };
    let (world, [device, _]) = alone();
    for round in 0..200 {
        let extents = Extents { points: [1, 64 + round, 4096], components: 1 };
        let mut buffer = Buffer::<u8>::zeros(&world, &device, extents).expect("memory");
        assert!(buffer.copy_out(extents.whole()).expect("nothing fails").iter().all(|byte| *byte == 0));
        buffer.with_host_mut(extents.whole(), |mut view| view.fill(7)).expect("nothing fails");
        assert!(buffer.copy_out(extents.whole()).expect("nothing fails").iter().all(|byte| *byte == 7));
    }
}
