//! A rank that drops its world, or a part of it.

use streamhalo::World;
use streamhalo::comm::Error;

/// The last rank drops its world, which the caller then has to do as well, and comes to no call of all ranks any more: not to
/// the next one, nor to one that others come to after that.
pub fn met(world: &World) -> Result<(), Error> {
    let leaver = world.size() - 1;
    world.barrier()?;
    if world.rank() == leaver {
        return Ok(());
    }
    let calls: [&dyn Fn() -> Result<(), Error>; 3] =
        [&|| world.barrier(), &|| world.all_gather(&7).map(drop), &|| world.first(1).map(drop)];
    for call in calls {
        match call() {
            Err(Error::PeerFailed { rank, operation }) if operation.contains("has left the world") => {
                assert_eq!(rank, leaver, "{operation}");
            }
            other => panic!("rank {leaver} has left, and this is said of it: {other:?}"),
        }
    }
    Ok(())
}
