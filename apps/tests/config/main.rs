//! The run configuration and the command line, as a user meets them.

mod accepted;
mod cli;
mod errors;
mod flags;
mod values;

use streamhalo_apps::config::{ConfigError, KnownNames, Overrides, RunConfig};

/// The registries' names; the program passes its own.
const NAMES: KnownNames<'static> = KnownNames {
    backends: &["standard", "st-send", "st-rsend", "active-rma", "notified", "auto"],
    fabrics: &["local", "shm", "mpi", "ofi", "shm+mpi", "shm+ofi"],
    devices: &["host", "opencl", "cuda", "hip"],
};

/// `text` with a pattern that needs no file, which only its own tests care about.
fn parse(text: &str) -> Result<RunConfig, Box<ConfigError>> {
    parse_with(text, &Overrides::default())
}

fn parse_with(text: &str, flags: &Overrides) -> Result<RunConfig, Box<ConfigError>> {
    let mut flags = flags.clone();
    if !text.contains("name") && !text.contains("pattern") {
        flags.set.insert(0, "app.pattern=random:1".to_owned());
    }
    RunConfig::parse("f.toml", text, &flags, &NAMES)
}

/// What the program prints after `error: `, and its hint.
fn printed(error: &ConfigError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

/// Text, place, message, a part of what was expected, hint.
type Case = (&'static str, (usize, usize), &'static str, &'static str, Option<&'static str>);

fn check(cases: &[Case]) {
    for &(text, (line, column), message, expected, hint) in cases {
        let error = parse(text).expect_err(text);
        let found = printed(&error);
        let head = format!("f.toml:{line}:{column}: {message}\n");
        assert!(found.starts_with(&head), "{text}\n{found}\nnot at {head}");
        assert!(found.contains(expected), "{text}\n{found}");
        assert_eq!(error.hint.as_deref(), hint, "{text}\n{found}");
    }
}
