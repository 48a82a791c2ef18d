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

/// Runs an example alone, and launched on 1 and on some other number of ranks; each has to print one line, which begins so.
fn runs_on_any_number_of_ranks(example: &Path, many: usize, expected: impl Fn(usize) -> String) {
    let mut runs = vec![(1, run(example, &[]))];
    let name = example.to_str().expect("is text");
    let launched = |ranks: usize| run(&programs().streamhalo, &["launch", "-n", &ranks.to_string(), name]);
    runs.extend([1, many].map(|ranks| (ranks, launched(ranks))));
    for (ranks, output) in runs {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "on {ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.starts_with(&expected(ranks)) && said.lines().count() == 1, "on {ranks} ranks: {said}");
    }
}

#[test]
fn the_readmes_program_runs_on_any_number_of_ranks() {
    runs_on_any_number_of_ranks(&programs().life, 4, |ranks| {
        format!("5 live cells after 100 generations on {ranks} rank(s): [[56, 57], ")
    });
}

/// It compares every cell with what is known of the equation; of six ranks each has a wall, or two.
#[test]
fn the_example_with_walls_runs_on_any_number_of_ranks() {
    runs_on_any_number_of_ranks(&programs().heat, 6, |ranks| {
        format!("after 100 steps the wave is 0.8423 of what it was, on {ranks} rank(s)")
    });
}
