//! Groups: the ranks that an epoch of a window is about.

use crate::error::{Error, Result};
use crate::world::World;
use std::fmt;
use std::sync::Arc;

/// Ranks of a world, each once, for [`Window::post`](super::Window::post) and
/// [`Window::start`](super::Window::start). Cloning is cheap.
///
/// A group may be empty, and a rank may be in its own groups. The order of the ranks has no meaning.
///
/// ```
/// use streamhalo_comm::World;
/// use streamhalo_comm::window::Group;
///
/// let world = World::alone()?;
/// assert_eq!(Group::new(&world, &[0])?.ranks(), [0]);
/// assert!(Group::new(&world, &[0, 1]).is_err_and(|error| error.to_string().contains("rank 1 is not one")));
/// # Ok::<(), streamhalo_comm::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Group {
    ranks: Arc<[usize]>,
}

impl Group {
    /// The group of those ranks. Not collective.
    ///
    /// # Errors
    /// [`Error::BadGroup`] if one of them is not in the world, or is named twice.
    pub fn new(world: &World, ranks: &[usize]) -> Result<Self> {
        let bad = |reason: String| Error::BadGroup { ranks: ranks.to_vec(), reason };
        for (index, rank) in ranks.iter().enumerate() {
            if *rank >= world.size() {
                return Err(bad(format!("the world has {} ranks, and rank {rank} is not one", world.size())));
            }
            if ranks[..index].contains(rank) {
                return Err(bad(format!("rank {rank} is named twice; name each rank once")));
            }
        }
        Ok(Self { ranks: ranks.into() })
    }

    /// Its ranks, in the order in which they were given.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// How many ranks it has.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Whether it has that rank.
    pub fn contains(&self, rank: usize) -> bool {
        self.ranks.contains(&rank)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group{:?}", self.ranks)
    }
}
