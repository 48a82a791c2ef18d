//! What points hold at first: a function of the round and the global point, so that every rank makes its own,
//! and a value that comes from a wrong place or an earlier round shows.

use super::mix;
use crate::config::Values;

/// Initial values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial {
    pub(crate) values: Values,
    pub(crate) seed: u64,
}

/// Bits of an integer value.
const INTEGER_BITS: u32 = 20;

impl Initial {
    /// The value at a global point `[z, y, x]` in a round, counted from 0.
    pub(crate) fn at(self, round: u64, point: [usize; 3]) -> f64 {
        let key = mix(self.seed ^ mix(round));
        let bits = point.into_iter().fold(key, |key, index| mix(key ^ index as u64));
        match self.values {
            // 21 bits, of which one stands for the sign.
            Values::Integers => (bits >> (63 - INTEGER_BITS)) as f64 - f64::from(1 << INTEGER_BITS),
            // 53 bits, from -1 up to 1.
            Values::Reals => (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_are_called_and_differ() {
        let at = |values, round, point| Initial { values, seed: 1 }.at(round, point);
        for index in 0..1000 {
            let integer = at(Values::Integers, 0, [0, 1, index]);
            assert!(integer.fract() == 0.0 && integer.abs() <= f64::from(1 << INTEGER_BITS), "{integer}");
            let real = at(Values::Reals, 0, [0, 1, index]);
            assert!((-1.0..1.0).contains(&real), "{real}");
        }
        let found = [[0, 0, 1], [0, 1, 0], [1, 0, 0]].map(|point| at(Values::Integers, 0, point));
        assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[2]);
        assert_ne!(found[0], at(Values::Integers, 1, [0, 0, 1]), "another round");
    }
}
