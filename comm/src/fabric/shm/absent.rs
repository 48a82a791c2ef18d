//! The fabric where the system lacks what it needs: every start says so.

use super::Exit;
use crate::error::{Error, Result};
use std::process::{Child, Command};

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
        let reason = super::unusable().unwrap_or_default();
        Err(Error::FabricUnavailable { name: "shm".into(), reason })
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

/// Threads are not pinned here.
///
/// # Errors
/// None.
pub fn pin_to_core(_index: usize) -> Result<()> {
    Ok(())
}
