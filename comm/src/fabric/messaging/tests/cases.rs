//! What packets and bulk transfers of a wire promise, each as a case that all ranks run.

use crate::World;
use crate::error::{Error, Result};
use crate::fabric::messaging::WINDOW;
use crate::fabric::packet::{Bulk, FarPackets, Header, Payload};
use crate::fabric::{Place, Region};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) type Case = fn(&World) -> Result<()>;

pub(super) const ALL: &[(&str, Case)] = &[
    ("packets keep their order and their bytes", order),
    ("there is room for some and no more", room),
    ("credits pass unread packets", both_full),
    ("instances do not meet", instances),
    ("bulks of every size, both ways at once", bulks),
    ("a receive is posted late", late),
    ("bulks in another order than their numbers", shuffled),
    ("a bulk from the middle of a region", middle),
    ("another thread has the packets", worker),
    ("one rank has let go", dropped),
    ("packets of the first ranks", part),
    ("many in turn", many),
];

pub(super) fn open(world: &World) -> Result<Box<dyn FarPackets>> {
    world.fabric().wire().expect("this fabric has one").open_packets(world)
}

pub(super) fn peers(world: &World) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (world.rank(), world.size());
    (0..size).filter(move |peer| *peer != rank)
}

/// Waits until something is so.
pub(super) fn wait(world: &World, what: &str, done: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
    let context = world.wait_context();
    context.poll(done, &|waited| context.late(None, what, waited))
}

/// The bytes of a payload: no two places a few blocks apart look alike.
pub(super) fn pattern(source: usize, number: u32, bytes: usize) -> Vec<u8> {
    const BLOCK: usize = 4093;
    let seed = source as u32 * 31 + number * 7;
    let block: Vec<u8> =
        (0..BLOCK.min(bytes.max(6)) as u32).map(|at| (seed + at + (at >> 8)) as u8).collect();
    let mut all = Vec::with_capacity(bytes + BLOCK);
    for index in 0..bytes.div_ceil(BLOCK) {
        all.extend_from_slice(&block);
        all[index * BLOCK + 5] = index as u8;
    }
    all.truncate(bytes);
    all
}

fn header(source: usize, number: u32, bytes: usize) -> Header {
    let number_64 = u64::from(number);
    Header {
        kind: number as u16,
        flags: source as u16,
        tag: number,
        bytes: bytes as u32,
        ticket: !number,
        offset: number_64 << 33 | 5,
    }
}

const PACKETS: u32 = 150;

fn size_of_packet(number: u32, largest: usize) -> usize {
    const SIZES: [usize; 9] = [0, 1, 31, 32, 33, 64, 1000, 4096, usize::MAX];
    SIZES[number as usize % SIZES.len()].min(largest)
}

/// Every rank sends every other one many packets while it receives theirs.
fn exchange(rank: usize, peers: &[usize], packets: &mut dyn FarPackets) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(30);
    let largest = packets.largest();
    assert!(largest >= 8160, "{largest} bytes");
    let mut sent: HashMap<usize, u32> = peers.iter().map(|peer| (*peer, 0)).collect();
    let mut came = sent.clone();
    while came.values().chain(sent.values()).any(|count| *count < PACKETS) {
        for (&peer, number) in sent.iter_mut().filter(|(_, number)| **number < PACKETS) {
            let bytes = pattern(rank, *number, size_of_packet(*number, largest));
            let payload = if bytes.is_empty() { Payload::None } else { Payload::Bytes(&bytes) };
            if packets.try_send(peer, header(rank, *number, bytes.len()), payload)? {
                *number += 1;
            }
        }
        packets.receive(&mut |packet| {
            let number = came.get_mut(&packet.source).expect("only peers send");
            let bytes = size_of_packet(*number, largest);
            assert_eq!(packet.header, header(packet.source, *number, bytes), "from {}", packet.source);
            assert_eq!(packet.to_vec(), pattern(packet.source, *number, bytes), "from {}", packet.source);
            *number += 1;
        })?;
        assert!(Instant::now() < end, "the packets do not move");
        std::thread::yield_now();
    }
    Ok(())
}

fn order(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let peers: Vec<usize> = peers(world).collect();
    exchange(world.rank(), &peers, &mut *packets)
}

/// Sends packets until there has been no room for a while: for a long one, where there has to be room for more.
fn fill(packets: &mut dyn FarPackets, rank: usize, peer: usize, bytes: usize, least: u32) -> Result<u32> {
    let mut sent = 0;
    let mut moved = Instant::now();
    while moved.elapsed() < Duration::from_millis(if sent < least { 2000 } else { 100 }) {
        let payload = pattern(rank, sent, bytes);
        if packets.try_send(peer, header(rank, sent, bytes), Payload::Bytes(&payload))? {
            sent += 1;
            moved = Instant::now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(sent)
}

/// Receives until that many have come, checking them.
fn drain(world: &World, packets: &mut dyn FarPackets, count: u32, bytes: usize) -> Result<()> {
    let mut came = 0;
    wait(world, "packets", &mut || {
        packets.receive(&mut |packet| {
            assert_eq!(packet.header, header(packet.source, came, bytes));
            assert_eq!(packet.to_vec(), pattern(packet.source, came, bytes));
            came += 1;
        })?;
        Ok(came >= count)
    })?;
    assert_eq!(came, count, "no more than were sent");
    Ok(())
}

fn room(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let last = world.size() - 1;
    for bytes in [8, 8160] {
        let sent = if world.rank() == 0 { fill(&mut *packets, 0, last, bytes, WINDOW / 2 + 1)? } else { 0 };
        let sent = world.all_gather(&sent)?[0];
        // Peers are told of what was read when it is half of the room.
        assert!((WINDOW / 2 + 1..=WINDOW).contains(&sent), "{sent} packets, and the receiver does not read");
        if world.rank() == last {
            drain(world, &mut *packets, sent, bytes)?;
        }
        world.barrier()?;
        if world.rank() == 0 {
            let has_room = || packets.try_send(last, header(0, 0, 0), Payload::None);
            wait(world, "room", &mut { has_room })?;
        }
        if world.rank() == last {
            drain(world, &mut *packets, 1, 0)?;
        }
        world.barrier()?;
    }
    Ok(())
}

/// A rank whose own packets are not read learns of room all the same.
fn both_full(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let (rank, last) = (world.rank(), world.size() - 1);
    let other = match rank {
        0 => last,
        rank if rank == last => 0,
        _ => return world.barrier().and_then(|()| world.barrier()),
    };
    assert_eq!(fill(&mut *packets, rank, other, 8160, WINDOW)?, WINDOW);
    world.barrier()?;
    // Rank 0 reads, and the last one does not: it has the room, and its peer's packets still are there.
    if rank == 0 {
        drain(world, &mut *packets, WINDOW, 8160)?;
    } else {
        wait(world, "room", &mut || packets.try_send(other, header(rank, 0, 8), Payload::Bytes(&[0; 8])))?;
        drain(world, &mut *packets, WINDOW, 8160)?;
    }
    world.barrier()
}

fn instances(world: &World) -> Result<()> {
    let mut all = [open(world)?, open(world)?, open(world)?];
    let other = (world.rank() + 1) % world.size();
    for (number, packets) in (0..).zip(&mut all) {
        assert!(packets.try_send(other, header(world.rank(), number, 0), Payload::None)?);
    }
    // The last one first, so that a message of another would be taken for its own.
    for (number, packets) in (0..3).zip(&mut all).rev() {
        let mut came = Vec::new();
        wait(world, "a packet", &mut || {
            packets.receive(&mut |packet| came.push(packet.header.tag))?;
            Ok(!came.is_empty())
        })?;
        assert_eq!(came, [number]);
    }
    Ok(())
}

pub(super) fn region(world: &World, bytes: usize) -> Result<Region> {
    world.fabric().allocate(bytes.max(64))
}

fn place(region: &Region) -> Result<Place> {
    region.place(0, region.bytes(), "a test")
}

fn finish(world: &World, packets: &mut dyn FarPackets, transfers: &[Bulk]) -> Result<()> {
    transfers.iter().try_for_each(|bulk| wait(world, "a bulk transfer", &mut || packets.is_done(*bulk)))
}

/// A transfer to and from every peer for each size, all at once, with receives before or after sends.
fn transfer(world: &World, sizes: &[usize], receives_late: bool) -> Result<()> {
    let mut packets = open(world)?;
    let rank = world.rank();
    let mut transfers = Vec::new();
    let mut arrived = Vec::new();
    let mut kept = Vec::new();
    for (peer, (number, &bytes)) in
        peers(world).flat_map(|peer| (0..).zip(sizes).map(move |what| (peer, what)))
    {
        let own = region(world, bytes)?;
        own.write_bytes(0, &pattern(rank, number + 100 * peer as u32, bytes))?;
        transfers.push(packets.send_bulk(peer, number, &place(&own)?, bytes)?);
        kept.push(own);
    }
    if receives_late {
        // Eager messages have come by then.
        std::thread::sleep(Duration::from_millis(30));
        world.barrier()?;
    }
    for (peer, (number, &bytes)) in
        peers(world).flat_map(|peer| (0..).zip(sizes).map(move |what| (peer, what)))
    {
        let theirs = region(world, bytes)?;
        transfers.push(packets.recv_bulk(peer, number, &place(&theirs)?, bytes)?);
        arrived.push((peer, number, bytes, theirs));
    }
    finish(world, &mut *packets, &transfers)?;
    for (peer, number, bytes, theirs) in arrived {
        let expected = pattern(peer, number + 100 * rank as u32, bytes);
        assert!(theirs.read_bytes(0, bytes)? == expected, "{bytes} bytes from {peer}");
    }
    Ok(())
}

fn bulks(world: &World) -> Result<()> {
    transfer(world, &[1, 0, 4095, 8193, 65_537, 1 << 20, 8 << 20, (8 << 20) + 1], false)
}

fn late(world: &World) -> Result<()> {
    transfer(world, &[1, 4095, 65_537, 2 << 20], true)
}

/// Numbers say which is which, not the order; and the same ones are used again.
fn shuffled(world: &World) -> Result<()> {
    const SIZES: [usize; 5] = [24, 70_000, 64, 3, 300_000];
    let mut packets = open(world)?;
    let (rank, size) = (world.rank(), world.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0..3u32 {
        let numbers = [7, u32::MAX, 0, 70_000 + round, 3];
        let mut transfers = Vec::new();
        let mut arrived = Vec::new();
        for (index, bytes) in SIZES.iter().enumerate().rev() {
            let theirs = region(world, *bytes)?;
            transfers.push(packets.recv_bulk(from, numbers[index], &place(&theirs)?, *bytes)?);
            arrived.push((index, theirs));
        }
        let mut kept = Vec::new();
        for (index, bytes) in SIZES.iter().enumerate() {
            let own = region(world, *bytes)?;
            own.write_bytes(0, &pattern(rank, index as u32 + 10 * round, *bytes))?;
            transfers.push(packets.send_bulk(to, numbers[index], &place(&own)?, *bytes)?);
            kept.push(own);
        }
        transfers.reverse();
        finish(world, &mut *packets, &transfers)?;
        for (index, theirs) in arrived {
            let expected = pattern(from, index as u32 + 10 * round, SIZES[index]);
            assert!(theirs.read_bytes(0, SIZES[index])? == expected, "round {round}, number {index}");
        }
    }
    Ok(())
}

/// Bytes beside a transfer stay, and packets go on meanwhile.
fn middle(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let (rank, size) = (world.rank(), world.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let (own, theirs) = (region(world, 1 << 20)?, region(world, 1 << 20)?);
    own.write_bytes(0, &pattern(rank, 1, 1 << 20))?;
    theirs.write_bytes(0, &[9; 1 << 20])?;
    let (start, bytes) = (12_345, 500_001);
    let receive = packets.recv_bulk(from, 1, &theirs.place(start, bytes, "a test")?, bytes)?;
    let send = packets.send_bulk(to, 1, &own.place(start, bytes, "a test")?, bytes)?;
    let peers: Vec<usize> = peers(world).collect();
    exchange(rank, &peers, &mut *packets)?;
    finish(world, &mut *packets, &[receive, send])?;
    let mut expected = vec![9; 1 << 20];
    expected[start..start + bytes].copy_from_slice(&pattern(from, 1, 1 << 20)[start..start + bytes]);
    assert!(theirs.read_bytes(0, 1 << 20)? == expected);
    Ok(())
}

/// The thread of a stream sends and receives, while the rank's own waits for something else.
fn worker(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    let (rank, size) = (world.rank(), world.size());
    let peers: Vec<usize> = peers(world).collect();
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let bytes = 300_000;
    let (own, theirs) = (region(world, bytes)?, region(world, bytes)?);
    own.write_bytes(0, &pattern(rank, 0, bytes))?;
    let (source, destination) = (place(&own)?, place(&theirs)?);
    let thread = std::thread::spawn(move || -> Result<()> {
        let receive = packets.recv_bulk(from, 5, &destination, bytes)?;
        let send = packets.send_bulk(to, 5, &source, bytes)?;
        exchange(rank, &peers, &mut *packets)?;
        let end = Instant::now() + Duration::from_secs(30);
        for bulk in [send, receive] {
            while !packets.is_done(bulk)? {
                assert!(Instant::now() < end, "the bulk transfers do not move");
                std::thread::yield_now();
            }
        }
        Ok(())
    });
    wait(world, "the thread", &mut || Ok(thread.is_finished()))?;
    thread.join().expect("the thread does not panic")?;
    assert!(theirs.read_bytes(0, bytes)? == pattern(from, 0, bytes));
    Ok(())
}

/// Who has dropped its packets harms nobody that still sends to it.
fn dropped(world: &World) -> Result<()> {
    let mut packets = open(world)?;
    if world.rank() == 0 {
        drop(packets);
        world.barrier()?;
    } else {
        world.barrier()?;
        assert_eq!(fill(&mut *packets, world.rank(), 0, 8160, WINDOW)?, WINDOW);
        let own = region(world, 1000)?;
        packets.send_bulk(0, 0, &place(&own)?, 1000)?;
        drop(packets);
    }
    world.barrier()?;
    order(world)
}

fn part(world: &World) -> Result<()> {
    // Two worlds with the same ranks, and one with fewer.
    for ranks in [world.size(), 2] {
        if let Some(part) = world.first(ranks)? {
            let mut of_part = open(&part)?;
            let other = (part.rank() + 1) % ranks;
            assert!(of_part.try_send(other, header(part.rank(), 1, 0), Payload::None)?);
            order(&part)?;
            let mut came = 0;
            wait(&part, "a packet", &mut || {
                of_part.receive(&mut |_| came += 1)?;
                Ok(came > 0)
            })?;
        }
        order(world)?;
    }
    Ok(())
}

/// Nothing that there is a limited number of is used up.
fn many(world: &World) -> Result<()> {
    let rounds =
        std::env::var("STREAMHALO_TEST_ROUNDS").map_or(40, |rounds| rounds.parse().expect("a number"));
    let other = (world.rank() + 1) % world.size();
    for round in 0..rounds {
        let mut packets = open(world)?;
        assert!(packets.try_send(other, header(world.rank(), round, 0), Payload::None)?);
        if round % 2 == 0 {
            let mut came = 0;
            wait(world, "a packet", &mut || {
                packets.receive(&mut |_| came += 1)?;
                Ok(came > 0)
            })?;
        }
    }
    Ok(())
}

/// The last rank fails, with all sorts of things on their way: the others' waits end, and nothing that they
/// drop waits for it.
pub(super) fn failure(world: World, folder: &Path) {
    let (rank, last) = (world.rank(), world.size() - 1);
    let mut packets = open(&world).expect("nothing has failed");
    let memory = region(&world, 1 << 20).expect("there is memory");
    let whole = place(&memory).expect("in bounds");
    for peer in peers(&world) {
        let payload = Payload::Bytes(&[7; 8160]);
        for number in 0..8 {
            packets.try_send(peer, header(rank, number, 8160), payload).expect("nothing has failed");
        }
    }
    let send = packets.send_bulk((rank + 1) % (last + 1), 0, &whole, 1 << 20).expect("nothing has failed");
    // The failure may be faster than what the barrier has to tell the others.
    let come = world.barrier();
    if rank == last {
        come.expect("all come");
        world.fail("a test");
        let seen = |rank: usize| folder.join(rank.to_string()).exists();
        let end = Instant::now() + Duration::from_secs(20);
        while !(0..last).all(seen) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        return;
    }
    let mut is_done = false;
    let failed = wait(&world, "what never comes", &mut || {
        // It may have gone before the failure, and is done once.
        is_done = is_done || packets.is_done(send)?;
        Ok(false)
    });
    assert!(matches!(&failed, Err(Error::PeerFailed { rank, .. }) if *rank == last), "{failed:?}");
    drop(packets);
    drop(world);
    std::fs::write(folder.join(rank.to_string()), "").expect("the folder can be written to");
}
