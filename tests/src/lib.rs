//! What the conformance suites share: worlds with a watchdog, an oracle for ghosts, and fields of
//! any kind that are filled and checked by kernels.
//!
//! A suite runs over every row of the backend registry and both kinds of stream, so a new row gets
//! its tests for nothing.

pub mod cases;
mod cells;
mod clock;
mod devices;
mod fields;
mod oracle;
mod panicking;
mod programs;
mod random;
mod ranks;
pub mod start;
mod walled;

pub use cells::{Amount, Cell, Outcome, try_backend_cells, try_cells, try_primitive_cells};
pub use clock::assert_tells_the_time;
pub use devices::{LONG_BYTES, LONG_EPOCHS, cells_on_host, check_cells, set_ways, try_routes};
pub use fields::{FieldSet, FieldSpec};
pub use oracle::{Oracle, Origin, Sample, offsets_of, value};
pub use panicking::assert_panics_are_told;
pub use programs::{Programs, programs};
pub use random::Random;
pub use ranks::{
    KINDS, OpenDevice, Scenario, TIMEOUT, alone, at_once, delay, device_in_turn, each_way, expect_all,
    in_both_memories, in_memory, on_ranks, other_device, outcomes, same_on_all, set_peers, set_signals,
    set_waits, set_wires, stream_of, until, watchdog, ways_of,
};
pub use walled::{on_walled_ranks, walled_outcomes};
