//! What ranks know of peers that have let go of their packets.

use super::cases::{Case, open, pattern, peers, region, wait};
use crate::World;
use crate::error::Result;
use crate::fabric::messaging::WINDOW;
use crate::fabric::packet::{Bulk, FarPackets, Header, Payload};

pub(super) const ALL: &[(&str, Case)] = &[
    ("a goodbye comes behind packets that are not read", behind_packets),
    ("a goodbye comes to who gives no room", without_room),
    ("a goodbye comes behind a bulk transfer", behind_a_bulk),
    ("a goodbye says what was read", what_was_read),
    ("ranks that leave as soon as they have come", at_once),
];

/// The rank that leaves, and the one that looks.
fn pair(world: &World) -> (usize, usize) {
    (world.size() - 1, 0)
}

fn until_left(world: &World, packets: &mut dyn FarPackets, peer: usize) -> Result<u32> {
    let mut came = 0;
    wait(world, "a goodbye", &mut || {
        packets.receive(&mut |_| came += 1)?;
        Ok(packets.has_left(peer))
    })?;
    Ok(came)
}

/// Reads for a while.
fn look(packets: &mut dyn FarPackets) -> Result<u32> {
    let mut came = 0;
    for _ in 0..200 {
        packets.receive(&mut |_| came += 1)?;
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    Ok(came)
}

/// There is no room for another packet, but for a goodbye.
fn behind_packets(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let (leaver, other) = pair(world);
    if world.rank() == leaver {
        for number in 0..WINDOW {
            let header = Header { tag: number, ..Header::default() };
            let payload = pattern(leaver, number, 8000);
            wait(world, "room", &mut || packets.try_send(other, header, Payload::Bytes(&payload)))?;
        }
        assert!(!packets.try_send(other, Header::default(), Payload::None)?, "the receiver does not read");
        drop(packets);
        world.barrier()?;
    } else {
        world.barrier()?;
        assert!(!packets.has_left(leaver), "nothing was read yet");
        let came = until_left(world, &mut *packets, leaver)?;
        assert_eq!(came, if world.rank() == other { WINDOW } else { 0 });
        let stays = peers(world).filter(|peer| *peer != leaver);
        for peer in stays {
            assert!(!packets.has_left(peer), "rank {peer} has not let go");
        }
        // Nobody may let go while another still looks whether it has.
    }
    world.barrier()
}

/// Who has taken more than it wants gives no room, and hears of who lets go.
fn without_room(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let (leaver, other) = pair(world);
    if world.rank() == leaver {
        let mut sent = 0;
        wait(world, "room", &mut || {
            sent += u32::from(packets.try_send(other, Header::default(), Payload::None)?);
            Ok(sent == WINDOW)
        })?;
        world.barrier()?;
        for _ in 0..200 {
            assert!(
                !packets.try_send(other, Header::default(), Payload::None)?,
                "all was read, of which nothing is told"
            );
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        world.barrier()?;
        wait(world, "room", &mut || packets.try_send(other, Header::default(), Payload::None))?;
        drop(packets);
    } else {
        packets.hold_back(true);
        let mut came = 0;
        wait(world, "packets", &mut || {
            packets.receive(&mut |_| came += 1)?;
            Ok(came == if world.rank() == other { WINDOW } else { 0 })
        })?;
        world.barrier()?;
        look(&mut *packets)?;
        world.barrier()?;
        packets.hold_back(false);
        look(&mut *packets)?;
        packets.hold_back(true);
        until_left(world, &mut *packets, leaver)?;
    }
    world.barrier()
}

/// What a peer has begun to send before it let go comes, and only then has it left.
fn behind_a_bulk(world: &World) -> Result<()> {
    let (leaver, other) = pair(world);
    for bytes in [100, 300_000] {
        let mut packets = open(world)?;
        let memory = region(world, bytes)?;
        let place = memory.place(0, bytes, "a test")?;
        if world.rank() == leaver {
            memory.write_bytes(0, &pattern(leaver, 3, bytes))?;
            packets.send_bulk(other, 7, &place, bytes)?;
            drop(packets);
        } else if world.rank() == other {
            assert_eq!(look(&mut *packets)?, 0);
            assert!(!packets.has_left(leaver), "the bulk transfer is not complete");
            let bulk: Bulk = packets.recv_bulk(leaver, 7, &place, bytes)?;
            until_left(world, &mut *packets, leaver)?;
            assert!(packets.is_done(bulk)?, "it has left, and so all has come");
            assert!(memory.read_bytes(0, bytes)? == pattern(leaver, 3, bytes));
        }
        world.barrier()?;
    }
    Ok(())
}

fn what_was_read(world: &World) -> Result<()> {
    let (leaver, other) = pair(world);
    for (sent, read) in [(0, 0), (3, 3), (5, 2)] {
        let mut packets = open(world)?;
        let send = |packets: &mut dyn FarPackets, count: u32| -> Result<()> {
            for _ in 0..count {
                wait(world, "room", &mut || packets.try_send(leaver, Header::default(), Payload::None))?;
            }
            Ok(())
        };
        if world.rank() == leaver {
            let mut came = 0;
            wait(world, "packets", &mut || {
                packets.receive(&mut |_| came += 1)?;
                Ok(came == read)
            })?;
            world.barrier()?;
            // The rest is not read.
            world.barrier()?;
            drop(packets);
        } else {
            if world.rank() == other {
                send(&mut *packets, read)?;
            }
            world.barrier()?;
            if world.rank() == other {
                send(&mut *packets, sent - read)?;
            }
            world.barrier()?;
            until_left(world, &mut *packets, leaver)?;
            let unread = if world.rank() == other { sent - read } else { 0 };
            assert_eq!(packets.unread(leaver)?, unread, "{read} of {sent}");
        }
        world.barrier()?;
    }
    Ok(())
}

/// Some leave while others still connect, and all at once; nobody waits for anybody.
fn at_once(world: &World) -> Result<()> {
    let (leaver, _) = pair(world);
    for round in 0..10 {
        let mut packets = open(world)?;
        if round % 2 == 0 && world.rank() != leaver {
            until_left(world, &mut *packets, leaver)?;
        }
    }
    world.barrier()
}
