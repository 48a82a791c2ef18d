//! `[run]`: on how many ranks, in which layout, how often, and how it is checked.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize, Serializer};

use super::app::Own;
use super::checkpoint;
use super::fault::{Fault, Located, Origin};
use super::grid::Grid;
use super::section::{List, Section, Shape, as_integer, wrong};
use super::value::{Node, Value};
use crate::error::{counted, ranks_of};

pub(super) const SHAPE: Shape<'static> = Shape {
    name: "run",
    keys: &[
        "ranks",
        "scaling",
        "layout",
        "trials",
        "warmup",
        "verify",
        "exchange_every",
        "replay",
        "pin",
        checkpoint::RESTART,
    ],
};

/// The layout that the program chooses.
const AUTO: &str = "auto";

/// What is run: every entry of `ranks` with every backend, `trials` times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Rank counts, none twice.
    pub ranks: Vec<usize>,
    /// What stays the same at all of them.
    pub scaling: Scaling,
    /// How the grid is cut at each of them.
    pub layout: Layout,
    /// Timed repetitions, at least 1.
    pub trials: u32,
    /// Untimed repetitions before them.
    pub warmup: u32,
    /// Compare every owned cell with the reference.
    pub verify: bool,
    /// Steps between two exchanges; no halo is narrower.
    pub exchange_every: usize,
    /// Exchanges of the period of steps that streams replay, an even number; 0 where they replay nothing.
    #[serde(default)]
    pub replay: usize,
    /// Bind each rank to a core, as [`World::pin`](streamhalo::World::pin) does.
    pub pin: bool,
    /// The checkpoint, or a folder with some, that every trial goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<PathBuf>,
}

/// What `grid.cells` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// The cells of all ranks together: more ranks have less each.
    #[default]
    Strong,
    /// The cells of each rank: more ranks have more together.
    Weak,
}

/// Ranks per axis, slowest axis first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenLayout")]
pub enum Layout {
    /// The least surface; among equals the one that cuts the slower axis.
    Auto,
    /// One for each entry of `ranks`.
    PerEntry(Vec<Vec<usize>>),
}

impl Layout {
    /// The layout that the user gave for an entry of `ranks`, counted from 0.
    pub fn for_entry(&self, entry: usize) -> Option<&[usize]> {
        match self {
            Self::Auto => None,
            Self::PerEntry(layouts) => layouts.get(entry).map(Vec::as_slice),
        }
    }
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str(AUTO),
            Self::PerEntry(layouts) => layouts.serialize(serializer),
        }
    }
}

/// A layout as it is written.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenLayout {
    Word(String),
    PerEntry(Vec<Vec<usize>>),
}

impl TryFrom<WrittenLayout> for Layout {
    type Error = String;

    fn try_from(written: WrittenLayout) -> Result<Self, String> {
        match written {
            WrittenLayout::Word(word) if word == AUTO => Ok(Self::Auto),
            WrittenLayout::Word(word) => Err(format!("`{word}` is not a layout")),
            WrittenLayout::PerEntry(layouts) => Ok(Self::PerEntry(layouts)),
        }
    }
}

/// `folder` is the folder of the configuration file.
pub(super) fn read(
    section: &Section<'_>,
    grid: &Grid,
    app: &Own,
    folder: &Path,
) -> Result<RunSettings, Fault> {
    let ranks = read_ranks(section)?;
    let layout = read_layout(section, &ranks, grid.config.cells.len())?;
    let scaling = section.value("scaling")?.unwrap_or_default();
    let trials = section.integer("trials", 1)?;
    let warmup = section.integer("warmup", 0)?;
    let exchange_every = section.integer("exchange_every", 1)?;
    Ok(RunSettings {
        ranks: ranks.values,
        scaling,
        layout,
        trials: trials.map_or(5, |trials| trials.value),
        warmup: warmup.map_or(1, |warmup| warmup.value),
        verify: section.boolean("verify")?.unwrap_or(true),
        exchange_every: check_width(exchange_every, grid)?,
        replay: read_replay(section)?,
        pin: section.boolean("pin")?.unwrap_or(true),
        restart: checkpoint::read_restart(section, app, folder)?,
    })
}

fn read_ranks(section: &Section<'_>) -> Result<List<usize>, Fault> {
    let Some(ranks) = section.integers("ranks", 1)? else {
        return Ok(List { values: vec![1, 2, 4], origin: Origin::Default, single: false });
    };
    for (index, count) in ranks.values.iter().enumerate() {
        if ranks.values[..index].contains(count) {
            let message = format!("`run.ranks` names {count} twice");
            return Err(Fault::new(&ranks.origin, message).expected("each rank count once"));
        }
    }
    Ok(ranks)
}

const LAYOUT_EXPECTED: &str =
    "`\"auto\"`, or a list with one layout for each entry of `run.ranks`, as in `[[1, 1], [2, 1]]`";

fn read_layout(section: &Section<'_>, ranks: &List<usize>, axes: usize) -> Result<Layout, Fault> {
    let Some(node) = section.node("layout") else {
        return Ok(Layout::Auto);
    };
    let subject = section.dotted("layout");
    let items = match &node.value {
        Value::String(text) if text == AUTO => return Ok(Layout::Auto),
        Value::String(text) => {
            return Err(wrong(&subject, node, LAYOUT_EXPECTED).nearest(super::names::nearest(text, &[AUTO])));
        }
        Value::Array(items) => items,
        _ => return Err(wrong(&subject, node, LAYOUT_EXPECTED)),
    };
    let one: Option<Vec<usize>> = items.iter().map(|item| as_integer(&item.value, 1)).collect();
    if let Some(layout) = one.filter(|layout| layout.len() == axes) {
        let message = format!("{subject} is one layout, {layout:?}, and no list of them");
        return Err(Fault::new(&node.origin, message)
            .expected(LAYOUT_EXPECTED)
            .hint(format!("for one entry of `run.ranks` it is `[{layout:?}]`")));
    }
    let entry = |index: usize| format!("{subject} entry {}", index + 1);
    let List { values: ranks, origin, .. } = ranks;
    let flag = match (origin, &node.origin) {
        (Origin::Flag(flag), Origin::File(_)) => Some(flag),
        _ => None,
    };
    if flag.is_some() {
        let expected = expected_of_one(axes);
        let layouts =
            items.iter().enumerate().map(|(index, item)| read_one(&entry(index), item, axes, &expected));
        if let Some(layouts) = of_these_ranks(&layouts.collect::<Result<Vec<_>, _>>()?, ranks) {
            return Ok(Layout::PerEntry(layouts));
        }
    }
    let by = flag.map_or(String::new(), |flag| format!(" by `{flag}`"));
    if items.len() != ranks.len() {
        let message = format!(
            "{subject} has {} for {} of `run.ranks`, {ranks:?}{by}",
            counted(items.len(), "layout"),
            counted(ranks.len(), "entry"),
        );
        return Err(Fault::new(&node.origin, message)
            .expected(LAYOUT_EXPECTED)
            .hint("`--set run.layout=auto` lets the program choose"));
    }
    let entries = items.iter().zip(ranks).enumerate();
    let layouts = entries.map(|(index, (item, ranks))| one_layout(&entry(index), item, *ranks, &by, axes));
    Ok(Layout::PerEntry(layouts.collect::<Result<_, _>>()?))
}

/// Of the layouts of a file those for the ranks that a flag asks for in place of the file's, where each number has one.
fn of_these_ranks(layouts: &[Vec<usize>], ranks: &[usize]) -> Option<Vec<Vec<usize>>> {
    let only = |ranks: &usize| {
        let mut fitting = layouts.iter().filter(|layout| product_of(layout) == Some(*ranks));
        fitting.next().filter(|_| fitting.next().is_none()).cloned()
    };
    ranks.iter().map(only).collect()
}

/// The product of numbers, where 64 bits hold it.
fn product_of(numbers: &[usize]) -> Option<usize> {
    numbers.iter().try_fold(1_usize, |product, number| product.checked_mul(*number))
}

fn expected_of_one(axes: usize) -> String {
    format!("a list of {}, at least 1 each", counted(axes, "integer"))
}

/// The layout of an entry, for whatever ranks.
fn read_one(subject: &str, node: &Node, axes: usize, expected: &str) -> Result<Vec<usize>, Fault> {
    let Value::Array(items) = &node.value else {
        return Err(wrong(subject, node, expected));
    };
    let read = |item: &Node| {
        as_integer(&item.value, 1).ok_or_else(|| wrong(&format!("an axis of {subject}"), item, expected))
    };
    let layout: Vec<usize> = items.iter().map(read).collect::<Result<_, _>>()?;
    if layout.len() != axes {
        let message = format!(
            "{subject}, {layout:?}, has {} for the {axes} of the grid",
            counted(layout.len(), "axis"),
        );
        return Err(Fault::new(&node.origin, message).expected(expected));
    }
    Ok(layout)
}

/// The same where it is for so many ranks, `by` whichever flag.
fn one_layout(subject: &str, node: &Node, ranks: usize, by: &str, axes: usize) -> Result<Vec<usize>, Fault> {
    let expected = format!("{}, whose product is {ranks}", expected_of_one(axes));
    let layout = read_one(subject, node, axes, &expected)?;
    let product = product_of(&layout);
    if product != Some(ranks) {
        let product = product.map_or("more ranks than 64 bits hold".to_owned(), ranks_of);
        let message =
            format!("{subject}, {layout:?}, is for {product}; that entry of `run.ranks` is {ranks}{by}");
        return Err(Fault::new(&node.origin, message).expected(expected));
    }
    Ok(layout)
}

/// Exchanges of a period: each is there with all its operations.
const MOST_REPLAYED: usize = 1000;

/// Buffers and generations are used in turn, and a period begins where it has ended.
fn read_replay(section: &Section<'_>) -> Result<usize, Fault> {
    let Some(Located { value, origin }) = section.integer("replay", 0)? else { return Ok(0) };
    check_replayed(value).map_err(|(found, expected)| {
        Fault::new(&origin, format!("`run.replay` is {value}, {found}")).expected(expected)
    })?;
    Ok(value)
}

/// That a period can have so many exchanges, as a key or as a flag.
///
/// # Errors
///
/// What they are, and what is expected.
pub(crate) fn check_replayed(exchanges: usize) -> Result<(), (&'static str, String)> {
    let found = match exchanges {
        _ if !exchanges.is_multiple_of(2) => "an odd number of exchanges",
        _ if exchanges > MOST_REPLAYED => "more exchanges than a period may have",
        _ => return Ok(()),
    };
    Err((found, format!("an even number up to {MOST_REPLAYED}: exchanges use two buffers in turn")))
}

/// Between two exchanges every step uses up one layer of the halo.
fn check_width(found: Option<Located<usize>>, grid: &Grid) -> Result<usize, Fault> {
    let every = match found {
        Some(found) => found,
        None => Located::default(1),
    };
    let narrowest = grid.config.halo.iter().copied().min().unwrap_or(0);
    if every.value > narrowest {
        let message = format!("`run.exchange_every` is {}, but `grid.halo` is {narrowest} wide", every.value);
        // The default of either fits the other, so one of the two was set; point at it.
        let origin = match &every.origin {
            Origin::Default => &grid.halo_origin,
            set => set,
        };
        return Err(Fault::new(origin, message)
            .expected("a halo of at least `run.exchange_every` cells: each step uses up one layer")
            .hint(format!(
                "set `run.exchange_every` to {narrowest}, or `grid.halo` to {} where the application takes it",
                every.value
            )));
    }
    let mut axes = grid.config.halo.iter().zip(&grid.config.cells).enumerate();
    if let Some((axis, (width, cells))) = axes.find(|(_, (width, cells))| **width > every.value.max(**cells))
    {
        let message = format!(
            "`grid.halo` is {width} wide along axis {axis}, where `grid.cells` has {cells}: ghosts are copies of cells"
        );
        let expected = format!("a halo of at most {} there", every.value.max(*cells));
        return Err(Fault::new(&grid.halo_origin, message).expected(expected));
    }
    Ok(every.value)
}
