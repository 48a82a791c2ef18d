//! `results.json` and `results.csv`.

use serde_json::Value;
use streamhalo_apps::AppError;
use streamhalo_apps::report::{MachineInfo, Results, csv};

use super::{Folder, config, results, run, typical};

#[test]
fn results_come_back_as_they_were() {
    let folder = Folder::new();
    let mut written = typical();
    // Times that no decimal of few digits holds, and the largest integers.
    written.runs[0].solve_s = 0.1 + 0.2;
    written.runs[1].setup_s = f64::MIN_POSITIVE;
    written.runs[2].bytes_per_exchange = u64::MAX;
    written.runs[3].verified = None;
    written.runs[4].verified = Some(false);
    written.runs[5].checksum = "\u{1F600}\"\\\n".to_owned();
    folder.write("results.json", &written.to_json().expect("is consistent"));
    let read = Results::read(folder.as_ref()).expect("was written by us");
    assert_eq!(read, written);
    assert!(!read.all_verified());
    assert!(typical().all_verified());
}

#[test]
fn the_schema_is_the_documented_one() {
    let text = results(vec![run("standard", 2, 0, 0.5)]).to_json().expect("is consistent");
    let value: Value = serde_json::from_str(&text).expect("is JSON");
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().expect("is an object").keys().cloned().collect() };
    assert_eq!(keys(&value), ["config", "machine", "runs", "schema"]);
    assert_eq!(value["schema"], 1);
    assert_eq!(value["config"]["app"]["pattern"], "random:1");
    let mut documented = [
        "app",
        "backend",
        "fabric",
        "executor",
        "device",
        "ranks",
        "layout",
        "cells",
        "steps",
        "trial",
        "solve_s",
        "halo_s",
        "compute_s",
        "setup_s",
        "bytes_per_exchange",
        "messages_per_exchange",
        "verified",
        "checksum",
        "result",
    ];
    documented.sort_unstable();
    assert_eq!(keys(&value["runs"][0]), documented);
    assert_eq!(value["runs"][0]["result"]["population"], 1024);
}

#[test]
fn the_machine_says_what_it_knows() {
    let machine = MachineInfo::detect();
    assert_eq!(machine.os, std::env::consts::OS);
    assert_eq!(machine.streamhalo, env!("CARGO_PKG_VERSION"));
    let value = serde_json::to_value(MachineInfo::default()).expect("is JSON");
    assert!(value.get("cpu").is_none(), "{value}");
}

#[test]
fn impossible_runs_are_not_written() {
    for (wrong, part) in
        [(f64::NAN, "`solve_s` is NaN"), (f64::INFINITY, "`solve_s` is inf"), (-1.0, "`solve_s` is -1")]
    {
        let runs = vec![run("standard", 1, 0, 1.0), run("standard", 1, 0, wrong)];
        let error = Results::new(&config(), MachineInfo::detect(), runs).expect_err(part);
        let wanted = format!("run 2 of the results is inconsistent: {part}");
        assert!(error.to_string().starts_with(&wanted), "{error}");
    }
    let mut results = typical();
    results.runs[0].layout = vec![3, 1];
    let error = results.to_json().expect_err("3 x 1 is not 1");
    assert!(error.to_string().ends_with("`layout` is [3, 1] for 1 ranks"), "{error}");
}

#[test]
fn what_cannot_be_reported_on_says_why_and_what_to_do() {
    let folder = Folder::new();
    let whole = typical().to_json().expect("is consistent");
    let file = folder.0.path().join("results.json");
    let file = file.display();
    let mut cases = vec![
        (whole[..whole.len() / 2].to_owned(), "ends in the middle: EOF", "again"),
        (String::new(), "ends in the middle: EOF", "again"),
        ("hello".to_owned(), "is not a result of streamhalo: expected value", "again"),
        ("[1, 2]".to_owned(), "is not a result of streamhalo: it has no `schema`", "again"),
        ("{}".to_owned(), "is not a result of streamhalo: it has no `schema`", "again"),
        ("{\"schema\": 1}".to_owned(), "is not a result of streamhalo: missing field `config`", "again"),
        (
            "{\"schema\": 2, \"new\": 0}".to_owned(),
            "has schema 2; this program reads schema 1",
            "the version of streamhalo that wrote it",
        ),
        (
            "{\"schema\": \"1\"}".to_owned(),
            "has schema \"1\"; this program reads schema 1",
            "the version of streamhalo that wrote it",
        ),
    ];
    let negative = whole.replacen("\"solve_s\": 2.0", "\"solve_s\": -2.0", 1);
    assert_ne!(negative, whole);
    cases.push((negative, "is not a result of streamhalo: run 1 of the results", "again"));
    for (text, wanted, remedy) in cases {
        folder.write("results.json", &text);
        let error = Results::read(folder.as_ref()).expect_err(&text);
        let found = error.to_string();
        assert!(found.starts_with(&format!("{file} {wanted}")), "{found}");
        assert!(error.hint().expect("has a remedy").contains(remedy), "{found}");
        assert_eq!(error.exit_status(), 1);
    }
    std::fs::remove_file(folder.0.path().join("results.json")).expect("was written");
    let error = Results::read(folder.as_ref()).expect_err("is gone");
    assert!(matches!(error, AppError::ResultsUnreadable { .. }), "{error:?}");
    assert!(error.hint().expect("has a remedy").contains("streamhalo report"));
}

#[test]
fn csv_has_a_row_a_run_and_the_own_columns_of_all() {
    let mut first = run("standard", 2, 0, 0.5);
    first.verified = None;
    first.checksum = "\"".to_owned();
    let mut second = run("st-send", 1, 3, 0.25);
    second.result.insert("note".to_owned(), "a, \"b\"".into());
    second.result.remove("box");
    second.timed_steps = Some(250);
    assert_eq!(
        csv(&results(vec![first, second])),
        "app,backend,fabric,executor,device,ranks,layout,cells,steps,timed_steps,trial,solve_s,halo_s,\
         compute_s,setup_s,ns_per_cell_step,bytes_per_exchange,messages_per_exchange,verified,checksum,\
         result_box_height,result_note,result_population\n\
         life,standard,local,host,host,2,2x1,2048x1024,1000,1000,0,0.5,0.125,0.25,0.125,0.2384185791015625,4096,4,,\
         \"\"\"\",7,,1024\n\
         life,st-send,local,stream,host,1,1x1,2048x1024,1000,250,3,0.25,0.0625,0.125,0.125,0.476837158203125,2048,2,\
         true,00ff,,\"a, \"\"b\"\"\",1024\n"
    );
}
