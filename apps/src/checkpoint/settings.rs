//! What two runs must have in common for one to go on from a checkpoint of the other.

use serde_json::{Map, Value};

use crate::app::Application;
use crate::config::RunConfig;

/// What determines the answer at each step, by the keys of the configuration.
pub(super) fn of(config: &RunConfig, application: &dyn Application) -> Map<String, Value> {
    let mut settings = application.determines_answer();
    let common = [
        Value::from(config.app.name.as_str()),
        Value::from(config.grid.cells.as_slice()),
        Value::from(config.grid.periodic.as_slice()),
    ];
    settings.extend(FIRST.map(str::to_owned).into_iter().zip(common));
    settings
}

/// A key that differs, and its values.
pub(super) type Difference = (String, Option<Value>, Option<Value>);

/// What other settings may depend on, such as where the pattern of a file lies in the grid.
const FIRST: [&str; 3] = ["app.name", "grid.cells", "grid.periodic"];

/// The first difference, if there is one: the cause before what follows from it.
pub(super) fn difference(found: &Map<String, Value>, asked: &Map<String, Value>) -> Option<Difference> {
    let keys = FIRST.into_iter().chain(asked.keys().chain(found.keys()).map(String::as_str));
    let differing = keys.into_iter().find(|key| found.get(*key) != asked.get(*key));
    differing.map(|key| (key.to_owned(), found.get(key).cloned(), asked.get(key).cloned()))
}
