//! Tables of moves between a device and memory of the host that its kernels do not reach: two tables, with a bounce
//! buffer between them.
//!
//! The device's table is the one that was given, with the bounce buffer in place of the host's memory when payloads
//! come in, so that reductions have the order and the bits that they have on one device. When payloads go out it
//! copies, and the host does with the copies what the table says.

use super::moves::{MoveTable, Nest};
use crate::element::Op;
use crate::error::Result;
use crate::fabric::{LINE, Region};

/// Between which memory the moves of a table go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// The device's only.
    Within,
    /// From the device's to the host's, some of them.
    Out,
    /// From the host's to the device's, some of them.
    In,
}

/// A table that crosses, as the device and the host carry it out.
#[derive(Debug)]
pub(crate) struct Split {
    /// Between the device's memory and the bounce buffer, and within the device's.
    pub(crate) on_device: MoveTable,
    /// Between the bounce buffer and the host's memory.
    pub(crate) on_host: MoveTable,
}

impl Nest {
    /// Bytes of each of its boxes.
    fn box_bytes(&self) -> usize {
        self.counts[0] * self.counts[1] * self.run_bytes
    }

    /// The same loops with other ends.
    fn between(
        &self,
        pairs: Vec<(*const u8, *mut u8)>,
        (source_strides, destination_strides): ([usize; 2], [usize; 2]),
        op: Op,
    ) -> Self {
        let Self { counts, run_bytes, element, run, .. } = *self;
        Self { counts, run_bytes, source_strides, destination_strides, pairs, element, op, run }.merge_runs()
    }
}

impl MoveTable {
    /// Between which memory its moves go, where `is_here` says what the device's is. `None` if a device cannot carry
    /// it out: a move that touches none of its memory, or memory of another device, which is not the host's either, or
    /// both ways in one table, of which one might need the other.
    pub(crate) fn crossing(&self, is_here: impl Fn(&Region) -> bool) -> Option<Crossing> {
        let is_foreign = |region: &Region| !is_here(region) && !region.host_reaches();
        if self.regions.iter().any(is_foreign) {
            return None;
        }
        let mut all = Crossing::Within;
        for (source, destination) in self.nests.iter().flat_map(|nest| &nest.pairs) {
            let one = match (self.is_in(*source, &is_here), self.is_in(*destination, &is_here)) {
                (true, true) => continue,
                (true, false) => Crossing::Out,
                (false, true) => Crossing::In,
                (false, false) => return None,
            };
            if all != Crossing::Within && all != one {
                return None;
            }
            all = one;
        }
        Some(all)
    }

    fn is_in(&self, address: *const u8, is_here: impl Fn(&Region) -> bool) -> bool {
        self.regions.iter().any(|region| is_here(region) && region.contains(address))
    }

    /// Splits a table that goes out or comes in. `bounce` makes the bounce buffer of that many bytes, which the device
    /// and the host address alike.
    ///
    /// # Errors
    /// Those of `bounce`.
    pub(crate) fn split(
        &self,
        crossing: Crossing,
        is_here: impl Fn(&Region) -> bool,
        bounce: impl FnOnce(usize) -> Result<Region>,
    ) -> Result<Split> {
        let crosses =
            |pair: &(*const u8, *mut u8)| !self.is_in(pair.0, &is_here) || !self.is_in(pair.1, &is_here);
        let mut bytes = 0;
        for nest in &self.nests {
            // Boxes begin on cache lines in the bounce buffer, whose words kernels then move whole.
            bytes += nest.pairs.iter().filter(|pair| crosses(pair)).count()
                * nest.box_bytes().next_multiple_of(LINE);
        }
        let bounce = bounce(bytes)?;
        let mut split = Split { on_device: Self::empty(), on_host: Self::empty() };
        split.on_host.stages.push(0);
        let mut next = 0;
        for (index, nest) in self.nests.iter().enumerate() {
            for _ in self.stages.iter().filter(|first| **first == index) {
                split.on_device.stages.push(split.on_device.nests.len());
            }
            let (crossing_pairs, within): (Vec<_>, Vec<_>) = nest.pairs.iter().copied().partition(crosses);
            if !within.is_empty() {
                let strides = (nest.source_strides, nest.destination_strides);
                split.on_device.nests.push(nest.between(within, strides, nest.op));
            }
            if crossing_pairs.is_empty() {
                continue;
            }
            let packed = [nest.counts[1] * nest.run_bytes, nest.run_bytes];
            let [mut there, mut here] = [Vec::new(), Vec::new()];
            for (source, destination) in crossing_pairs {
                let bounced = bounce.base().wrapping_add(next);
                next += nest.box_bytes().next_multiple_of(LINE);
                let (first, second) =
                    if crossing == Crossing::Out { (&mut there, &mut here) } else { (&mut here, &mut there) };
                first.push((source, bounced));
                second.push((bounced.cast_const(), destination));
            }
            let (outer, inner) = ((nest.source_strides, packed), (packed, nest.destination_strides));
            let (there, here) = if crossing == Crossing::Out {
                (nest.between(there, outer, Op::Replace), nest.between(here, inner, nest.op))
            } else {
                (nest.between(there, inner, nest.op), nest.between(here, outer, Op::Replace))
            };
            split.on_device.nests.push(there);
            split.on_host.nests.push(here);
            split.on_host.bytes += nest.box_bytes() * nest.pairs.len();
        }
        let (mut there, mut here): (Vec<_>, Vec<_>) = self.regions.iter().cloned().partition(&is_here);
        there.push(bounce.clone());
        here.push(bounce);
        split.on_host.host_reaches = here.iter().all(Region::host_reaches);
        (split.on_device.regions, split.on_host.regions) = (there, here);
        (split.on_device.bytes, split.on_device.purpose) = (self.bytes, self.purpose);
        (split.on_host.observed, split.on_host.purpose) = (self.observed.clone(), self.purpose);
        Ok(split)
    }
}
