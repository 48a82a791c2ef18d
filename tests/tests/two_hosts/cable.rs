//! Two hosts with a cable between them: network namespaces and a pair of virtual interfaces.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The name of the interface on both hosts.
pub(crate) const INTERFACE: &str = "halo0";

/// The hosts, which are gone with this.
#[derive(Debug)]
pub(crate) struct Cable {
    hosts: [Host; 2],
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Host {
    namespace: String,
    pub(crate) address: String,
}

/// The tool, which is not on the search path of every user.
fn ip() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut programs = folders.map(|folder| folder.join("ip"));
    programs.find(|program| program.exists()).unwrap_or_else(|| "ip".into())
}

fn call(arguments: &str) -> Result<String, String> {
    let output = Command::new(ip()).args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("`ip`: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

impl Cable {
    /// Makes hosts whose names have a word of the test's, or says why this user cannot.
    pub(crate) fn new(test: &str) -> Result<Self, String> {
        let host = |number: usize| Host {
            namespace: format!("halo-{test}-{}-{number}", std::process::id()),
            address: format!("10.77.0.{}", number + 1),
        };
        let cable = Self { hosts: [host(0), host(1)] };
        for host in &cable.hosts {
            call(&format!("netns add {}", host.namespace))?;
        }
        let [a, b] = [0, 1].map(|number| &cable.hosts[number].namespace);
        call(&format!("link add {INTERFACE} netns {a} type veth peer name {INTERFACE} netns {b}"))?;
        for Host { namespace, address } in &cable.hosts {
            call(&format!("-n {namespace} address add {address}/24 dev {INTERFACE}"))?;
            call(&format!("-n {namespace} link set lo up"))?;
            call(&format!("-n {namespace} link set {INTERFACE} up"))?;
        }
        // The kernel tells of a carrier a moment later, and until then libraries pass the interface over.
        let begun = Instant::now();
        for host in &cable.hosts {
            while host.interface("operstate")? != "up" && begun.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(cable)
    }

    pub(crate) fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// What `on_host` needs to know.
    pub(crate) fn table(&self) -> String {
        let entries = self.hosts.iter().map(|host| format!("{}={}", host.address, host.namespace));
        entries.collect::<Vec<_>>().join(" ")
    }

    /// Cuts the cable.
    pub(crate) fn cut(&self) {
        call(&format!("-n {} link set {INTERFACE} down", self.hosts[1].namespace)).expect("it is up");
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for host in &self.hosts {
            // One that could not be made is not there.
            let _ = call(&format!("netns delete {}", host.namespace));
        }
    }
}

impl Host {
    /// A program on this host.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(ip());
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// How many bytes the interface has sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        let read = self.interface("statistics/tx_bytes").expect("the host is there");
        read.parse().expect("it is a number")
    }

    /// What the kernel tells of the interface.
    fn interface(&self, file: &str) -> Result<String, String> {
        let read = call(&format!("netns exec {} cat /sys/class/net/{INTERFACE}/{file}", self.namespace))?;
        Ok(read.trim().to_string())
    }
}
