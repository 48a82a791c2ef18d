//! The program `streamhalo` and its applications.
//!
//! The binary is thin: it parses the command line ([`cli`]) and hands over to [`commands`].
//! A command reads a run configuration ([`config`]), runs, and writes tables, plots and
//! results ([`report`]).

#![forbid(unsafe_code)]

pub mod bench;
pub mod cli;
pub mod commands;
pub mod config;
pub mod error;
pub mod report;

pub use error::AppError;
