//! Comb: cycles of a halo exchange of several variables, each phase timed, as LLNL's communication benchmark of that
//! name has it. The paper on active RMA ports it to the same interfaces as Faces (2023, section 6.9).
//!
//! | what | where |
//! |---|---|
//! | the cycles | [`driver`] |
//! | their phases | `phases` |
//! | setting all cells, and looking at all ghosts | `kernel` |
//! | what every cell must hold, from its place in the whole grid | `numbering` |
//! | what the answer must be | `check` |

mod check;
pub(crate) mod driver;
mod kernel;
mod numbering;
mod phases;

#[cfg(test)]
mod tests;
