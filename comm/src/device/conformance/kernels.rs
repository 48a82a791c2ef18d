//! Kernels as text: what they compute, and what is refused.

use super::{copy, fill, on_device, pinned, shown};
use crate::device::accelerator::DeviceMemory;
use crate::device::driver::{CommandQueue, Driver, Groups, MemoryKind, Value};
use crate::device::text::KernelText;
use crate::error::Error;

static TWICE: KernelText = KernelText {
    name: "twice",
    source: "KERNEL(twice)(TILE, READS(i32, in), WRITES(i32, out)) {\n\
             POINT(i, j, k);\n\
             AT(out, i, j, k) = 2 * AT(in, i, j, k) + (i32)(i + 3 * j + 7 * k);\n}\n",
    reach: [0; 3],
};

static WRONG: KernelText = KernelText {
    name: "wrong",
    source: "KERNEL(wrong)(TILE, WRITES(u8, out)) {\n    POINT(i, j, k);\n    AT(out, i, j, k) = nonsense;\n}\n",
    reach: [0; 3],
};

pub(in crate::device) fn kernels_compute_each_point_once<D: Driver>(driver: &D) {
    let program = driver.build(&TWICE).expect("it is right");
    let mut kernel = driver.kernel(&program, "twice", &[]).expect("it is in the text");
    let mut queue = driver.open_queue(None).expect("a queue");
    // A launch of one row, of several planes, and of more rows than some devices have groups for along an axis.
    for (shape, start, end) in [
        ([1, 1, 300], [0, 0, 0], [1, 1, 300]),
        ([4, 9, 70], [1, 2, 3], [4, 8, 69]),
        ([2, 263_000, 1], [0, 0, 0], [2, 263_000, 1]),
    ] {
        let points: usize = shape.iter().product();
        let [host, input, output] =
            [pinned(driver, 4 * points), on_device(driver, 4 * points), on_device(driver, 4 * points)];
        let values: Vec<i32> = (0..points as i32).collect();
        fill(&host, &values);
        copy(&mut queue, &host, &input);
        let wide = |sizes: [usize; 3]| sizes.map(|size| size as u64);
        let tile: Vec<u64> = wide(start).into_iter().chain(wide(end)).collect();
        // Rows with nothing in between, of one component.
        let rows: Vec<u64> = [0, shape[1] * shape[2], shape[2], 1, points]
            .into_iter()
            .map(|elements| elements as u64)
            .collect();
        let address = |memory: &DeviceMemory| Value::Pointer(memory.base().as_ptr().cast_const().cast());
        let arguments =
            [Value::U64s(&tile), address(&input), Value::U64s(&rows), address(&output), Value::U64s(&rows)];
        let [planes, rows, columns]: [usize; 3] = std::array::from_fn(|axis| end[axis] - start[axis]);
        // SAFETY: the arguments are those of the text, and the memory is kept until the queue has come to rest.
        unsafe {
            queue.launch("twice", &mut kernel, &arguments, Groups::ForThreads([columns, rows, planes]))
        }
        .expect("a launch");
        copy(&mut queue, &output, &host);
        queue.finish().expect("nothing fails");
        let found = shown::<i32>(&host);
        for (index, (found, value)) in found.into_iter().zip(values).enumerate() {
            let at = [index / shape[2] / shape[1], index / shape[2] % shape[1], index % shape[2]];
            let is_inside = (0..3).all(|axis| (start[axis]..end[axis]).contains(&at[axis]));
            let expected = if is_inside { 2 * value + (at[0] + 3 * at[1] + 7 * at[2]) as i32 } else { 0 };
            assert_eq!(found, expected, "{at:?} of {shape:?}");
        }
    }
}

pub(in crate::device) fn what_is_wrong_is_refused<D: Driver>(driver: &D) {
    match driver.build(&WRONG).err().expect("it is nonsense") {
        Error::KernelDidNotCompile { kernel, log, .. } => {
            assert_eq!(kernel, "wrong");
            // The third line of the text, as its compiler writes that.
            let has_line = ["wrong:3:", "wrong(3)"].iter().any(|line| log.contains(line));
            assert!(log.contains("nonsense") && has_line, "{log}");
        }
        other => panic!("{other}"),
    }
    let program = driver.build(&TWICE).expect("it is right");
    let refused = driver.kernel(&program, "thrice", &[]).err().expect("there is no such kernel");
    assert!(matches!(refused, Error::DeviceUnavailable { .. }), "{refused}");
    let bytes = 1 << 44;
    let refused = driver.allocate(bytes, MemoryKind::Device).expect_err("16 TiB");
    assert!(matches!(refused, Error::OutOfMemory { bytes: asked, .. } if asked == bytes), "{refused}");
    assert!(driver.allocate(64, MemoryKind::Device).is_ok(), "the device goes on");
}
