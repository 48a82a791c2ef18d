//! On what the results were measured. What a system does not tell is left out.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine of a run. It names no host and no user: results are meant to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineInfo {
    /// The processor's name for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Cores that the system schedules on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_cores: Option<usize>,
    /// The operating system.
    pub os: String,
    /// Its kernel's release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The version of this program.
    pub streamhalo: String,
}

impl MachineInfo {
    /// Asks this machine.
    pub fn detect() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            cpu: cpu_name(&processors),
            logical_cores: count_cores(&processors),
            os: std::env::consts::OS.to_owned(),
            kernel: kernel.map(|release| release.trim().to_owned()),
            streamhalo: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn values<'t>(processors: &'t str, key: &str) -> impl Iterator<Item = &'t str> {
    processors.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

fn cpu_name(processors: &str) -> Option<String> {
    values(processors, "model name").next().map(str::to_owned)
}

/// `available_parallelism` is the second choice: it counts what this process may use.
fn count_cores(processors: &str) -> Option<usize> {
    match values(processors, "processor").count() {
        0 => std::thread::available_parallelism().ok().map(usize::from),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_processors_is_read() {
        let text = "processor\t: 0\nmodel name\t: A: B\n\nprocessor\t: 1\nmodel name\t: A: B\n";
        assert_eq!(cpu_name(text).as_deref(), Some("A: B"));
        assert_eq!(count_cores(text), Some(2));
        assert_eq!(cpu_name(""), None);
    }
}
