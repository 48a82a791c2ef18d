//! The program `streamhalo` and its applications.
//!
//! The binary is thin: it parses the command line ([`cli`]) and hands over to [`commands`].
//! A command reads a run configuration ([`config`]), runs, and writes tables, plots and
//! results ([`report`]).

#![forbid(unsafe_code)]

pub mod app;
pub mod bench;
mod checkpoint;
mod cholesky;
pub mod cli;
mod comb;
pub mod commands;
pub mod config;
mod error;
mod faces;
mod interrupt;
pub mod life;
mod occupied;
mod pictures;
mod pipeline;
pub mod ranks;
pub mod report;
mod run;
mod stencil3d;
mod tree;
mod unwritten;
mod watch;

pub use error::AppError;
pub use interrupt::survive_file_size_limits;
