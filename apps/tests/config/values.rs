//! Values of a wrong type, out of range, or that do not fit each other.

use streamhalo_apps::config::Overrides;

use super::{check, parse, parse_with, printed};

#[test]
fn wrong_types_and_ranges() {
    let least = "expected an integer of at least 1";
    let threads = "expected an integer from 1 to 4096";
    check(&[
        ("run = 3", (1, 7), "`run` is the integer 3", "`[run]` on a line", None),
        ("run.trials = 'five'", (1, 14), "`run.trials` is the string \"five\"", least, None),
        ("run.trials = 0", (1, 14), "`run.trials` is the integer 0", least, None),
        ("run.trials = 2.5", (1, 14), "`run.trials` is the float 2.5", least, None),
        (
            "run.warmup = 4294967296",
            (1, 14),
            "`run.warmup` is the integer 4294967296",
            "at most 4294967295",
            None,
        ),
        ("run.verify = 1", (1, 14), "`run.verify` is the integer 1", "`true` or `false`", None),
        (
            "run.ranks = 0",
            (1, 13),
            "`run.ranks` is the integer 0",
            "an integer of at least 1, or a list of such in brackets",
            None,
        ),
        (
            "grid.periodic = 'no'",
            (1, 17),
            "`grid.periodic` is the string \"no\"",
            "`true` or `false`, or a list of such in brackets",
            None,
        ),
        ("run.ranks = [1, 0]", (1, 17), "`run.ranks` entry 2 is the integer 0", least, None),
        ("run.ranks = []", (1, 13), "`run.ranks` is an empty list", "a list of such", None),
        ("run.ranks = [2, 2]", (1, 13), "`run.ranks` names 2 twice", "each rank count once", None),
        ("run.exchange_every = 0", (1, 22), "`run.exchange_every` is the integer 0", least, None),
        ("comm.backend = []", (1, 16), "`comm.backend` is an empty list", "a list of such", None),
        ("comm.backend = [1]", (1, 17), "`comm.backend` entry 1 is the integer 1", "`notified`", None),
        ("comm.timeout_s = -1", (1, 18), "`comm.timeout_s` is the integer -1", "seconds", None),
        ("comm.timeout_s = nan", (1, 18), "`comm.timeout_s` is the float NaN", "seconds", None),
        ("comm.timeout_s = 1e300", (1, 18), "`comm.timeout_s` is the float 1e300", "", None),
        ("device.threads = 0", (1, 18), "`device.threads` is the integer 0", threads, None),
        ("device.threads = 4097", (1, 18), "`device.threads` is the integer 4097", threads, None),
        ("staging.blocks = 65", (1, 18), "`staging.blocks` is the integer 65", "from 1 to 64", None),
        ("staging.first = 0", (1, 17), "`staging.first` is the integer 0", "a number above 0", None),
        ("staging.last = inf", (1, 16), "`staging.last` is the float inf", "a number above 0", None),
        (
            "staging.threshold_bytes = -1",
            (1, 27),
            "`staging.threshold_bytes` is the integer -1",
            "at least 0",
            None,
        ),
        (
            "staging.memory = 'pined'",
            (1, 18),
            "`staging.memory` is the string \"pined\"",
            "`pinned` or `pageable`",
            Some("did you mean `pinned`?"),
        ),
        ("output.dir = ''", (1, 14), "`output.dir` is the string \"\"", "path of a folder", None),
        ("output.dir = 1979-05-27", (1, 14), "`output.dir` is a date", "path of a folder", None),
        (
            "output.snapshot_every = -1",
            (1, 25),
            "`output.snapshot_every` is the integer -1",
            "at least 0",
            None,
        ),
        (
            "output.on_full_disk = 'goon'",
            (1, 23),
            "`output.on_full_disk` is the string \"goon\"",
            "`stop` or `go-on`",
            Some("did you mean `go-on`?"),
        ),
        ("grid.cells = [8, -8]", (1, 18), "`grid.cells` entry 2 is the integer -8", least, None),
        ("grid.halo = 0", (1, 13), "`grid.halo` is the integer 0", least, None),
        (
            "app.pattern = 'random:1'\napp.steps = -1",
            (2, 13),
            "`app.steps` is the integer -1",
            "at least 0",
            None,
        ),
    ]);
}

#[test]
fn values_that_do_not_fit_each_other() {
    let per_axis = "one value for all axes, or a list with one for each axis";
    check(&[
        (
            "grid.cells = [4294967296, 4294967296, 4294967296]",
            (1, 14),
            "the product of `grid.cells` does not fit into 64 bits",
            "",
            None,
        ),
        ("grid.halo = [1]", (1, 13), "`grid.halo` has 1 entry, `grid.cells` has 2", per_axis, None),
        (
            "grid.cells = [16, 8]\ngrid.periodic = false\ngrid.halo = 9",
            (3, 13),
            "`grid.halo` is 9 wide along axis 1, where `grid.cells` has 8: ghosts are copies of cells",
            "a halo of at most 8 there",
            None,
        ),
        (
            "app.name = 'cholesky'\napp.tile = 4097\ngrid.cells = [4097]",
            (2, 12),
            "`app.tile` is the integer 4097",
            "an integer from 1 to 4096",
            None,
        ),
        (
            "grid.periodic = [true, true, true]",
            (1, 17),
            "`grid.periodic` has 3 entries, `grid.cells` has 2",
            per_axis,
            None,
        ),
        (
            "grid.cells = [8, 8, 8]",
            (1, 14),
            "`life` lives on 2 axes, `grid.cells` has 3",
            "`[rows, columns]`",
            None,
        ),
        (
            "run.exchange_every = 2",
            (1, 22),
            "`run.exchange_every` is 2, but `grid.halo` is 1 wide",
            "at least `run.exchange_every` cells",
            Some("set `run.exchange_every` to 1, or `grid.halo` to 2 where the application takes it"),
        ),
        (
            "run.exchange_every = 4\ngrid.halo = [4, 2]",
            (1, 22),
            "`run.exchange_every` is 4, but `grid.halo` is 2 wide",
            "a halo of at least `run.exchange_every` cells: each step uses up one layer",
            Some("set `run.exchange_every` to 2, or `grid.halo` to 4 where the application takes it"),
        ),
        (
            "run.replay = 3",
            (1, 14),
            "`run.replay` is 3, an odd number of exchanges",
            "an even number up to 1000: exchanges use two buffers in turn",
            None,
        ),
        (
            "run.replay = 1002",
            (1, 14),
            "`run.replay` is 1002, more exchanges than a period may have",
            "an even number up to 1000",
            None,
        ),
        (
            "run.layout = [[1, 1]]",
            (1, 14),
            "`run.layout` has 1 layout for 3 entries of `run.ranks`, [1, 2, 4]",
            "one layout for each entry",
            Some("`--set run.layout=auto` lets the program choose"),
        ),
        (
            "run.ranks = 2\nrun.layout = [[2, 1, 1]]",
            (2, 15),
            "`run.layout` entry 1, [2, 1, 1], has 3 axes for the 2 of the grid",
            "a list of 2 integers",
            None,
        ),
        (
            "run.ranks = 2\nrun.layout = [2]",
            (2, 15),
            "`run.layout` entry 1 is the integer 2",
            "a list of 2 integers",
            None,
        ),
        (
            "run.ranks = 2\nrun.layout = [[1, 1]]",
            (2, 15),
            "`run.layout` entry 1, [1, 1], is for 1 rank; that entry of `run.ranks` is 2",
            "whose product is 2",
            None,
        ),
        (
            "run.ranks = 2\nrun.layout = [[2, 0]]",
            (2, 19),
            "an axis of `run.layout` entry 1 is the integer 0",
            "at least 1 each",
            None,
        ),
        (
            "comm.backend = ['st-send', 'standard', 'st-send']",
            (1, 40),
            "`comm.backend` names `st-send` twice",
            "each backend once",
            None,
        ),
        (
            "comm.backend = ['st-send', 'all']",
            (1, 28),
            "`comm.backend` has `all` beside other names",
            "expected `all`, or the names",
            None,
        ),
        (
            "comm.fabric = 'mpi'\ncomm.backend = ['standard', 'cray-mpich']",
            (2, 29),
            "`comm.backend` names `standard` twice",
            "each backend once",
            Some("`cray-mpich` is `standard` too"),
        ),
        (
            "comm.backend = 'cray-mpich'",
            (1, 16),
            "`cray-mpich` is a name of `standard` on fabrics over MPI; here it is `local`",
            "expected `standard`",
            Some("write `standard`, or choose the fabric `mpi` or `shm+mpi`"),
        ),
    ]);
}

#[test]
fn keys_that_do_nothing_on_the_device() {
    let hint = Some("leave the key out, or choose such a device by `device.kind`");
    let refused = |key: &str, kind: &str, value: &str, others: &str| {
        let text = format!("device.kind = '{kind}'\n{key} = {value}");
        let error = parse(&text).expect_err(&text);
        let found = printed(&error);
        let head =
            format!("f.toml:2:{}: `{key}` has no effect where `device.kind` is `{kind}`\n", key.len() + 4);
        assert!(found.starts_with(&head), "{found}");
        assert!(found.contains(&format!("= expected it on {others} only")), "{found}");
        assert_eq!(error.hint.as_deref(), hint, "{found}");
    };
    for (key, value) in [
        ("device.select", "'pocl'"),
        ("device.memory", "'auto'"),
        ("device.peers", "'staged'"),
        ("device.wires", "'direct'"),
        ("device.waits", "'kernel'"),
        ("comm.signal", "'memop'"),
        ("staging.memory", "'pageable'"),
        ("staging.scheme", "'even'"),
        ("staging.blocks", "4"),
        ("staging.threshold_bytes", "0"),
        ("staging.first", "1"),
        ("staging.last", "2"),
    ] {
        refused(key, "host", value, "`opencl`, `cuda` or `hip`");
    }
    for kind in ["opencl", "cuda", "hip"] {
        refused("device.stream", kind, "'threaded'", "`host`");
        refused("device.threads", kind, "2", "`host`");
    }
    let flags = Overrides { set: vec!["device.waits=proxy".to_owned()], ..Overrides::default() };
    let error = printed(&parse_with("", &flags).expect_err("the host has no waits to choose"));
    assert!(error.starts_with("--set device.waits=proxy: `device.waits` has no effect"), "{error}");
}

#[test]
fn patterns_and_origins() {
    let pattern = "the path of an RLE file, `glider-field` or `random:SEED`";
    let pair = "expected `[y, x]`, counted from 0";
    check(&[
        ("app.pattern = 'absent.rle'", (1, 15), "`app.pattern`: there is no file absent.rle", pattern, None),
        (
            "app.pattern = 'glider_feld'",
            (1, 15),
            "`app.pattern`: there is no file glider_feld",
            pattern,
            Some("did you mean `glider-field`?"),
        ),
        (
            "app.pattern = 'random:x'",
            (1, 15),
            "`x` is not a seed for `app.pattern`",
            "as in `random:42`",
            None,
        ),
        ("app.pattern = 7", (1, 15), "`app.pattern` is the integer 7", pattern, None),
        (
            "app.pattern = 'random:1'\napp.origin = [1, 2, 3]",
            (2, 14),
            "`app.origin` has 3 entries",
            pair,
            None,
        ),
        ("app.pattern = 'random:1'\napp.origin = [1]", (2, 14), "`app.origin` has 1 entry", pair, None),
        (
            "app.pattern = 'random:1'\napp.origin = [1, -1]",
            (2, 18),
            "`app.origin` entry 2 is the integer -1",
            "expected an integer of at least 0",
            None,
        ),
        ("app.pattern = 'random:1'\napp.origin = 5", (2, 14), "`app.origin` is the integer 5", pair, None),
        (
            "app.pattern = 'random:1'\napp.cells_as = 'u16'",
            (2, 16),
            "`app.cells_as` is the string \"u16\"",
            "`u8` or `f64`",
            Some("did you mean `u8`?"),
        ),
    ]);
    // A default that does not fit has no line.
    let error = parse("app.name = 'life'").expect_err("there is no such file here");
    assert_eq!(
        printed(&error),
        "f.toml: the default of `app.pattern`: there is no file patterns/acorn.rle\n  = expected `app.pattern` \
         to be set: the path of an RLE file, `glider-field` or `random:SEED`\n\
         hint: set it in the file, or as in `--set app.pattern=random:1`"
    );
    // It does not hide what the user has got wrong.
    for mistake in ["run.ranks = 0", "comm.fabric = 'shn'", "output.on_full_disk = 'no'", "app.origin = 1"] {
        let error = printed(&parse(mistake).expect_err(mistake));
        let (key, _) = mistake.split_once(" =").expect("is a pair");
        assert!(error.contains(key) && !error.contains("app.pattern"), "{error}");
    }
}

/// Steps between two exchanges use up the halo layer by layer, also where the grid is one cell thick.
#[test]
fn a_halo_for_several_steps_may_be_wider_than_the_grid() {
    let thin =
        "grid = { cells = [1, 64], periodic = false, halo = HALO }\nrun = { ranks = 1, exchange_every = 3 }";
    parse(&thin.replace("HALO", "3")).expect("each step takes a layer");
    parse(&thin.replace("HALO", "4")).expect_err("and no step takes the fourth");
}
