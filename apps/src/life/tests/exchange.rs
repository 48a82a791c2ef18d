//! The negative control of the exchange: without any one of its messages the check fails.

use streamhalo::prelude::Pattern;

use super::super::driver::Life;
use crate::app::Verified;
use crate::app::played::{play, reference};
use crate::config::{AppSettings, RunConfig};

fn life(every: usize) -> Life<u8> {
    let config = RunConfig::of(&format!(
        "app = {{ pattern = 'random:5', steps = 9 }}\ngrid = {{ cells = [12, 12], halo = {every} }}\n\
         run.exchange_every = {every}\n"
    ));
    let AppSettings::Life(settings) = &config.app.settings else { panic!("{config:?}") };
    Life::open(&config, settings).expect("is right")
}

#[test]
fn a_message_that_is_dropped_is_found() {
    let all: Vec<Vec<i32>> =
        (0..9).filter(|code| *code != 4).map(|code| vec![code / 3 - 1, code % 3 - 1]).collect();
    for every in [1, 3] {
        let mut life = life(every);
        let reference = reference(&life);
        life.pattern = Pattern::Offsets(all.clone());
        let complete = play(&life, &[2, 2], "st-send").answer;
        assert_eq!(life.difference(&complete, &reference), None, "every {every}");
        for dropped in &all {
            life.pattern =
                Pattern::Offsets(all.iter().filter(|offset| *offset != dropped).cloned().collect());
            let said = life.difference(&play(&life, &[2, 2], "st-send").answer, &reference);
            assert!(
                said.is_some_and(|said| said.contains(" of 144 cells differ")),
                "{dropped:?}, every {every}"
            );
        }
    }
}
