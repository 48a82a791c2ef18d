//! Values from the command line, laid over those of the file.
//!
//! They become nodes whose origin is the flag, so that one set of checks serves both and an
//! error names whichever of them was wrong.

use super::checkpoint;
use super::fault::{Fault, Origin};
use super::names::nearest;
use super::section::{Shape, belongs_to};
use super::value::{Entry, Node, Table, Value, no_value, parse_value, too_large};

/// What the flags of the command line say, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--set section.key=value`: one of a key.
    pub set: Vec<String>,
    /// `--ranks 1,2,4`; like the flags below it is refused beside a `--set` of its key.
    pub ranks: Option<String>,
    /// `--backend x,y`.
    pub backend: Option<String>,
    /// `--fabric x`.
    pub fabric: Option<String>,
    /// `--out DIR`.
    pub out: Option<String>,
    /// `--snapshot every=N`.
    pub snapshot: Option<String>,
    /// `--checkpoint every=N`.
    pub checkpoint: Option<String>,
    /// `--restart PATH`.
    pub restart: Option<String>,
}

/// Lays the flags over the file.
pub(super) fn apply(root: &mut Table, overrides: &Overrides, all: &[Shape<'_>]) -> Result<(), Fault> {
    let mut unset = Vec::new();
    for text in &overrides.set {
        unset.extend(set(root, text, all)?);
    }
    let lists =
        [("--ranks", "run", "ranks", &overrides.ranks), ("--backend", "comm", "backend", &overrides.backend)];
    for (flag, section, key, value) in lists {
        if let Some(value) = value {
            let origin = Origin::Flag(format!("{flag} {value}"));
            let items = value.split(',').map(|item| bare(item.trim(), &origin));
            let node = Node { value: Value::Array(items.collect::<Result<_, _>>()?), origin: origin.clone() };
            lay(root, section, key, node)?;
        }
    }
    let strings = [
        ("--fabric", "comm", "fabric", &overrides.fabric),
        ("--out", "output", "dir", &overrides.out),
        ("--restart", "run", checkpoint::RESTART, &overrides.restart),
    ];
    for (flag, section, key, value) in strings {
        if let Some(value) = value {
            let node =
                Node { value: Value::String(value.clone()), origin: Origin::Flag(format!("{flag} {value}")) };
            lay(root, section, key, node)?;
        }
    }
    let frequencies = [
        ("--snapshot", "snapshot_every", "pictures", &overrides.snapshot),
        ("--checkpoint", checkpoint::EVERY, "checkpoints", &overrides.checkpoint),
    ];
    for (flag, key, things, value) in frequencies {
        let Some(text) = value else { continue };
        let origin = Origin::Flag(format!("{flag} {text}"));
        let Some((_, every)) = text.split_once('=').filter(|(key, _)| key.trim() == "every") else {
            return Err(Fault::new(&origin, format!("`{text}` does not say how often")).expected(format!(
                "`every=N`, with N steps between two {things}, as in `{flag} every=100`"
            )));
        };
        lay(root, "output", key, bare(every.trim(), &origin)?)?;
    }
    // Not before: a key that one flag takes away and another one sets would have it that either is dropped.
    for (section, key) in unset {
        if let Some(keys) = keys_of(root, section) {
            keys.entries.retain(|entry| entry.key != key);
        }
    }
    Ok(())
}

fn keys_of<'t>(root: &'t mut Table, section: &str) -> Option<&'t mut Table> {
    let found = root.entries.iter_mut().find(|entry| entry.key == section)?;
    match &mut found.node.value {
        Value::Table(keys) => Some(keys),
        _ => None,
    }
}

/// Replaces the value of a key by that of a flag, unless another flag has replaced it: one of the two would be dropped.
fn lay(root: &mut Table, section: &str, key: &str, node: Node) -> Result<(), Fault> {
    let keys = root.find(section).map(|entry| &entry.node.value);
    if let Some(Value::Table(keys)) = keys
        && let Some(Origin::Flag(set)) = keys.find(key).map(|entry| &entry.node.origin)
    {
        let message = format!("`{section}.{key}` is set by `{set}` too");
        return Err(Fault::new(&node.origin, message).expected("one of the two"));
    }
    replace(root, section, key, node);
    Ok(())
}

/// An item of a comma-separated list: a number where it reads as one.
fn bare(item: &str, origin: &Origin) -> Result<Node, Fault> {
    let value = match item.parse() {
        Ok(number) => Value::Integer(number),
        Err(_) if is_integer(item) => return Err(too_large(origin, item)),
        Err(_) => Value::String(item.to_owned()),
    };
    Ok(Node { value, origin: origin.clone() })
}

/// Lays one value over the file. The section and key, if it takes away what the file says, which stays for now.
fn set<'s>(root: &mut Table, text: &'s str, all: &[Shape<'_>]) -> Result<Option<(&'s str, &'s str)>, Fault> {
    let origin = Origin::Flag(format!("--set {text}"));
    let form = |message: String| {
        Fault::new(&origin, message).expected("`section.key=value`, as in `--set run.trials=3`")
    };
    let Some((path, value)) = text.split_once('=') else {
        return Err(form("there is no `=`".to_owned()));
    };
    let path = path.trim();
    let Some((section, key)) = path.split_once('.') else {
        let fault = form(format!("`{path}` names no section"));
        return Err(match belongs_to(path, all) {
            Some(hint) => fault.hint(hint),
            None => fault,
        });
    };
    let (section, key) = (section.trim(), key.trim());
    if !all.iter().any(|shape| shape.name == section) {
        let names: Vec<&str> = all.iter().map(|shape| shape.name).collect();
        return Err(super::unknown_section(&origin, section, &names).nearest(nearest(section, &names)));
    }
    let value = value.trim();
    if !value.is_empty() {
        lay(root, section, key, value_of(value, &origin)?)?;
        return Ok(None);
    }
    if keys_of(root, section).is_none_or(|keys| keys.find(key).is_none()) {
        return Err(
            no_value(&origin).hint(format!("no file sets `{section}.{key}`, which this would take away"))
        );
    }
    lay(root, section, key, Node { value: Value::String(String::new()), origin })?;
    Ok(Some((section, key)))
}

/// A TOML value; a word that is none is a string, since a shell eats the quotation marks.
fn value_of(text: &str, origin: &Origin) -> Result<Node, Fault> {
    match parse_value(text, origin) {
        Err(fault) if text.starts_with(['[', '{', '"', '\'']) || is_integer(text) => Err(fault),
        Err(_) => Ok(Node { value: Value::String(text.to_owned()), origin: origin.clone() }),
        parsed => parsed,
    }
}

/// Whether it is an integer, of whatever size.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit())
}

fn replace(root: &mut Table, section: &str, key: &str, node: Node) {
    let origin = node.origin.clone();
    let entry = Entry { key: key.to_owned(), key_origin: origin.clone(), node };
    match root.entries.iter_mut().find(|entry| entry.key == section) {
        Some(found) => {
            // What is no section is left as it is: reading refuses it and points at the file.
            if let Value::Table(table) = &mut found.node.value {
                table.set(entry);
            }
        }
        None => root.set(Entry {
            key: section.to_owned(),
            key_origin: origin.clone(),
            node: Node { value: Value::Table(Table { entries: vec![entry] }), origin },
        }),
    }
}
