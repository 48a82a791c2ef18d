//! A device with a memory of its own: streams, moves, exchanges, collectives and kernels on OpenCL, which must give what the
//! host gives. Left out, with the reason, where there is no device.

mod boundaries;
mod collectives;
mod exchanges;
mod messages;
mod mirrors;
mod moves;
mod periods;
mod primitives;
mod processes;
mod refusals;
mod staged;
mod streams;
mod timelines;
