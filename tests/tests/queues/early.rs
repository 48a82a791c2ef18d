//! Ready sends over libfabric that come once the host has enqueued the start of their receive, and before the stream
//! has come to it.

use std::path::Path;
use std::time::Duration;
use streamhalo_tests::start::{engines, run};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_ready_send_that_is_too_soon_for_the_stream_is_found_by_it() {
    let program = Path::new(env!("CARGO_BIN_EXE_tried_rank"));
    for engine in engines().into_iter().filter(|engine| engine.fabric == "ofi") {
        match &engine.start {
            Ok(start) => {
                let ended = run(start.commands(2, program, &["early"]), LIMIT);
                assert!(ended.is_success(), "{}: {}", engine.by, ended.all());
            }
            Err(reason) => println!("skipped: {}: {reason}", engine.by),
        }
    }
}
