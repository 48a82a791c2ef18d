//! What an application computes, in a form that answers of different origin can be compared in.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::AppError;

/// The result of a run, or of the reference that it is verified against.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the final state, in hexadecimal.
    pub checksum: String,
    /// The application's own, such as the population of `life`.
    pub result: Map<String, Value>,
    /// The whole final state, in the application's own encoding, where it was asked for; on rank 0
    /// only.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub state: Option<Vec<u8>>,
}

/// What says whether an answer is right.
pub trait Verified {
    /// The answer by an independent and simple computation, on one thread. It asks `go_on` now and
    /// then, and stops with its error.
    ///
    /// # Errors
    ///
    /// That of `go_on`.
    fn reference(&self, go_on: &dyn Fn() -> Result<(), AppError>) -> Result<Answer, AppError>;

    /// How much memory [`Verified::reference`] and [`Verified::difference`] have at once, more or less: whether
    /// there is room for it is found out before.
    fn bytes_to_verify(&self) -> usize;

    /// Where an answer differs from the reference's, as a sentence; `None` where it is right. Both
    /// have their state.
    fn difference(&self, found: &Answer, reference: &Answer) -> Option<String>;
}

/// JSON has no bytes; two digits each are short and quick enough.
fn to_hex<S: Serializer>(state: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    match state {
        None => serializer.serialize_none(),
        Some(bytes) => {
            let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
            serializer.serialize_some(&digits.collect::<String>())
        }
    }
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes = text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>();
    bytes.map(Some).ok_or_else(|| serde::de::Error::custom("a state is pairs of hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_json() {
        for state in [None, Some(vec![]), Some((0..=255).collect::<Vec<u8>>())] {
            let answer = Answer { state, ..Answer::default() };
            let text = serde_json::to_string(&answer).expect("is plain data");
            assert_eq!(serde_json::from_str::<Answer>(&text).expect("was written by us"), answer);
        }
    }

    /// In decimals, of which the last of these takes all that there are: it is what showed that some were read one bit off.
    #[test]
    fn numbers_survive_json_bit_for_bit() {
        for number in [0.1, 1.0 / 3.0, f64::MIN_POSITIVE, f64::MAX, 2.0 - f64::powi(2.0, -27)] {
            let result = [("number".to_owned(), Value::from(number))].into_iter().collect();
            let answer = Answer { result, ..Answer::default() };
            let text = serde_json::to_string(&answer).expect("is plain data");
            assert_eq!(serde_json::from_str::<Answer>(&text).expect("was written by us"), answer);
        }
    }

    #[test]
    fn what_is_not_hexadecimal_is_refused() {
        for state in ["0", "0g", "é"] {
            let text = format!(r#"{{"checksum": "", "result": {{}}, "state": "{state}"}}"#);
            assert!(serde_json::from_str::<Answer>(&text).is_err(), "{state}");
        }
    }
}
