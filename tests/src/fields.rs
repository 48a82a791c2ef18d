//! Fields of any kind, filled and checked by kernels, so that no epoch waits for the host.

use crate::oracle::{Oracle, Origin, Sample, key, value_at};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use streamhalo::grid::{Field, Fields, GridError};
use streamhalo::{
    Alternating, Array, ElementType, Entity, HaloError, IndexBox, LocalGrid, Pattern, Stream, Tile,
};

/// What a field of a test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpec {
    /// Type of its elements.
    pub element: ElementType,
    /// Where its values sit.
    pub entity: Entity,
    /// Elements at each entry.
    pub components: usize,
    /// Two generations instead of one.
    pub alternating: bool,
}

impl FieldSpec {
    /// A field of one generation.
    pub const fn array(element: ElementType, entity: Entity, components: usize) -> Self {
        Self { element, entity, components, alternating: false }
    }

    /// A field of two generations.
    pub const fn alternating(element: ElementType, entity: Entity, components: usize) -> Self {
        Self { element, entity, components, alternating: true }
    }
}

/// Some fields of one grid, to be exchanged together. Untouched ghosts hold a sentinel.
pub struct FieldSet<const D: usize> {
    fields: Vec<Box<dyn Checked<D>>>,
    stream: Stream,
    findings: Arc<Findings>,
}

/// What checks have found.
#[derive(Debug, Default)]
struct Findings {
    faults: Mutex<Vec<String>>,
    /// Of all values seen. A sum, so that it does not matter which thread sees which.
    checksum: AtomicU64,
}

impl<const D: usize> FieldSet<D> {
    /// Makes the fields, for exchanges of `width` layers under `pattern`.
    pub fn new(
        grid: &LocalGrid<D>,
        stream: &Stream,
        specs: &[FieldSpec],
        pattern: &Pattern,
        width: [usize; D],
    ) -> Result<Self, HaloError> {
        let make = |(index, spec): (usize, &FieldSpec)| -> Result<Box<dyn Checked<D>>, GridError> {
            let oracle = Oracle::new(grid.subdomain(), spec.entity, pattern, width);
            Ok(match spec.element {
                ElementType::U8 => Box::new(One::<u8, D>::new(grid, stream, index, spec, oracle)?),
                ElementType::I32 => Box::new(One::<i32, D>::new(grid, stream, index, spec, oracle)?),
                ElementType::I64 => Box::new(One::<i64, D>::new(grid, stream, index, spec, oracle)?),
                ElementType::F32 => Box::new(One::<f32, D>::new(grid, stream, index, spec, oracle)?),
                ElementType::F64 => Box::new(One::<f64, D>::new(grid, stream, index, spec, oracle)?),
                other => panic!("the suites do not know element type {other}: add it to `Sample`"),
            })
        };
        let fields = specs.iter().enumerate().map(make).collect::<Result<_, _>>()?;
        Ok(Self { fields, stream: stream.clone(), findings: Arc::default() })
    }

    /// Enqueues setting what the rank owns to its values in an epoch.
    pub fn fill(&mut self, epoch: u32) -> Result<(), HaloError> {
        for field in &mut self.fields {
            field.enqueue_fill(&self.stream, epoch)?;
        }
        Ok(())
    }

    /// Enqueues comparing all entries with what they must be after the gather of an epoch.
    pub fn check(&self, epoch: u32) -> Result<(), HaloError> {
        self.enqueue_check(epoch, false)
    }

    /// Enqueues comparing what the rank owns: may be done while an exchange is in flight.
    pub fn check_owned(&self, epoch: u32) -> Result<(), HaloError> {
        self.enqueue_check(epoch, true)
    }

    fn enqueue_check(&self, epoch: u32, owned_only: bool) -> Result<(), HaloError> {
        for field in &self.fields {
            field.enqueue_check(&self.stream, epoch, owned_only, &self.findings)?;
        }
        Ok(())
    }

    /// Swaps the fields that alternate.
    pub fn swap(&mut self) {
        self.fields.iter_mut().for_each(|field| field.swap());
    }

    /// Waits for the stream, and fails if a check has found something.
    ///
    /// # Panics
    /// With the first wrong entries, if there are any.
    pub fn assert_right(&self, context: &dyn fmt::Debug) -> Result<(), HaloError> {
        self.stream.synchronize()?;
        let faults = self.findings.faults.lock().expect("checks do not panic");
        assert!(
            faults.is_empty(),
            "{} wrong entries in {context:?}, first\n{}",
            faults.len(),
            faults.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
        );
        Ok(())
    }

    /// Of the values that checks have seen since the set was made, once the stream has come to them.
    pub fn checksum(&self) -> u64 {
        self.findings.checksum.load(Ordering::Relaxed)
    }
}

impl<const D: usize> Fields<D> for FieldSet<D> {
    fn each(&mut self, visit: &mut dyn FnMut(&mut dyn Field<D>)) {
        self.fields.iter_mut().for_each(|field| visit(field.as_field()));
    }
}

impl<const D: usize> fmt::Debug for FieldSet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldSet({} fields)", self.fields.len())
    }
}

/// A field whose type is known at run time only.
trait Checked<const D: usize> {
    fn as_field(&mut self) -> &mut dyn Field<D>;
    fn enqueue_fill(&mut self, stream: &Stream, epoch: u32) -> Result<(), HaloError>;
    fn enqueue_check(
        &self,
        stream: &Stream,
        epoch: u32,
        owned_only: bool,
        findings: &Arc<Findings>,
    ) -> Result<(), HaloError>;
    fn swap(&mut self);
}

struct One<T, const D: usize> {
    values: Values<T, D>,
    index: usize,
    components: usize,
    owned: IndexBox<D>,
    whole: IndexBox<D>,
    /// In row-major order.
    entries: Arc<[Entry<D>]>,
}

/// What an entry must hold, prepared: kernels of a debug build are slow.
struct Entry<const D: usize> {
    origin: Origin<D>,
    key: u64,
}

impl<const D: usize> Entry<D> {
    fn new(origin: Origin<D>) -> Self {
        let key = match origin {
            Origin::Owned { global } | Origin::Ghost { global, .. } => key(&global),
            Origin::Untouched => 0,
        };
        Self { origin, key }
    }

    fn expected<T: Sample>(&self, field: usize, component: usize, epoch: u32) -> T {
        match self.origin {
            Origin::Untouched => T::SENTINEL,
            _ => value_at(self.key, field, component, epoch),
        }
    }
}

enum Values<T, const D: usize> {
    Single(Array<T, D>),
    Pair(Alternating<T, D>),
}

impl<T: Sample, const D: usize> One<T, D> {
    fn new(
        grid: &LocalGrid<D>,
        stream: &Stream,
        index: usize,
        spec: &FieldSpec,
        oracle: Oracle<D>,
    ) -> Result<Self, GridError> {
        let &FieldSpec { entity, components, alternating, .. } = spec;
        let values = if alternating {
            let mut pair = Alternating::with_components(grid, entity, components, stream)?;
            for _ in 0..2 {
                pair.now_mut().fill_with_ghosts(|_, _| T::SENTINEL)?;
                pair.swap();
            }
            Values::Pair(pair)
        } else {
            let mut array = Array::with_components(grid, entity, components, stream)?;
            array.fill_with_ghosts(|_, _| T::SENTINEL)?;
            Values::Single(array)
        };
        Ok(Self {
            values,
            index,
            components,
            owned: grid.owned(entity),
            whole: IndexBox::new([0; D], oracle.extents()),
            entries: oracle.entries().map(|local| Entry::new(oracle.origin(local))).collect(),
        })
    }

    fn current(&self) -> &Array<T, D> {
        match &self.values {
            Values::Single(array) => array,
            Values::Pair(pair) => pair.now(),
        }
    }
}

/// The position, in row-major order, of a point of a kernel over an array.
fn position(whole: Tile, [i, j, x]: [usize; 3]) -> usize {
    let [_, ny, nx] = whole.end;
    (i * ny + j) * nx + x
}

impl<T: Sample, const D: usize> Checked<D> for One<T, D> {
    fn as_field(&mut self) -> &mut dyn Field<D> {
        match &mut self.values {
            Values::Single(array) => array,
            Values::Pair(pair) => pair,
        }
    }

    fn enqueue_fill(&mut self, stream: &Stream, epoch: u32) -> Result<(), HaloError> {
        let (index, components, entries) = (self.index, self.components, self.entries.clone());
        let whole = self.whole.tile();
        let array = match &mut self.values {
            Values::Single(array) => array,
            Values::Pair(pair) => pair.now_mut(),
        };
        let fill = move |tile: Tile, (mut rows,): (streamhalo::RowsMut<'_, T>,)| {
            for (i, j) in tile.rows() {
                for (x, entry) in (tile.start[2]..).zip(rows.row(i, j).chunks_exact_mut(components)) {
                    let is = &entries[position(whole, [i, j, x])];
                    for (component, element) in entry.iter_mut().enumerate() {
                        *element = is.expected(index, component, epoch);
                    }
                }
            }
        };
        Ok(stream.launch_on_host("fill", self.owned.tile(), (array.writer()?,), fill)?)
    }

    fn enqueue_check(
        &self,
        stream: &Stream,
        epoch: u32,
        owned_only: bool,
        findings: &Arc<Findings>,
    ) -> Result<(), HaloError> {
        let (index, components, entries) = (self.index, self.components, self.entries.clone());
        let findings = findings.clone();
        let whole = self.whole.tile();
        let tile = if owned_only { self.owned.tile() } else { whole };
        let check = move |tile: Tile, (rows,): (streamhalo::Rows<'_, T>,)| {
            let mut sum = 0_u64;
            for (i, j) in tile.rows() {
                let row = rows.span(i, j, tile.start[2]..tile.end[2]);
                for (x, entry) in (tile.start[2]..).zip(row.chunks_exact(components)) {
                    let is = &entries[position(whole, [i, j, x])];
                    // Another weight for every entry, so that misplaced values show.
                    let weight = 2 * (position(whole, [i, j, x]) * 16 + index) as u64 + 1;
                    for (component, found) in entry.iter().enumerate() {
                        let expected: T = is.expected(index, component, epoch);
                        let bits = found.bits() ^ (component as u64) << 48 ^ u64::from(epoch) << 32;
                        sum = sum.wrapping_add(bits.wrapping_mul(weight));
                        if *found != expected {
                            findings.faults.lock().expect("checks do not panic").push(format!(
                                "field {index}, epoch {epoch}, point {:?} component {component}, \
                                 {:?}: {found:?} instead of {expected:?}",
                                [i, j, x],
                                is.origin
                            ));
                        }
                    }
                }
            }
            findings.checksum.fetch_add(sum, Ordering::Relaxed);
        };
        Ok(stream.launch_on_host("check", tile, (self.current().reader()?,), check)?)
    }

    fn swap(&mut self) {
        if let Values::Pair(pair) = &mut self.values {
            pair.swap();
        }
    }
}
