//! From one exchange to the next: in one sweep on the host, step by step on devices.

use std::ops::Range;

use streamhalo::comm::Error;
use streamhalo::comm::device::{Reader, StoreWay, Tile, Writer};
use streamhalo::prelude::{Alternating, Entity, LocalGrid, Rows, RowsMut};
use streamhalo::{ElementType, HaloError, KernelText, Stream};

use super::kernel::{Cell, Sweep, sweep_tile};

/// How a rank comes from one exchange to the next.
pub(super) enum Pace {
    /// In one sweep over its own cells, of as many steps as it can take at once.
    Sweep { tile: Tile, most: Sweep },
    /// Step by step: what each of them computes, and how many there have been since the last exchange.
    Steps { tiles: Vec<Tile>, since_exchange: usize },
}

impl Pace {
    /// The host sweeps; kernels for devices take a step.
    pub(super) fn new(stream: &Stream, grid: &LocalGrid<2>, exchange_every: usize) -> Self {
        if stream.is_on_host() && exchange_every <= Sweep::MOST {
            let changes = [[[-1, 0], [1, 0]], [[0, -1], [0, 1]]];
            let layers = |offset| if grid.neighbor(offset).is_some() { exchange_every } else { 0 };
            let changes = changes.map(|sides| sides.map(layers));
            let most = Sweep { generations: exchange_every, changes };
            return Self::Sweep { tile: grid.owned(Entity::Cell).tile(), most };
        }
        let layers = (0..exchange_every).rev();
        Self::Steps {
            tiles: layers.map(|layers| grid.outer(Entity::Cell, layers).tile()).collect(),
            since_exchange: 0,
        }
    }

    /// The cells of a launch, or of the one that has most.
    pub(super) fn largest_tile(&self) -> Tile {
        match self {
            Self::Sweep { tile, .. } => *tile,
            Self::Steps { tiles, .. } => tiles[0],
        }
    }

    /// Generations from one exchange to the next.
    pub(super) fn swaps_per_exchange(&self) -> usize {
        match self {
            Self::Sweep { .. } => 1,
            Self::Steps { tiles, .. } => tiles.len(),
        }
    }

    /// The most steps that are taken at once.
    pub(super) fn at_once(&self) -> u64 {
        match self {
            Self::Sweep { most, .. } => most.generations as u64,
            Self::Steps { .. } => 1,
        }
    }

    /// Whether the ghosts of the last exchange are used up.
    pub(super) fn needs_exchange(&self) -> bool {
        matches!(self, Self::Sweep { .. } | Self::Steps { since_exchange: 0, .. })
    }

    /// Enqueues these steps.
    pub(super) fn launch<T: Cell>(
        &mut self,
        stream: &Stream,
        steps: Range<u64>,
        store_way: &StoreWay,
        cells: &mut Alternating<T, 2>,
    ) -> Result<(), HaloError> {
        match self {
            Self::Sweep { tile, most } => {
                let generations = (steps.end - steps.start) as usize;
                launch_sweep(stream, Sweep { generations, ..*most }, store_way, *tile, cells)
            }
            Self::Steps { tiles, since_exchange } => {
                launch_life(stream, store_way, tiles[*since_exchange], cells)?;
                *since_exchange = (*since_exchange + 1) % tiles.len();
                Ok(())
            }
        }
    }
}

/// The kernels for devices that compile them, by what a cell is: what [`sweep_tile`] does in one generation.
static OF_BYTES: KernelText =
    KernelText { name: "life", source: include_str!("kernel.cl"), reach: [0, 1, 1] };
static OF_DOUBLES: KernelText =
    KernelText { name: "life", source: include_str!("doubles.cl"), reach: [0, 1, 1] };

/// The one for these cells.
pub(super) fn text<T: Cell>() -> &'static KernelText {
    if T::TYPE == ElementType::U8 { &OF_BYTES } else { &OF_DOUBLES }
}

/// Enqueues one generation of the cells of `tile`.
pub(crate) fn launch_life<T: Cell>(
    stream: &Stream,
    store_way: &StoreWay,
    tile: Tile,
    cells: &mut Alternating<T, 2>,
) -> Result<(), HaloError> {
    Ok(launch(stream, store_way, tile, cells.now_and_next()?)?)
}

/// The same, of any arrays.
pub(super) fn launch<T: Cell>(
    stream: &Stream,
    store_way: &StoreWay,
    tile: Tile,
    now_and_next: (Reader<'_, T>, Writer<'_, T>),
) -> Result<(), Error> {
    let store_way = store_way.clone();
    let body = move |part: Tile, (now, next): (Rows<'_, T>, RowsMut<'_, T>)| {
        store_way.store(tile, part, |way| sweep_tile(way, Sweep::ONE, part, now, next));
    };
    stream.launch_either(text::<T>(), tile, now_and_next, body)
}

/// Enqueues several generations of the cells of `tile`, which the host computes.
pub(crate) fn launch_sweep<T: Cell>(
    stream: &Stream,
    sweep: Sweep,
    store_way: &StoreWay,
    tile: Tile,
    cells: &mut Alternating<T, 2>,
) -> Result<(), HaloError> {
    let store_way = store_way.clone();
    let body = move |part: Tile, (now, next): (Rows<'_, T>, RowsMut<'_, T>)| {
        let sweep = sweep.of_part(tile, part);
        store_way.store(tile, part, |way| sweep_tile(way, sweep, part, now, next));
    };
    Ok(stream.launch(text::<T>().name, tile, cells.now_and_next()?, body)?)
}
