//! The program that the README shows, and the program that documents speak of.

use crate::{Block, document, split, workspace};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use streamhalo_tests::programs;

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(workspace()).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// What `streamhalo` has against these arguments, if anything.
pub(crate) fn refusal(arguments: &[&str]) -> Option<String> {
    let output = run(&programs().streamhalo, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("`streamhalo {}`: {said}", arguments.join(" ")))
}

#[test]
fn the_readme_shows_the_example() {
    let example = document("halo/examples/life.rs");
    let (blocks, _) = split(&document("README.md"));
    let programs: Vec<&Block> = blocks.iter().filter(|block| block.language == "rust").collect();
    assert_eq!(programs.len(), 1, "the README shows one program");
    assert_eq!(programs[0].text, example, "the README's program is not halo/examples/life.rs");
    assert!(example.lines().count() < 50, "the program has {} lines", example.lines().count());
}

#[test]
fn the_readmes_program_runs_on_any_number_of_ranks() {
    let life = programs().life.to_str().expect("is text");
    let mut runs = vec![(1, run(&programs().life, &[]))];
    let launched = |ranks: &str| run(&programs().streamhalo, &["launch", "-n", ranks, life]);
    runs.extend([(1, launched("1")), (4, launched("4"))]);
    for (ranks, output) in runs {
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = format!("5 live cells after 100 generations on {ranks} rank(s): [[56, 57], ");
        assert!(output.status.success(), "on {ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.starts_with(&expected) && said.lines().count() == 1, "on {ranks} ranks: {said}");
    }
}
