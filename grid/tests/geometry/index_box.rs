//! Boxes against sets of single indices.

use crate::cases::{in_each_dimension, on_each_axis, whole};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::array::from_fn;
use streamhalo_grid::IndexBox;

type TwoBoxes<const D: usize> = (IndexBox<D>, IndexBox<D>, [usize; D]);

/// Two boxes, some of them empty or turned inside out, and a width.
fn boxes<const D: usize>() -> impl Strategy<Value = TwoBoxes<D>> {
    let one = || {
        (on_each_axis(3..7_usize), on_each_axis(2..9_usize))
            .prop_map(|(start, end)| IndexBox::new(start, end))
    };
    (one(), one(), on_each_axis(0..4_usize))
}

/// All indices that could be in one of the boxes, grown by any of the widths.
fn everything<const D: usize>() -> IndexBox<D> {
    whole([13; D])
}

in_each_dimension!(boxes_are_sets, 200, boxes);
fn boxes_are_sets<const D: usize>((one, other, width): TwoBoxes<D>) -> TestCaseResult {
    let members: Vec<_> = everything().indices().filter(|&i| one.contains(i)).collect();
    prop_assert_eq!(one.len(), members.len());
    prop_assert_eq!(one.is_empty(), members.is_empty());
    prop_assert_eq!(one.extents().iter().product::<usize>(), members.len());
    prop_assert_eq!(one.indices().len(), members.len());
    prop_assert_eq!(one.indices().collect::<Vec<_>>(), members);

    let (both, smaller, larger) = (one.intersection(&other), one.shrink(width), one.grow(width));
    for index in everything::<D>().indices() {
        prop_assert_eq!(both.contains(index), one.contains(index) && other.contains(index));
        // Shrunk is what stays inside when moved by the width either way on any axis.
        let deep = (0..D).all(|axis| {
            (one.start[axis] + width[axis]..one.end[axis]).contains(&index[axis])
                && index[axis] + width[axis] < one.end[axis]
        });
        prop_assert_eq!(smaller.contains(index), deep);
        let near = (0..D).all(|axis| {
            index[axis] + width[axis] >= one.start[axis] && index[axis] < one.end[axis] + width[axis]
        });
        prop_assert_eq!(larger.contains(index), near);
    }
    Ok(())
}

in_each_dimension!(indices_are_row_major, 50, boxes);
fn indices_are_row_major<const D: usize>((one, _, _): TwoBoxes<D>) -> TestCaseResult {
    let indices: Vec<_> = one.indices().collect();
    // Arrays compare lexicographically, slowest axis first.
    prop_assert!(indices.is_sorted());
    Ok(())
}

in_each_dimension!(parts_are_the_box_in_order, 200, boxes);
fn parts_are_the_box_in_order<const D: usize>((one, _, _): TwoBoxes<D>) -> TestCaseResult {
    let extents = one.extents();
    let axis = (0..D).find(|&axis| extents[axis] > 1);
    for parts in 1..8 {
        let pieces: Vec<_> = one.split(parts).collect();
        prop_assert_eq!(one.split(parts).len(), pieces.len());
        let joined: Vec<_> = pieces.iter().flat_map(IndexBox::indices).collect();
        prop_assert_eq!(joined, one.indices().collect::<Vec<_>>());
        let most = axis.map_or(1, |axis| extents[axis]);
        let expected = if one.is_empty() { 0 } else { parts.min(most) };
        prop_assert_eq!(pieces.len(), expected);
        if let (Some(axis), Some(first), Some(last)) = (axis, pieces.first(), pieces.last()) {
            prop_assert!(first.extents()[axis] - last.extents()[axis] <= 1);
            prop_assert!(!last.is_empty());
        }
    }
    Ok(())
}

#[test]
fn boxes_at_the_end_of_the_range_do_not_overflow() {
    let last = IndexBox::new([usize::MAX - 2], [usize::MAX]);
    assert_eq!(last.len(), 2);
    assert_eq!(last.indices().last(), Some([usize::MAX - 1]));
    assert!(last.shrink([usize::MAX]).is_empty());
}

#[test]
fn split_leaves_out_axes_with_one_index() {
    let flat = IndexBox::new([4, 0, 0], [5, 3, 9]);
    let pieces: Vec<_> = flat.split(2).collect();
    let expected = [IndexBox::new([4, 0, 0], [5, 2, 9]), IndexBox::new([4, 2, 0], [5, 3, 9])];
    assert_eq!(pieces, expected);
}

#[test]
fn intersection_of_boxes_apart_is_empty_on_the_axes_apart() {
    let left = IndexBox::new([0, 0], [4, 4]);
    let right = IndexBox::new([2, 6], [8, 9]);
    assert_eq!(left.intersection(&right), IndexBox::new([2, 6], [4, 6]));
    assert_eq!(right.intersection(&left), left.intersection(&right));
    assert_eq!(left.intersection(&right).extents(), from_fn(|axis| [2, 0][axis]));
}

#[test]
#[should_panic(expected = "starts at 1 on axis 1 cannot grow by 2: indices begin at 0")]
fn growing_below_zero_panics() {
    let _ = IndexBox::new([4, 1], [5, 5]).grow([2, 2]);
}

#[test]
#[should_panic(expected = "cannot be split into 0 parts")]
fn splitting_into_nothing_panics() {
    let _ = whole([3]).split(0);
}
