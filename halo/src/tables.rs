//! From geometry to moves: what an exchange carries out, compiled once for each phase.

use crate::error::Result;
use crate::legs::Legs;
use crate::registered::Registered;
use std::sync::Arc;
use streamhalo_comm::ElementType;
use streamhalo_comm::Op;
use streamhalo_comm::backend::{Direct, Exchange, MessageSpec, Slot};
use streamhalo_comm::device::{Move, MoveTable, Pitched, Purpose};
use streamhalo_comm::fabric::{Place, Region};
use streamhalo_grid::{Entity, IndexBox, Subdomain};

/// Moves, stage by stage: those of one stage do not depend on each other.
type Stages = Vec<Vec<Move>>;

/// What happens to data on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Owned entries replace ghosts.
    Gather,
    /// Ghosts are combined with owned entries.
    Scatter(Op),
}

/// A message: the legs to or from one rank, in the order in which they are packed.
#[derive(Debug, Clone)]
pub(crate) struct Envelope<const D: usize> {
    pub(crate) peer: usize,
    pub(crate) offsets: Vec<[i32; D]>,
}

/// Everything that the compilation of an exchange's moves needs.
pub(crate) struct Compiler<'a, const D: usize> {
    pub(crate) legs: &'a Legs<D>,
    pub(crate) fields: &'a [Registered],
    pub(crate) way: Way,
    pub(crate) swaps: usize,
    pub(crate) rank: usize,
    /// Whether a device carries the moves out.
    pub(crate) is_on_device: bool,
}

/// The moves of an exchange besides those of its messages, by phase.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Before the sends: folds that the messages need.
    pub(crate) before: [Arc<MoveTable>; 2],
    /// While messages travel: what is left of the rank's own copies.
    pub(crate) meanwhile: [Arc<MoveTable>; 2],
    /// After the wait: unpacking.
    pub(crate) after: [Arc<MoveTable>; 2],
}

/// One end of a move: where index 0 of an array, or a packed box, begins.
struct End<'a> {
    region: &'a Region,
    /// Of the first run.
    offset: usize,
    /// From run to run, along the two outer axes.
    strides: [usize; 2],
}

impl<const D: usize> Compiler<'_, D> {
    /// Messages to other ranks, by rank; `outgoing` or incoming.
    pub(crate) fn envelopes(&self, outgoing: bool) -> Vec<Envelope<D>> {
        let mut envelopes: Vec<Envelope<D>> = Vec::new();
        for &offset in self.legs.offsets() {
            let Some(peer) = self.peer(offset, outgoing) else { continue };
            let empty = self
                .fields
                .iter()
                .all(|field| self.leg_box(self.legs, field.entity, offset, outgoing).is_empty());
            if peer == self.rank || empty {
                continue;
            }
            match envelopes.iter_mut().find(|envelope| envelope.peer == peer) {
                Some(envelope) => envelope.offsets.push(offset),
                None => envelopes.push(Envelope { peer, offsets: vec![offset] }),
            }
        }
        envelopes
    }

    fn peer(&self, offset: [i32; D], outgoing: bool) -> Option<usize> {
        match (self.way, outgoing) {
            (Way::Gather, true) | (Way::Scatter(_), false) => self.legs.target(offset),
            (Way::Gather, false) | (Way::Scatter(_), true) => self.legs.source(offset),
        }
    }

    /// The box of a leg in the arrays of the rank that `legs` belongs to.
    fn leg_box(&self, legs: &Legs<D>, entity: Entity, offset: [i32; D], outgoing: bool) -> IndexBox<D> {
        match (self.way, outgoing) {
            (Way::Gather, true) | (Way::Scatter(_), false) => legs.owned(entity, offset),
            (Way::Gather, false) | (Way::Scatter(_), true) => legs.ghosts(entity, offset),
        }
    }

    /// The pieces of a packed message: leg, field, and where each begins.
    fn pieces<'a>(
        &'a self,
        envelope: &'a Envelope<D>,
        outgoing: bool,
    ) -> impl Iterator<Item = ([i32; D], &'a Registered, usize, usize)> + 'a {
        let mut next = 0_usize;
        envelope
            .offsets
            .iter()
            .flat_map(move |&offset| {
                self.fields.iter().map(move |field| {
                    (offset, field, self.leg_box(self.legs, field.entity, offset, outgoing).len())
                })
            })
            .map(move |(offset, field, entries)| {
                let start = next.next_multiple_of(field.element.bytes());
                next = start + entries * field.element_bytes();
                (offset, field, start, next)
            })
    }

    /// What the backend has to know of a message.
    pub(crate) fn message(
        &self,
        envelope: &Envelope<D>,
        outgoing: bool,
        tag: u32,
        direct: Direct,
    ) -> MessageSpec {
        let mut elements: Vec<(ElementType, usize)> = Vec::new();
        let mut bytes = 0;
        let mut run_bytes = usize::MAX;
        for (offset, field, start, end) in self.pieces(envelope, outgoing) {
            elements.push((field.element, (end - start) / field.element.bytes()));
            bytes = end;
            let extents = self.leg_box(self.legs, field.entity, offset, outgoing).extents();
            run_bytes = run_bytes.min(extents[D - 1] * field.element_bytes());
        }
        let by_phase = |field: &Registered| [0, 1].map(|phase| field.region(phase, self.swaps).clone());
        MessageSpec {
            peer: envelope.peer,
            tag,
            elements,
            bytes,
            run_bytes,
            direct,
            ghosts: if outgoing { Vec::new() } else { self.fields.iter().map(by_phase).collect() },
        }
    }

    /// The moves of a send, for one phase.
    pub(crate) fn send_moves(
        &self,
        envelope: &Envelope<D>,
        slot: &Slot,
        peer: &Subdomain<D>,
        phase: usize,
    ) -> Result<Arc<MoveTable>> {
        let there = self.legs.of_rank(peer);
        let mut moves = Vec::new();
        for (index, (offset, field, start, _)) in self.pieces(envelope, true).enumerate() {
            let sent = self.leg_box(self.legs, field.entity, offset, true);
            let source = end_in_array(field, field.region(phase, self.swaps), field.rows, sent);
            match slot {
                Slot::Packed(place) => self.push(
                    &mut moves,
                    field,
                    sent,
                    source,
                    packed_end(place, start, field, sent),
                    Op::Replace,
                )?,
                Slot::Ghosts(regions) => {
                    // The peer's array has its own extents, and the same box other indices in it.
                    let arrived = self.leg_box(&there, field.entity, offset, false);
                    let region = &regions[index % self.fields.len()];
                    let rows = peer.rows(field.entity, field.rows.extents().components, field.element);
                    self.push(
                        &mut moves,
                        field,
                        sent,
                        source,
                        end_in_array(field, region, rows, arrived),
                        Op::Replace,
                    )?;
                }
            }
        }
        Ok(Arc::new(MoveTable::new(&[moves])?.meant_for(Purpose::Pack(envelope.peer))))
    }

    /// The other moves. `envelopes` are the incoming messages.
    pub(crate) fn tables(&self, envelopes: &[Envelope<D>], exchange: &dyn Exchange) -> Result<Tables> {
        let (mut before, mut meanwhile, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for phase in [0, 1] {
            let (early, mut late) =
                if self.way == Way::Gather { self.gather_folds(phase)? } else { (Vec::new(), Vec::new()) };
            let mut unpacking = self.unpack(envelopes, exchange, phase)?;
            match self.way {
                // Own-rank boxes of axes that are not folded: nothing depends on them.
                Way::Gather => late.push(self.own_moves(phase)?),
                Way::Scatter(op) => unpacking.extend(self.scatter_folds(phase, op)?),
            }
            before.push(Arc::new(MoveTable::new(&early)?));
            meanwhile.push(Arc::new(MoveTable::new(&late)?));
            after.push(Arc::new(MoveTable::new(&unpacking)?.meant_for(Purpose::Unpack)));
        }
        let pair = |tables: Vec<Arc<MoveTable>>| {
            <[Arc<MoveTable>; 2]>::try_from(tables).expect("one table for each phase")
        };
        Ok(Tables { before: pair(before), meanwhile: pair(meanwhile), after: pair(after) })
    }

    /// The folds of a gather: those that messages need, and the rest. A device folds all at first: what a message waits for so
    /// takes a device less time than two kernels more for each axis take to be launched.
    fn gather_folds(&self, phase: usize) -> Result<(Stages, Stages)> {
        let (mut early, mut late) = (Vec::new(), Vec::new());
        if !self.legs.folds_any() {
            return Ok((early, late));
        }
        for field in self.fields {
            if self.is_on_device {
                let all = self.legs.all_owned(field.entity);
                side_by_side(&mut early, self.folds(field, &[all], phase)?);
                continue;
            }
            let (shell, rest) = self.legs.shell_and_rest(field.entity);
            early.extend(self.folds(field, &shell, phase)?);
            for part in self.slabs(field, rest) {
                late.extend(self.folds(field, &[part], phase)?);
            }
        }
        Ok((early, late))
    }

    /// Parts of a box that are folded along all axes before the next, while they are in the cache. Where the slowest axis
    /// is folded itself, what is folded is all of it, and there is one.
    fn slabs(&self, field: &Registered, part: IndexBox<D>) -> Vec<IndexBox<D>> {
        const SLAB_BYTES: usize = 256 * 1024;
        let planes = part.extents()[0];
        let plane_bytes = (part.len() / planes.max(1)).max(1) * field.element_bytes();
        let thickness = if self.legs.folds(0) { planes } else { SLAB_BYTES / plane_bytes }.max(1);
        (0..planes)
            .step_by(thickness)
            .map(|plane| {
                let mut slab = part;
                slab.start[0] = part.start[0] + plane;
                slab.end[0] = (slab.start[0] + thickness).min(part.end[0]);
                slab
            })
            .collect()
    }

    /// Copies ghosts of parts along all folded axes, one behind the other.
    fn folds(&self, field: &Registered, parts: &[IndexBox<D>], phase: usize) -> Result<Stages> {
        let stages = self.legs.folding(field.entity, parts).into_iter().map(|stage| {
            let mut moves = Vec::new();
            for [owned, ghosts] in stage {
                self.push_within(&mut moves, field, owned, ghosts, phase, Op::Replace)?;
            }
            Ok(moves)
        });
        stages.collect()
    }

    /// The folds of a scatter: those of a gather in reverse, from ghosts to owned entries.
    fn scatter_folds(&self, phase: usize, op: Op) -> Result<Stages> {
        let mut stages = Vec::new();
        for field in self.fields {
            let owned = self.legs.all_owned(field.entity);
            let mut of_field = Vec::new();
            for stage in self.legs.folding(field.entity, &[owned]).into_iter().rev() {
                let mut moves = Vec::new();
                for [owned, ghosts] in stage {
                    self.push_within(&mut moves, field, ghosts, owned, phase, op)?;
                }
                of_field.push(moves);
            }
            if self.is_on_device { side_by_side(&mut stages, of_field) } else { stages.extend(of_field) }
        }
        Ok(stages)
    }

    /// Copies between a rank's own boxes, of a gather.
    fn own_moves(&self, phase: usize) -> Result<Vec<Move>> {
        let mut moves = Vec::new();
        for &offset in self.legs.offsets() {
            if self.peer(offset, true) == Some(self.rank) {
                self.push_own(&mut moves, offset, phase, Op::Replace)?;
            }
        }
        Ok(moves)
    }

    fn push_own(&self, moves: &mut Vec<Move>, offset: [i32; D], phase: usize, op: Op) -> Result<()> {
        for field in self.fields {
            let from = self.leg_box(self.legs, field.entity, offset, true);
            let to = self.leg_box(self.legs, field.entity, offset, false);
            self.push_within(moves, field, from, to, phase, op)?;
        }
        Ok(())
    }

    /// Unpacking, in the order of the offsets whichever rank they come from, so that a sum has one
    /// value. A scatter's own-rank boxes take their place among them.
    fn unpack(&self, envelopes: &[Envelope<D>], exchange: &dyn Exchange, phase: usize) -> Result<Stages> {
        let op = match self.way {
            Way::Gather => Op::Replace,
            Way::Scatter(op) => op,
        };
        let mut ordered: Vec<([i32; D], Vec<Move>)> = Vec::new();
        for (message, envelope) in envelopes.iter().enumerate() {
            let Some(place) = exchange.recv_slot(message, phase) else { continue };
            for (offset, field, start, _) in self.pieces(envelope, false) {
                let arrived = self.leg_box(self.legs, field.entity, offset, false);
                let target = end_in_array(field, field.region(phase, self.swaps), field.rows, arrived);
                let mut moves = Vec::new();
                self.push(&mut moves, field, arrived, packed_end(&place, start, field, arrived), target, op)?;
                ordered.push((offset, moves));
            }
        }
        if self.way != Way::Gather {
            for &offset in
                self.legs.offsets().iter().filter(|offset| self.peer(**offset, true) == Some(self.rank))
            {
                let mut moves = Vec::new();
                self.push_own(&mut moves, offset, phase, op)?;
                ordered.push((offset, moves));
            }
        }
        // Stable: fields of one offset stay in their order.
        ordered.sort_by_key(|(offset, _)| *offset);
        let moves: Vec<Move> = ordered.into_iter().flat_map(|(_, moves)| moves).collect();
        // Replacing moves of one stage may be reordered; reductions keep their order. Overlapping
        // replacements (a scatter) get a stage each, so that the last offset wins.
        Ok(if self.way == Way::Scatter(Op::Replace) {
            moves.into_iter().map(|one| vec![one]).collect()
        } else {
            vec![moves]
        })
    }

    fn push_within(
        &self,
        moves: &mut Vec<Move>,
        field: &Registered,
        from: IndexBox<D>,
        to: IndexBox<D>,
        phase: usize,
        op: Op,
    ) -> Result<()> {
        let region = field.region(phase, self.swaps);
        let (source, target) =
            (end_in_array(field, region, field.rows, from), end_in_array(field, region, field.rows, to));
        self.push(moves, field, from, source, target, op)
    }

    /// Adds the move of a box between two ends.
    fn push(
        &self,
        moves: &mut Vec<Move>,
        field: &Registered,
        shape: IndexBox<D>,
        source: End<'_>,
        target: End<'_>,
        op: Op,
    ) -> Result<()> {
        let mut extents = [1; 3];
        extents[3 - D..].copy_from_slice(&shape.extents());
        let [outer, inner, points] = extents;
        if outer * inner * points == 0 {
            return Ok(());
        }
        let place = |end: &End<'_>| end.region.place(end.offset, 0, "a box of an exchange");
        moves.push(Move {
            source: place(&source)?,
            source_strides: source.strides,
            destination: place(&target)?,
            destination_strides: target.strides,
            counts: [outer, inner],
            run_bytes: points * field.element_bytes(),
            element: field.element,
            op,
        });
        Ok(())
    }
}

/// A box within an array.
fn end_in_array<'a, const D: usize>(
    field: &Registered,
    region: &'a Region,
    rows: Pitched,
    part: IndexBox<D>,
) -> End<'a> {
    let bytes = field.element.bytes();
    let [plane, row, _] = rows.strides().map(|stride| stride * bytes);
    let mut start = [0; 3];
    start[3 - D..].copy_from_slice(&part.start);
    End { region, offset: rows.offset(start) * bytes, strides: [plane, row] }
}

/// A box that is packed `start` bytes into a message.
fn packed_end<'a, const D: usize>(
    place: &'a Place,
    start: usize,
    field: &Registered,
    part: IndexBox<D>,
) -> End<'a> {
    let mut extents = [1; 3];
    extents[3 - D..].copy_from_slice(&part.extents());
    let row = extents[2] * field.element_bytes();
    End { region: place.region(), offset: place.offset() + start, strides: [extents[1] * row, row] }
}

/// Adds the stages of another field to those of some, of which none depends on them: a device has a kernel for each.
fn side_by_side(stages: &mut Stages, of_field: Stages) {
    for (index, moves) in of_field.into_iter().enumerate() {
        match stages.get_mut(index) {
            Some(stage) => stage.extend(moves),
            None => stages.push(moves),
        }
    }
}
