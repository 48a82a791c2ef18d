//! Whether all ranks were started alike: what each of them says, and the verdict, which is the same on
//! all of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::AppError;

/// No other message that ranks may send first begins with it: one that runs another command, or over
/// another fabric, is noticed as such.
const SIGN: u8 = 0xA5;

/// What a rank says before anything else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Said {
    sign: u8,
    /// Which program, in which version, with which command.
    program: String,
    prepared: Result<String, Refusal>,
}

/// Why a rank cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refusal {
    message: String,
    hint: Option<String>,
    status: u8,
}

impl Said {
    /// `asked` is what the rank was asked to do, or why it cannot.
    pub(super) fn new(command: &str, asked: Result<Value, &AppError>) -> Self {
        let refusal = |error: &AppError| Refusal {
            message: error.to_string(),
            hint: error.hint(),
            status: error.exit_status(),
        };
        Self {
            sign: SIGN,
            program: format!("{command} {}", env!("CARGO_PKG_VERSION")),
            prepared: asked.map(|asked| asked.to_string()).map_err(refusal),
        }
    }
}

/// What is wrong with what the ranks have said, by rank, if anything is, and which rank's fault it is.
pub(super) fn verdict(all: &[Said]) -> Result<(), (usize, AppError)> {
    let first = &all[0];
    let differs = |rank: usize, what: String| Err((rank, AppError::Differs { rank, what }));
    for (rank, said) in all.iter().enumerate() {
        if said.sign != SIGN {
            return differs(rank, "it runs another program".to_owned());
        }
        // A rank that cannot go on may not know with which command it was started.
        if said.program != first.program && said.prepared.is_ok() && first.prepared.is_ok() {
            return differs(rank, format!("it runs `{}`, rank 0 runs `{}`", said.program, first.program));
        }
    }
    for (rank, said) in all.iter().enumerate() {
        if let Err(refusal) = &said.prepared {
            let Refusal { message, hint, status } = refusal.clone();
            return Err((rank, AppError::Refused { rank, message, hint, status }));
        }
    }
    for (rank, said) in all.iter().enumerate() {
        if let (Ok(own), Ok(others)) = (&first.prepared, &said.prepared)
            && own != others
        {
            let parse = |text: &str| serde_json::from_str(text).unwrap_or_default();
            let what = difference("", &parse(others), &parse(own));
            return differs(rank, what.unwrap_or_else(|| "it was asked for something else".to_owned()));
        }
    }
    Ok(())
}

/// Where what a rank was asked first differs from what rank 0 was asked, as a sentence.
fn difference(path: &str, found: &Value, of_first: &Value) -> Option<String> {
    match (found, of_first) {
        (Value::Object(found), Value::Object(of_first)) => {
            let keys = found.keys().chain(of_first.keys());
            keys.map(|key| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let absent = Value::Null;
                let value = |map: &serde_json::Map<String, Value>| map.get(key).unwrap_or(&absent).clone();
                difference(&path, &value(found), &value(of_first))
            })
            .find_map(|found| found)
        }
        _ if found == of_first => None,
        _ => Some(format!("its `{path}` is {found}, that of rank 0 is {of_first}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(asked: Value) -> Said {
        Said::new("streamhalo run", Ok(asked))
    }

    fn wrong(all: &[Said]) -> (usize, String, u8) {
        let (rank, error) = verdict(all).expect_err("they differ");
        (rank, error.to_string(), error.exit_status())
    }

    #[test]
    fn ranks_that_were_asked_the_same_agree() {
        let one = said(json!({ "run": { "trials": 3 } }));
        assert!(verdict(&[one.clone(), one.clone(), one]).is_ok());
    }

    #[test]
    fn the_first_difference_is_named() {
        let one = said(json!({ "comm": { "fabric": "mpi" }, "run": { "ranks": [1, 2], "trials": 3 } }));
        let other = said(json!({ "comm": { "fabric": "mpi" }, "run": { "ranks": [1, 4], "trials": 3 } }));
        let (rank, message, status) = wrong(&[one.clone(), one.clone(), other]);
        assert_eq!((rank, status), (2, 2));
        assert!(message.contains("rank 2") && message.contains("its `run.ranks` is [1,4]"), "{message}");
        let less = said(json!({ "comm": { "fabric": "mpi" }, "run": { "ranks": [1, 2] } }));
        assert!(wrong(&[one, less]).1.contains("`run.trials` is null, that of rank 0 is 3"));
    }

    #[test]
    fn another_program_is_named_before_what_it_was_asked() {
        let mut other = said(json!({}));
        other.program = "streamhalo run 0.0.9".to_owned();
        let (rank, message, _) = wrong(&[said(json!({ "a": 1 })), other]);
        assert!(rank == 1 && message.contains("it runs `streamhalo run 0.0.9`"), "{message}");
        let mut stranger = said(json!({}));
        stranger.sign = 0;
        assert!(wrong(&[said(json!({})), stranger]).1.contains("another program"));
    }

    #[test]
    fn the_first_rank_that_cannot_is_the_verdict() {
        let refused = |message: &str| {
            let error = AppError::usage("--ranks", message);
            Said::new("streamhalo run", Err(&error))
        };
        let all = [said(json!({})), refused("too many"), refused("too few")];
        assert_eq!(wrong(&all), (1, "rank 1: --ranks: too many".to_owned(), 2));
    }
}
