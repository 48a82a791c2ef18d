//! Where the cells of one rank lie in a payload: runs of bytes that lie next to each other there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use streamhalo::Tile;

/// The runs of a box of cells, in the order of its cells. All have the same length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// Where the payload begins.
    payload_start: u64,
    /// Cells of the whole grid.
    cells: [usize; 3],
    own: Tile,
    element_bytes: usize,
    /// Rows of the box that are next to each other in the grid too.
    rows: usize,
}

impl Runs {
    /// Those of `own` in a grid of `cells`.
    pub(super) fn new(payload_start: u64, cells: [usize; 3], own: Tile, element_bytes: usize) -> Self {
        let [depth, height, width] = extents(own);
        let rows = match () {
            _ if width < cells[2] => 1,
            _ if height < cells[1] => height,
            _ => depth * height,
        };
        Self { payload_start, cells, own, element_bytes, rows }
    }

    /// Bytes of one run.
    pub(super) fn run_bytes(&self) -> usize {
        self.rows * extents(self.own)[2] * self.element_bytes
    }

    /// Where each of them begins in the file.
    pub(super) fn starts(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let Self { payload_start, cells, own, element_bytes, rows } = *self;
        let [depth, height, _] = extents(own);
        (0..depth * height).step_by(rows).map(move |row| {
            let (z, y) = (own.start[0] + row / height, own.start[1] + row % height);
            let cell = (z * cells[1] + y) * cells[2] + own.start[2];
            payload_start + cell as u64 * element_bytes as u64
        })
    }

    /// Writes the bytes of the box where they belong.
    pub(super) fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.starts().zip(bytes.chunks_exact(self.run_bytes())).try_for_each(|(start, run)| {
            file.seek(SeekFrom::Start(start))?;
            file.write_all(run)
        })
    }

    /// Reads the bytes of the box.
    pub(super) fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let cells: usize = extents(self.own).iter().product();
        let mut bytes = vec![0; cells * self.element_bytes];
        let mut runs = self.starts().zip(bytes.chunks_exact_mut(self.run_bytes()));
        runs.try_for_each(|(start, run)| file.read_exact_at(run, start))?;
        Ok(bytes)
    }
}

fn extents(tile: Tile) -> [usize; 3] {
    std::array::from_fn(|axis| tile.end[axis] - tile.start[axis])
}

/// The checksum of some bytes of a file, in hexadecimal.
pub(super) fn checksum(mut file: &File, start: u64, bytes: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(start))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(Read::take(file, bytes))?;
    if hasher.count() < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(hasher.finalize().to_hex().to_string())
}
