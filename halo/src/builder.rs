//! Making a [`StreamHalo`]: what is asked for, and that all ranks ask for the same.

use crate::error::{HaloError, Result};
use crate::exchange::{Compiled, Parts};
use crate::legs::Legs;
use crate::pattern::Pattern;
use crate::registered::Registered;
use crate::stream_halo::StreamHalo;
use crate::tables::Way;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use streamhalo_comm::backend::Direct;
use streamhalo_comm::device::{HostState, Stream};
use streamhalo_comm::{ElementType, Error, Op, World};
use streamhalo_grid::{Fields, Ghosts, PerAxis, Subdomain};

/// The number of the next exchange of this process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Makes a [`StreamHalo`]; see [`StreamHalo::builder`].
#[derive(Debug, Clone)]
pub struct StreamHaloBuilder<'a> {
    world: &'a World,
    stream: &'a Stream,
    backend: &'a str,
    pattern: Pattern,
    scatter: Option<Op>,
    swaps: usize,
}

/// A field, as ranks compare it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RequestedField {
    entity: String,
    element: ElementType,
    components: usize,
    generation: Option<usize>,
    /// The exchanges that fill its generations ahead: by another one peers may write where a rank knows nothing of it.
    filled_by: [Option<u32>; 2],
}

impl RequestedField {
    fn new(field: &Registered) -> Self {
        let mut fillers = field.all_ghosts().map(Ghosts::filler);
        Self {
            entity: field.entity.to_string(),
            element: field.element,
            components: field.rows.extents().components,
            generation: field.generation,
            filled_by: std::array::from_fn(|_| fillers.next().flatten()),
        }
    }
}

impl fmt::Display for RequestedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entity, element, components, generation, filled_by } = self;
        f.write_str(&values(*components, *element, entity))?;
        if let Some(generation) = generation {
            write!(f, ", in generation {generation}")?;
        }
        for (generation, exchange) in filled_by.iter().enumerate() {
            if let Some(exchange) = exchange {
                write!(
                    f,
                    ", whose ghosts in generation {generation} exchange {exchange} of the world fills ahead"
                )?;
            }
        }
        Ok(())
    }
}

/// What a field has at each entry.
pub(crate) fn values(components: usize, element: ElementType, entity: impl fmt::Display) -> String {
    format!("{components} component(s) of {element} per {entity}")
}

/// What differs between the grids of two fields, those of field 0 last.
fn grids_apart<const D: usize>(own: &Subdomain<D>, first: &Subdomain<D>) -> String {
    let items = |of: &Subdomain<D>| {
        let (partition, grid) = (of.partition(), of.partition().grid());
        [
            format!("a grid of {:?} cells", grid.cells()),
            format!("a grid that is periodic along {:?}", grid.periodic()),
            format!("a grid in layout {:?}", partition.layout()),
            format!("a grid dealt out in blocks of {:?} cells", partition.block_cells()),
            format!("rank {}", of.rank()),
            format!("a halo of {:?}", of.halo_width()),
        ]
    };
    let differing = items(own).into_iter().zip(items(first)).find(|(own, first)| own != first);
    differing.map_or("it is on another grid".into(), |(own, first)| format!("it has {own}, field 0 {first}"))
}

/// What ranks compare before they match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    backend: String,
    width: Vec<usize>,
    offsets: Vec<Vec<i32>>,
    fields: Vec<RequestedField>,
    layout: Vec<usize>,
    block_cells: Vec<usize>,
    cells: Vec<usize>,
    periodic: Vec<bool>,
    /// Of the arrays: what goes straight into ghosts is placed by it.
    halo_width: Vec<usize>,
    scatter: Option<Op>,
    swaps: usize,
}

impl Request {
    /// What differs between them, as either has it.
    fn beside(&self, other: &Self) -> [String; 2] {
        let items = |request: &Self| {
            let Self {
                backend,
                width,
                offsets,
                fields,
                layout,
                block_cells,
                cells,
                periodic,
                halo_width,
                scatter,
                swaps,
            } = request;
            let items = [
                format!("backend `{backend}`"),
                format!("width {width:?}"),
                format!("{} neighbours, at {offsets:?}", offsets.len()),
                format!("layout {layout:?}"),
                format!("blocks of {block_cells:?} cells"),
                format!("cells {cells:?}"),
                format!("periodic {periodic:?}"),
                format!("halo {halo_width:?}"),
                format!("scatter {scatter:?}"),
                format!("{swaps} swaps per exchange"),
                format!("{} field(s)", fields.len()),
            ];
            let field = |(index, field): (usize, &RequestedField)| format!("field {index}: {field}");
            let fields = fields.iter().enumerate().map(field);
            items.into_iter().chain(fields).collect::<Vec<_>>()
        };
        let differing: Vec<_> =
            items(self).into_iter().zip(items(other)).filter(|(own, other)| own != other).collect();
        let (own, others): (Vec<_>, Vec<_>) = differing.into_iter().unzip();
        [own, others].map(|items| items.join(", "))
    }
}

impl<'a> StreamHaloBuilder<'a> {
    pub(crate) fn new(world: &'a World, stream: &'a Stream) -> Self {
        let (backend, pattern, scatter) = ("st-send", Pattern::All, None);
        Self { world, stream, backend, pattern, scatter, swaps: 1 }
    }

    /// The backend's name; `auto` is the fastest one for an exchange like this, as
    /// [measured](streamhalo_comm::backend::match_exchange).
    pub fn backend(self, backend: &'a str) -> Self {
        Self { backend, ..self }
    }

    /// Which neighbours take part.
    pub fn pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Makes a scatter too, which combines with `op` on arrival.
    pub fn scatter(self, op: Op) -> Self {
        Self { scatter: Some(op), ..self }
    }

    /// How often alternating fields are swapped between two exchanges: 1 unless told. With 1, if all fields
    /// alternate and there is no scatter, kernels write owned entries only, and read ghosts only of what has been exchanged;
    /// and backends may let peers write straight into the ghosts of the other generation, ahead of this rank. A halo of
    /// width k that is exchanged every k steps says k here: its kernels write ghosts too. Gathers are counted apart from
    /// scatters, both from the generation that was current when the exchange was made; one that comes after another number
    /// of swaps is refused.
    ///
    /// Where an exchange follows any number of swaps, as in cycles over several grids, make two that expect none, one in each
    /// generation, and take the one of the current generation:
    ///
    /// ```
    /// use streamhalo::prelude::*;
    ///
    /// # fn main() -> Result<(), HaloError> {
    /// let world = World::alone()?;
    /// let stream = Device::host().stream(&world)?;
    /// let grid = GlobalGrid::new([4], [true])?.partition(&world)?.local(1)?;
    /// let mut field = Alternating::<i32, 1>::zeros(&grid, Entity::Cell, &stream)?;
    /// let mut halos = Vec::new();
    /// for _ in 0..2 {
    ///     let asked = StreamHalo::builder(&world, &stream).swaps_per_exchange(0);
    ///     halos.push(asked.build(1, &mut field)?);
    ///     field.swap(); // so that the first generation is current again behind both
    /// }
    /// let mut current = 0;
    /// for (step, swaps) in [0, 3, 0, 2, 1].into_iter().enumerate() {
    ///     for _ in 0..swaps {
    ///         field.swap();
    ///         current = 1 - current;
    ///     }
    ///     field.now_mut().fill(|[x], _| (10 * step + x) as i32)?;
    ///     halos[current].gather(&mut field)?;
    ///     assert_eq!(field.now().copy_with_ghosts()?[[0]], (10 * step + 3) as i32);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of several exchanges of a field the first such one alone writes ahead. It fills the ghosts
    /// first after each swap; the others are refused before that ([`HaloError::GhostsFilledAhead`]). That holds until an
    /// exchange of the field is made when no rank has the first one any more: so drop an exchange before you make the one
    /// that takes its place. A field that such an exchange has filled and one that none has are other fields: replace its
    /// arrays on all ranks or on none.
    pub fn swaps_per_exchange(self, swaps: usize) -> Self {
        Self { swaps, ..self }
    }

    /// Matches the exchange of `width` layers of all `fields`; see [`StreamHalo::new`]. Collective;
    /// blocks.
    ///
    /// # Errors
    /// As [`StreamHalo::new`].
    pub fn build<const D: usize>(
        self,
        width: impl PerAxis<D>,
        fields: &mut impl Fields<D>,
    ) -> Result<StreamHalo> {
        self.build_any(width.per_axis(), fields)
    }

    // Not generic over the fields: whoever exchanges ten sets of them compiles it once.
    fn build_any<const D: usize>(self, width: [usize; D], fields: &mut dyn Fields<D>) -> Result<StreamHalo> {
        let world = self.world;
        let checked = self.check(width, fields);
        let own = checked.as_ref().map(|checked| (checked.request.clone(), checked.is_filled_ahead));
        let own = own.map_err(ToString::to_string);
        let told = world.all_gather_of("StreamHalo::new", &own)?;
        if let Some((rank, Err(reason))) = told.iter().enumerate().find(|(_, request)| request.is_err()) {
            return Err(match checked {
                // The same on all ranks, as errors of geometry are: as it is, not wrapped.
                Err(own) if told.iter().all(|other| *other == told[0]) => own,
                _ => Error::CollectiveFailed { call: "StreamHalo::new", rank, reason: reason.clone() }.into(),
            });
        }
        let requests: Vec<&Request> = told.iter().flatten().map(|(request, _)| request).collect();
        if let Some(rank) = requests.iter().position(|request| *request != requests[0]) {
            let [found, expected] = requests[rank].beside(requests[0]);
            return Err(HaloError::RanksDisagree { rank, found, expected });
        }
        let Checked { request, legs, scatter_legs, subdomain, registered, direct, .. } = checked?;
        // Peers of one exchange only may fill ghosts ahead, for whoever carries another one out knows nothing of theirs; and
        // no rank may have another any more that did.
        let is_free = told.iter().flatten().all(|(_, is_filled_ahead)| !is_filled_ahead);
        let direct = if is_free { direct } else { direct.min(Direct::WhenClear) };
        let filled_ahead =
            |field: &Registered| field.all_ghosts().any(|ghosts| ghosts.filled_ahead(self.stream) != 0);
        let comes_to_rest = direct == Direct::Alternating || is_free && registered.iter().any(filled_ahead);
        let parts = Parts {
            world,
            stream: self.stream,
            backend: self.backend,
            subdomain: &subdomain,
            legs: &legs,
            fields: &registered,
            swaps: self.swaps,
            last_epoch: self.world.last_epoch(),
            direct,
            comes_to_rest,
        };
        let gather = Compiled::new(&parts, Way::Gather)?;
        let parts = Parts { legs: &scatter_legs, ..parts };
        let scatter = self.scatter.map(|op| Compiled::new(&parts, Way::Scatter(op))).transpose()?;
        let exchange = HostState::new("the exchange", NEXT.fetch_add(1, Ordering::Relaxed));
        let ahead = (direct == Direct::Alternating).then(|| (&exchange, world.next_tag()));
        if comes_to_rest {
            let ghosts = registered.iter().flat_map(Registered::all_ghosts);
            ghosts.for_each(|ghosts| ghosts.let_fill_ahead(self.stream, ahead));
        }
        Ok(StreamHalo {
            stream: self.stream.clone(),
            fields: registered,
            swaps: self.swaps,
            offsets: request.offsets,
            gather,
            scatter,
            comes_in_halves: false,
            exchange,
        })
    }

    /// What this rank alone can check.
    fn check<const D: usize>(&self, width: [usize; D], fields: &mut dyn Fields<D>) -> Result<Checked<D>> {
        let offsets = self.pattern.offsets::<D>()?;
        let mut registered: Vec<Registered> = Vec::new();
        let mut first: Option<Subdomain<D>> = None;
        let mut result = Ok(());
        fields.each(&mut |field| {
            let info = field.info();
            let first = *first.get_or_insert(*info.subdomain);
            let fits = if first != *info.subdomain {
                Err(HaloError::MixedFields {
                    index: registered.len(),
                    reason: grids_apart(info.subdomain, &first),
                })
            } else if !info.world.has_ranks_of(self.world) {
                Err(Error::OtherWorld { what: "a field of an exchange" }.into())
            } else if info.stream.id() != self.stream.id() {
                let (owner, used) = (info.stream.id(), self.stream.id());
                Err(Error::WrongStream { what: "a field of an exchange", owner, used }.into())
            } else if !field.is_whole() {
                Err(HaloError::MixedGenerations { index: registered.len() })
            } else {
                info.subdomain.check_exchange(info.entity, width).map_err(HaloError::from)
            };
            if result.is_ok() {
                result = fits;
            }
            registered.push(Registered::new(field));
        });
        result?;
        let subdomain = first.ok_or(HaloError::NoFields)?;
        if width == [0; D] {
            return Err(HaloError::NoLayers { width: width.to_vec() });
        }
        let alternating = registered.iter().all(|field| field.generation.is_some());
        // What is scattered has been written into ghosts by this rank's kernels.
        let is_ahead = alternating && self.swaps == 1 && self.scatter.is_none();
        let direct = if is_ahead { Direct::Alternating } else { Direct::WhenClear };
        let is_filled_ahead = registered.iter().flat_map(Registered::all_ghosts).any(Ghosts::is_filler_alive);
        let is_in_flight =
            |field: &Registered| field.all_ghosts().any(|ghosts| ghosts.in_flight(self.stream) != 0);
        if let Some(index) = registered.iter().position(is_in_flight) {
            return Err(HaloError::FieldInFlight { call: "StreamHalo::new", index });
        }
        let legs = Legs::new(&subdomain, &offsets, width);
        registered.iter_mut().for_each(|field| field.sent = legs.sent_layers(field.entity));
        let scatter_legs = match self.scatter {
            Some(Op::Replace) => Legs::unfolded(&subdomain, &offsets, width),
            _ => legs.clone(),
        };
        let request = Request {
            backend: self.backend.into(),
            width: width.to_vec(),
            offsets: offsets.iter().map(|offset| offset.to_vec()).collect(),
            fields: registered.iter().map(RequestedField::new).collect(),
            layout: subdomain.partition().layout().to_vec(),
            block_cells: subdomain.partition().block_cells().to_vec(),
            cells: subdomain.partition().grid().cells().to_vec(),
            periodic: subdomain.partition().grid().periodic().to_vec(),
            halo_width: subdomain.halo_width().to_vec(),
            scatter: self.scatter,
            swaps: self.swaps,
        };
        Ok(Checked { request, legs, scatter_legs, subdomain, registered, direct, is_filled_ahead })
    }
}

/// A request that this rank has found usable.
struct Checked<const D: usize> {
    request: Request,
    legs: Legs<D>,
    scatter_legs: Legs<D>,
    subdomain: Subdomain<D>,
    registered: Vec<Registered>,
    direct: Direct,
    /// Whether an exchange is alive on this rank by which peers fill ghosts of the fields ahead.
    is_filled_ahead: bool,
}
