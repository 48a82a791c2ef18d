//! Notified gets, whose answers are packets.

use super::cases::{Case, pattern};
use crate::World;
use crate::device::Device;
use crate::error::Result;
use crate::source::{Source, Tag};
use crate::window::Window;

pub(super) const ALL: &[(&str, Case)] = &[("a get of more parts than a call has", long)];

/// A call has few parts in these tests. It is the access that notifies, not each of its calls.
fn long(world: &World) -> Result<()> {
    const BYTES: usize = 300_000;
    let stream = Device::host().stream(world)?;
    let window = Window::allocate::<u8>(world, &stream, BYTES)?;
    window.write(0, &pattern(world.rank(), 1, BYTES))?;
    world.barrier()?;
    let (next, before) =
        ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
    let mut request = window.notify_init(Source::Rank(before), Tag::Any, 1)?;
    request.start()?;
    // None, one that ends within a part, and one that ends with a call.
    for (tag, (start, bytes)) in (1..).zip([(5, 0), (7, BYTES - 9), (0, 32_768)]) {
        let mut data = vec![0; bytes];
        window.get_notify(&mut data, next, start, tag)?;
        assert!(data == pattern(next, 1, BYTES)[start..start + bytes], "{bytes} bytes from {start} on");
        assert_eq!(request.wait()?.tag, tag);
        request.start()?;
    }
    world.barrier()?;
    assert!(request.test()?.is_none(), "something else has notified");
    world.barrier()
}
