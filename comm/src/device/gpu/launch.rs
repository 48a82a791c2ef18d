//! What a launch gives a kernel: its arguments as drivers take them, and a grid of threads.

use crate::device::driver::{Groups, Value};

/// Arguments, one behind the other on their natural boundaries, as a kernel's parameters lie (PTX, "Kernel function
/// parameters"; the driver's `CU_LAUNCH_PARAM_BUFFER_POINTER`). Kept from launch to launch, for its memory.
#[derive(Debug, Default)]
pub(in crate::device) struct Packed {
    words: Vec<u64>,
    bytes: usize,
}

impl Packed {
    /// Those arguments, in place of the ones before.
    pub(in crate::device) fn set(&mut self, arguments: &[Value<'_>]) {
        self.words.clear();
        self.bytes = 0;
        for argument in arguments {
            match argument {
                Value::Pointer(pointer) => self.add(&(pointer.addr() as u64).to_le_bytes()),
                Value::U32(number) => self.add(&number.to_le_bytes()),
                Value::U64(number) => self.add(&number.to_le_bytes()),
                Value::U64s(numbers) => numbers.iter().for_each(|number| self.add(&number.to_le_bytes())),
                Value::Bytes(bytes) => self.add(bytes),
            }
        }
    }

    /// A number of one to eight bytes, on a multiple of its size. In memory the lower bytes of a word are first on all
    /// hosts that CUDA has.
    fn add(&mut self, number: &[u8]) {
        let start = self.bytes.next_multiple_of(number.len());
        self.bytes = start + number.len();
        self.words.resize(self.bytes.div_ceil(8), 0);
        let word = number.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.words[start / 8] |= word << (8 * (start % 8));
    }

    pub(in crate::device) fn pointer(&mut self) -> *mut u64 {
        self.words.as_mut_ptr()
    }

    pub(in crate::device) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Blocks of threads, fastest axis first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::device) struct Grid {
    pub(in crate::device) blocks: [u32; 3],
    pub(in crate::device) threads: [u32; 3],
}

/// The most blocks along the fastest axis, and along the others (CUDA's guide, "Technical Specifications").
const MOST_BLOCKS: [usize; 2] = [(1 << 31) - 1, 65_535];
/// Threads that are scheduled together.
const WARP: usize = 32;
/// Threads of a block.
pub(in crate::device) const BLOCK: usize = 256;
/// Threads of the one block of kernels that have but one: as many as `GROUP_KERNEL` of the prelude promises.
pub(in crate::device) const ONE_BLOCK: usize = 512;

impl Grid {
    /// `None` if there are more than the hardware has.
    pub(in crate::device) fn of(groups: Groups) -> Option<Self> {
        match groups {
            Groups::ForThreads(threads) => Self::at_least(threads),
            Groups::One(threads) => {
                assert!(threads <= ONE_BLOCK, "{threads} threads are more than its kernels are compiled for");
                Some(Self { blocks: [1; 3], threads: [threads as u32, 1, 1] })
            }
        }
    }

    /// The rows of all planes one after the other along the second axis, and along the third where that has no more blocks.
    fn at_least([points, rows, planes]: [usize; 3]) -> Option<Self> {
        let rows = rows.checked_mul(planes)?;
        let along = points.next_multiple_of(WARP).min(if rows == 1 { BLOCK } else { BLOCK / 4 });
        let across = (BLOCK / along).min(rows.next_power_of_two());
        let needed = rows.div_ceil(across);
        let second = needed.min(MOST_BLOCKS[1]);
        let blocks = [points.div_ceil(along), second, needed.div_ceil(second)];
        if blocks[0] > MOST_BLOCKS[0] || blocks[2] > MOST_BLOCKS[1] {
            return None;
        }
        // All are below 2³¹ by now.
        Some(Self { blocks: blocks.map(|count| count as u32), threads: [along as u32, across as u32, 1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_on_their_boundaries() {
        let mut packed = Packed::default();
        let pointer = 0x1234_5678_9abc_def0_usize as *const std::ffi::c_void;
        packed.set(&[Value::U64(9), Value::U64(9)]);
        packed.set(&[Value::U32(1), Value::U32(2), Value::U32(3), Value::Pointer(pointer), Value::U32(4)]);
        assert_eq!(packed.words, [1 | 2 << 32, 3, 0x1234_5678_9abc_def0, 4]);
        assert_eq!(packed.bytes(), 28);
        packed.set(&[Value::U64s(&[5, 6]), Value::U32(7), Value::U64(8)]);
        assert_eq!((&packed.words[..], packed.bytes()), (&[5, 6, 7, 8][..], 32));
        let (float, long) = (1.5_f32.to_le_bytes(), (-1_i64).to_le_bytes());
        let [byte, float, long] = [&[9][..], &float, &long].map(Value::Bytes);
        packed.set(&[byte, byte, float, byte, long]);
        let bits = u64::from(1.5_f32.to_bits());
        assert_eq!((&packed.words[..], packed.bytes()), (&[9 | 9 << 8 | bits << 32, 9, u64::MAX][..], 24));
    }

    /// The point of each thread, as `POINT` of the prelude finds it; `None` for those that it ends.
    fn points(grid: Grid, [nx, ny, nz]: [usize; 3]) -> Vec<[usize; 3]> {
        let [bx, by, bz] = grid.blocks.map(|count| count as usize);
        let [tx, ty, _] = grid.threads.map(|count| count as usize);
        let mut found = Vec::new();
        for (z, y, x) in (0..bz).flat_map(|z| (0..by).flat_map(move |y| (0..bx).map(move |x| (z, y, x)))) {
            for (v, u) in (0..ty).flat_map(|v| (0..tx).map(move |u| (v, u))) {
                let (item, row) = (x * tx + u, (z * by + y) * ty + v);
                let plane = if ny == 1 {
                    row
                } else if row < ny {
                    0
                } else {
                    row / ny
                };
                if item < nx && plane < nz {
                    found.push([plane, row - plane * ny, item]);
                }
            }
        }
        found
    }

    #[test]
    fn each_point_has_one_thread() {
        let shapes = [
            [1, 1, 1],
            [31, 1, 1],
            [300, 1, 1],
            [5, 7, 1],
            [70, 3, 5],
            [1, 1, 9],
            [33, 1, 40],
            [1, 70_000, 1],
        ];
        for shape in shapes.into_iter().chain([[2, 200, 350], [1, 263_000, 1]]) {
            let grid = Grid::at_least(shape).expect("it fits");
            assert!(grid.threads.iter().product::<u32>() <= 256, "{grid:?}");
            assert!(grid.blocks[1] <= 65_535 && grid.threads[0].is_multiple_of(32), "{grid:?}");
            let mut found = points(grid, shape);
            found.sort_unstable();
            let [nx, ny, nz] = shape;
            let all = (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| [z, y, x])));
            assert!(found.into_iter().eq(all), "{shape:?}: {grid:?}");
        }
    }

    #[test]
    fn one_group_is_one_block() {
        for threads in [32, BLOCK, ONE_BLOCK] {
            let grid = Grid::of(Groups::One(threads)).expect("it fits");
            assert_eq!(grid, Grid { blocks: [1; 3], threads: [threads as u32, 1, 1] });
            let blocks = Grid::of(Groups::ForThreads([threads, 1, 1])).expect("they fit").blocks;
            assert_eq!(blocks, [threads.div_ceil(BLOCK) as u32, 1, 1]);
        }
    }

    #[test]
    fn more_threads_than_there_are_is_refused() {
        assert_eq!(Grid::at_least([1 << 42, 1, 1]), None);
        assert_eq!(Grid::at_least([1, usize::MAX, 2]), None);
        assert_eq!(Grid::at_least([1, 1 << 36, 1]), None);
        let most = Grid::at_least([1 << 38, 1, 1]).expect("it fits");
        assert_eq!((most.blocks[0], most.threads[0]), (1 << 30, 256));
    }
}
