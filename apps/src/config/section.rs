//! Typed reading of one `[section]`.
//!
//! Each reader answers `None` for a key that is not set, so that the default stands next to
//! the key's meaning in the section's own file, and a fault that names the key, what was
//! found and what was expected otherwise.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::fmt;

use super::fault::{Fault, Located, Origin};
use super::names::{nearest, one_of};
use super::value::{Node, Table, Value};

/// The section of a configuration: its name and the keys that it may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'k> {
    pub(crate) name: &'static str,
    pub(crate) keys: &'k [&'static str],
}

/// The entries of a key that takes one value or a list, never empty.
#[derive(Clone, Debug)]
pub(crate) struct List<T> {
    pub(crate) values: Vec<T>,
    pub(crate) origin: Origin,
    /// Written as one value without brackets.
    pub(crate) single: bool,
}

/// One section of the file.
#[derive(Debug)]
pub(crate) struct Section<'t> {
    name: &'static str,
    table: Option<&'t Table>,
}

impl<'t> Section<'t> {
    /// Opens a section without looking at its keys; an absent one reads as empty.
    pub(crate) fn find(root: &'t Table, name: &'static str) -> Result<Self, Fault> {
        let Some(entry) = root.find(name) else {
            return Ok(Self { name, table: None });
        };
        match &entry.node.value {
            Value::Table(table) => Ok(Self { name, table: Some(table) }),
            _ => Err(wrong(
                &format!("`{name}`"),
                &entry.node,
                &format!("a section: `[{name}]` on a line of its own"),
            )),
        }
    }

    /// Refuses every key that is not in `shape`; `all` is asked where it belongs instead.
    pub(crate) fn check_keys(&self, shape: &Shape<'_>, all: &[Shape<'_>]) -> Result<(), Fault> {
        for entry in self.table.iter().flat_map(|table| &table.entries) {
            if shape.keys.contains(&entry.key.as_str()) {
                continue;
            }
            let message = format!("unknown key `{}` in [{}]", entry.key, self.name);
            let fault = Fault::new(&entry.key_origin, message).expected(one_of(shape.keys));
            let others: Vec<_> = all.iter().filter(|other| other.name != self.name).collect();
            return Err(match belongs_to(&entry.key, others) {
                Some(hint) => fault.hint(hint),
                None => fault.nearest(nearest(&entry.key, shape.keys)),
            });
        }
        Ok(())
    }

    /// Refuses keys that somebody has set and that a device of that kind has no use for: `others` have.
    pub(crate) fn refuse_on(&self, kind: &str, keys: &[&str], others: &[&str]) -> Result<(), Fault> {
        let Some((key, node)) = keys.iter().find_map(|key| Some((key, self.node(key)?))) else {
            return Ok(());
        };
        let message = format!("{} has no effect where `device.kind` is `{kind}`", self.dotted(key));
        Err(Fault::new(&node.origin, message)
            .expected(format!("it on {} only", one_of(others)))
            .hint("leave the key out, or choose such a device by `device.kind`"))
    }

    pub(crate) fn node(&self, key: &str) -> Option<&'t Node> {
        Some(&self.table?.find(key)?.node)
    }

    /// A key as errors and `--set` write it.
    pub(crate) fn dotted(&self, key: &str) -> String {
        format!("`{}.{key}`", self.name)
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<Located<T>>, Fault> {
        let Some(node) = self.node(key) else {
            return Ok(None);
        };
        match read(&node.value) {
            Some(value) => Ok(Some(Located::new(value, node.origin.clone()))),
            None => Err(wrong(&self.dotted(key), node, expected)),
        }
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, Fault> {
        let found = self.read(key, TRUE_OR_FALSE, as_boolean)?;
        Ok(found.map(|found| found.value))
    }

    /// An integer from `least` up that fits the type asked for.
    pub(crate) fn integer<T: TryFrom<i64>>(
        &self,
        key: &str,
        least: i64,
    ) -> Result<Option<Located<T>>, Fault> {
        let most = most::<T>();
        let is_more =
            self.node(key).is_some_and(|node| matches!(node.value, Value::Integer(found) if found > most));
        let expected = if is_more { format!("an integer of at most {most}") } else { at_least(least) };
        self.read(key, &expected, |value| as_integer(value, least))
    }

    /// A number of seconds from 0 up; integers are numbers too.
    pub(crate) fn seconds(&self, key: &str) -> Result<Option<f64>, Fault> {
        // Longer than a century is a slip, and `Duration` could not hold every float.
        const MOST: f64 = 4e9;
        let found = self.read(key, "a number of seconds from 0 to 4e9", |value| {
            as_number(value).filter(|seconds| (0.0..=MOST).contains(seconds))
        })?;
        Ok(found.map(|found| found.value))
    }

    /// An integer from 1 up to `most`.
    pub(crate) fn integer_up_to<T: TryFrom<i64> + PartialOrd + fmt::Display>(
        &self,
        key: &str,
        most: T,
    ) -> Result<Option<Located<T>>, Fault> {
        let expected = format!("an integer from 1 to {most}");
        self.read(key, &expected, |value| as_integer(value, 1).filter(|value| *value <= most))
    }

    /// A number above 0; integers are numbers too.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f64>, Fault> {
        let found = self.read(key, "a number above 0", |value| {
            as_number(value).filter(|number| number.is_finite() && *number > 0.0)
        })?;
        Ok(found.map(|found| found.value))
    }

    /// A string that is not empty. Behind `--set`, where a shell eats quotation marks, what reads as a number or a date is
    /// one too.
    pub(crate) fn string(&self, key: &str, expected: &str) -> Result<Option<Located<String>>, Fault> {
        let typed = self.node(key).and_then(|node| typed(&node.origin));
        self.read(key, expected, |value| match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Integer(_) | Value::Float(_) | Value::Datetime => typed.map(str::to_owned),
            _ => None,
        })
    }

    /// One of `names`.
    pub(crate) fn name(&self, key: &str, names: &[&str]) -> Result<Option<Located<String>>, Fault> {
        let Some(node) = self.node(key) else {
            return Ok(None);
        };
        known_name(&self.dotted(key), node, names).map(Some)
    }

    /// A value of one of our own enums, by its name.
    pub(crate) fn value<T: ValueEnum>(&self, key: &str) -> Result<Option<T>, Fault> {
        let values: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
        let names: Vec<_> = values.iter().map(PossibleValue::get_name).collect();
        let found = self.name(key, &names)?;
        Ok(found.and_then(|found| T::from_str(&found.value, false).ok()))
    }

    /// One of `all`, by its name.
    pub(crate) fn named<T: Copy, const N: usize>(
        &self,
        key: &str,
        all: [T; N],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Fault> {
        let found = self.name(key, &all.map(&name))?;
        Ok(found.and_then(|found| all.into_iter().find(|one| name(*one) == found.value)))
    }

    /// A list of integers, or one integer.
    pub(crate) fn integers(&self, key: &str, least: i64) -> Result<Option<List<usize>>, Fault> {
        let expected = at_least(least);
        self.list(key, &expected, |subject, node| {
            as_integer(&node.value, least).ok_or_else(|| wrong(subject, node, &expected))
        })
    }

    /// A list of `true` and `false`, or one of them.
    pub(crate) fn booleans(&self, key: &str) -> Result<Option<List<bool>>, Fault> {
        self.list(key, TRUE_OR_FALSE, |subject, node| {
            as_boolean(&node.value).ok_or_else(|| wrong(subject, node, TRUE_OR_FALSE))
        })
    }

    /// One value or a list that is not empty. `read` is given each entry with its name for
    /// an error.
    pub(crate) fn list<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&str, &Node) -> Result<T, Fault>,
    ) -> Result<Option<List<T>>, Fault> {
        let Some(node) = self.node(key) else {
            return Ok(None);
        };
        let dotted = self.dotted(key);
        let or_list = format!("{expected}, or a list of such in brackets");
        let (values, single) = match &node.value {
            Value::Array(items) if items.is_empty() => return Err(wrong(&dotted, node, &or_list)),
            Value::Array(items) => {
                let entries = items.iter().enumerate();
                let read_entry = |(index, item)| read(&format!("{dotted} entry {}", index + 1), item);
                (entries.map(read_entry).collect::<Result<_, _>>()?, false)
            }
            _ => {
                let in_brackets = |fault: Fault| match fault.expected.as_deref() {
                    Some(one) if one == expected => self.suggest_list(key, node, fault.expected(or_list)),
                    _ => fault,
                };
                (vec![read(&dotted, node).map_err(in_brackets)?], true)
            }
        };
        Ok(Some(List { values, origin: node.origin.clone(), single }))
    }

    /// How a list is written whose entries somebody has typed without brackets.
    fn suggest_list(&self, key: &str, node: &Node, fault: Fault) -> Fault {
        let (Value::String(text), Some(_)) = (&node.value, typed(&node.origin)) else { return fault };
        if !text.contains(',') {
            return fault;
        }
        let is_word = |item: &str| item.parse::<i64>().is_err() && item.parse::<bool>().is_err();
        let items = text.split(',').map(str::trim);
        let quoted = items.map(|item| if is_word(item) { format!("\"{item}\"") } else { item.to_owned() });
        let set = format!("{}.{key}=[{}]", self.name, quoted.collect::<Vec<_>>().join(","));
        // A shell would eat the quotation marks.
        fault.hint(if set.contains('"') { format!("`--set '{set}'`") } else { format!("`--set {set}`") })
    }
}

/// What was typed behind the `=` of a `--set`, where that is the origin.
fn typed(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Flag(flag) => Some(flag.strip_prefix("--set ")?.split_once('=')?.1.trim()),
        Origin::File(_) | Origin::Default => None,
    }
}

const TRUE_OR_FALSE: &str = "`true` or `false`";

/// The fault of a value that is not what it must be.
pub(crate) fn wrong(subject: &str, node: &Node, expected: &str) -> Fault {
    let message = format!("{subject} is {}", node.value.describe());
    Fault::new(&node.origin, message).expected(expected)
}

pub(crate) fn at_least(least: i64) -> String {
    format!("an integer of at least {least}")
}

/// The most that an integer of a configuration and of that type can be.
fn most<T: TryFrom<i64>>() -> i64 {
    (0..63).map(|bits| i64::MAX >> bits).find(|most| T::try_from(*most).is_ok()).unwrap_or(0)
}

/// An integer from `least` up that fits the type asked for.
pub(crate) fn as_integer<T: TryFrom<i64>>(value: &Value, least: i64) -> Option<T> {
    match value {
        Value::Integer(value) if *value >= least => T::try_from(*value).ok(),
        _ => None,
    }
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn as_boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(value) => Some(*value),
        _ => None,
    }
}

/// A string that is one of `names`; the nearest of them is suggested otherwise.
pub(crate) fn known_name(subject: &str, node: &Node, names: &[&str]) -> Result<Located<String>, Fault> {
    match &node.value {
        Value::String(text) if names.contains(&text.as_str()) => {
            Ok(Located::new(text.clone(), node.origin.clone()))
        }
        Value::String(text) => Err(wrong(subject, node, &one_of(names)).nearest(nearest(text, names))),
        _ => Err(wrong(subject, node, &one_of(names))),
    }
}

/// Where a key lives that was written into another section.
pub(crate) fn belongs_to<'s>(key: &str, sections: impl IntoIterator<Item = &'s Shape<'s>>) -> Option<String> {
    let mut sections = sections.into_iter();
    let home = sections.find(|shape| shape.keys.contains(&key))?;
    Some(format!("`{key}` belongs to [{}]", home.name))
}
