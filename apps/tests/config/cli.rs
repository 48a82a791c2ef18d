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
        let is_headed = help.contains("\nOptions:\n  ");
        assert!(is_headed || !help.contains(" [OPTIONS]"), "{command:?}:\n{help}");
        // Whoever needs one of the three needs the others.
        for flag in ["--world-size <N> ", "--rank <R> "] {
            let has_line = help.lines().any(|line| line.trim_start().starts_with(flag));
            assert_eq!(has_line, help.contains("--rank-zero"), "{command:?}: {flag}\n{help}");
        }
    }
    let help = String::from_utf8(streamhalo(&["bench", "halo", "--help"]).stdout).expect("is text");
    assert!(help.contains("Exchanges replayed: even, up to 1000"), "{help}");
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
    // Said to be none where the configuration is, and not an unknown flag.
    let Command::Run(args) = parse(&["run", "c.toml", "--ranks", "-1,2"]) else { panic!("is run") };
    assert_eq!(args.overrides().ranks.as_deref(), Some("-1,2"));
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
        (&["bench", "halo", "--backend", "al"], "notified, auto, all; did you mean `all`?"),
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
        (
            &["bench", "halo", "--replay", "-1"],
            "'-1' for '--replay <N>': must be an even integer of at least 0",
        ),
        (&["bench", "halo", "--replay", "x"], "must be an even integer of at least 0"),
        (&["bench", "halo", "--replay", "99999999999999999999"], "does not fit into 64 bits"),
        (
            &["bench", "halo", "--replay", "3"],
            "--replay: 3 is an odd number of exchanges; give an even number up to 1000: exchanges use two buffers",
        ),
        (
            &["bench", "halo", "--replay", "1002"],
            "--replay: 1002 is more exchanges than a period may have; give",
        ),
        (
            &["bench", "pingpong", "--replay", "100000000"],
            "100000000 is more exchanges than a period may have",
        ),
        (
            &["bench", "halo", "--cells", "-8,8,8"],
            "'-8' for '--cells <N,...>': must be an integer of at least 1",
        ),
        (
            &["bench", "halo", "--layout", "-2,1,1"],
            "'-2' for '--layout <N,...>': must be an integer of at least 1",
        ),
        (&["bench", "staging", "--blocks", "-1,2"], "'-1' for '--blocks <N,...>': -1 is not in 1..=64"),
        (&["bench", "staging", "--threshold", "-8KiB"], "`-8KiB` is no size"),
        (&["bench", "throttle", "--size", "-1KiB"], "`-1KiB` is no size"),
        (&["bench", "moves", "--cells", "-8..16"], "`-8` is none of 1 to"),
        (
            &["bench", "halo", "--cells", "4000000000,4000000000,4000000000"],
            "--cells: of all ranks are more than 64 bits count",
        ),
        (
            &["bench", "halo", "--layout", "2,1", "--cells", "2000000000,1500000000"],
            "--cells: of a rank take more bytes than a machine can have",
        ),
        (
            &["bench", "halo", "--layout", "99,99,99"],
            "--layout: 970299 ranks are more than the 4096 that one machine is given; a launcher (`mpiexec`, \
             `srun`), or `--rank-zero` one by one, starts more",
        ),
        (&["bench", "collectives", "--ranks", "5000"], "--ranks: 5000 ranks are more than the 4096"),
        (
            &["launch", "-n", "5000", "true"],
            "-n: 5000 processes are more than the 4096 that one machine is given; `mpiexec` or `srun`, across \
             machines, starts more",
        ),
        (&["launch", "-n", "99999999999", "true"], "-n: 99999999999 processes are more than the 4096"),
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

/// Where clap has found no command, and looks for one that was meant among arguments that are no text.
#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_are_errors() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let odd = OsStr::from_bytes(b"r\xffn");
    for arguments in [&[odd][..], &[OsStr::new("bench"), odd], &[OsStr::new("run"), OsStr::new("--set"), odd]]
    {
        let mut command = Process::new(env!("CARGO_BIN_EXE_streamhalo"));
        let output = command.args(arguments).output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: "), "{said}");
        assert!(said.contains(r"r\xFFn") || said.contains('\u{fffd}'), "{said}");
    }
}
