//! Active windows that a rank lets go of, between epochs and while one is on its stream.

use super::said;
use crate::cases::Done;
use crate::{Scenario, stream_of};
use std::time::Duration;
use streamhalo::comm::Error;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::window::{ActiveOptions, Group, Mode, Window};
use streamhalo::{HaloError, Stream, StreamKind, World};

/// An end of an active window of ten elements.
struct End {
    stream: Stream,
    part: Buffer<i32>,
    source: Buffer<i32>,
    window: Window,
}

impl End {
    fn new(world: &World, kind: StreamKind) -> Result<Self, HaloError> {
        let stream = stream_of(world, kind)?;
        let row = |elements| Extents { points: [1, 1, elements], components: 1 };
        let part = Buffer::<i32>::zeros(world, &stream, row(10))?;
        let mut source = Buffer::<i32>::zeros(world, &stream, row(4))?;
        source.with_host_mut(row(4).whole(), |mut view| view.fill(1 + world.rank() as i32))?;
        let window = Window::active(world, &part.section(0..10)?, ActiveOptions::default())?;
        Ok(Self { stream, part, source, window })
    }

    /// Puts to a peer, once it is exposed.
    fn access(&self, peer: &Group, mode: Mode) -> Result<(), Error> {
        self.window.start(peer, mode)?;
        self.window.put(&self.source.section(0..4)?, peer.ranks()[0], 2)?;
        match mode {
            Mode::Host => self.window.complete(),
            Mode::Stream => self.window.complete_stream(&self.stream),
        }
    }
}

/// The last rank drops its window between epochs: nobody else can have one with it, in whichever call it is waited
/// for.
pub fn epochs(world: &World, way: Scenario) -> Result<Done, HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let end = End::new(world, way.kind)?;
    let window = &end.window;
    if leaver > 0 && (rank == 0 || rank == leaver) {
        let peer = Group::new(world, &[if rank == 0 { leaver } else { 0 }])?;
        window.post(&peer)?;
        end.access(&peer, Mode::Host)?;
        window.wait()?;
        if rank == 0 {
            window.post(&peer)?;
            said(leaver, window.wait());
            window.post(&peer)?;
            let tested = std::iter::repeat_with(|| window.test()).find(|tested| *tested != Ok(false));
            said(leaver, tested.expect("it is repeated"));
            said(leaver, end.access(&peer, Mode::Host));
            // Whoever is waited for first, it is the one that does not come.
            let all = Group::new(world, &(0..=leaver).collect::<Vec<_>>())?;
            window.post(&all)?;
            said(leaver, window.wait());
            said(leaver, end.access(&all, Mode::Host));
        }
    }
    if rank == leaver {
        drop(end);
    }
    world.barrier()?;
    Ok(Done::default())
}

/// The last rank drops its window while an epoch of it is still on its stream, which that carries out. Then rank 0's
/// stream waits for one more, by an access of its own or by one of the other's, and fails, and with it the world.
///
/// # Errors
/// Those of calls that must succeed.
///
/// # Panics
/// If the stream says otherwise.
pub fn streamed(world: &World, kind: StreamKind, is_origin: bool) -> Result<(), HaloError> {
    let (rank, leaver) = (world.rank(), world.size() - 1);
    let end = End::new(world, kind)?;
    let End { stream, part, window, .. } = &end;
    if rank != 0 && rank != leaver {
        return Ok(());
    }
    let peer = Group::new(world, &[leaver - rank])?;
    if rank == leaver {
        stream.enqueue_host("being late", || {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
    }
    window.post_stream(&peer, stream)?;
    end.access(&peer, Mode::Stream)?;
    window.wait_stream(stream)?;
    if rank == leaver {
        let End { stream, window, part, .. } = end;
        drop(window);
        // It may see the failure of the other, which comes behind what it waits for.
        let ended = stream.synchronize();
        assert!(matches!(ended, Ok(()) | Err(Error::PeerFailed { rank: 0, .. })), "{ended:?}");
        assert_eq!(part.copy_out(part.extents().whole())?[2..6], [1; 4]);
        return Ok(());
    }
    stream.synchronize()?;
    assert_eq!(part.copy_out(part.extents().whole())?[2..6], [1 + leaver as i32; 4]);
    if is_origin {
        end.access(&peer, Mode::Stream)?;
    } else {
        window.post_stream(&peer, stream)?;
        window.wait_stream(stream)?;
    }
    said(leaver, stream.synchronize());
    Ok(())
}
