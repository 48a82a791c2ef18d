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
        parse(text, size)
    }
}

impl Sizes {
    /// Numbers of what is counted and has no unit.
    pub(super) fn of_counts(text: &str) -> Result<Self, String> {
        parse(text, count)
    }
}

fn parse(text: &str, read: fn(&str) -> Result<usize, String>) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => sizes.push(read(part)?),
            Some((low, high)) => {
                let (low, high) = (read(low)?, read(high)?);
                if low > high {
                    return Err(format!("`{part}` goes down; give the smaller one first"));
                }
                sizes.extend(
                    std::iter::successors(Some(low), |size| Some(2 * size)).take_while(|size| *size <= high),
                );
            }
        }
    }
    let twice = sizes.iter().enumerate().find(|(index, size)| sizes[..*index].contains(size));
    match twice {
        Some((_, size)) => Err(format!("{size} is there twice; give it once")),
        None => Ok(Sizes(sizes)),
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

fn count(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let number = text.parse().ok().filter(|number| (1..=LARGEST).contains(number));
    number.ok_or_else(|| format!("`{text}` is none of 1 to {LARGEST}, as in 8, 2..64 or 2,4,8"))
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
        assert_eq!(Sizes::of_counts("3,2..9").map(|counts| counts.0), Ok(vec![3, 2, 4, 8]));
        for wrong in ["0", "2KiB", "-1", ""] {
            let error = Sizes::of_counts(wrong).expect_err(wrong);
            assert!(error.contains("is none of 1 to 1073741824") && !error.contains("bytes"), "{error}");
        }
        assert!(sizes("9..8").expect_err("it goes down").contains("goes down"));
        for twice in ["1024,1KiB", "8,256..2KiB,1KiB"] {
            assert_eq!(sizes(twice), Err("1024 is there twice; give it once".to_owned()), "{twice}");
        }
    }
}
