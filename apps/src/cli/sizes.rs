//! Sizes in bytes, as in `8..4MiB`.

use std::str::FromStr;

/// Sizes that a measurement goes through, in bytes, in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

/// The largest size that can be asked for: 1 GiB, as in the 2026 paper.
const LARGEST: usize = 1 << 30;

const UNITS: [(&str, usize); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

impl FromStr for Sizes {
    type Err = String;

    /// Takes sizes and ranges, with commas in between. A range goes from its first size on in powers of two.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(size(part)?),
                Some((low, high)) => {
                    let (low, high) = (size(low)?, size(high)?);
                    if low > high {
                        return Err(format!("`{part}` goes down; give the smaller size first"));
                    }
                    sizes.extend(
                        std::iter::successors(Some(low), |size| Some(2 * size))
                            .take_while(|size| *size <= high),
                    );
                }
            }
        }
        Ok(Self(sizes))
    }
}

fn size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let (digits, unit) =
        UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes))).unwrap_or((text, 1));
    let expected =
        || format!("`{text}` is no size: expected 1 to {LARGEST} bytes, as in 8, 64KiB or 8..4MiB");
    let number: usize = digits.trim().parse().map_err(|_| expected())?;
    number.checked_mul(unit).filter(|bytes| (1..=LARGEST).contains(bytes)).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_powers_of_two() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("8..100"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(sizes("3,1KiB,2KiB..4KiB"), Ok(vec![3, 1024, 2048, 4096]));
        assert_eq!(sizes("8 B"), Ok(vec![8]));
        assert_eq!(sizes("8..4MiB").map(|sizes| (sizes.len(), sizes[19])), Ok((20, 4 << 20)));
        assert_eq!(sizes("1GiB"), Ok(vec![LARGEST]));
        for wrong in ["", "0", "8..", "x", "4KB", "-1", "2GiB", "99999999999999999999", "8,,9"] {
            assert!(sizes(wrong).expect_err(wrong).contains("is no size"), "{wrong}");
        }
        assert!(sizes("9..8").expect_err("it goes down").contains("goes down"));
    }
}
