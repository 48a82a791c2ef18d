//! The fabric where the system lacks what it needs: every start says so.

use super::super::spanning::Spanning;
use super::super::{Fabric, unavailable};
use super::Exit;
use crate::error::Result;
use crate::world::WorldOptions;
use std::process::{Child, Command};
use std::sync::Arc;

/// A job that cannot be started here.
#[derive(Debug)]
pub struct Job {
    ranks: Vec<Child>,
}

impl Job {
    /// Says why there is no job.
    ///
    /// # Errors
    /// Always.
    pub fn start(_size: usize, _command: &mut dyn FnMut(usize) -> Command) -> Result<Self> {
        Err(unavailable("shm", super::unusable().unwrap_or_default()))
    }

    /// As [`Job::start`].
    ///
    /// # Errors
    /// Always.
    pub fn start_with_descendants(size: usize, command: &mut dyn FnMut(usize) -> Command) -> Result<Self> {
        Self::start(size, command)
    }

    /// The processes: none.
    pub fn ranks(&mut self) -> &mut [Child] {
        &mut self.ranks
    }

    /// Nothing to wait for.
    ///
    /// # Errors
    /// None.
    pub fn wait(&mut self, _interrupted: &dyn Fn() -> bool) -> Result<Exit> {
        Ok(Exit::Success)
    }

    /// Nothing to end.
    pub fn kill(&mut self) {}
}

/// Says why there is no such fabric.
pub(in super::super) fn join(_options: &WorldOptions) -> Result<Arc<dyn Fabric>> {
    Err(unavailable("shm", super::unusable().unwrap_or_default()))
}

/// Says why there is no such fabric.
pub(in super::super) fn within_nodes(
    name: &'static str,
    _wire: Arc<Spanning>,
    _options: &WorldOptions,
) -> Result<Arc<dyn Fabric>> {
    Err(unavailable(name, super::unusable().unwrap_or_default()))
}
