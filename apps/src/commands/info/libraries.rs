//! Libraries that carry messages between machines: what was found of them, and what each can do.

use std::path::PathBuf;

/// An MPI library of this machine.
#[derive(Clone, Debug)]
pub(super) struct Library {
    pub(super) path: PathBuf,
    /// Its binary interface.
    pub(super) abi: String,
    /// What it says of itself.
    pub(super) version: String,
    pub(super) capabilities: Vec<&'static str>,
    /// Why it cannot be used, if so.
    pub(super) unusable: Option<String>,
}

/// A provider of libfabric.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) version: String,
    /// The networks that it reaches.
    pub(super) fabrics: Vec<String>,
    pub(super) capabilities: Vec<&'static str>,
    /// Why it cannot be used, if so.
    pub(super) unusable: Option<String>,
}

/// The MPI libraries of this machine, or why they are not known.
pub(super) fn mpi_libraries() -> Result<Vec<Library>, String> {
    Err("not listed in this version; the fabric `mpi` above says whether there is one".to_owned())
}

/// The providers of this machine's libfabric, or why there are none.
pub(super) fn libfabric_providers() -> Result<Vec<Provider>, String> {
    Err("not listed in this version".to_owned())
}

/// Entries of a section.
type Entries = Vec<(String, Vec<String>)>;

/// What is said of MPI libraries.
pub(super) fn of_mpi(found: Result<Vec<Library>, String>) -> Entries {
    let entry = |library: &Library| {
        let place = format!("{} ({} ABI)", library.path.display(), library.abi);
        let name = crate::run::in_short(&library.version);
        (name, vec![place, ability(&library.capabilities, library.unusable.as_deref())])
    };
    listed(
        found,
        entry,
        "none: install MPICH, Open MPI or Intel MPI, or set STREAMHALO_MPI to the path of one",
    )
}

/// What is said of providers of libfabric.
pub(super) fn of_libfabric(found: Result<Vec<Provider>, String>) -> Entries {
    let entry = |provider: &Provider| {
        let mut said = vec![format!("version {}", provider.version)];
        if !provider.fabrics.is_empty() {
            said[0] += &format!(", reaches {}", provider.fabrics.join(", "));
        }
        said.push(ability(&provider.capabilities, provider.unusable.as_deref()));
        (provider.name.clone(), said)
    };
    listed(found, entry, "none: libfabric has no provider for this machine")
}

fn listed<T>(
    found: Result<Vec<T>, String>,
    entry: impl Fn(&T) -> (String, Vec<String>),
    none: &str,
) -> Entries {
    match found {
        Err(reason) => vec![("-".to_owned(), vec![reason])],
        Ok(found) if found.is_empty() => vec![("-".to_owned(), vec![none.to_owned()])],
        Ok(found) => found.iter().map(entry).collect(),
    }
}

fn ability(capabilities: &[&str], unusable: Option<&str>) -> String {
    match unusable {
        Some(reason) => format!("cannot be used: {reason}"),
        None if capabilities.is_empty() => "messages only".to_owned(),
        None => capabilities.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;

    fn shown(entries: &Entries) -> String {
        let mut page = Page::new("");
        page.section("part", entries);
        page.into_text()
    }

    #[test]
    fn libraries_say_where_they_are_and_what_they_can_do() {
        let usable = Library {
            path: "/opt/mpich/lib/libmpi.so.12".into(),
            abi: "MPICH".to_owned(),
            version: "MPICH Version:      4.3.2\nMPICH Release date: x".to_owned(),
            capabilities: vec!["persistent", "RMA", "partitioned"],
            unusable: None,
        };
        let unusable = Library {
            version: "Open MPI v1.6.5, package: x".to_owned(),
            unusable: Some("it implements MPI 2.1, but 3.0 or newer is needed".to_owned()),
            ..usable.clone()
        };
        let text = shown(&of_mpi(Ok(vec![usable, unusable])));
        assert!(text.contains(
            "  MPICH Version: 4.3.2\n      /opt/mpich/lib/libmpi.so.12 (MPICH ABI)\n      persistent, RMA, partitioned\n"
        ), "{text}");
        assert!(text.contains("Open MPI v1.6.5") && text.contains("cannot be used: it implements MPI 2.1"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn providers_say_what_they_reach_and_can_do() {
        let provider = Provider {
            name: "cxi".to_owned(),
            version: "0.1".to_owned(),
            fabrics: vec!["hsn0".to_owned(), "hsn1".to_owned()],
            capabilities: vec!["triggered", "atomics", "RMA"],
            unusable: None,
        };
        let plain =
            Provider { name: "udp".to_owned(), fabrics: vec![], capabilities: vec![], ..provider.clone() };
        let text = shown(&of_libfabric(Ok(vec![provider, plain])));
        assert!(
            text.contains("  cxi  version 0.1, reaches hsn0, hsn1\n       triggered, atomics, RMA\n"),
            "{text}"
        );
        assert!(text.contains("  udp  version 0.1\n       messages only\n"), "{text}");
    }

    #[test]
    fn that_there_are_none_is_said_with_the_reason() {
        assert!(shown(&of_mpi(Ok(vec![]))).contains("none: install MPICH"));
        let text = shown(&of_libfabric(Err("there is no libfabric.so.1".to_owned())));
        assert!(text.contains("  -  there is no libfabric.so.1\n"), "{text}");
    }
}
