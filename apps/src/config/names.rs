//! The names that a configuration may use, and the nearest of them to a wrong one.

/// The names that this program knows: the rows of the registries of backends, fabrics and devices.
#[derive(Clone, Copy, Debug)]
pub struct KnownNames<'a> {
    /// Values of `comm.backend`, without the alias `cray-mpich`.
    pub backends: &'a [&'a str],
    /// Values of `comm.fabric`, combinations such as `shm+mpi` included.
    pub fabrics: &'a [&'a str],
    /// Values of `device.kind`.
    pub devices: &'a [&'a str],
}

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

/// "a, b or c" for "expected ...".
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing: none is built in".to_owned(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("`{name}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
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
    fn lists_read_as_a_sentence() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
