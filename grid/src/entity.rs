//! What a value of a field belongs to.

use crate::GridError;
use std::fmt;

/// What a value of a field belongs to: a cell, or one of the nodes, faces and edges around it.
///
/// On each axis an entity is either *cell-like* (as many as there are cells) or *node-like* (one
/// more than cells, or as many where the axis is periodic). That is all that extents, ghosts and
/// exchanges depend on.
///
/// ```
/// use streamhalo_grid::Entity;
/// let x_velocity = Entity::Face(1); // in 2-D, [y, x]
/// assert!(x_velocity.is_node_like(1) && !x_velocity.is_node_like(0));
/// assert_eq!(x_velocity.to_string(), "face normal to axis 1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Entity {
    /// The cells: cell-like on every axis.
    Cell,
    /// The corners of the cells: node-like on every axis.
    Node,
    /// The faces normal to this axis: node-like on it and cell-like on the others.
    Face(usize),
    /// The edges that run along this axis: cell-like on it and node-like on the others.
    Edge(usize),
}

impl Entity {
    /// Whether the entity is node-like on `axis` (0 is the slowest axis).
    pub fn is_node_like(self, axis: usize) -> bool {
        match self {
            Entity::Cell => false,
            Entity::Node => true,
            Entity::Face(normal) => axis == normal,
            Entity::Edge(along) => axis != along,
        }
    }

    /// Whether the entity exists on a grid with `dimensions` axes.
    ///
    /// # Errors
    ///
    /// [`GridError::EntityAxis`] where a face or an edge names an axis that the grid does not have.
    pub fn check(self, dimensions: usize) -> Result<(), GridError> {
        match self {
            Entity::Face(axis) | Entity::Edge(axis) if axis >= dimensions => {
                Err(GridError::EntityAxis { entity: self, axis, dimensions })
            }
            _ => Ok(()),
        }
    }

    /// [`Entity::check`] for methods that return plain geometry. Unchecked, `Face(3)` on a 2-D grid
    /// would pass for a cell, and the field would silently have the wrong extents.
    #[track_caller]
    pub(crate) fn assert_exists(self, dimensions: usize) {
        if let Err(error) = self.check(dimensions) {
            panic!("{error}");
        }
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entity::Cell => formatter.pad("cell"),
            Entity::Node => formatter.pad("node"),
            Entity::Face(axis) => write!(formatter, "face normal to axis {axis}"),
            Entity::Edge(axis) => write!(formatter, "edge along axis {axis}"),
        }
    }
}
