//! What the compiler does not check about the workspace: which crate may know which, where `unsafe`
//! may be, that geometry knows no vendor, that every dependency has a reason, and no file is long.
//!
//! Each check is a function from text to complaints, so that it is itself tested on made-up text.

use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which members a member may depend on, for whatever purpose; `None`: on all of them.
const LAYERS: &[(&str, Option<&[&str]>)] = &[
    ("streamhalo-comm", Some(&[])),
    ("streamhalo-grid", Some(&["streamhalo-comm"])),
    ("streamhalo", Some(&["streamhalo-grid", "streamhalo-comm"])),
    ("streamhalo-apps", Some(&["streamhalo", "streamhalo-grid", "streamhalo-comm"])),
    ("streamhalo-benches", None),
    ("streamhalo-tests", None),
];

/// Members without any `unsafe`.
const SAFE: [&str; 3] = ["streamhalo-grid", "streamhalo", "streamhalo-apps"];
/// Where the others of the four layers may have it.
const UNSAFE_FOLDERS: [&str; 2] = ["comm/src/device", "comm/src/fabric"];
/// Names that geometry does not know.
const VENDORS: [&str; 10] =
    ["cuda", "hip", "rocm", "nvidia", "amd", "cray", "mpi", "nccl", "libfabric", "slurm"];
const LONGEST_FILE_LINES: usize = 600;

/// A member of the workspace, as cargo describes it.
#[derive(Debug)]
struct Member {
    name: String,
    folder: PathBuf,
    dependencies: Vec<String>,
    /// What becomes a library or a program.
    crate_roots: Vec<PathBuf>,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member").to_path_buf()
}

fn members() -> Vec<Member> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON");
    let members: Vec<Member> = list(&metadata, "packages").iter().map(member).collect();
    assert!(members.len() >= LAYERS.len(), "cargo names {} members", members.len());
    members
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("cargo metadata has no list `{key}`"))
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("cargo metadata has no text `{key}`")).to_string()
}

fn member(package: &Value) -> Member {
    let manifest = PathBuf::from(text(package, "manifest_path"));
    let is_root = |target: &&Value| {
        list(target, "kind").iter().any(|kind| ["lib", "bin"].contains(&kind.as_str().unwrap_or_default()))
    };
    let roots = list(package, "targets").iter().filter(is_root);
    Member {
        name: text(package, "name"),
        folder: manifest.parent().expect("a manifest lies in a folder").to_path_buf(),
        dependencies: list(package, "dependencies").iter().map(|one| text(one, "name")).collect(),
        crate_roots: roots.map(|target| PathBuf::from(text(target, "src_path"))).collect(),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Complaints about every Rust file below the folders of some members.
fn complaints_in(folders: &[&str], check: impl Fn(&Path, &str) -> Vec<String>) -> Vec<String> {
    let root = workspace();
    let mut complaints = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(&root.join(folder))) {
        let short = path.strip_prefix(&root).expect("it lies in the workspace");
        let found = check(short, &read(&path));
        complaints.extend(found.into_iter().map(|complaint| format!("{}: {complaint}", short.display())));
    }
    complaints
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Arrows that run back, and members that have no place in the layers.
fn wrong_arrows(members: &[Member]) -> Vec<String> {
    let mut complaints = Vec::new();
    for member in members {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == member.name) else {
            complaints
                .push(format!("{} has no place in the layers; say which members it may know", member.name));
            continue;
        };
        let others =
            member.dependencies.iter().filter(|name| members.iter().any(|other| other.name == **name));
        for other in others {
            if allowed.is_some_and(|allowed| !allowed.contains(&other.as_str())) {
                complaints.push(format!("{} must not know {other}", member.name));
            }
        }
    }
    complaints
}

fn forbids_unsafe(crate_root: &str) -> bool {
    crate_root.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

/// The lines on which a keyword or name stands in the code: not in comments or strings.
fn lines_with(source: &str, word: &str) -> Vec<usize> {
    fn collect(tokens: TokenStream, word: &str, lines: &mut Vec<usize>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => collect(group.stream(), word, lines),
                TokenTree::Ident(name) if name == word => lines.push(name.span().start().line),
                _ => {}
            }
        }
    }
    let tokens: TokenStream = source.parse().unwrap_or_else(|error| panic!("not Rust: {error}"));
    let mut lines = Vec::new();
    collect(tokens, word, &mut lines);
    lines
}

/// `unsafe` outside of the folders that may have it.
fn unsafe_outside(path: &Path, source: &str) -> Vec<String> {
    if UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let lines = lines_with(source, "unsafe");
    lines.into_iter().map(|line| format!("line {line}: `unsafe` belongs to {UNSAFE_FOLDERS:?}")).collect()
}

/// The words of a line in lower case, those of names too: `CudaStream` is two, `cuda_stream` as well.
fn words(line: &str) -> String {
    let mut words = String::new();
    let mut after_small = false;
    for letter in line.chars() {
        if !letter.is_ascii_alphanumeric() || (letter.is_ascii_uppercase() && after_small) {
            words.push(' ');
        }
        words.extend(letter.is_ascii_alphanumeric().then(|| letter.to_ascii_lowercase()));
        after_small = letter.is_ascii_lowercase();
    }
    words
}

/// Vendors and features, in comments and names too.
fn knows_vendors(source: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let words = words(line);
        let vendors = words.split(' ').filter(|word| VENDORS.contains(word));
        complaints.extend(vendors.map(|vendor| format!("line {}: `{vendor}` is no geometry", index + 1)));
    }
    let dense: String = source.split_whitespace().collect();
    if dense.contains("feature=\"") {
        complaints.push("features are for registries and their modules".into());
    }
    complaints
}

/// Dependencies of a `Cargo.toml` without a comment on their line or the one above.
fn unjustified(manifest: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut in_dependencies = false;
    let mut open_brackets = 0;
    let mut above = "";
    for line in manifest.lines() {
        let continued = open_brackets > 0;
        let code = line.split('#').next().unwrap_or_default();
        open_brackets += code.matches(['[', '{']).count();
        open_brackets -= code.matches([']', '}']).count();
        let trimmed = line.trim();
        let has_reason = line.contains('#') || above.trim().starts_with('#');
        if !continued && trimmed.starts_with('[') {
            let table = code.trim().trim_matches(['[', ']']);
            in_dependencies = table.ends_with("dependencies");
            if table.contains("dependencies.") && !has_reason {
                complaints.push(format!("`{trimmed}` needs a comment that says what it is for"));
            }
        } else if in_dependencies
            && !continued
            && !trimmed.is_empty()
            && !trimmed.starts_with('#')
            && !has_reason
        {
            complaints.push(format!("`{trimmed}` needs a comment that says what it is for"));
        }
        above = line;
    }
    complaints
}

fn too_long(source: &str) -> Option<String> {
    let lines = source.lines().count();
    (lines > LONGEST_FILE_LINES).then(|| format!("{lines} lines; split it, at most {LONGEST_FILE_LINES}"))
}

#[test]
fn arrows_run_one_way() {
    assert_none(&wrong_arrows(&members()));
}

#[test]
fn safe_crates_forbid_unsafe() {
    for member in members().iter().filter(|member| SAFE.contains(&member.name.as_str())) {
        assert!(!member.crate_roots.is_empty(), "{} has no library", member.name);
        for root in &member.crate_roots {
            assert!(forbids_unsafe(&read(root)), "{} must say #![forbid(unsafe_code)]", root.display());
        }
    }
}

#[test]
fn unsafe_is_in_devices_and_fabrics_only() {
    assert_none(&complaints_in(&["comm/src", "grid/src", "halo/src", "apps/src"], unsafe_outside));
}

#[test]
fn geometry_knows_no_vendor() {
    assert_none(&complaints_in(&["grid/src", "halo/src"], |_, source| knows_vendors(source)));
}

#[test]
fn dependencies_are_justified() {
    for member in members() {
        let complaints = unjustified(&read(&member.folder.join("Cargo.toml")));
        assert!(complaints.is_empty(), "{}: {}", member.name, complaints.join("\n"));
    }
}

#[test]
fn files_are_short() {
    let folders = ["comm", "grid", "halo", "apps", "benches", "tests"];
    assert_none(&complaints_in(&folders, |_, source| too_long(source).into_iter().collect()));
}

/// The checks themselves.
mod checks {
    use super::*;

    fn made_up(name: &str, dependencies: &[&str]) -> Member {
        let dependencies = dependencies.iter().map(ToString::to_string).collect();
        Member { name: name.into(), folder: PathBuf::new(), dependencies, crate_roots: Vec::new() }
    }

    #[test]
    fn an_arrow_back_is_found() {
        let allowed = ["streamhalo-comm", "serde"];
        let members = [made_up("streamhalo-comm", &["serde"]), made_up("streamhalo-grid", &allowed)];
        assert_eq!(wrong_arrows(&members), [""; 0]);
        let members = [made_up("streamhalo-comm", &["streamhalo-grid"]), made_up("streamhalo-grid", &[])];
        assert_eq!(wrong_arrows(&members), ["streamhalo-comm must not know streamhalo-grid"]);
    }

    #[test]
    fn a_member_without_a_place_is_found() {
        let members = [made_up("streamhalo-extra", &[]), made_up("streamhalo", &["streamhalo-extra"])];
        let complaints = wrong_arrows(&members);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(
            complaints[0].contains("no place") && complaints[1].contains("must not know streamhalo-extra")
        );
    }

    #[test]
    fn forbidding_is_not_denying_or_a_comment() {
        assert!(forbids_unsafe("//! A crate.\n#![forbid(unsafe_code)]\n"));
        assert!(!forbids_unsafe("#![deny(unsafe_code)]"));
        assert!(!forbids_unsafe("// #![forbid(unsafe_code)]"));
    }

    #[test]
    fn unsafe_code_is_found_and_text_about_it_is_not() {
        let harmless =
            "#![forbid(unsafe_code)]\n/// unsafe\nfn f<'a>() { let unsafe_ = \"unsafe\"; /* unsafe */ }";
        assert_eq!(lines_with(harmless, "unsafe"), [0; 0]);
        assert_eq!(
            lines_with("fn f() {\n    g('\"', || unsafe { h() })\n}\nunsafe impl Send for X {}", "unsafe"),
            [2, 4]
        );
        assert_eq!(unsafe_outside(Path::new("comm/src/fabric/shm/job.rs"), "unsafe fn f() {}"), [""; 0]);
        assert_eq!(unsafe_outside(Path::new("comm/src/world.rs"), "unsafe fn f() {}").len(), 1);
    }

    #[test]
    fn vendors_and_features_are_found() {
        assert_eq!(knows_vendors("// one ship, chips and impish friends\nfn simple() {}"), [""; 0]);
        assert_eq!(knows_vendors("\nlet stream = CudaStream::new();"), ["line 2: `cuda` is no geometry"]);
        assert_eq!(knows_vendors("let stream = hip_stream();"), ["line 1: `hip` is no geometry"]);
        assert_eq!(knows_vendors("// as MPI does"), ["line 1: `mpi` is no geometry"]);
        assert_eq!(knows_vendors("#[cfg(all(unix,\n feature = \"x\"))]").len(), 1);
    }

    #[test]
    fn dependencies_without_a_reason_are_found() {
        let justified = "[package]\nname = \"x\"\n[dependencies]\na = \"1\" # numbers\n# Text.\nb = { version = \"1\", features = [\n  \"y\",\n] }\n\n[lints]\nworkspace = true\n";
        assert_eq!(unjustified(justified), [""; 0]);
        let bare = "[target.'cfg(unix)'.dependencies]\na = \"1\" # numbers\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n[dependencies.d]\nversion = \"1\"";
        let complaints = unjustified(bare);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(
            complaints[0].contains("`b =") && complaints[1].contains("`c =") && complaints[2].contains(".d]")
        );
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(too_long(&"x\n".repeat(600)), None);
        assert!(too_long(&"x\n".repeat(601)).is_some());
    }
}
