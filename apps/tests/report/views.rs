//! The table and the plot.

use streamhalo_apps::report::{RunRecord, Summary, Verification, speedup_svg, table, time_svg};

use super::{results, run, typical};

fn svg(results: &streamhalo_apps::report::Results) -> String {
    speedup_svg(results).expect("can be drawn")
}

/// The colours of the lines of two pixels' width: one for each backend.
fn lines(svg: &str) -> Vec<&str> {
    svg.lines()
        .filter(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"2\""))
        .map(|line| attribute(line, "stroke"))
        .collect()
}

fn attribute<'l>(line: &'l str, name: &str) -> &'l str {
    let start = line.find(&format!(" {name}=\"")).expect(name) + name.len() + 3;
    &line[start..start + line[start..].find('"').expect("is closed")]
}

/// Pixels of the ideal line, grey and a pixel wide.
fn ideal(svg: &str) -> Vec<(i32, i32)> {
    let line = svg
        .lines()
        .find(|line| line.starts_with("<polyline") && attribute(line, "stroke") == "#8C8C8C")
        .expect("there is an ideal line");
    pixels(line)
}

/// The points of a line.
fn pixels(line: &str) -> Vec<(i32, i32)> {
    let pair = |text: &str| {
        let (x, y) = text.split_once(',').expect("is a pair");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    attribute(line, "points").split_whitespace().map(pair).collect()
}

fn texts(svg: &str) -> Vec<&str> {
    let is_text = |line: &&str| !line.starts_with('<') && !line.is_empty();
    svg.lines().filter(is_text).collect()
}

#[test]
fn speedups_are_over_the_median_of_standard_on_the_fewest_ranks() {
    let summary = Summary::of(&typical());
    let baseline = summary.baseline.expect("there are runs");
    assert_eq!(baseline.describe(), "standard at 1 rank");
    // Trials take 2, 2.5 and 3 seconds.
    assert_eq!(baseline.solve_s, 2.5);
    assert_eq!(summary.backends, ["standard", "notified"]);
    let group = &summary.groups[5];
    assert_eq!((group.ranks, group.backend.as_str()), (4, "notified"));
    assert_eq!(group.solve_s.median, 0.46875);
    let speedup = group.speedup.expect("took time");
    assert_eq!(speedup.median, 2.5 / 0.46875);
    assert_eq!((speedup.min, speedup.max), (2.5 / 0.5625, 2.5 / 0.375));
    assert_eq!(group.halo_share, Some(0.25));
}

#[test]
fn standard_is_the_baseline_wherever_it_stands() {
    let runs = vec![run("notified", 1, 0, 1.0), run("standard", 1, 0, 2.0), run("standard", 2, 0, 0.5)];
    let baseline = Summary::of(&results(runs)).baseline.expect("there are runs");
    assert_eq!((baseline.describe().as_str(), baseline.solve_s), ("standard at 1 rank", 2.0));
}

#[test]
fn without_standard_the_first_backend_is_the_baseline() {
    let runs = vec![
        run("standard", 4, 0, 1.0),
        run("st-send", 2, 0, 3.0),
        run("st-send", 2, 1, 1.0),
        run("notified", 2, 0, 0.5),
    ];
    let results = results(runs);
    let baseline = Summary::of(&results).baseline.expect("there are runs");
    assert_eq!(baseline.describe(), "st-send at 2 ranks");
    // An even number of trials: the mean of the middle two.
    assert_eq!(baseline.solve_s, 2.0);
    assert!(texts(&svg(&results)).contains(&"speed-up over st-send at 2 ranks"));
    assert!(table(&results).contains("over st-send at 2 ranks, 2.000 s"));
}

#[test]
fn verification_is_summed_up() {
    for (trials, wanted, mark) in [
        ([Some(true), Some(true)], Verification::Passed, "yes"),
        ([Some(true), None], Verification::Partly, "partly"),
        ([None, None], Verification::NotDone, "-"),
        ([Some(true), Some(false)], Verification::Failed, "FAILED"),
        ([None, Some(false)], Verification::Failed, "FAILED"),
    ] {
        let runs = trials.map(|verified| {
            let mut run = run("standard", 1, 0, 1.0);
            run.verified = verified;
            run
        });
        let results = results(runs.to_vec());
        assert_eq!(Summary::of(&results).groups[0].verification, wanted);
        let table = table(&results);
        let row = table.lines().find(|line| line.contains(" standard ")).expect("has a row");
        assert!(row.ends_with(&format!(" {mark}")), "{row}");
        let told = table.contains("Verification FAILED in 1 of 2 runs.");
        assert_eq!(told, mark == "FAILED", "{table}");
    }
}

#[test]
fn the_table_as_a_whole() {
    let mut runs = typical().runs;
    runs.retain(|run| run.ranks < 4);
    let text = table(&results(runs));
    let rule = "─".repeat(75);
    let lines: Vec<_> = text.lines().map(|line| line.replace(&rule, "RULE")).collect();
    assert_eq!(
        lines,
        [
            "life: 2048 x 1024 cells, 1000 steps; fabric local, device host",
            "executed by host (standard), stream (notified)",
            "RULE",
            "ranks backend     solve     min .. max speed-  halo    bytes messages veri-",
            "                 median                    up share      per      per fied",
            "                                                    exchange exchange",
            "RULE",
            "    1 standard  2.500 s 2.000 .. 3.000  1.000  25 %  2.0 KiB        2 yes",
            "    1 notified  1.875 s 1.500 .. 2.250  1.333  25 %  2.0 KiB        2 yes",
            "    2 standard  1.250 s 1.000 .. 1.500  2.000  25 %  4.0 KiB        4 yes",
            "    2 notified 937.5 ms  750.0 .. 1125  2.667  25 %  4.0 KiB        4 yes",
            "RULE",
            "Speed-up: over standard at 1 rank, 2.500 s (medians).",
            "That is 1.192 ns for each cell and step.",
        ],
        "\n{text}"
    );
}

/// Of a run that goes on, or repeats its steps, the time is of another number of them.
#[test]
fn steps_that_are_timed_are_told_where_they_are_others() {
    for (timed, said) in
        [(None, "1000 steps;"), (Some(1000), "1000 steps;"), (Some(250), "1000 steps, 250 timed;")]
    {
        let mut run = run("standard", 1, 0, 1.0);
        run.timed_steps = timed;
        let results = results(vec![run]);
        let table = table(&results);
        assert!(table.starts_with(&format!("life: 2048 x 1024 cells, {said} fabric")), "{table}");
        let below = format!("one trial each; {}, device host", said.trim_end_matches(';'));
        assert!(texts(&svg(&results)).contains(&&*below), "{below}");
    }
}

#[test]
fn a_time_for_each_cell_and_step_is_told_where_steps_compute_cells() {
    for (app, cell, is_told) in [
        ("life", "cell", true),
        ("faces", "element", true),
        ("pipeline", "cell", true),
        ("tree", "cell", false),
        ("cholesky", "cell", false),
    ] {
        let mut run = run("standard", 1, 0, 1.0);
        run.app = app.to_owned();
        let results = results(vec![run]);
        let table = table(&results);
        assert!(table.starts_with(&format!("{app}: 2048 x 1024 {cell}s, ")), "{table}");
        assert_eq!(table.contains(&format!("for each {cell} and step")), is_told, "{app}");
        assert_eq!(results.runs[0].ns_per_cell_step().is_some(), is_told, "{app}");
    }
}

#[test]
fn the_table_fits_its_width_whatever_is_in_it() {
    let runs = vec![
        run("a-backend-whose-name-is-longer-than-the-others", 1_000_000, 0, 123_456.0),
        run("active-rma", 1_000_000, 0, 0.000_1),
    ];
    let table_of = |runs| table(&results(runs));
    let fits = |table: &str| table.lines().all(|line| line.chars().count() <= 80);
    let odd = table_of(runs);
    assert!(fits(&odd), "{odd}");
    // What is usual is not broken into lines, whichever backends there are.
    let all = ["standard", "st-send", "st-rsend", "active-rma", "notified"];
    let all = all.map(|backend| RunRecord { bytes_per_exchange: 1_048_000, ..run(backend, 4, 0, 0.012_34) });
    let usual = table_of(all.to_vec());
    assert!(fits(&usual), "{usual}");
    assert!(usual.lines().any(|line| line.contains("active-rma 12.34 ms 12.34 .. 12.34")), "{usual}");
    assert_eq!(table(&results(vec![])), "no runs\n");
}

#[test]
fn the_table_says_what_auto_was() {
    let auto = |ranks: usize, backend: &str| {
        let mut auto = run("auto", ranks, 0, 1.0);
        auto.result.insert("chosen_backend".to_owned(), backend.into());
        auto
    };
    let table = table(&results(vec![
        run("standard", 1, 0, 1.0),
        auto(1, "st-send"),
        auto(2, "notified"),
        auto(4, "notified"),
    ]));
    assert!(table.contains("\nauto is st-send (1 rank), notified (2 ranks, 4 ranks)\n"), "{table}");
}

#[test]
fn the_plot_has_a_line_a_backend_and_the_ideal_one() {
    let svg = svg(&typical());
    assert_eq!(lines(&svg), ["#0072B2", "#D55E00"]);
    assert_eq!(ideal(&svg).len(), 3);
    let texts = texts(&svg);
    for wanted in [
        "life: 2048 × 1024 cells, fabric local",
        "medians of 3 trials, whiskers from min to max; 1000 steps, device host",
        "ranks",
        "speed-up over standard at 1 rank",
        "standard",
        "notified",
        "ideal",
        "1",
        "2",
        "4",
    ] {
        assert!(texts.contains(&wanted), "{wanted}: {texts:?}");
    }
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn points_lie_where_the_ideal_line_says() {
    // Two backends, one of them ideal: its line is the ideal one but for the shift along x.
    let runs = [1, 2, 4].map(|ranks| run("standard", ranks, 0, 4.0 / ranks as f64));
    let svg = svg(&results(runs.to_vec()));
    let measured = svg
        .lines()
        .find(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"2\""))
        .map(|line| attribute(line, "points"));
    let points: Vec<&str> = measured.expect("has a line").split_whitespace().collect();
    let [(x0, y0), _, (x1, y1)] = ideal(&svg)[..] else { panic!("one a rank count") };
    assert_eq!(points[0], format!("{x0},{y0}"));
    assert_eq!(points[2], format!("{x1},{y1}"));
    assert!(x0 < x1 && y1 < y0, "the page grows downwards");
}

/// Where the rows of each rank stay the same the work of a factorisation grows with the cube of the ranks.
#[test]
fn the_ideal_efficiency_is_that_of_the_work() {
    for (app, power) in [("life", 0), ("cholesky", 2)] {
        let of_ranks = |ranks: usize| RunRecord {
            app: app.to_owned(),
            cells: vec![1024 * ranks],
            layout: vec![ranks],
            ..run("standard", ranks, 0, (ranks as f64).powi(power))
        };
        let mut results = results([1, 2, 4].map(of_ranks).to_vec());
        results.config["run"]["scaling"] = "weak".into();
        let svg = svg(&results);
        assert!(texts(&svg).contains(&"efficiency over standard at 1 rank"), "{svg}");
        let of_line = |line: &&str| line.starts_with("<polyline") && line.contains("stroke-width=\"2\"");
        let measured = svg.lines().find(of_line).map(pixels).expect("has a line");
        assert_eq!(measured, ideal(&svg), "{app}");
    }
}

/// A line falls by as much for each doubling of ranks as it grows along x, which has one tick a rank count.
#[test]
fn times_of_a_step_are_on_logarithmic_axes() {
    let mut runs: Vec<RunRecord> =
        [3, 6, 12].map(|ranks| run("standard", ranks, 0, 3e-2 / ranks as f64)).to_vec();
    runs.extend([3, 6].map(|ranks| run("notified", ranks, 0, 2e-2)));
    // The same times of steps, of a run that timed fewer of them.
    runs.push(RunRecord { timed_steps: Some(500), ..run("notified", 12, 0, 1e-2) });
    let svg = time_svg(&results(runs)).expect("can be drawn");
    assert_eq!(lines(&svg), ["#0072B2", "#D55E00"]);
    let of_line = |line: &&str| line.starts_with("<polyline") && line.contains("stroke-width=\"2\"");
    let points: Vec<Vec<(i32, i32)>> = svg.lines().filter(of_line).map(pixels).collect();
    let [standard, notified] = &points[..] else { panic!("two lines: {points:?}") };
    let steps = |line: &[(i32, i32)]| -> Vec<(i32, i32)> {
        line.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1)).collect()
    };
    let near = |one: i32, other: i32| (one - other).abs() <= 1;
    let [first, second] = steps(standard)[..] else { panic!("three points: {standard:?}") };
    assert!(near(first.0, second.0) && near(first.1, second.1) && first.1 > 0, "{standard:?}");
    assert!(steps(notified).iter().all(|step| near(step.1, 0)), "{notified:?}");
    let texts = texts(&svg);
    for wanted in ["ranks", "time of a step, µs", "life: 2048 × 1024 cells, fabric local"] {
        assert!(texts.contains(&wanted), "{wanted}: {texts:?}");
    }
    assert!(texts.windows(3).any(|ticks| ticks == ["3", "6", "12"]), "{texts:?}");
}

#[test]
fn axes_are_logarithmic_from_a_factor_of_eight() {
    let runs = [1, 2, 4, 8, 16].map(|ranks| run("standard", ranks, 0, 1.0 / ranks as f64));
    let svg = svg(&results(runs.to_vec()));
    let line = svg.lines().find(|line| line.contains("stroke-width=\"2\" points"));
    let points = attribute(line.expect("has a line"), "points");
    let xs: Vec<i32> = points
        .split_whitespace()
        .map(|pair| pair.split(',').next().expect("has x").parse().expect("a number"))
        .collect();
    let gaps: Vec<i32> = xs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let even = gaps.iter().all(|gap| (gap - gaps[0]).abs() <= 1);
    assert!(even, "{gaps:?}");
    assert!(texts(&svg).contains(&"16"));
}

/// Their times are those of looking at the clock.
#[test]
fn runs_without_steps_have_no_speedup() {
    let without = |backend, ranks, solve_s| RunRecord { steps: 0, ..run(backend, ranks, 0, solve_s) };
    let at_the_end = RunRecord { timed_steps: Some(0), ..run("notified", 2, 0, 1e-6) };
    for other in [without("notified", 2, 1e-6), at_the_end] {
        let results = results(vec![without("standard", 1, 2e-6), other]);
        let summary = Summary::of(&results);
        for group in &summary.groups {
            assert_eq!((group.speedup, group.halo_share), (None, None), "{group:?}");
        }
        let table = table(&results);
        assert!(table.contains("Speed-up: none, as no steps were timed."), "{table}");
        for plot in [svg(&results), time_svg(&results).expect("can be drawn")] {
            assert!(plot.contains("no steps took any time"), "{plot}");
        }
    }
}

#[test]
fn one_rank_count_one_trial_or_no_time_can_be_drawn() {
    let one = svg(&results(vec![run("standard", 2, 0, 1.0), run("notified", 2, 0, 0.5)]));
    assert!(texts(&one).contains(&"one trial each; 1000 steps, device host"));
    assert!(lines(&one).is_empty(), "a point is no line");
    assert_eq!(ideal(&one).len(), 2);
    for nothing in [vec![], vec![run("standard", 1, 0, 0.0)]] {
        let results = results(nothing);
        for none in [svg(&results), time_svg(&results).expect("can be drawn")] {
            assert!(none.contains("no steps took any time"), "{none}");
        }
    }
}

#[test]
fn names_from_elsewhere_do_not_break_the_plot() {
    let mut run = run("<b>&\"", 1, 0, 1.0);
    run.app = "</svg>".to_owned();
    let svg = svg(&results(vec![run]));
    assert_eq!(svg.matches("</svg>").count(), 1);
    assert!(svg.contains("&lt;b&gt;&amp;&quot;"), "{svg}");
}
