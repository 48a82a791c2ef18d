//! The one hash of all applications, behind random values and checksums alike.

/// The odd number nearest to 2⁶⁴ divided by the golden ratio: the step of SplitMix64.
const GOLDEN_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads 64 bits over 64 bits: one output of SplitMix64 (Steele, Lea and Flood, 2014) in state
/// `value`. A bijection, and a function of a counter, so any rank can compute any cell's bits
/// without having drawn those before it.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let mut bits = value.wrapping_add(GOLDEN_STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sequence that the generator's authors and many libraries give for the seed 1234567.
    #[test]
    fn agrees_with_the_published_sequence() {
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for (draw, expected) in (0u64..).zip(published) {
            assert_eq!(mix(1_234_567 + draw.wrapping_mul(GOLDEN_STEP)), expected);
        }
    }
}
