//! The names that a configuration may use, and the nearest of them to a wrong one.

pub use streamhalo::comm::nearest;

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

    #[test]
    fn lists_read_as_a_sentence() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
