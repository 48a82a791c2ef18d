//! What has been measured, verified as it comes.

use std::rc::Rc;

use super::Part;
use crate::app::{Answer, Application, Outcome};
use crate::config::RunConfig;
use crate::error::ranks_of;
use crate::report::RunRecord;

/// Keeps what ranks report, and compares their answers with the reference's.
pub(crate) struct Journal<'a> {
    config: &'a RunConfig,
    /// The answer of an application on its grid.
    reference: Option<(Rc<dyn Application>, Answer)>,
    kept: Kept,
}

/// What has been measured so far.
#[derive(Default)]
pub(crate) struct Kept {
    /// One record a timed run, in order.
    pub(crate) records: Vec<RunRecord>,
    /// The last final state that is not known to be wrong, and the application on the grid that it is of.
    pub(crate) state: Option<(Rc<dyn Application>, Vec<u8>)>,
    /// What is wrong with the answers, a sentence for each of them.
    pub(crate) wrong: Vec<String>,
}

impl<'a> Journal<'a> {
    /// An empty one. Without a reference nothing is verified.
    pub(crate) fn new(config: &'a RunConfig) -> Self {
        Self { config, reference: None, kept: Kept::default() }
    }

    /// Whether a part's answers are compared with the reference that is there.
    pub(crate) fn has_reference_of(&self, part: &Part) -> bool {
        self.reference.as_ref().is_some_and(|(application, _)| Rc::ptr_eq(application, &part.application))
    }

    /// What the answers of a part, and of those on the same grid, must be.
    pub(crate) fn verify_against(&mut self, part: &Part, reference: Answer) {
        self.reference = Some((part.application.clone(), reference));
    }

    /// Everything that was kept.
    pub(crate) fn close(self) -> Kept {
        self.kept
    }

    /// Notes what a trial gave.
    pub(crate) fn note(&mut self, part: &Part, backend: String, trial: u32, outcome: Outcome) {
        let entry = &part.entry;
        let Outcome {
            solve_s,
            timed_steps,
            halo_s,
            compute_s,
            setup_s,
            bytes_per_exchange,
            messages_per_exchange,
            executor,
            mut answer,
            measured,
        } = outcome;
        let reference = self.reference.as_ref().filter(|_| self.has_reference_of(part));
        let wrong = reference.map(|(application, reference)| wrong(&**application, &answer, reference));
        let verified = wrong.as_ref().map(Option::is_none);
        if let Some(Some(difference)) = wrong {
            let ranks = ranks_of(entry.ranks);
            self.kept
                .wrong
                .push(format!("verification failed: {backend}, {ranks}, trial {trial}: {difference}"));
        }
        answer.result.extend(measured);
        if let Some(state) = answer.state.filter(|_| verified != Some(false)) {
            self.kept.state = Some((part.application.clone(), state));
        }
        self.kept.records.push(RunRecord {
            app: self.config.app.name.clone(),
            executor,
            backend,
            fabric: self.config.comm.fabric.clone(),
            device: self.config.device.kind.clone(),
            ranks: entry.ranks,
            layout: entry.layout.clone(),
            cells: entry.cells.clone(),
            steps: self.config.app.steps,
            timed_steps,
            trial,
            solve_s,
            halo_s,
            compute_s,
            setup_s,
            bytes_per_exchange,
            messages_per_exchange,
            verified,
            checksum: answer.checksum,
            result: answer.result,
        });
    }
}

/// What is wrong with an answer, if anything is.
fn wrong(application: &dyn Application, found: &Answer, reference: &Answer) -> Option<String> {
    match (&found.state, &reference.state) {
        (Some(_), Some(_)) => application.difference(found, reference),
        _ => Some("its final state did not arrive".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan;
    use serde_json::{Map, Value};

    /// What a text configures, and its parts.
    fn planned(text: &str) -> (RunConfig, Vec<Part>) {
        let config = RunConfig::of(text);
        let parts = plan(&config).expect("is right");
        (config, parts)
    }

    /// Cells in rows of five, and what the application says of them.
    fn game() -> (RunConfig, Part) {
        let text = "app = { steps = 1, pattern = 'random:1' }\ngrid.cells = [4, 5]\nrun.ranks = 2\n";
        let (config, mut parts) = planned(text);
        (config, parts.remove(0))
    }

    fn outcome(answer: Answer) -> Outcome {
        Outcome {
            solve_s: 1.0,
            timed_steps: None,
            halo_s: 0.25,
            compute_s: 0.5,
            setup_s: 0.125,
            bytes_per_exchange: 0,
            messages_per_exchange: 0,
            executor: "stream".to_owned(),
            answer,
            measured: Map::from_iter([("took".to_owned(), Value::from(7))]),
        }
    }

    type Change<'c> = &'c dyn Fn(&mut Answer);

    /// What is noted of an answer that is the reference's but for `change`.
    fn noted(change: impl Fn(&mut Answer)) -> Kept {
        let (config, part) = game();
        let reference = part.application.reference(&|| Ok(())).expect("nobody stops it");
        let mut answer = reference.clone();
        change(&mut answer);
        let mut journal = Journal::new(&config);
        journal.verify_against(&part, reference);
        journal.note(&part, "st-send".to_owned(), 3, outcome(answer));
        journal.close()
    }

    #[test]
    fn the_answer_of_the_reference_is_verified() {
        let kept = noted(|_| {});
        assert_eq!(kept.records[0].verified, Some(true));
        assert_eq!((kept.wrong.len(), kept.state.is_some()), (0, true));
        assert_eq!(kept.records[0].result["took"], 7, "measured, and no part of the answer");
    }

    /// Each number of ranks has a grid of its own, and the second one's answer is wrong.
    #[test]
    fn a_state_is_kept_with_its_own_grid() {
        let text = "app = { steps = 1, pattern = 'random:1' }\ngrid.cells = [4, 5]\n\
                    run = { ranks = [1, 2], scaling = 'weak' }\n";
        let (config, parts) = planned(text);
        let mut journal = Journal::new(&config);
        let mut states = Vec::new();
        for part in &parts {
            let reference = part.application.reference(&|| Ok(())).expect("nobody stops it");
            states.extend(reference.state.clone());
            let mut answer = reference.clone();
            if part.entry.ranks == 2 {
                answer.checksum.push('0');
            }
            journal.verify_against(part, reference);
            journal.note(part, "st-send".to_owned(), 0, outcome(answer));
        }
        let kept = journal.close();
        assert_eq!(kept.wrong.len(), 1, "{:?}", kept.wrong);
        let (application, state) = kept.state.expect("one is right");
        assert!(state == states[0] && Rc::ptr_eq(&application, &parts[0].application));
        let file = application.files(&state).remove(0);
        assert!(String::from_utf8_lossy(&file.content).contains("x = 5, y = 4,"), "{file:?}");
    }

    #[test]
    fn any_other_answer_is_not_and_is_told_where() {
        let flip = |cell: usize| {
            move |answer: &mut Answer| answer.state.as_mut().expect("is there")[cell / 8] ^= 1 << (cell % 8)
        };
        let cases: [(Change<'_>, &str); 5] = [
            (&flip(0), "1 of 20 cells differ, the first at [0, 0]"),
            (&flip(13), "1 of 20 cells differ, the first at [2, 3]"),
            (&|answer| answer.checksum = "abc".to_owned(), "no cell differs, but the checksum is abc, not "),
            (
                &|answer| _ = answer.result.insert("population".to_owned(), 0.into()),
                "no cell differs, but the population is 0, not ",
            ),
            (&|answer| answer.state = None, "its final state did not arrive"),
        ];
        for (change, difference) in cases {
            let kept = noted(change);
            assert_eq!(kept.records[0].verified, Some(false), "{difference}");
            assert!(kept.state.is_none(), "a wrong state is no result");
            let head = "verification failed: st-send, 2 ranks, trial 3: ";
            assert!(kept.wrong[0].starts_with(&format!("{head}{difference}")), "{:?}", kept.wrong);
        }
    }
}
