//! Flags laid over a file: they win, and their errors name them.

use std::path::Path;

use streamhalo_apps::config::{Layout, Overrides, Place, RunConfig};

use super::errors::NO_VALUE;
use super::{parse_with, printed};

fn set(values: &[&str]) -> Overrides {
    Overrides { set: values.iter().map(|value| (*value).to_owned()).collect(), ..Overrides::default() }
}

fn with_set(text: &str, values: &[&str]) -> RunConfig {
    parse_with(text, &set(values)).unwrap_or_else(|error| panic!("{}", printed(&error)))
}

#[test]
fn set_takes_toml_and_bare_words() {
    let config = with_set(
        "[run]\ntrials = 5\n",
        &[
            "run.trials=3",
            "run.ranks = [1, 2]",
            "run.layout=[[1,1],[2,1]]",
            "comm.backend=st-send",
            "comm.fabric=\"shm\"",
            "comm.timeout_s=0.5",
            "output.dir=results/2026-11-21 a=b",
            "grid.periodic=false",
        ],
    );
    // A shell eats the quotation marks that would make texts of these.
    for dir in ["2026-11-29", "2026-11-29T21:42:00Z", "7", "1.50", "0x10"] {
        let config = with_set("", &[&format!("output.dir={dir}")]);
        assert_eq!(config.output.dir.to_str(), Some(dir));
    }
    assert_eq!(config.run.trials, 3);
    assert_eq!(config.run.ranks, [1, 2]);
    assert_eq!(
        config.run.layout,
        with_set("", &["run.ranks=[1, 2]", "run.layout=[[1, 1], [2, 1]]"]).run.layout
    );
    assert_eq!(
        with_set("run.layout = [[1, 1]]\nrun.ranks = 1", &["run.layout=auto"]).run.layout,
        Layout::Auto
    );
    assert_eq!(config.comm.backend, ["st-send"]);
    assert_eq!(config.comm.fabric, "shm");
    assert_eq!(config.output.dir.to_str(), Some("results/2026-11-21 a=b"));
    assert_eq!(config.grid.periodic, [false, false]);
}

#[test]
fn flags_win_over_the_file() {
    let mut flags = set(&["run.trials=4"]);
    flags.ranks = Some("1, 8".to_owned());
    flags.backend = Some("notified,standard".to_owned());
    flags.fabric = Some("shm".to_owned());
    flags.out = Some("elsewhere".to_owned());
    let text = "[run]\nranks = 3\ntrials = 9\n[output]\ndir = 'here'";
    let config = parse_with(text, &flags).expect("is right");
    assert_eq!(config.run.ranks, [1, 8]);
    assert_eq!(config.run.trials, 4);
    assert_eq!(config.comm.backend, ["notified", "standard"]);
    assert_eq!(config.comm.fabric, "shm");
    assert_eq!(config.output.dir.to_str(), Some("elsewhere"));
}

#[test]
fn a_flag_beside_a_set_of_its_key_is_refused() {
    let flag = |value: &str| Some(value.to_owned());
    for (set_value, flags, wanted) in [
        ("run.ranks=4", Overrides { ranks: flag("2"), ..Overrides::default() }, "--ranks 2"),
        (
            "comm.backend=notified",
            Overrides { backend: flag("st-send"), ..Overrides::default() },
            "--backend st-send",
        ),
        ("comm.fabric=shm", Overrides { fabric: flag("local"), ..Overrides::default() }, "--fabric local"),
        ("output.dir=here", Overrides { out: flag("there"), ..Overrides::default() }, "--out there"),
        ("run.restart=x", Overrides { restart: flag("y"), ..Overrides::default() }, "--restart y"),
        (
            "output.snapshot_every=1",
            Overrides { snapshot: flag("every=2"), ..Overrides::default() },
            "--snapshot every=2",
        ),
        (
            "output.checkpoint_every=1",
            Overrides { checkpoint: flag("every=2"), ..Overrides::default() },
            "--checkpoint every=2",
        ),
    ] {
        let flags = Overrides { set: set(&[set_value]).set, ..flags };
        let error = parse_with("", &flags).expect_err(wanted);
        let (key, _) = set_value.split_once('=').expect("is a key and a value");
        let expected =
            format!("{wanted}: `{key}` is set by `--set {set_value}` too\n  = expected one of the two");
        assert_eq!(printed(&error), expected);
    }
    for two in [["run.trials=2", "run.trials=4"], ["run.trials=2", "run . trials = 2"]] {
        let error = parse_with("run.trials = 9", &set(&two)).expect_err("one of them would be dropped");
        let expected = format!("--set {}: `run.trials` is set by `--set run.trials=2` too", two[1]);
        assert_eq!(printed(&error), format!("{expected}\n  = expected one of the two"));
    }
}

#[test]
fn set_takes_a_key_of_the_file_away() {
    let text =
        "[app]\nname = 'life'\npattern = 'random:1'\n[run]\nranks = 3\ntrials = 9\n[output]\ndir = 'here'\n";
    let config = with_set(text, &["run.trials=", "run . ranks =", "output.dir="]);
    assert_eq!(config, with_set("app = { name = 'life', pattern = 'random:1' }", &[]), "the defaults");
    let ranks = |ranks: &str| Overrides { ranks: Some(ranks.to_owned()), ..Overrides::default() };
    for flags in [set(&["run.ranks=", "run.ranks=2"]), set(&["run.ranks=2", "run.ranks="])] {
        parse_with(text, &flags).expect_err("one of them would be dropped");
    }
    let flags = Overrides { set: set(&["run.ranks="]).set, ..ranks("2") };
    let error = printed(&parse_with(text, &flags).expect_err("the same"));
    assert!(error.starts_with("--ranks 2: `run.ranks` is set by `--set run.ranks=` too"), "{error}");
    // What nobody has set is not taken away: the key may be a slip.
    for absent in ["run.warmup=", "run.trails=", "comm.fabric="] {
        let error = printed(&parse_with(text, &set(&[absent])).expect_err(absent));
        let (said, _) = NO_VALUE.split_once("hint:").expect("has one");
        let key = absent.trim_end_matches('=');
        let hint = format!("hint: no file sets `{key}`, which this would take away");
        assert_eq!(error, format!("--set {absent}: {said}{hint}"));
    }
}

#[test]
fn a_mistake_in_the_file_stays_one_of_the_file() {
    let error = parse_with("run = 3", &set(&["run.trials=1"])).expect_err("is no section");
    assert!(matches!(error.place, Place::Line(_)), "{error}");
}

#[test]
fn errors_name_the_flag() {
    let backends = "expected `standard`, `st-send`, `st-rsend`, `active-rma`, `notified`, `auto` or `all`";
    for (flags, wanted) in [
        (
            set(&["run.trails=5"]),
            "--set run.trails=5: unknown key `trails` in [run]\n  = expected `ranks`, `scaling`, `layout`, \
             `trials`, `warmup`, `verify`, `exchange_every`, `replay`, `pin` or `restart`\n\
             hint: did you mean `trials`?"
                .to_owned(),
        ),
        (
            set(&["rnu.trials=5"]),
            "--set rnu.trials=5: unknown section `rnu`\n  = expected `app`, `grid`, `run`, \
             `comm`, `device`, `staging` or `output`\nhint: did you mean `run`?"
                .to_owned(),
        ),
        (
            set(&["trials=5"]),
            "--set trials=5: `trials` names no section\n  = expected `section.key=value`, as in \
             `--set run.trials=3`\nhint: `trials` belongs to [run]"
                .to_owned(),
        ),
        (
            set(&["run.trials"]),
            "--set run.trials: there is no `=`\n  = expected `section.key=value`, as in \
             `--set run.trials=3`"
                .to_owned(),
        ),
        (
            set(&["run.trials=five"]),
            "--set run.trials=five: `run.trials` is the string \"five\"\n  \
             = expected an integer of at least 1"
                .to_owned(),
        ),
        (
            set(&["run.trials=99999999999"]),
            "--set run.trials=99999999999: `run.trials` is the integer 99999999999\n  \
             = expected an integer of at most 4294967295"
                .to_owned(),
        ),
        (
            set(&["app.steps=18446744073709551615"]),
            "--set app.steps=18446744073709551615: 18446744073709551615 does not fit into 64 bits with a sign\n  \
             = expected an integer from -9223372036854775808 to 9223372036854775807"
                .to_owned(),
        ),
        (
            Overrides { ranks: Some("1,two".to_owned()), ..Overrides::default() },
            "--ranks 1,two: `run.ranks` entry 2 is the string \"two\"\n  \
             = expected an integer of at least 1"
                .to_owned(),
        ),
        (
            Overrides { ranks: Some("1,99999999999999999999".to_owned()), ..Overrides::default() },
            "--ranks 1,99999999999999999999: 99999999999999999999 does not fit into 64 bits with a sign\n  \
             = expected an integer from -9223372036854775808 to 9223372036854775807"
                .to_owned(),
        ),
        (
            set(&["run.ranks=1,2"]),
            "--set run.ranks=1,2: `run.ranks` is the string \"1,2\"\n  = expected an integer of at least 1, or a list \
             of such in brackets\nhint: `--set run.ranks=[1,2]`"
                .to_owned(),
        ),
        (
            set(&["comm.backend=standard, st-send"]),
            format!(
                "--set comm.backend=standard, st-send: `comm.backend` is the string \"standard, st-send\"\n  \
                 = {backends}, or a list of such in brackets\n\
                 hint: `--set 'comm.backend=[\"standard\",\"st-send\"]'`"
            ),
        ),
        (
            Overrides { ranks: Some("1,,2".to_owned()), ..Overrides::default() },
            "--ranks 1,,2: `run.ranks` entry 2 is the string \"\"\n  \
             = expected an integer of at least 1"
                .to_owned(),
        ),
        (
            Overrides { backend: Some("standard,st-ssend".to_owned()), ..Overrides::default() },
            format!(
                "--backend standard,st-ssend: `comm.backend` entry 2 is the string \
                 \"st-ssend\"\n  = {backends}\nhint: did you mean `st-send`?"
            ),
        ),
        (
            Overrides {
                backend: Some("cray-mpich".to_owned()),
                fabric: Some("shm+ofi".to_owned()),
                ..Overrides::default()
            },
            format!(
                "--backend cray-mpich: `cray-mpich` is a name of `standard` on fabrics over MPI; \
                 here it is `shm+ofi`\n  = {backends}\n\
                 hint: write `standard`, or choose the fabric `mpi` or `shm+mpi`"
            ),
        ),
        (
            Overrides { snapshot: Some("100".to_owned()), ..Overrides::default() },
            "--snapshot 100: `100` does not say how often\n  = expected `every=N`, with N steps between two \
             pictures, as in `--snapshot every=100`"
                .to_owned(),
        ),
        (
            Overrides { snapshot: Some("every=often".to_owned()), ..Overrides::default() },
            "--snapshot every=often: `output.snapshot_every` is the string \"often\"\n  \
             = expected an integer of at least 0"
                .to_owned(),
        ),
        (
            Overrides { fabric: Some("locale".to_owned()), ..Overrides::default() },
            "--fabric locale: `comm.fabric` is the string \"locale\"\n  = expected `local`, \
             `shm`, `mpi`, `ofi`, `shm+mpi` or `shm+ofi`\nhint: did you mean `local`?"
                .to_owned(),
        ),
    ] {
        let error = parse_with("", &flags).expect_err(&wanted);
        assert_eq!(printed(&error), wanted, "\n{}", printed(&error));
    }
}

#[test]
fn checkpoints_have_flags_of_their_own() {
    let flags = |checkpoint: Option<&str>, restart: Option<&str>| Overrides {
        checkpoint: checkpoint.map(str::to_owned),
        restart: restart.map(str::to_owned),
        ..Overrides::default()
    };
    let text = "output.checkpoint_every = 5\noutput.checkpoints_kept = 0\nrun.restart = 'here.halo'";
    let parse = |flags: &Overrides| {
        let flags = Overrides { set: vec!["app.pattern=random:1".to_owned()], ..flags.clone() };
        RunConfig::parse("folder/f.toml", text, &flags, &super::NAMES).expect("is right")
    };
    let config = parse(&flags(None, None));
    assert_eq!((config.output.checkpoint_every, config.output.checkpoints_kept), (5, 0));
    assert_eq!(config.run.restart.as_deref(), Some(Path::new("folder/here.halo")), "beside the file");
    let config = parse(&flags(Some("every = 7"), Some("there.halo")));
    assert_eq!(config.output.checkpoint_every, 7);
    assert_eq!(config.run.restart.as_deref(), Some(Path::new("there.halo")), "as it was typed");
    for (flags, wanted) in [
        (flags(Some("100"), None), "--checkpoint 100: `100` does not say how often\n  = expected `every=N`"),
        (flags(Some("every=x"), None), "--checkpoint every=x: `output.checkpoint_every` is the string \"x\""),
        (
            flags(Some("every=-1"), None),
            "`output.checkpoint_every` is the integer -1\n  = expected an integer of at least 0",
        ),
        (flags(None, Some("")), "`run.restart` is the string \"\"\n  = expected the path of a checkpoint"),
    ] {
        let error = printed(&parse_with("", &flags).expect_err(wanted));
        assert!(error.contains(wanted), "{error}");
    }
    for (key, place) in [("output.checkpoint_every = 1", "2:27"), ("run.restart = 'x.halo'", "2:15")] {
        let error = printed(&super::parse(&format!("app.name = 'comb'\n{key}")).expect_err(key));
        assert!(error.starts_with(&format!("f.toml:{place}: `comb` has no checkpoints")), "{error}");
        assert!(error.contains("expected checkpoints of `life` or `stencil3d`"), "{error}");
    }
    let config = super::parse("app.name = 'comb'\noutput.checkpoint_every = 0").expect("asks for none");
    assert_eq!(config.output.checkpoint_every, 0);
}

#[test]
fn broken_toml_after_set_is_not_taken_for_a_word() {
    for value in ["run.ranks=[1,2", "run.ranks=", "output.dir='x", "app={name"] {
        let error = parse_with("", &set(&[value])).expect_err(value);
        assert!(printed(&error).starts_with(&format!("--set {value}: ")), "{error}");
    }
}

#[test]
fn ranks_that_no_longer_fit_the_layout_point_at_it() {
    let text = "[run]\nranks = [1, 2]\nlayout = [[1, 1], [2, 1]]\n";
    let flags = Overrides { ranks: Some("4".to_owned()), ..Overrides::default() };
    let error = parse_with(text, &flags).expect_err("layouts are for others");
    assert!(
        printed(&error).starts_with(
            "f.toml:3:10: `run.layout` has 2 layouts for 1 entry of `run.ranks`, [4] by `--ranks 4`"
        ),
        "{error}"
    );
    assert!(error.hint.expect("has a remedy").contains("--set run.layout=auto"));
}

#[test]
fn ranks_of_a_flag_take_the_layouts_that_the_file_has_for_them() {
    let text = "[run]\nranks = [1, 2, 4]\nlayout = [[1, 1], [2, 1], [2, 2]]\n";
    let with = |text: &str, ranks: &str| {
        parse_with(text, &Overrides { ranks: Some(ranks.to_owned()), ..Overrides::default() })
    };
    for (ranks, layouts) in
        [("4", "[[2, 2]]"), ("4,1", "[[2, 2], [1, 1]]"), ("1,4,2", "[[1, 1], [2, 2], [2, 1]]")]
    {
        let expected = with_set("", &[&format!("run.ranks=[{ranks}]"), &format!("run.layout={layouts}")]);
        assert_eq!(with(text, ranks).expect("has them").run.layout, expected.run.layout, "{ranks}");
    }
    // Also those that are not taken are layouts of the grid.
    for (wrong, said) in [
        ("\"four\"", "`run.layout` entry 1 is the string \"four\""),
        ("[1, 0]", "an axis of `run.layout` entry 1 is the integer 0"),
        ("[1]", "`run.layout` entry 1, [1], has 1 axis for the 2 of the grid"),
    ] {
        let error = with(&text.replace("[1, 1]", wrong), "4").expect_err(wrong);
        assert!(printed(&error).starts_with("f.toml:3:"), "{error}");
        assert!(printed(&error).contains(&format!("{said}\n")), "{error}");
        assert!(printed(&error).ends_with("expected a list of 2 integers, at least 1 each"), "{error}");
    }
    let error = with(text, "1,2,3").expect_err("has none for 3");
    let said =
        "`run.layout` entry 3, [2, 2], is for 4 ranks; that entry of `run.ranks` is 3 by `--ranks 1,2,3`";
    assert!(printed(&error).contains(said), "{error}");
    // Of two for as many ranks nobody knows which is meant.
    with(&text.replace("[1, 1]", "[1, 4]"), "4").expect_err("has two");
    // The file's own numbers have theirs in order.
    parse_with(&text.replace("[1, 2, 4]", "[1, 4, 2]"), &Overrides::default()).expect_err("in another order");
}
