//! Boxes against sets of single indices.

use crate::cases::{in_each_dimension, on_each_axis, whole};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use streamhalo_grid::IndexBox;

/// A box, which may be empty or turned inside out, and a width.
fn boxes<const D: usize>() -> impl Strategy<Value = (IndexBox<D>, [usize; D])> {
    let one = (on_each_axis(3..7_usize), on_each_axis(2..9_usize));
    (one.prop_map(|(start, end)| IndexBox::new(start, end)), on_each_axis(0..4_usize))
}

/// All indices that could be in one of the boxes.
fn everything<const D: usize>() -> IndexBox<D> {
    whole([13; D])
}

in_each_dimension!(boxes_are_sets, 200, boxes);
fn boxes_are_sets<const D: usize>((one, width): (IndexBox<D>, [usize; D])) -> TestCaseResult {
    let members: Vec<_> = everything().indices().filter(|&i| one.contains(i)).collect();
    prop_assert_eq!(one.len(), members.len());
    prop_assert_eq!(one.is_empty(), members.is_empty());
    prop_assert_eq!(one.extents().iter().product::<usize>(), members.len());
    prop_assert_eq!(one.indices().len(), members.len());
    prop_assert_eq!(one.indices().collect::<Vec<_>>(), members);

    let smaller = one.shrink(width);
    for index in everything::<D>().indices() {
        // Shrunk is what stays inside when moved by the width either way on any axis.
        let deep = (0..D).all(|axis| {
            (one.start[axis] + width[axis]..one.end[axis]).contains(&index[axis])
                && index[axis] + width[axis] < one.end[axis]
        });
        prop_assert_eq!(smaller.contains(index), deep);
    }
    Ok(())
}

#[test]
fn a_rim_and_what_is_inside_are_the_whole_once() {
    let whole = IndexBox::new([1, 2, 3], [5, 6, 9]);
    for inner in [
        whole.shrink([1, 1, 1]),
        whole,
        IndexBox::new([1, 3, 3], [5, 4, 8]),
        IndexBox::new([2, 2, 2], [2, 3, 3]),
        IndexBox::new([0, 4, 5], [3, 9, 7]),
        IndexBox::new([5, 2, 3], [7, 6, 9]),
    ] {
        let rim = whole.without(inner);
        for index in whole.indices() {
            let times = rim.iter().chain([&inner]).filter(|part| part.contains(index)).count();
            assert_eq!(times, 1, "{index:?} of {inner:?}");
        }
        let inside = whole.indices().filter(|index| inner.contains(*index)).count();
        assert_eq!(rim.iter().map(IndexBox::len).sum::<usize>() + inside, whole.len());
    }
    assert_eq!(whole.shrink([2, 2, 3]).without(whole), []);
}

in_each_dimension!(indices_are_row_major, 50, boxes);
fn indices_are_row_major<const D: usize>((one, _): (IndexBox<D>, [usize; D])) -> TestCaseResult {
    let indices: Vec<_> = one.indices().collect();
    // Arrays compare lexicographically, slowest axis first.
    prop_assert!(indices.is_sorted());
    Ok(())
}

#[test]
fn boxes_at_the_end_of_the_range_do_not_overflow() {
    let last = IndexBox::new([usize::MAX - 2], [usize::MAX]);
    assert_eq!(last.len(), 2);
    assert_eq!(last.indices().last(), Some([usize::MAX - 1]));
    assert!(last.shrink([usize::MAX]).is_empty());
    assert_eq!(IndexBox::new([0, 0], [usize::MAX, 2]).len(), usize::MAX);
}
