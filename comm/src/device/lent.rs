//! What the host is lent of an array.

use super::section::Hold;
use ndarray::{ArrayBase, Axis, Ix4, IxDyn, RawData};
use std::ops::{Deref, DerefMut};

/// A view of an array. While it lives nothing else that this rank begins may write what it shows, nor read it where the
/// view is to write: receives, windows and the like are refused with [`Error::InUse`](crate::Error::InUse), and replays of
/// periods of its stream with [`Error::OutOfOrder`](crate::Error::OutOfOrder).
///
/// It is used as the [`ArrayRef`](ndarray::ArrayRef) of `ndarray` that it dereferences to.
#[derive(Debug)]
pub struct Lent<V> {
    view: V,
    /// None where it shows nothing.
    hold: Option<Hold>,
}

impl<V> Lent<V> {
    pub(super) fn new(view: V, hold: Option<Hold>) -> Self {
        Self { view, hold }
    }
}

impl<S: RawData> Lent<ArrayBase<S, Ix4>> {
    /// The view with as many axes as the array's grid has: see [`of_dimensions`].
    // No closure is handed the view: it could keep it for longer than the hold lives.
    pub fn of_dimensions(self, dimensions: usize) -> Lent<ArrayBase<S, IxDyn>> {
        Lent { view: of_dimensions(self.view, dimensions), hold: self.hold }
    }
}

/// A view `[axis 0, axis 1, axis 2, component]` without the leading axes that a grid of one to three dimensions does not
/// have, and without the components' axis where there is one of them.
pub fn of_dimensions<S: RawData>(view: ArrayBase<S, Ix4>, dimensions: usize) -> ArrayBase<S, IxDyn> {
    let mut view = view.into_dyn();
    for _ in dimensions..3 {
        view = view.index_axis_move(Axis(0), 0);
    }
    if view.shape()[dimensions] == 1 { view.index_axis_move(Axis(dimensions), 0) } else { view }
}

impl<V: Deref> Deref for Lent<V> {
    type Target = V::Target;

    fn deref(&self) -> &V::Target {
        &self.view
    }
}

impl<V: DerefMut> DerefMut for Lent<V> {
    fn deref_mut(&mut self) -> &mut V::Target {
        &mut self.view
    }
}
