//! The command line, through the program itself where its exit status matters.

use std::process::{Command as Process, Output};

use clap::{CommandFactory, Parser};
use streamhalo_apps::cli::{Bench, BenchHaloArgs, Cli, Command};

fn streamhalo(arguments: &[&str]) -> Output {
    Process::new(env!("CARGO_BIN_EXE_streamhalo")).args(arguments).output().expect("the program starts")
}

fn parse(arguments: &[&str]) -> Command {
    let arguments = std::iter::once("streamhalo").chain(arguments.iter().copied());
    match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command,
        Err(error) => panic!("{error}"),
    }
}

fn bench_halo(arguments: &[&str]) -> BenchHaloArgs {
    match parse(&[["bench", "halo"].as_slice(), arguments].concat()) {
        Command::Bench(args) => match args.what {
            Bench::Halo(args) => args,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_fits_a_screen_and_shows_an_example() {
    for command in [
        vec![],
        vec!["run"],
        vec!["launch"],
        vec!["explain"],
        vec!["info"],
        vec!["bench"],
        vec!["bench", "halo"],
        vec!["bench", "pingpong"],
        vec!["bench", "latency"],
        vec!["bench", "bandwidth"],
        vec!["bench", "bibandwidth"],
        vec!["bench", "collectives"],
        vec!["bench", "overlap"],
        vec!["bench", "loggp"],
        vec!["bench", "throttle"],
        vec!["bench", "copies"],
        vec!["bench", "staging"],
        vec!["bench", "moves"],
        vec!["report"],
    ] {
        let output = streamhalo(&[command.as_slice(), &["--help"]].concat());
        let help = String::from_utf8(output.stdout).expect("is text");
        assert!(output.status.success(), "{command:?}");
        let lines = help.lines().count();
        assert!(lines <= 24, "{command:?} has {lines} lines:\n{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
        let example = help.contains("Example:\n  streamhalo ");
        assert!(example || command == ["info"], "{command:?}:\n{help}");
    }
}

#[test]
fn help_is_a_command_too() {
    for (arguments, like) in [
        (["help"].as_slice(), ["--help"].as_slice()),
        (&["help", "run"], &["run", "--help"]),
        (&["help", "bench", "halo"], &["bench", "halo", "--help"]),
    ] {
        let output = streamhalo(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(output.stdout, streamhalo(like).stdout, "{arguments:?}");
    }
}

#[test]
fn run_takes_the_flags_of_the_design() {
    let arguments = "run c.toml --set a.b=1 --ranks 1,2 --set c.d=2 --backend x,y --fabric shm \
                     --out dir --quiet";
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let Command::Run(args) = parse(&arguments) else { panic!("is run") };
    let flags = args.overrides();
    assert_eq!(flags.set, ["a.b=1", "c.d=2"]);
    assert_eq!(flags.ranks.as_deref(), Some("1,2"));
    assert_eq!(flags.backend.as_deref(), Some("x,y"));
    assert_eq!(flags.fabric.as_deref(), Some("shm"));
    assert_eq!(flags.out.as_deref(), Some("dir"));
    assert!(args.quiet);
    assert_eq!(args.config.config.to_str(), Some("c.toml"));
}

#[test]
fn launch_passes_on_what_follows_the_program() {
    for arguments in [
        ["launch", "-n", "4", "./solve", "--help", "-n", "8", "--", "x"],
        ["launch", "-n4", "./solve", "--help", "-n", "8", "--", "x", ""],
    ] {
        let arguments: Vec<_> = arguments.into_iter().filter(|a| !a.is_empty()).collect();
        let Command::Launch(args) = parse(&arguments) else { panic!("is launch") };
        assert_eq!(args.processes.get(), 4);
        let (program, rest) = args.program();
        assert_eq!(program, "./solve");
        assert_eq!(rest, ["--help", "-n", "8", "--", "x"]);
    }
    for wrong in [["launch", "-n", "0", "./solve"].as_slice(), &["launch", "-n", "2"], &["launch", "./solve"]]
    {
        assert_eq!(streamhalo(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn bench_halo_has_the_defaults_of_the_design() {
    let args = bench_halo(&[]);
    assert_eq!(args.ranks(), Some(2));
    assert_eq!(args.cells.len(), 3);
    assert_eq!(args.width.get(), 1);
    assert!(args.backend == ["all"] && !args.alternating && !args.figures.prints_json());
    let args = bench_halo(&[
        "--layout",
        "2,2",
        "--cells=8,16",
        "--element",
        "u8",
        "--pattern",
        "faces",
        "--alternating",
        "--backend",
        "st-send,notified",
        "--json",
        "-",
        "--seconds",
        "0.25",
    ]);
    assert_eq!(args.ranks(), Some(4));
    assert_eq!(args.backend, ["st-send", "notified"]);
    assert!(args.figures.prints_json() && args.alternating);
}

#[test]
fn bench_pingpong_goes_from_8_bytes_to_4_mebibytes() {
    let Command::Bench(args) = parse(&["bench", "pingpong"]) else { panic!("is bench") };
    let Bench::Pingpong(args) = args.what else { panic!("is pingpong") };
    assert_eq!((args.sizes.0.len(), args.sizes.0[0], args.sizes.0[19]), (20, 8, 4 << 20));
    assert_eq!(
        (args.backend.as_slice(), args.timed.figures.fabric.as_str()),
        (["all".to_owned()].as_slice(), "local")
    );
}

#[test]
fn usage_errors_exit_with_2_and_name_the_flag() {
    for (arguments, part) in [
        (["bench", "halo", "--seconds", "0"].as_slice(), "--seconds"),
        (&["bench", "halo", "--layout", "2,0,1"], "--layout"),
        (
            &["bench", "halo", "--layout", "2,1"],
            "--layout: has 2 axes where --cells has 3; give one number per axis to both",
        ),
        (&["bench", "halo", "--layout", "2"], "--layout: has 1 axis where"),
        (&["bench", "halo", "--backend", "all,st-send"], "--backend: `all` stands beside other names"),
        (&["bench", "halo", "--element", "f16"], "[possible values: u8, i32, i64, f32, f64]"),
        (&["bench", "halo", "--json", "file"], "--json"),
        (&["bench", "pingpong", "--sizes", "8..4KB"], "`4KB` is no size"),
        (&["bench", "pingpong", "--sizes", "64..8"], "goes down"),
        (&["bench", "pingpong", "--backend", "st-sent"], "did you mean `st-send`?"),
        (&["bench", "pingpong", "--backend", "all,st-send"], "`all` stands beside other names"),
        (&["bench", "pingpong", "--fabric", "shn"], "did you mean `shm`?"),
        (&["bench", "latency", "--primitive", "put_notifi"], "did you mean `put-notify`?"),
        (&["bench", "latency", "--primitive", "flag,flag"], "`flag` is there twice"),
        (&["bench", "overlap", "--primitive", "flag"], "`flag` is not one of"),
        (&["bench", "collectives", "--sizes", "12"], "12 bytes cannot be divided into doubles"),
        (&["bench", "collectives", "--operation", "alreduce"], "did you mean `allreduce`?"),
        (&["bench", "throttle", "--entries", "1..8"], "1 entry is too few"),
        (&["bench", "throttle", "--policy", "adaptiv"], "did you mean `adaptive`?"),
        (&["bench", "halo", "--layout", "0"], "'0' for '--layout <N,...>': must be an integer of at least 1"),
        (&["bench", "halo", "--width", "-1"], "'-1' for '--width <N>': must be an integer of at least 1"),
        (&["bench", "halo", "--seconds", "-1"], "expected seconds: a number above 0"),
        (&["bench", "collectives", "--ranks", "0"], "'--ranks <N>': must be an integer of at least 1"),
        (
            &["bench", "collectives", "--ranks", "99999999999999999999"],
            "'--ranks <N>': does not fit into 64 bits",
        ),
        (&["bench", "throttle", "--entries", "0"], "`0` is none of 1 to"),
        (&["bench", "pingpong", "--sizes", "-1"], "`-1` is no size"),
        (&["bench", "pingpong", "--sizes", "-1..8"], "`-1` is no size"),
        (&["launch", "-n", "0", "x"], "'0' for '-n <N>': must be an integer of at least 1"),
        (&["run", "x.toml", "--rank", "-1"], "'-1' for '--rank <R>': must be the number of a rank"),
        (&["launch", "-n", "-1", "x"], "'-1' for '-n <N>': must be an integer of at least 1"),
        (&["bench", "pimgpong"], "'pingpong'"),
        (&["bench", "halos"], "'halo'"),
        (&["bench", "ovelrpa"], "'overlap'"),
        (&["rnu", "x"], "'run'"),
        (&["ifno"], "'info'"),
        (&["reprot", "x"], "'report'"),
        (&["run"], "<CONFIG.toml>"),
        (&[], "Usage:"),
    ] {
        let output = streamhalo(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
}
