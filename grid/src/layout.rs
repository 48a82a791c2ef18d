//! The search for the layout that cuts the grid along the least surface.

use crate::{GlobalGrid, GridError};

/// The layouts for [`Partition::by_surface`](crate::Partition::by_surface).
pub(crate) fn by_surface<const D: usize>(
    grid: &GlobalGrid<D>,
    ranks: usize,
) -> Result<Vec<[usize; D]>, GridError> {
    let mut layouts = Vec::new();
    for_each_layout(&grid.cells(), ranks, &mut |layout| layouts.push(*layout));
    // Layouts come in the order of preference among equals, which a stable sort keeps.
    layouts.sort_by_key(|layout| cut_surface(grid, layout));
    if layouts.is_empty() { Err(no_layout(grid, ranks)) } else { Ok(layouts) }
}

/// The area, in cells, of all planes that separate ranks. A periodic axis in one part is not cut:
/// what wraps round there stays on its rank.
pub(crate) fn cut_surface<const D: usize>(grid: &GlobalGrid<D>, layout: &[usize; D]) -> u128 {
    let cells = grid.cells();
    let volume: u128 = cells.iter().map(|&count| count as u128).product();
    (0..D)
        .map(|axis| {
            let parts = layout[axis];
            let cut_planes = if grid.periodic()[axis] && parts > 1 { parts } else { parts - 1 };
            cut_planes as u128 * (volume / cells[axis] as u128)
        })
        .sum()
}

/// Visits every layout of `ranks` ranks with at least one cell a rank on every axis, those with
/// more parts on slower axes first.
fn for_each_layout<const D: usize>(cells: &[usize; D], ranks: usize, visit: &mut dyn FnMut(&[usize; D])) {
    // More ranks than cells have no layout, and factorising an absurd number could take minutes.
    if ranks <= cells.iter().product() {
        split_axis(cells, 0, ranks, &mut [1; D], visit);
    }
}

fn split_axis<const D: usize>(
    cells: &[usize; D],
    axis: usize,
    ranks: usize,
    layout: &mut [usize; D],
    visit: &mut dyn FnMut(&[usize; D]),
) {
    if axis == D - 1 {
        if ranks <= cells[axis] {
            layout[axis] = ranks;
            visit(layout);
        }
        return;
    }
    for parts in divisors(ranks).into_iter().rev() {
        if parts <= cells[axis] {
            layout[axis] = parts;
            split_axis(cells, axis + 1, ranks / parts, layout, visit);
        }
    }
}

/// All divisors of `number`, in ascending order.
fn divisors(number: usize) -> Vec<usize> {
    let mut divisors: Vec<usize> =
        (1..=number.isqrt()).filter(|&divisor| number.is_multiple_of(divisor)).collect();
    // Each divisor up to the square root has a partner above it, except for the root itself.
    for position in (0..divisors.len()).rev() {
        let divisor = divisors[position];
        if number / divisor != divisor {
            divisors.push(number / divisor);
        }
    }
    divisors
}

/// The error for a number of ranks without a layout, with the nearest numbers that have one.
fn no_layout<const D: usize>(grid: &GlobalGrid<D>, ranks: usize) -> GridError {
    let cells = grid.cells();
    let works = |&count: &usize| {
        let mut found = false;
        for_each_layout(&cells, count, &mut |_| found = true);
        found
    };
    // One rank a cell always works, as does one rank: both searches end.
    let most = cells.iter().product::<usize>();
    let below = if ranks > most { most } else { (1..ranks).rev().find(works).unwrap_or(1) };
    GridError::NoLayout {
        ranks,
        cells: cells.to_vec(),
        below,
        above: (ranks.saturating_add(1)..=most).find(works),
    }
}
