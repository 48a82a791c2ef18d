//! Who has matched a request may drop it all: its peer has heard of it by then.

use std::sync::Barrier;
use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::queue::imatch_one;
use streamhalo::comm::{Communicator, wait_all};
use streamhalo::{Device, HaloError};
use streamhalo_tests::on_ranks;

/// More short messages than a ring has room for.
const MANY: usize = 40;

#[test]
fn a_match_is_complete_once_the_peer_has_been_told() {
    // Waits in which no rank reads what has come.
    let gate = Barrier::new(2);
    on_ranks(2, |world| {
        let stream = Device::host().stream(world)?;
        let communicator = Communicator::new(world)?;
        let line = Extents { points: [1, 1, 8], components: 1 };
        let cells = Buffer::<f64>::zeros(world, &stream, line)?;
        let [matched, small] = [cells.section(0..4)?, cells.section(4..5)?];
        if world.rank() == 0 {
            let mut request = communicator.send_init(&matched, 1, 7)?;
            let mut matching = imatch_one(&mut request)?;
            gate.wait();
            gate.wait();
            // Rank 1 has made its half. It does not read, and there is no room to tell it of this one.
            let sends = (0..MANY).map(|_| communicator.isend(&small, 1, 9));
            let mut sends = sends.collect::<Result<Vec<_>, _>>()?;
            let is_complete = matching.test()?;
            gate.wait();
            assert!(!is_complete, "rank 1 has not heard of it");
            matching.wait()?;
            wait_all(&mut sends)?;
            return Ok::<(), HaloError>(());
        }
        gate.wait();
        let mut request = communicator.recv_init(&matched, 0, 7)?;
        let mut matching = imatch_one(&mut request)?;
        assert!(!matching.test()?, "rank 0 has said nothing yet");
        gate.wait();
        gate.wait();
        matching.wait()?;
        (0..MANY).try_for_each(|_| communicator.recv(&mut [0.0], 0, 9).map(|_| ()))?;
        Ok(())
    });
}
