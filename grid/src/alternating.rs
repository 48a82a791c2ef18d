//! Fields with two generations, of which a step reads one and writes the other.

use crate::{Array, Entity, Field, FieldInfo, GridError, LocalGrid, ReadableGhosts};
use std::cell::Cell;
use streamhalo_comm::Element;
use streamhalo_comm::device::{Reader, Stream, Writer};
use streamhalo_comm::fabric::Region;

/// Two generations of one field. A step exchanges the current one, computes the next one from it,
/// and swaps.
///
/// An exchange that knows both generations can let peers write straight into the ghosts of the
/// one that is not in use. Then the ghosts of a generation may only be read after it has been
/// exchanged, and kernels write owned entries only, and ghosts beyond boundaries of the grid; the accessors see to that.
/// They do not see which ghosts an exchange has filled: corners without the pattern that has them, and layers beyond its
/// width, hold what they held in that generation.
#[derive(Debug)]
pub struct Alternating<T, const D: usize> {
    generations: [Array<T, D>; 2],
    current: Cell<usize>,
    written_by_peers: Cell<bool>,
}

impl<T: Element, const D: usize> Alternating<T, D> {
    /// A field of zeros with one component.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub fn zeros(grid: &LocalGrid<D>, entity: Entity, stream: &Stream) -> Result<Self, GridError> {
        Self::with_components(grid, entity, 1, stream)
    }

    /// A field of zeros with several components at each entry.
    ///
    /// # Errors
    /// As [`Array::with_components`].
    pub fn with_components(
        grid: &LocalGrid<D>,
        entity: Entity,
        components: usize,
        stream: &Stream,
    ) -> Result<Self, GridError> {
        let array = || Array::with_components(grid, entity, components, stream);
        Ok(Self {
            generations: [array()?, array()?],
            current: Cell::new(0),
            written_by_peers: Cell::new(false),
        })
    }

    /// The current generation.
    pub fn now(&self) -> &Array<T, D> {
        &self.generations[self.current.get()]
    }

    /// The current generation, to write.
    pub fn now_mut(&mut self) -> &mut Array<T, D> {
        &mut self.generations[self.current.get()]
    }

    /// For a kernel: read access to the current generation and write access to the next one. Does
    /// not block.
    ///
    /// # Errors
    /// As [`Array::reader`].
    pub fn now_and_next(&mut self) -> Result<(Reader<'_, T>, Writer<'_, T>), GridError> {
        let [first, second] = &mut self.generations;
        let (now, next) = if self.current.get() == 0 { (first, second) } else { (second, first) };
        Ok((now.reader()?, next.writer()?))
    }

    /// Makes the next generation the current one. Costs nothing; ordered with what is enqueued.
    pub fn swap(&mut self) {
        if self.now().readable_ghosts() == ReadableGhosts::Own {
            // Its exchange has begun: whoever finishes that does not know it for its own any more.
            self.now().set_readable_ghosts(ReadableGhosts::None);
        }
        self.current.set(1 - self.current.get());
        if self.written_by_peers.get() {
            self.set_unreadable();
        }
    }

    fn set_unreadable(&self) {
        self.generations.iter().for_each(|array| array.set_readable_ghosts(ReadableGhosts::None));
    }
}

impl<T: Element, const D: usize> Field<D> for Alternating<T, D> {
    fn info(&self) -> FieldInfo<'_, D> {
        self.generations[0].info()
    }

    fn generations(&self) -> ([&Region; 2], Option<usize>) {
        let [first, second] = &self.generations;
        ([first.buffer().region(), second.buffer().region()], Some(self.current.get()))
    }

    fn readable_ghosts(&self) -> ReadableGhosts {
        self.now().readable_ghosts()
    }

    fn set_readable_ghosts(&self, readable: ReadableGhosts) {
        self.now().set_readable_ghosts(readable);
        if self.written_by_peers.get() {
            // Peers may be ahead by one exchange: only owned entries are this rank's to write.
            self.now().set_ghosts_writable(false);
        }
    }

    fn set_written_by_peers(&self) {
        self.written_by_peers.set(true);
        self.set_unreadable();
    }
}
