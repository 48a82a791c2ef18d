//! `streamhalo explain CONFIG.toml`: how each message of an exchange travels, and why.
//!
//! Ranks set up as `run` would and are asked; nothing is stepped. On the host they are threads over `local` and
//! `shm`: over both a rank's memory is mapped by its peers, so that the paths are the same, but not what `auto` measures.

use comfy_table::{Cell, ContentArrangement, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use streamhalo::comm::backend::{AUTO, Measured};
use streamhalo::{World, WorldOptions};

use super::load;
use crate::app::{ApplicationRow, Between, Routes, Trial, Way};
use crate::cli::ExplainArgs;
use crate::config::RunConfig;
use crate::error::{AppError, ranks_of};
use crate::ranks::{Prepared, Ranks, Work, adopt};
use crate::report::text::joined;
use crate::report::{self, right};
use crate::run::{Entry, MeasuredFile, Part, plan, stream, world_options};

const COMMAND: &str = "streamhalo explain";
/// Columns of the table.
const WIDTH: u16 = 100;

/// Prints one table for each entry of `run.ranks`.
pub(super) fn explain(args: &ExplainArgs) -> Result<u8, AppError> {
    let config = load(&args.config, &args.config.overrides());
    let fabric = config.as_ref().map(|(config, _)| config.comm.fabric.clone());
    let fabric = fabric.ok().or(args.config.fabric.clone());
    let planned = config.and_then(|(config, places)| {
        adopt(&args.rendezvous, &config.comm.fabric)?;
        Planned::new(config).map_err(|error| places.locate(error))
    });
    let (ranks, planned) = Ranks::gather(COMMAND, fabric.as_deref(), planned)?;
    let RunConfig { device, comm, .. } = &planned.config;
    let is_local = device.kind == "host" && !comm.backend.iter().any(|backend| backend == AUTO);
    let ranks = match ranks {
        Ranks::Own(fabric) if fabric == "shm" && is_local => Ranks::Own("local".to_owned()),
        ranks => ranks,
    };
    ranks.conclude(ask(&ranks, &planned))
}

/// What is to be explained.
struct Planned {
    config: RunConfig,
    parts: Vec<Part>,
    measured: MeasuredFile,
}

impl Planned {
    fn new(config: RunConfig) -> Result<Self, AppError> {
        Ok(Self { parts: plan(&config)?, measured: MeasuredFile::open(&config)?, config })
    }
}

impl Prepared for Planned {
    fn asked(&self) -> Value {
        serde_json::to_value(&self.config).expect("a configuration is JSON")
    }

    fn most_ranks(&self) -> (Option<&'static str>, usize) {
        (Some("run.ranks"), self.parts.iter().map(|part| part.entry.ranks).max().unwrap_or(1))
    }

    fn options(&self) -> WorldOptions {
        world_options(&self.config)
    }
}

fn ask(ranks: &Ranks, planned: &Planned) -> Result<u8, AppError> {
    let Planned { config, parts, measured } = planned;
    let interrupt = ranks.interrupt()?;
    let mut text = String::new();
    for Part { entry, config: own, .. } in parts {
        let (layout, measured) = (entry.layout.clone(), measured.known().to_vec());
        let asked = Explanation { config: own.clone(), layout, measured };
        let mut routes = Vec::new();
        ranks.carry_out(entry.ranks, asked, &interrupt, &mut |by_rank| routes.push(by_rank))?;
        if ranks.lead_here() {
            text += &section(config, entry, &routes);
        }
    }
    report::print(&text)?;
    Ok(0)
}

/// What the ranks of an entry are asked. Rank 0 reports how the messages of every rank travel, for one
/// backend after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Explanation {
    config: RunConfig,
    layout: Vec<usize>,
    measured: Vec<Measured>,
}

impl Work for Explanation {
    const NAME: &'static str = "explain";

    type Report = Vec<Routes>;

    fn options(&self) -> WorldOptions {
        world_options(&self.config)
    }

    fn on_rank(&self, world: &World, report: &mut dyn FnMut(Vec<Routes>)) -> Result<(), AppError> {
        let application = ApplicationRow::open(&self.config)?;
        let (_, stream) = stream(&self.config, world)?;
        world.set_measured(self.measured.clone());
        for backend in &self.config.comm.backend {
            let layout = &self.layout;
            let between = Between::default();
            let trial = Trial { world, stream: &stream, backend, layout, wants_state: false, between };
            report(world.all_gather(&application.routes(&trial)?)?);
        }
        Ok(())
    }
}

/// `routes` by backend, then by rank.
fn section(config: &RunConfig, entry: &Entry, routes: &[Vec<Routes>]) -> String {
    let head = format!(
        "{} ({}), fabric {}, exchange every {}\n",
        ranks_of(entry.ranks),
        joined(&entry.layout, " x "),
        config.comm.fabric,
        if config.run.exchange_every == 1 {
            "step".to_owned()
        } else {
            format!("{} steps", config.run.exchange_every)
        },
    );
    if routes.iter().flatten().all(|rank| rank.ways.is_empty()) {
        if routes.iter().flatten().all(|rank| rank.neighbors.is_empty()) {
            return head + "  no messages: no rank has a neighbour\n\n";
        }
        return head + "  no messages: all ghosts are copies of the rank's own cells, made by its stream\n\n";
    }
    let mut table = Table::new();
    table
        .load_style(report::RULED)
        .set_width(WIDTH)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["rank", "to", "offsets", "bytes", "backend", "path", "by", "why"]);
    let names: Vec<String> = config.comm.backend.iter().zip(routes).map(name).collect();
    for rank in 0..entry.ranks {
        for (to, rows) in messages(&names, rank, routes) {
            for (index, (route, backends)) in rows.iter().enumerate() {
                let only_first = |text: String| if index == 0 { text } else { String::new() };
                table.add_row([
                    right(only_first(rank.to_string())),
                    right(only_first(to.to_string())),
                    Cell::new(only_first(offsets(&routes[0][rank], to))),
                    right(only_first(route.bytes.to_string())),
                    Cell::new(backends.join(" ")),
                    Cell::new(&route.path),
                    Cell::new(&route.executor),
                    Cell::new(&route.reason),
                ]);
            }
        }
    }
    format!("{head}{}\n\n", table.trim_fmt())
}

/// A backend's name, with that of the one that `auto` is.
fn name((asked, by_rank): (&String, &Vec<Routes>)) -> String {
    match by_rank.first() {
        Some(first) if asked == AUTO => format!("{asked} ({})", first.backend),
        _ => asked.clone(),
    }
}

/// The ways that one message travels, each with the backends that take it.
type Ways<'r> = Vec<(&'r Way, Vec<&'r str>)>;

/// A rank's messages, by peer; the backends have `names`.
fn messages<'r>(names: &'r [String], rank: usize, routes: &'r [Vec<Routes>]) -> Vec<(usize, Ways<'r>)> {
    let mut by_peer: Vec<(usize, Ways<'_>)> = Vec::new();
    for (backend, by_rank) in names.iter().zip(routes) {
        for route in &by_rank[rank].ways {
            let known = by_peer.iter().position(|(peer, _)| *peer == route.peer);
            let at = known.unwrap_or_else(|| {
                by_peer.push((route.peer, Vec::new()));
                by_peer.len() - 1
            });
            let ways = &mut by_peer[at].1;
            match ways.iter_mut().find(|(way, _)| *way == route) {
                Some((_, backends)) => backends.push(backend),
                None => ways.push((route, vec![backend])),
            }
        }
    }
    by_peer
}

/// The offsets at which a rank sends to that neighbour, a star for all three on an axis.
fn offsets(routes: &Routes, to: usize) -> String {
    let here = routes.neighbors.iter().filter(|(_, peer)| *peer == to);
    let mut shown: Vec<Vec<String>> =
        here.map(|(offset, _)| offset.iter().map(ToString::to_string).collect()).collect();
    for axis in 0..shown.first().map_or(0, Vec::len) {
        let at = |offset: &[String], component: &str| {
            let mut offset = offset.to_vec();
            component.clone_into(&mut offset[axis]);
            offset
        };
        let mut starred: Vec<Vec<String>> = Vec::new();
        for offset in &shown {
            let are_all = ["-1", "0", "1"].iter().all(|component| shown.contains(&at(offset, component)));
            let offset = if are_all { at(offset, "*") } else { offset.clone() };
            if !starred.contains(&offset) {
                starred.push(offset);
            }
        }
        shown = starred;
    }
    shown.iter().map(|offset| format!("[{}]", offset.join(","))).collect::<Vec<_>>().join(" ")
}
