//! The nearest of some names to a wrong one.

/// The name that was probably meant, if any is close enough to be worth a question.
pub fn nearest<'a>(wrong: &str, names: &[&'a str]) -> Option<&'a str> {
    let wrong = fold(wrong);
    // A third of the letters wrong is a slip; more is another word.
    let allowed = 1 + wrong.chars().count() / 3;
    names
        .iter()
        .map(|name| (strsim::osa_distance(&wrong, &fold(name)), *name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Case and the choice of separator are no difference.
fn fold(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// "; did you mean `x`?", where there is such a name.
pub(crate) fn did_you_mean<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    nearest(wrong, &names).map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["standard", "st-send", "st-rsend", "active-rma", "notified"];

    #[test]
    fn slips_find_their_name() {
        for (wrong, right) in [
            ("standart", "standard"),
            ("staandart", "standard"),
            ("st_rsend", "st-rsend"),
            ("ST-SEND", "st-send"),
            ("notifed", "notified"),
            ("active-ram", "active-rma"),
        ] {
            assert_eq!(nearest(wrong, NAMES), Some(right), "{wrong}");
        }
    }

    #[test]
    fn other_words_find_nothing() {
        for wrong in ["nccl", "", "mpi", "shared-memory"] {
            assert_eq!(nearest(wrong, NAMES), None, "{wrong}");
        }
    }

    #[test]
    fn a_slip_is_asked_about() {
        assert_eq!(did_you_mean("st-rsned", NAMES.iter().copied()), "; did you mean `st-rsend`?");
        assert_eq!(did_you_mean("nccl", NAMES.iter().copied()), "");
    }
}
