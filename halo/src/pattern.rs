//! Which neighbours take part in an exchange.

use crate::error::{HaloError, Result};

/// The offsets from which ghosts are filled. Offsets have one component an axis, slowest first,
/// each -1, 0 or 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Neighbours that share a face: 4 in two dimensions, 6 in three. Ghosts at edges and corners stay as they are.
    Faces,
    /// All neighbours, at edges and corners too: 8 in two dimensions, 26 in three.
    All,
    /// These offsets: the neighbour at each fills the ghosts at that side.
    Offsets(Vec<Vec<i32>>),
}

impl Pattern {
    /// The offsets in a fixed order: that of their components, slowest axis first. Reductions add
    /// contributions in this order, and messages are packed in it.
    pub(crate) fn offsets<const D: usize>(&self) -> Result<Vec<[i32; D]>> {
        let mut offsets: Vec<[i32; D]> = match self {
            Pattern::Faces => all_offsets()
                .into_iter()
                .filter(|offset| offset.iter().filter(|c| **c != 0).count() == 1)
                .collect(),
            Pattern::All => all_offsets(),
            Pattern::Offsets(given) => given.iter().map(|offset| checked(offset)).collect::<Result<_>>()?,
        };
        offsets.sort_unstable();
        if let Some(twice) = offsets.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(HaloError::BadOffset {
                offset: twice[0].to_vec(),
                reason: "it is given twice".into(),
            });
        }
        Ok(offsets)
    }
}

/// All offsets but the one to the rank itself.
fn all_offsets<const D: usize>() -> Vec<[i32; D]> {
    (0..3_usize.pow(D as u32))
        .map(|mut code| {
            let mut offset = [0; D];
            for component in offset.iter_mut().rev() {
                *component = (code % 3) as i32 - 1;
                code /= 3;
            }
            offset
        })
        .filter(|offset| offset.iter().any(|component| *component != 0))
        .collect()
}

fn checked<const D: usize>(offset: &[i32]) -> Result<[i32; D]> {
    let bad = |reason: String| HaloError::BadOffset { offset: offset.to_vec(), reason };
    let array: [i32; D] = offset.try_into().map_err(|_| bad(format!("the grid has {D} axes")))?;
    if array.iter().any(|component| !(-1..=1).contains(component)) {
        return Err(bad("components are -1, 0 or 1; for more layers make the halo wider".into()));
    }
    if array == [0; D] {
        return Err(bad("it leads to the rank itself".into()));
    }
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_offsets_of_their_dimension_in_order() {
        assert_eq!(Pattern::Faces.offsets::<2>().unwrap(), [[-1, 0], [0, -1], [0, 1], [1, 0]]);
        assert_eq!(Pattern::All.offsets::<2>().unwrap().len(), 8);
        assert_eq!(Pattern::All.offsets::<3>().unwrap().len(), 26);
        assert!(Pattern::All.offsets::<3>().unwrap().is_sorted());
    }

    #[test]
    fn offsets_that_are_none_are_refused() {
        for bad in [vec![0, 0], vec![2, 0], vec![1], vec![0, 0, 1]] {
            let error = Pattern::Offsets(vec![bad.clone()]).offsets::<2>().unwrap_err();
            assert!(matches!(error, HaloError::BadOffset { offset, .. } if offset == bad));
        }
        let twice = Pattern::Offsets(vec![vec![0, 1], vec![0, 1]]).offsets::<2>();
        assert!(matches!(twice, Err(HaloError::BadOffset { .. })));
    }
}
