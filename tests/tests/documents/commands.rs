//! Command lines: that the program understands them, and that what they name is there.

use crate::program::refusal;
use crate::{FOLDERS, assert_none, blocks_in, small_grid, workspace};
use std::path::Path;

/// The arguments of a command line of the program, however it is started.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let rest = line.strip_prefix("streamhalo ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    Some(rest.split_whitespace().collect())
}

/// Arguments so that the program only looks whether it understands them.
fn to_be_parsed<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut parsed = arguments.to_vec();
    // From the launched program on everything is that program's.
    let end = if arguments.first() == Some(&"launch") { parsed.len().min(3) } else { parsed.len() };
    parsed.insert(end, "--help");
    parsed
}

/// The command line of the program in a line of a text block, which starts it by itself or by a launcher: without the
/// launcher, and without a remark behind it.
fn launched(line: &str) -> Option<&str> {
    let line = line.split(" #").next().unwrap_or_default().trim_end();
    let starter = line.split_whitespace().next().unwrap_or_default();
    if !["streamhalo", "mpiexec", "srun"].contains(&starter) {
        return None;
    }
    line.find("streamhalo ").map(|start| &line[start..])
}

/// As arguments of `explain`, if they are about a configuration. The grid is small, unless they
/// say another.
fn to_be_explained<'a>(arguments: &[&'a str]) -> Option<Vec<&'a str>> {
    let (command, rest) = arguments.split_first()?;
    if !["run", "explain"].contains(command) {
        return None;
    }
    let config = rest.first().copied().unwrap_or_default();
    let mut explained = vec!["explain"];
    if !rest.iter().any(|argument| argument.starts_with("grid.cells=")) {
        explained.extend(["--set", small_grid(config)]);
    }
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--quiet" | "--watch" | "--timeline" => {}
            steps if steps.starts_with("steps=") => {}
            "--out" | "--snapshot" | "--checkpoint" => _ = rest.next(),
            other => explained.push(other),
        }
    }
    Some(explained)
}

/// What is wrong with a line of a shell block, as far as text and files tell.
fn line_complaint(line: &str, root: &Path) -> Option<String> {
    let program = line.split_whitespace().next().unwrap_or_default();
    let known = ["cargo", "streamhalo"].contains(&program) || root.join(program).is_file();
    if !known {
        return Some(format!("`{line}`: there is no program `{program}`"));
    }
    let in_workspace = |word: &&str| FOLDERS.contains(&word.split('/').next().unwrap_or_default());
    let paths = line.split_whitespace().filter(|word| word.contains('/')).filter(in_workspace);
    paths.filter(|path| !root.join(path).exists()).map(|path| format!("`{line}`: there is no {path}")).next()
}

#[test]
fn commands_parse() {
    let mut complaints = Vec::new();
    let mut explained: Vec<Vec<String>> = Vec::new();
    for (name, block) in blocks_in("sh") {
        for line in block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut found: Vec<String> = line_complaint(line, &workspace()).into_iter().collect();
            if let Some(arguments) = arguments(line) {
                found.extend(refusal(&to_be_parsed(&arguments)));
                let once =
                    to_be_explained(&arguments).filter(|one| !explained.iter().any(|other| other == one));
                if let Some(one) = once {
                    found.extend(refusal(&one));
                    explained.push(one.into_iter().map(str::to_string).collect());
                }
            }
            complaints.extend(found.into_iter().map(|complaint| format!("{name}: {complaint}")));
        }
    }
    assert_none(&complaints);
    assert!(explained.len() >= 3, "the documents run next to nothing: {explained:?}");
}

/// What a launcher or other machines are needed for stands in text blocks, and is not explained: that would need them too.
#[test]
fn commands_of_launchers_parse() {
    let mut complaints = Vec::new();
    let mut parsed = 0;
    for (name, block) in blocks_in("text") {
        for line in block.lines().filter_map(launched) {
            let arguments = arguments(line).expect("begins with the program");
            let found =
                line_complaint(line, &workspace()).into_iter().chain(refusal(&to_be_parsed(&arguments)));
            complaints.extend(found.map(|complaint| format!("{name}: {complaint}")));
            parsed += 1;
        }
    }
    assert_none(&complaints);
    assert!(parsed >= 3, "the documents launch next to nothing: {parsed} lines");
}

/// The checks themselves.
mod checks {
    use super::*;

    #[test]
    fn commands_that_are_not_understood_are_refused() {
        let parsed = |line: &str| refusal(&to_be_parsed(&arguments(line).expect("is one of ours")));
        for right in [
            "streamhalo info",
            "streamhalo launch -n 4 ./mine --cells 5",
            "cargo run --release -- run x.toml --quiet",
        ] {
            assert_eq!(parsed(right), None);
        }
        for wrong in
            ["streamhalo inform", "streamhalo launch -m 4 ./mine", "streamhalo run x.toml --backends y"]
        {
            assert!(parsed(wrong).is_some(), "{wrong}");
        }
        assert_eq!(arguments("cargo bench"), None);
        let line = "run x.toml --out y --quiet --snapshot every=9 --watch --timeline steps=4 --ranks 2";
        let run: Vec<&str> = line.split(' ').collect();
        let explained = to_be_explained(&run);
        assert_eq!(
            explained.expect("is a run"),
            ["explain", "--set", "grid.cells=[256,256]", "x.toml", "--ranks", "2"]
        );
        let own = ["run", "x.toml", "--set", "grid.cells=[8,8]"];
        assert_eq!(to_be_explained(&own), Some(vec!["explain", "x.toml", "--set", "grid.cells=[8,8]"]));
        assert_eq!(to_be_explained(&["info"]), None);
        let wrong = ["explain", "configs/life/quickstart.toml", "--backend", "st-sent"];
        assert!(refusal(&wrong).is_some_and(|said| said.contains("did you mean `st-send`?")));
    }

    #[test]
    fn lines_that_start_the_program_are_found_in_text() {
        let line = "srun -n 8 streamhalo bench halo --layout 2,2,2    # on all nodes";
        assert_eq!(launched(line), Some("streamhalo bench halo --layout 2,2,2"));
        assert_eq!(launched("streamhalo info"), Some("streamhalo info"));
        for other in ["export STREAMHALO_FABRIC=ofi", "mpiexec -n 4 ./mine --cells 5", "x = 3, y = 3", ""] {
            assert_eq!(launched(other), None, "{other}");
        }
    }

    #[test]
    fn lines_about_files_that_are_not_there_are_found() {
        let complaint = |line: &str| line_complaint(line, &workspace());
        assert_eq!(complaint("cargo bench"), None);
        assert_eq!(complaint("streamhalo run configs/life/quickstart.toml --out results/mine"), None);
        assert!(complaint("streamhalo run configs/life/absent.toml").is_some());
        assert!(complaint("make all").is_some());
    }
}
