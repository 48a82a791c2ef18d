//! A TOML document as a tree in which every key and value knows its origin.
//!
//! One tree serves the file and the flags: `--set` replaces a node by one whose origin is
//! the flag, and all checks that follow are the same.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::fault::{Fault, Origin};

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// The values of TOML. Dates are kept only to be refused by name.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    String(String),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
}

/// The entries of a table in the order of the file, so that the first mistake is reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

/// A key with its own origin: an unknown key is marked at the key.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_origin: Origin,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Replaces the value of a key, or adds it.
    pub(crate) fn set(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|old| old.key == entry.key) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }
}

impl Value {
    /// The value as a sentence names it: "the string "two"", "a list".
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Boolean(value) => format!("`{value}`"),
            Self::Integer(value) => format!("the integer {value}"),
            Self::Float(value) => format!("the float {value:?}"),
            Self::String(value) => format!("the string {value:?}"),
            Self::Datetime => "a date".to_owned(),
            Self::Array(items) if items.is_empty() => "an empty list".to_owned(),
            Self::Array(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

/// Parses a whole file.
pub(crate) fn parse_document(text: &str) -> Result<Table, Fault> {
    let document = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
    table(document.get_ref(), &|span| Origin::File(span))
}

/// Parses the right-hand side of a key that was given by `flag`.
pub(crate) fn parse_value(text: &str, flag: &Origin) -> Result<Node, Fault> {
    let value = DeValue::parse(text)
        .map_err(|error| Fault::new(flag, format!("`{text}` is not TOML: {}", first_line(&error))))?;
    node(&value, &|_| flag.clone())
}

fn syntax(text: &str, error: &toml::de::Error) -> Fault {
    let origin = error.span().map_or(Origin::Default, Origin::File);
    match error.span() {
        Some(span) if is_without_value(text, span.start) => no_value(&origin),
        _ => Fault::new(&origin, format!("not TOML: {}", first_line(error))),
    }
}

/// Whether a key of a line ends in its `=`, where the parser stopped. It has taken nothing for a text without quotes.
fn is_without_value(text: &str, stopped: usize) -> bool {
    let Some((before, behind)) = text.split_at_checked(stopped) else { return false };
    let line = before.rsplit('\n').next().unwrap_or_default().trim_end();
    let rest = behind.lines().next().unwrap_or_default().trim_start();
    line.ends_with('=') && (rest.is_empty() || rest.starts_with('#'))
}

/// The fault of a key with nothing behind its `=`.
pub(crate) fn no_value(origin: &Origin) -> Fault {
    Fault::new(origin, "there is no value behind the `=`")
        .expected("a number, `true` or `false`, a text in quotation marks, or a list in brackets")
        .hint("leave it out for the default; an empty text is `''`")
}

/// The fault of an integer that is none of TOML's.
pub(super) fn too_large(origin: &Origin, digits: &str) -> Fault {
    Fault::new(origin, format!("{digits} does not fit into 64 bits with a sign")).expected(format!(
        "an integer from {} to {}",
        i64::MIN,
        i64::MAX
    ))
}

fn first_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(", ")
}

type Locate<'f> = &'f dyn Fn(std::ops::Range<usize>) -> Origin;

fn table(source: &DeTable<'_>, locate: Locate<'_>) -> Result<Table, Fault> {
    let mut in_order: Vec<_> = source.iter().collect();
    // The parser keeps keys sorted by name.
    in_order.sort_by_key(|(key, _)| key.span().start);
    let entries = in_order
        .into_iter()
        .map(|(key, value)| {
            Ok(Entry {
                key: key.get_ref().to_string(),
                key_origin: locate(key.span()),
                node: node(value, locate)?,
            })
        })
        .collect::<Result<_, Fault>>()?;
    Ok(Table { entries })
}

fn array(source: &DeArray<'_>, locate: Locate<'_>) -> Result<Vec<Node>, Fault> {
    source.iter().map(|item| node(item, locate)).collect()
}

fn node(source: &Spanned<DeValue<'_>>, locate: Locate<'_>) -> Result<Node, Fault> {
    let origin = locate(source.span());
    let value = match source.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => return Err(too_large(&origin, digits.as_str())),
        },
        DeValue::Float(digits) => match digits.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => return Err(Fault::new(&origin, format!("{digits} is not a number"))),
        },
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => Value::Array(array(items, locate)?),
        DeValue::Table(entries) => Value::Table(table(entries, locate)?),
    };
    Ok(Node { value, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_the_order_and_the_spans_of_the_file() {
        let table = parse_document("b = 1\na = 0x10\n").expect("is TOML");
        let keys: Vec<_> = table.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["b", "a"]);
        let a = table.find("a").expect("was set");
        assert_eq!(a.key_origin, Origin::File(6..7));
        assert_eq!(a.node.origin, Origin::File(10..14));
        assert!(matches!(a.node.value, Value::Integer(16)));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused_where_they_stand() {
        let fault = parse_document("a = 1\nb = 99999999999999999999").expect_err("too large");
        assert_eq!(fault.origin, Origin::File(10..30));
        assert!(fault.message.contains("64 bits"), "{}", fault.message);
    }
}
