//! The geometry against oracles that are simple enough to believe: single cells, counted one by one.

mod cases;
mod errors;
mod exchange;
mod index_box;
mod inner;
mod layout;
mod levels;
mod ownership;
