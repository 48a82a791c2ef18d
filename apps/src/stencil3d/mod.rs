//! Stencil3d: 3DStencil, with which the paper on GPU-aware communication on Intel GPUs evaluates
//! applications (2023, section V-G), as two solvers with known answers.
//!
//! | what | where |
//! |---|---|
//! | the time loop over ranks: exchange, overlap, steps between exchanges | [`driver`] |
//! | what one rank computes on, and the tiles of its steps | `block` |
//! | the equations, their manufactured solution and their weights | `problem` |
//! | tiles of 7 or of 27 points, in `f32` or `f64`, and their rows, long and short | `kernel`, `row`, `full`, `short` |
//! | the same as texts for devices | `device`, `stencil.cl`, `fold.cl` |
//! | the norm of the residual over all ranks | `norm` |
//! | the same again, simply, on the whole grid, to verify against | `reference` |
//! | what the answer must be, and how far from it another one may be | `check` |

mod block;
mod check;
pub(crate) mod device;
pub(crate) mod driver;
mod full;
pub(crate) mod kernel;
mod norm;
mod problem;
mod reference;
mod row;
mod short;

#[cfg(test)]
mod tests;
