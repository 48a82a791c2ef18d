//! Images, and the sums over blocks that they are made of.

use std::fs::File;
use std::io::BufReader;

use super::super::Mosaic;
use super::{Folder, drawn, looked_at, reference};
use crate::app::{Look, Looker};
use crate::error::AppError;

/// Width, height and pixels of an image, and its description.
fn decoded(folder: &Folder, name: &str) -> (usize, usize, Vec<u8>, String) {
    let file = BufReader::new(File::open(folder.snapshots().join(name)).expect("is there"));
    let mut reader = png::Decoder::new(file).read_info().expect("is an image");
    let mut pixels = vec![0; reader.output_buffer_size().expect("fits")];
    let info = reader.next_frame(&mut pixels).expect("is whole");
    reader.finish().expect("is whole");
    let texts = &reader.info().uncompressed_latin1_text;
    let description = texts.iter().find(|text| text.keyword == "Description").expect("has one");
    (info.width as usize, info.height as usize, pixels, description.text.clone())
}

#[test]
fn live_cells_are_black_and_dead_ones_white() {
    for layout in [[1, 1], [2, 3]] {
        let folder = Folder::new();
        let config = folder.config(
            "app = { steps = 5, pattern = 'random:5' }\ngrid.cells = [6, 11]\noutput.snapshot_every = 5",
        );
        drawn(&config, &layout).expect("nothing fails");
        let (width, height, pixels, description) = decoded(&folder, "life_000005.png");
        assert_eq!((width, height), (11, 6));
        let expected: Vec<_> = reference(&config, 5).iter().map(|cell| 255 * (1 - cell)).collect();
        assert_eq!(pixels, expected);
        assert_eq!(description, "after 5 steps; live cells are black");
    }
}

#[test]
fn of_three_dimensions_the_middle_plane_is_shown() {
    for layout in [[1, 1, 1], [3, 1, 2]] {
        let folder = Folder::new();
        let config = folder.config(
            "app = { name = 'stencil3d', steps = 3, element = 'f32' }\ngrid.cells = [5, 4, 6]\n\
             output.snapshot_every = 3",
        );
        drawn(&config, &layout).expect("nothing fails");
        let (width, height, pixels, description) = decoded(&folder, "stencil3d_000003.png");
        assert_eq!((width, height), (6, 4));
        let values = reference(&config, 3);
        let values = values.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("are 4")));
        let plane: Vec<_> = values.skip(2 * 4 * 6).take(4 * 6).map(f64::from).collect();
        let low = plane.iter().copied().fold(f64::INFINITY, f64::min);
        let high = plane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(description, format!("after 3 steps; viridis from {low:e} to {high:e}; plane z = 2 of 5"));
        for (value, pixel) in plane.iter().zip(pixels.chunks_exact(3)) {
            let colorous::Color { r, g, b } = colorous::VIRIDIS.eval_continuous((value - low) / (high - low));
            assert_eq!(pixel, [r, g, b]);
        }
        // The ends of the map, as its authors give them.
        assert!(pixels.chunks_exact(3).any(|pixel| pixel == [0x44, 0x01, 0x54]));
        assert!(pixels.chunks_exact(3).any(|pixel| pixel == [0xfd, 0xe7, 0x25]));
    }
}

#[test]
fn large_grids_are_shown_in_blocks() {
    let folder = Folder::new();
    let config = folder.config(
        "app = { steps = 0, pattern = 'random:5' }\ngrid.cells = [3, 1025]\noutput.snapshot_every = 1",
    );
    drawn(&config, &[1, 2]).expect("nothing fails");
    let (width, height, pixels, description) = decoded(&folder, "life_000000.png");
    assert_eq!((width, height), (513, 2));
    assert!(description.ends_with("; each pixel is the mean of 2 x 2 cells"), "{description}");
    let cells = reference(&config, 0);
    let live = |y: usize, x: usize| usize::from(cells[y * 1025 + x]);
    // A whole block, one that is cut off below, and the corner, which is one cell.
    let grey = |live: usize, cells: usize| (255.0 - 255.0 * live as f64 / cells as f64).round() as u8;
    for x in 0..512 {
        let upper = live(0, 2 * x) + live(0, 2 * x + 1) + live(1, 2 * x) + live(1, 2 * x + 1);
        assert_eq!(pixels[x], grey(upper, 4), "{x}");
        assert_eq!(pixels[513 + x], grey(live(2, 2 * x) + live(2, 2 * x + 1), 2), "{x}");
    }
    assert_eq!(pixels[2 * 513 - 1], grey(live(2, 1024), 1));
}

/// Compares the sums over blocks with those over the reference.
struct Sums {
    mosaic: Mosaic,
    cells: Vec<u8>,
    width: usize,
}

impl Looker for Sums {
    fn next(&self, from: u64) -> Option<u64> {
        (from <= 2).then_some(2)
    }

    fn look(&self, look: &Look<'_>) -> Result<(), AppError> {
        let found = self.mosaic.sums(look)?;
        assert_eq!(found.is_some(), look.world().rank() == 0);
        let [rows, columns] = self.mosaic.extents();
        let mut sums = vec![0.0; rows * columns];
        let mut cells = vec![0; rows * columns];
        for (place, cell) in self.cells.iter().enumerate() {
            let (y, x) = (place / self.width, place % self.width);
            let block = y / self.mosaic.side * columns + x / self.mosaic.side;
            sums[block] += f64::from(*cell);
            cells[block] += 1;
        }
        assert!(found.is_none_or(|found| found == sums));
        assert_eq!(self.mosaic.cells_of_blocks().collect::<Vec<_>>(), cells);
        Ok(())
    }
}

#[test]
fn blocks_across_ranks_are_added_up() {
    let folder = Folder::new();
    let config = folder.config("app = { steps = 3, pattern = 'random:9' }\ngrid.cells = [11, 14]");
    let cells = reference(&config, 2);
    for (most, side) in [([11, 14], 1), ([6, 14], 2), ([11, 5], 3), ([2, 14], 6), ([1, 1], 14)] {
        let mosaic = Mosaic::fitting([1, 11, 14], most);
        assert_eq!(mosaic.side, side);
        for layout in [[1, 1], [2, 3], [5, 1]] {
            looked_at(&config, &layout, || Sums { mosaic, cells: cells.clone(), width: 14 })
                .expect("nothing fails");
        }
    }
}
