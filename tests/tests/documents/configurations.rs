//! Configurations: those that documents show are accepted, and those of the project are described.

use crate::program::refusal;
use crate::{assert_none, blocks_in, document, entries, files, small_grid, unnamed, workspace};
use std::path::{Path, PathBuf};

/// The sections of a run configuration.
const SECTIONS: [&str; 6] = ["[app]", "[grid]", "[run]", "[comm]", "[device]", "[output]"];

/// What a TOML block is.
fn is_configuration(block: &str) -> bool {
    block.lines().any(|line| SECTIONS.contains(&line.trim()))
}

/// Dependencies of a piece of a `Cargo.toml` that are not members of the workspace.
fn foreign_dependencies(block: &str, root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut lines = block.lines();
    if lines.next() != Some("[dependencies]") {
        complaints.push(format!("neither a configuration nor dependencies: {block}"));
    }
    for line in lines {
        let name = line.split(['=', ' ']).next().unwrap_or_default();
        let folder = line.split("../streamhalo/").nth(1).and_then(|rest| rest.split('"').next());
        let manifest = folder.map(|folder| root.join(folder).join("Cargo.toml"));
        let says = |manifest: PathBuf| std::fs::read_to_string(manifest).unwrap_or_default();
        if !manifest.map(says).unwrap_or_default().contains(&format!("name = \"{name}\"\n")) {
            complaints.push(format!("`{line}` is no package of the workspace"));
        }
    }
    complaints
}

#[test]
fn configurations_are_accepted() {
    let root = workspace();
    let folder = std::env::temp_dir().join(format!("streamhalo-documents-{}", std::process::id()));
    let patterns = folder.join("patterns");
    std::fs::create_dir_all(&patterns).expect("can write");
    for pattern in entries(&root.join("configs/life/patterns")) {
        std::fs::copy(&pattern, patterns.join(pattern.file_name().expect("a file"))).expect("can write");
    }
    let mut complaints = Vec::new();
    let blocks = blocks_in("toml");
    assert!(blocks.iter().any(|(_, block)| is_configuration(block)), "no document shows a configuration");
    for (name, block) in blocks {
        let file = folder.join("config.toml");
        std::fs::write(&file, &block).expect("can write");
        let found = if is_configuration(&block) {
            refusal(&["explain", file.to_str().expect("is text")]).into_iter().collect()
        } else {
            foreign_dependencies(&block, &root)
        };
        complaints.extend(found.into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    std::fs::remove_dir_all(&folder).expect("was made");
    let described = document("docs/apps.md");
    for path in files("toml").into_iter().filter(|path| path.starts_with(root.join("configs"))) {
        let name = path.strip_prefix(&root).expect("lies in it").to_str().expect("is text");
        complaints.extend(unnamed(&described, [name].into_iter()));
        complaints.extend(refusal(&["explain", name, "--set", small_grid(name)]));
    }
    assert_none(&complaints);
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn toml_is_a_configuration_or_dependencies_of_ours() {
        assert!(is_configuration("[run]\nranks = 1\n") && !is_configuration("[dependencies]\n"));
        let complaints = |block: &str| foreign_dependencies(block, &workspace());
        assert_eq!(complaints("[dependencies]\nstreamhalo = { path = \"../streamhalo/halo\" }\n"), [""; 0]);
        assert_eq!(complaints("[dependencies]\nhalo = { path = \"../streamhalo/halo\" }\n").len(), 1);
        assert_eq!(complaints("[dependencies]\nstreamhalo = { path = \"../streamhalo/away\" }\n").len(), 1);
        assert_eq!(complaints("[package]\n").len(), 1);
    }
}
