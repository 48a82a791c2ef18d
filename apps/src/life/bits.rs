//! Cells as bits, eight to a byte and the first in the lowest: how a state travels and is compared.

/// Packs cells in their order. Whatever is not dead is alive.
pub(super) fn pack<'c>(rows: impl IntoIterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut next = 0;
    for row in rows {
        bits.resize((next + row.len()).div_ceil(8), 0);
        for (step, _) in row.iter().enumerate().filter(|&(_, &cell)| cell != 0) {
            set(&mut bits, next + step);
        }
        next += row.len();
    }
    bits
}

/// Room for that many dead cells.
pub(super) fn none(cells: usize) -> Vec<u8> {
    vec![0; cells.div_ceil(8)]
}

/// Brings a cell to life.
pub(super) fn set(bits: &mut [u8], cell: usize) {
    bits[cell / 8] |= 1 << (cell % 8);
}

/// The live cells, in order.
pub(super) fn live(bits: &[u8]) -> impl Iterator<Item = usize> {
    // Most bytes hold no live cell after some hundred generations.
    let bytes = bits.iter().enumerate().filter(|&(_, &byte)| byte != 0);
    bytes.flat_map(|(index, byte)| {
        (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * index + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn live_cells_come_back_however_they_are_cut_into_rows(
            cells in prop::collection::vec(0_u8..2, 0..200),
            cut in 0_usize..200,
        ) {
            let expected: Vec<_> = (0..cells.len()).filter(|&cell| cells[cell] == 1).collect();
            let (one, two) = cells.split_at(cut.min(cells.len()));
            let bits = pack([one, two]);
            prop_assert_eq!(live(&bits).collect::<Vec<_>>(), expected.clone());
            let mut again = none(cells.len());
            expected.iter().for_each(|&cell| set(&mut again, cell));
            prop_assert_eq!(again, bits);
        }
    }
}
