//! A rank over triggered operations of which there are few, whose host runs far ahead of its stream.
//!
//! `throttled_rank EPOCHS` takes its place in the job from the environment, as the suite `throttling`
//! sets it. Where a start is refused it synchronises the stream and starts again; it says how often.
//! `throttled_rank opposite BACKEND` begins two exchanges in opposite orders on the ranks.

use std::error::Error;
use streamhalo::comm::Error as CommError;
use streamhalo::{ElementType, Entity, GlobalGrid, HaloError, Pattern, StreamHalo, StreamKind, World};
use streamhalo_tests::cases::CELLS;
use streamhalo_tests::cases::order::opposite_orders;
use streamhalo_tests::{FieldSet, FieldSpec, Scenario, stream_of, watchdog};

const BACKENDS: [&str; 4] = ["st-send", "st-rsend", "active-rma", "notified"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let world = World::over("ofi", watchdog())?;
    if let [opposite, backend] = &arguments[..]
        && opposite == "opposite"
    {
        let backend =
            BACKENDS.into_iter().chain(["auto"]).find(|known| known == backend).ok_or("which backend?")?;
        let way = Scenario { backend, kind: StreamKind::Threaded };
        opposite_orders(&world, way, 20, &[CELLS])?;
        return Ok(());
    }
    let epochs: u32 = arguments.first().ok_or("how many epochs?")?.parse()?;
    for backend in BACKENDS {
        for pattern in [Pattern::All, Pattern::Offsets(vec![vec![1, 0]])] {
            let refused = exchange(&world, backend, &pattern, epochs)?;
            println!("{backend}: {refused} refused");
        }
    }
    Ok(())
}

/// All epochs, checked; how many starts were refused.
fn exchange(world: &World, backend: &str, pattern: &Pattern, epochs: u32) -> Result<u32, HaloError> {
    let stream = stream_of(world, StreamKind::Threaded)?;
    // Without the wrap the one-way pattern is a chain, whose ranks may drift apart.
    let grid = GlobalGrid::new([4 * world.size(), 9], [*pattern == Pattern::All, true])?;
    let grid = grid.partition_as(world, [world.size(), 1])?.local(1)?;
    let specs = [FieldSpec::array(ElementType::F64, Entity::Cell, 1)];
    let mut fields = FieldSet::new(&grid, &stream, &specs, pattern, [1, 1])?;
    let mut halo = StreamHalo::new(world, &stream, backend, pattern.clone(), 1, &mut fields)?;
    let mut refused = 0;
    for epoch in 1..=epochs {
        // The stream is late: the host is the one that has to be held up.
        stream.enqueue_host("a pause", || {
            std::thread::sleep(std::time::Duration::from_micros(300));
            Ok(())
        });
        fields.fill(epoch)?;
        match halo.enqueue_gather(&mut fields) {
            Err(HaloError::Communication(CommError::Throttled { .. })) => {
                refused += 1;
                stream.synchronize()?;
                halo.enqueue_gather(&mut fields)?;
            }
            other => other?,
        }
        fields.check(epoch)?;
    }
    fields.assert_right(&(backend, world.rank()))?;
    Ok(refused)
}
