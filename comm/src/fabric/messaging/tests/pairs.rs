//! Messages that are opened one by one, triggered by words.

use super::cases::{Case, pattern, region, wait};
use crate::World;
use crate::error::Result;
use crate::fabric::{FarExchange, FarRecv, FarSend, LINE, OpenExchange, Region, Role, Terms};
use std::time::Duration;

pub(super) const ALL: &[(&str, Case)] = &[
    ("a message at a time, when the receiver is clear", |world| rounds(world, true)),
    ("a message at a time, to a receiver that is ready", |world| rounds(world, false)),
    ("a receiver that starts late", late),
    ("both sides let go at once", dropped),
];

const EPOCHS: u32 = 12;

/// One side of a message.
#[derive(Debug)]
struct End {
    memory: Region,
    words: Region,
    bytes: usize,
    peer: usize,
    opened: OpenExchange,
}

/// What to open, and the memory of it.
fn side(
    world: &World,
    (peer, is_send): (usize, bool),
    (bytes, with_clearance, last_epoch): (usize, bool, u32),
) -> Result<(FarExchange, Region, Region)> {
    let (memory, words) = (region(world, bytes)?, region(world, 4 * LINE)?);
    let word = |line: usize, role: Role, from: usize| {
        let word = words.word(line * LINE, role, from, world.rank())?;
        word.cell().store(last_epoch);
        Ok(word)
    };
    let place = memory.place(0, bytes, "a test")?;
    let arrival = word(1, Role::Completion, peer)?;
    let send = FarSend {
        peer,
        tag: 0,
        block: None,
        bytes,
        staging: place.clone(),
        awaits: with_clearance,
        clear: word(0, Role::ClearToSend, peer)?,
    };
    let recv = FarRecv {
        peer,
        tag: 0,
        block: None,
        bytes,
        slots: [place.clone(), place],
        arrivals: [arrival.clone(), arrival],
        announces: with_clearance,
    };
    let (sends, recvs) = if is_send { (vec![send], vec![]) } else { (vec![], vec![recv]) };
    let counts = [word(2, Role::Notification, peer)?, word(3, Role::Notification, peer)?];
    let terms = Terms { last_epoch, ..Terms::CLEAR_TO_SEND };
    Ok((FarExchange { terms, sends, recvs, counts, device: None }, memory, words))
}

/// Opens a message to the next rank and one from the rank before.
fn open(world: &World, bytes: usize, with_clearance: bool, last_epoch: u32) -> Result<[End; 2]> {
    let (rank, size) = (world.rank(), world.size());
    let peers = [(rank + 1) % size, (rank + size - 1) % size];
    let wire = world.fabric().wire().expect("this fabric has one");
    let mut told = Vec::new();
    let mut halves = Vec::new();
    for (peer, is_send) in peers.into_iter().zip([true, false]) {
        let (exchange, memory, words) = side(world, (peer, is_send), (bytes, with_clearance, last_epoch))?;
        let (said, half) = wire.begin_pair(world, exchange)?;
        told.push(said);
        halves.push((peer, half, memory, words));
    }
    let all = world.all_gather(&told)?;
    let mut ends = Vec::new();
    for ((peer, half, memory, words), other) in halves.into_iter().zip([1, 0]) {
        let opened = half.complete(&all[peer][other])?;
        ends.push(End { memory, words, bytes, peer, opened });
    }
    Ok(ends.try_into().expect("there are two"))
}

impl End {
    fn arm(&mut self, world: &World) -> Result<()> {
        self.opened.arm.as_mut().map_or(Ok(()), |arm| arm.arm(world.wait_context()))
    }

    fn start(&mut self, world: &World, epoch: u32) -> Result<()> {
        self.arm(world)?;
        self.opened.starts[0].post(epoch);
        Ok(())
    }

    fn send(&mut self, world: &World, number: u32, epoch: u32) -> Result<()> {
        assert!(self.opened.starts.is_empty(), "a send has but a trigger");
        self.arm(world)?;
        self.memory.write_bytes(0, &pattern(world.rank(), number, self.bytes))?;
        self.opened.triggers[0].post(epoch);
        Ok(())
    }

    fn has_gone(&self, world: &World, epoch: u32) -> Result<()> {
        wait(world, "a departure", &mut || Ok(self.opened.departures[0].cell().reached(epoch)))
    }

    fn has_come(&self, world: &World, number: u32, epoch: u32) -> Result<()> {
        let arrival = self.words.word(LINE, Role::Completion, self.peer, world.rank())?;
        wait(world, "an arrival", &mut || Ok(arrival.cell().reached(epoch)))?;
        let expected = pattern(self.peer, number, self.bytes);
        assert!(self.memory.read_bytes(0, self.bytes)? == expected, "{} bytes, {number}", self.bytes);
        Ok(())
    }
}

fn rounds(world: &World, with_clearance: bool) -> Result<()> {
    for (bytes, last_epoch) in [(8, 0), (300_000, u32::MAX - 3)] {
        let [mut send, mut recv] = open(world, bytes, with_clearance, last_epoch)?;
        for number in 1..=EPOCHS {
            let epoch = last_epoch.wrapping_add(number);
            // In either order: who starts to receive first has not been sent to.
            if number % 2 == 0 {
                recv.start(world, epoch)?;
                if !with_clearance {
                    world.barrier()?;
                }
            }
            if with_clearance || number % 2 == 0 {
                send.send(world, number, epoch)?;
            }
            if number % 2 == 1 {
                recv.start(world, epoch)?;
                if !with_clearance {
                    world.barrier()?;
                    send.send(world, number, epoch)?;
                }
            }
            recv.has_come(world, number, epoch)?;
            send.has_gone(world, epoch)?;
        }
        world.barrier()?;
    }
    Ok(())
}

/// With a clearance nothing comes before the receiver has started.
fn late(world: &World) -> Result<()> {
    let [mut send, mut recv] = open(world, 4096, true, 0)?;
    for epoch in 1..=3 {
        recv.memory.write_bytes(0, &[0xee; 4096])?;
        world.barrier()?;
        send.send(world, epoch, epoch)?;
        std::thread::sleep(Duration::from_millis(20));
        world.barrier()?;
        assert_eq!(recv.memory.read_bytes(0, 4096)?, [0xee; 4096], "epoch {epoch}");
        recv.start(world, epoch)?;
        recv.has_come(world, epoch, epoch)?;
        send.has_gone(world, epoch)?;
    }
    Ok(())
}

/// Nobody waits for the other to let go.
fn dropped(world: &World) -> Result<()> {
    for round in 1..=10 {
        let [mut send, mut recv] = open(world, 5000, true, 0)?;
        recv.start(world, 1)?;
        send.send(world, round, 1)?;
        recv.has_come(world, round, 1)?;
        send.has_gone(world, 1)?;
    }
    Ok(())
}
