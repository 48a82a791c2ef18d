//! Windows with active target epochs: every misuse down to its error, before and after epochs that work.

use super::refused;
use crate::cases::Done;
use crate::cases::active::row;
use crate::{Scenario, stream_of};
use streamhalo::comm::device::Buffer;
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::comm::{Error, Result};
use streamhalo::{ElementType, HaloError, Op, Stream, StreamKind, World};

/// A rank with a window, and groups of all ranks and of none.
#[derive(Debug)]
pub struct Alone {
    /// Of the kind that was asked for.
    pub stream: Stream,
    /// What the others may write.
    pub part: Buffer<i32>,
    /// As long.
    pub source: Buffer<i32>,
    /// Over the part.
    pub window: Window,
    /// All ranks.
    pub all: Group,
    /// No rank.
    pub none: Group,
}

impl Alone {
    /// Collective.
    pub fn new(world: &World, kind: StreamKind, elements: usize) -> Result<Self, HaloError> {
        let stream = stream_of(world, kind)?;
        let part = Buffer::zeros(world, &stream, row(elements))?;
        let source = Buffer::zeros(world, &stream, row(elements))?;
        let window = Window::active(world, &part.section(0..elements)?, ActiveOptions::default())?;
        let all = Group::new(world, &(0..world.size()).collect::<Vec<_>>())?;
        Ok(Self { stream, part, source, window, all, none: Group::new(world, &[])? })
    }

    /// An epoch with everybody, in which nothing happens.
    pub fn epoch(&self, mode: Mode) -> Result<()> {
        match mode {
            Mode::Host => {
                self.window.post(&self.all)?;
                self.window.start(&self.all, mode)?;
                self.window.complete()?;
                self.window.wait()
            }
            Mode::Stream => {
                self.window.post_stream(&self.all, &self.stream)?;
                self.window.start(&self.all, mode)?;
                self.window.complete_stream(&self.stream)?;
                self.window.wait_stream(&self.stream)
            }
        }
    }
}

/// All that is refused, in both modes.
pub fn epochs(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let alone = Alone::new(world, way.kind, 8)?;
    for misuse in [out_of_order, unfit, in_use, overlapping, elsewhere] {
        for mode in [Mode::Stream, Mode::Host] {
            misuse(world, &alone)?;
            alone.epoch(mode)?;
        }
    }
    alone.stream.synchronize()?;
    Ok(Done::default())
}

/// Calls in an order that makes no epochs.
fn out_of_order(world: &World, alone: &Alone) -> Result<(), HaloError> {
    let Alone { stream, source, window, all, none, .. } = alone;
    let section = source.section(0..2)?;
    let me = world.rank();
    refused(window.put(&section, me, 0), "put", "start an access epoch first");
    refused(window.get(&section, me, 0), "get", "start an access epoch first");
    refused(window.accumulate(&section, me, 0, Op::Sum), "accumulate", "start an access epoch first");
    refused(window.complete(), "complete", "start an access epoch first");
    refused(window.complete_stream(stream), "complete_stream", "start an access epoch first");
    refused(window.wait(), "wait", "post an exposure epoch first");
    refused(window.test(), "test", "post an exposure epoch first");
    refused(window.wait_stream(stream), "wait_stream", "post an exposure epoch first");

    window.start(none, Mode::Host)?;
    refused(window.start(all, Mode::Host), "start", "complete it first");
    refused(window.start(none, Mode::Stream), "start", "complete it first");
    refused(window.complete_stream(stream), "complete_stream", "Mode::Host; end it with `complete`");
    window.complete()?;
    window.start(none, Mode::Stream)?;
    refused(window.complete(), "complete", "Mode::Stream; end it with `complete_stream`");
    window.complete_stream(stream)?;

    window.post(none)?;
    refused(window.post(none), "post", "exposed already");
    refused(window.post_stream(all, stream), "post_stream", "exposed already");
    refused(window.wait_stream(stream), "wait_stream", "use `wait` or `test`");
    window.wait()?;
    window.post_stream(none, stream)?;
    refused(window.wait(), "wait", "use `wait_stream`");
    refused(window.test(), "test", "use `wait_stream`");
    window.wait_stream(stream)?;
    window.post(none)?;
    assert_eq!(window.test(), Ok(true));
    refused(window.test(), "test", "post an exposure epoch first");
    Ok(())
}

/// Operations that do not fit the group, the part or the type.
fn unfit(world: &World, alone: &Alone) -> Result<(), HaloError> {
    let Alone { source, window, all, none, .. } = alone;
    let section = source.section(0..4)?;
    let me = world.rank();
    window.start(none, Mode::Host)?;
    let outside = Error::NotInGroup { call: "put", target: me, group: vec![] };
    assert_eq!(window.put(&section, me, 0), Err(outside));
    let nobody = Error::NotInGroup { call: "get", target: 77, group: vec![] };
    assert_eq!(window.get(&section, 77, 0), Err(nobody));
    window.complete()?;
    window.post(all)?;
    window.start(all, Mode::Host)?;
    for (offset, start, end) in [(5, 20, 36), (usize::MAX, usize::MAX, usize::MAX)] {
        let error = |what| Err(Error::OutOfBounds { what, start, end, region_bytes: 32 });
        assert_eq!(window.put(&section, me, offset), error("put"));
        assert_eq!(window.get(&section, me, offset), error("get"));
        assert_eq!(window.accumulate(&section, me, offset, Op::Max), error("accumulate"));
    }
    let floats = Buffer::<f32>::zeros(world, source.stream(), row(4))?;
    let mismatch =
        Error::ElementMismatch { what: "a window", asked: ElementType::F32, found: ElementType::I32 };
    assert_eq!(window.put(&floats.section(0..4)?, me, 0), Err(mismatch));
    // What just fits, and what is nothing.
    window.put(&section, me, 4)?;
    window.put(&source.section(8..8)?, me, 8)?;
    window.complete()?;
    Ok(window.wait()?)
}

/// What an epoch uses is nobody else's.
fn in_use(world: &World, alone: &Alone) -> Result<(), HaloError> {
    let Alone { stream, part, source, window, all, .. } = alone;
    let me = world.rank();
    let in_use = |result: Result<()>, by: &str| match result {
        Err(Error::InUse { by: found, .. }) => assert_eq!(found, by),
        other => panic!("{other:?} instead of in use by {by}"),
    };
    let whole = part.extents().whole();
    window.post(all)?;
    in_use(part.copy_out(whole).map(|_| ()), "an exposure epoch");
    in_use(part.reader(whole).map(|_| ()), "an exposure epoch");
    window.start(all, Mode::Host)?;
    window.put(&source.section(0..4)?, me, 0)?;
    source.copy_out(whole)?;
    in_use(window.get(&source.section(3..5)?, me, 4), "a put");
    window.get(&source.section(6..8)?, me, 6)?;
    in_use(source.copy_out(whole).map(|_| ()), "a get");
    in_use(source.reader(whole).map(|_| ()), "a get");
    in_use(window.accumulate(&source.section(7..8)?, me, 5, Op::Sum), "a get");
    // From what is exposed, where nobody puts.
    window.put(&part.section(7..8)?, me, 5)?;
    window.complete()?;
    window.wait()?;
    part.copy_out(whole)?;
    source.copy_out(whole)?;
    // On a stream the sections are ordered by it from `complete_stream` on.
    window.post_stream(all, stream)?;
    window.start(all, Mode::Stream)?;
    window.get(&source.section(0..4)?, me, 0)?;
    in_use(source.copy_out(whole).map(|_| ()), "a get");
    window.complete_stream(stream)?;
    window.wait_stream(stream)?;
    source.copy_out(whole)?;
    Ok(())
}

/// Windows that overlap are not exposed together.
fn overlapping(world: &World, alone: &Alone) -> Result<(), HaloError> {
    let Alone { part, window, all, none, .. } = alone;
    let other = Window::active(world, &part.section(6..8)?, ActiveOptions::default())?;
    window.post(all)?;
    let by = "an exposure epoch";
    assert_eq!(other.post(none), Err(Error::InUse { what: by, start: 24, end: 32, by }));
    window.start(all, Mode::Host)?;
    window.complete()?;
    window.wait()?;
    other.post(none)?;
    assert_eq!(window.post(all), Err(Error::InUse { what: by, start: 0, end: 32, by }));
    Ok(other.wait()?)
}

/// Streams that do not order the memory of the epoch.
fn elsewhere(world: &World, alone: &Alone) -> Result<(), HaloError> {
    let Alone { stream, window, all, none, .. } = alone;
    let other = stream_of(world, StreamKind::Inline)?;
    let wrong = Error::WrongStream { what: "memory of an epoch", owner: stream.id(), used: other.id() };
    assert_eq!(window.post_stream(none, &other), Err(wrong.clone()));
    let theirs = Buffer::<i32>::zeros(world, &other, row(2))?;
    window.post_stream(all, stream)?;
    assert_eq!(window.wait_stream(&other), Err(wrong));
    window.start(all, Mode::Stream)?;
    window.put(&theirs.section(0..2)?, world.rank(), 0)?;
    let wrong = Error::WrongStream { what: "memory of an epoch", owner: other.id(), used: stream.id() };
    assert_eq!(window.complete_stream(stream), Err(wrong));
    // The epoch is still open, and the right stream completes it.
    window.complete_stream(&other)?;
    window.wait_stream(stream)?;
    Ok(other.synchronize()?)
}
