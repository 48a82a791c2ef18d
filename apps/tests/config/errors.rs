//! The form of an error, names that nobody knows, and text that is not TOML.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{NAMES, check, parse, printed};
use streamhalo_apps::config::{Overrides, RunConfig};

/// The whole text of some errors: the form is a promise to editors and to people.
#[test]
fn errors_show_their_line() {
    for (text, wanted) in [
        (
            "[run]\n# how often\ntrails = 5\n",
            "f.toml:3:1: unknown key `trails` in [run]\n  |\n3 | trails = 5\n  | ^^^^^^\n  \
             = expected `ranks`, `scaling`, `layout`, `trials`, `warmup`, `verify`, `exchange_every`, `replay`, `pin` \
             or `restart`\nhint: did you mean `trials`?",
        ),
        (
            "[comm]\n  backend = [\"standard\", \"st-sned\"]\n",
            "f.toml:2:26: `comm.backend` entry 2 is the string \"st-sned\"\n  |\n\
             2 |   backend = [\"standard\", \"st-sned\"]\n  |                          ^^^^^^^^^\n  \
             = expected `standard`, `st-send`, `st-rsend`, `active-rma`, `notified`, `auto` or `all`\n\
             hint: did you mean `st-send`?",
        ),
        (
            "\n\n\n\n\n\n\n\n\n[run]\nranks = [1, 4]\nlayout = [[1, 1], [2, 1]]",
            "f.toml:12:19: `run.layout` entry 2, [2, 1], is for 2 ranks; that entry of \
             `run.ranks` is 4\n   |\n12 | layout = [[1, 1], [2, 1]]\n   |                   ^^^^^^\n   \
             = expected a list of 2 integers, at least 1 each, whose product is 4",
        ),
        (
            "[run]\nranks = [2]\nlayout = [2, 1]",
            "f.toml:3:10: `run.layout` is one layout, [2, 1], and no list of them\n  |\n3 | layout = [2, 1]\n  \
             |          ^^^^^^\n  = expected `\"auto\"`, or a list with one layout for each entry of `run.ranks`, \
             as in `[[1, 1], [2, 1]]`\nhint: for one entry of `run.ranks` it is `[[2, 1]]`",
        ),
        (
            "[grid]\ncells = [1024, 1024\n",
            "f.toml:2:20: not TOML: unclosed array, expected `]`\n  |\n2 | cells = [1024, 1024\n  \
             |                    ^",
        ),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(printed(&error), wanted, "\n{}", printed(&error));
    }
}

#[test]
fn unknown_names() {
    check(&[
        (
            "app.pattern = 'random:1'\n[comms]\nfabric = 'shm'",
            (2, 2),
            "unknown section `comms`",
            "`app`, `grid`, `run`, `comm`, `device`, `staging` or `output`",
            Some("did you mean `comm`?"),
        ),
        (
            "comm.backend = 'al'",
            (1, 16),
            "`comm.backend` is the string \"al\"",
            "`notified`, `auto` or `all`",
            Some("did you mean `all`?"),
        ),
        ("ranks = 2", (1, 1), "unknown section `ranks`", "`run`", Some("`ranks` belongs to [run]")),
        (
            "[grid]\nranks = 2",
            (2, 1),
            "unknown key `ranks` in [grid]",
            "expected `cells`, `periodic` or `halo`",
            Some("`ranks` belongs to [run]"),
        ),
        (
            "[app]\nname = 'live'",
            (2, 8),
            "`app.name` is the string \"live\"",
            "expected `life`, `faces`, `stencil3d`, `pipeline`, `tree`, `cholesky` or `comb`",
            Some("did you mean `life`?"),
        ),
        (
            "[app]\nname = 'comb'\npattern = 'random:1'",
            (3, 1),
            "unknown key `pattern` in [app]",
            "expected `name`, `steps`, `variables` or `element`",
            None,
        ),
        (
            "comm.fabric = 'smh'",
            (1, 15),
            "`comm.fabric` is the string \"smh\"",
            "`shm+mpi`",
            Some("did you mean `shm`?"),
        ),
        (
            "comm.backend = 'nccl'",
            (1, 16),
            "`comm.backend` is the string \"nccl\"",
            "expected `standard`",
            None,
        ),
        (
            "comm.backend = 'atuo'",
            (1, 16),
            "`comm.backend` is the string \"atuo\"",
            "`notified`, `auto` or `all`",
            Some("did you mean `auto`?"),
        ),
        (
            "comm = { backend = 'st-send', measured = 'measured.json' }",
            (1, 42),
            "`comm.measured` is for the backend `auto`, which is not one of this run's",
            "",
            Some("name `auto` in `comm.backend`"),
        ),
        (
            "comm.signal = 'kernal'",
            (1, 15),
            "`comm.signal` is the string \"kernal\"",
            "expected `auto`, `kernel`, `merged` or `memop`",
            Some("did you mean `kernel`?"),
        ),
        (
            "device.kind = 'gpu'",
            (1, 15),
            "`device.kind` is the string \"gpu\"",
            "expected `host`, `opencl`, `cuda` or `hip`",
            None,
        ),
        (
            "device.select = -1",
            (1, 17),
            "`device.select` is the integer -1",
            "a part of a device's name such as `pocl`",
            None,
        ),
        (
            "device.waits = 'kernels'",
            (1, 16),
            "`device.waits` is the string \"kernels\"",
            "expected `auto`, `kernel` or `proxy`",
            Some("did you mean `kernel`?"),
        ),
        (
            "device.stream = 'inlined'",
            (1, 17),
            "`device.stream` is the string \"inlined\"",
            "expected `inline` or `threaded`",
            Some("did you mean `inline`?"),
        ),
        (
            "run.layout = 'atuo'",
            (1, 14),
            "`run.layout` is the string \"atuo\"",
            "`\"auto\"`, or a list",
            Some("did you mean `auto`?"),
        ),
    ]);
}

/// What is said of a key with nothing behind it.
pub(super) const NO_VALUE: &str = "there is no value behind the `=`\n  = expected a number, `true` or `false`, a text in \
                                   quotation marks, or a list in brackets\n\
                                   hint: leave it out for the default; an empty text is `''`";

#[test]
fn a_key_without_a_value() {
    for (text, place, line) in [
        ("[run]\ntrials=\nwarmup = 1", (2, 8), "trials="),
        ("[run]\ntrials = \r\n", (2, 10), "trials = "),
        ("run.trials =  # how often\n", (1, 15), "run.trials =  # how often"),
        ("run.trials =", (1, 13), "run.trials ="),
    ] {
        let found = printed(&parse(text).expect_err(text));
        let (said, rest) = NO_VALUE.split_once('\n').expect("has lines");
        let head = format!("f.toml:{}:{}: {said}\n  |\n{} | {line}\n", place.0, place.1, place.0);
        assert!(found.starts_with(&head) && found.ends_with(rest), "{text}\n{found}");
    }
    // Something is there.
    for text in ["run.trials = five", "output.dir = results", "run.trials = = 5", "run.trials\n"] {
        let found = printed(&parse(text).expect_err(text));
        assert!(found.contains(": not TOML: "), "{text}\n{found}");
    }
}

#[test]
fn a_folder_whose_name_is_not_unicode() {
    let above = tempfile::tempdir().expect("can be made");
    let folder = above.path().join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&folder).expect("can be made");
    let path = folder.join("run.toml");
    std::fs::write(&path, "run.trials = 3").expect("can write");
    let error = RunConfig::load(&path, &Overrides::default(), &NAMES).expect_err("cannot be told to ranks");
    let said = error.to_string();
    assert!(
        said.starts_with("CONFIG: the folder of ") && said.ends_with("is not Unicode; give it another"),
        "{said}"
    );
    assert!(said.contains("caf\u{fffd}/run.toml") && error.exit_status() == 2, "{said}");
}

#[test]
fn a_file_that_is_not_utf8() {
    let folder = tempfile::tempdir().expect("can be made");
    let path = folder.path().join("latin.toml");
    std::fs::write(&path, b"[run]\n# \xc2\xb5\ntrials = 3 # f\xfcnf\n").expect("can write");
    let error = RunConfig::load(&path, &Overrides::default(), &NAMES).expect_err("is Latin-1");
    let place = format!("{}:3:15: ", path.display());
    assert_eq!(
        error.to_string().strip_prefix(&place),
        Some(
            "byte 26 of the file, 0xfc, is not UTF-8\n  |\n3 | trials = 3 # f\u{fffd}nf\n  |               ^\n  \
             = expected text in UTF-8"
        ),
        "{error}"
    );
    assert_eq!((error.hint().as_deref(), error.exit_status()), (Some("save it as UTF-8"), 2));
}

#[test]
fn text_that_is_not_toml() {
    for (text, place) in [
        ("[run]\nranks == 2", "f.toml:2:8: not TOML: "),
        ("[run]\nranks = 1\nranks = 2", "f.toml:3:1: not TOML: duplicate key"),
        ("[run]\n[run]", "f.toml:2:2: not TOML: duplicate key"),
        ("x = 'µ\n", "f.toml:1:7: not TOML: invalid literal string"),
        ("run.trials = 99999999999999999999", "f.toml:1:14: 99999999999999999999 does not fit"),
    ] {
        let error = parse(text).expect_err(text);
        assert!(printed(&error).starts_with(place), "{text}\n{error}");
    }
}
