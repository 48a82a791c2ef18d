//! Messages of buffers on a device, between ranks that are threads: that they arrive, and in which order their steps
//! wait for each other. Over other fabrics they are among the cases of the conformance suite.

use streamhalo::comm::device::{Buffer, Extents};
use streamhalo::comm::{
    Communicator, StagedAction, StagedStep, Staging, StagingMemory, StagingScheme, wait_all,
};
use streamhalo::{HaloError, Rows, RowsMut, StreamKind, World};
use streamhalo_tests::cases::staged;
use streamhalo_tests::{Scenario, on_ranks, other_device, stream_of};

const WAY: Scenario = Scenario { backend: "standard", kind: StreamKind::Device };
const KIB: usize = 1024;

#[test]
fn messages_at_random() {
    if other_device().is_none() {
        return;
    }
    for (ranks, seed) in [(1, 1), (2, 2), (2, 3), (3, 4)] {
        on_ranks(ranks, |world| staged::at_random(world, WAY, seed));
    }
}

#[test]
fn probed_messages() {
    if other_device().is_some() {
        (1..4).for_each(|ranks| drop(on_ranks(ranks, |world| staged::probed(world, WAY))));
    }
}

#[test]
fn persistent_messages() {
    if other_device().is_some() {
        (1..4).for_each(|ranks| drop(on_ranks(ranks, |world| staged::persistent(world, WAY))));
    }
}

#[test]
fn collective_calls() {
    if other_device().is_some() {
        (1..4).for_each(|ranks| drop(on_ranks(ranks, |world| staged::collectives(world, WAY))));
    }
}

#[test]
fn messages_that_are_refused() {
    if other_device().is_some() {
        (1..3).for_each(|ranks| drop(on_ranks(ranks, |world| staged::refusals(world, WAY))));
    }
}

/// A kernel that is still on the stream has written what is sent, and read what a message then replaces.
#[test]
fn messages_wait_for_kernels() {
    if other_device().is_none() {
        return;
    }
    on_ranks(1, |world| {
        let stream = stream_of(world, StreamKind::Device)?;
        let communicator = Communicator::new(world)?;
        let line = Extents { points: [1, 1, 64], components: 1 };
        let mut cells = Buffer::<i32>::zeros(world, &stream, line)?;
        let mut seen = Buffer::<i32>::zeros(world, &stream, line)?;
        let whole = cells.section(0..64)?;
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        for value in 1..4 {
            let fill = move |_, (mut out,): (RowsMut<'_, i32>,)| {
                pause();
                out.row(0, 0).fill(value);
            };
            stream.launch_on_host("fill", line.whole(), (cells.writer(line.whole())?,), fill)?;
            let mut found = [0; 64];
            let mut send = communicator.isend(&whole, 0, 1)?;
            communicator.recv(&mut found, 0, 1)?;
            send.wait()?;
            assert_eq!(found, [value; 64]);
            communicator.send(&[-value; 64], 0, 2)?;
            let copy = move |_, (from, mut to): (Rows<'_, i32>, RowsMut<'_, i32>)| {
                pause();
                to.row(0, 0).copy_from_slice(from.row(0, 0));
            };
            let arguments = (cells.reader(line.whole())?, seen.writer(line.whole())?);
            stream.launch_on_host("copy", line.whole(), arguments, copy)?;
            communicator.irecv(&whole, 0, 2)?.wait()?;
            assert_eq!(seen.copy_out(line.whole())?, [value; 64]);
            assert_eq!(cells.copy_out(line.whole())?, [-value; 64]);
        }
        Ok(())
    });
}

/// The steps of one message of that many bytes, of its sender and of its receiver.
fn recorded(bytes: usize, staging: Staging) -> [Vec<StagedStep>; 2] {
    let ranks = on_ranks(2, |world| {
        let line = Extents { points: [1, 1, bytes], components: 1 };
        let stream = stream_of(world, StreamKind::Device)?;
        let mut buffer = Buffer::<u8>::zeros(world, &stream, line)?;
        world.set_staging(staging)?;
        let communicator = Communicator::new(world)?;
        if world.rank() == 0 {
            buffer.with_host_mut(line.whole(), |mut values| values.fill(7))?;
        }
        // The first makes what all need.
        for _ in 0..2 {
            communicator.record_staging(100)?;
            world.barrier()?;
            match world.rank() {
                0 => communicator.send_section(&buffer.section(0..bytes)?, 1, 3)?,
                _ => drop(communicator.recv_section(&buffer.section(0..bytes)?, 0, 3)?),
            }
        }
        assert!(buffer.copy_out(line.whole())?.iter().all(|value| *value == 7));
        Ok::<_, HaloError>(communicator.take_staging_record())
    });
    ranks.try_into().expect("two ranks")
}

/// All that a step waits for, and what that waits for.
fn before(steps: &[StagedStep], step: usize) -> Vec<usize> {
    let mut found = steps[step].after.clone();
    let mut at = 0;
    while at < found.len() {
        found.extend(&steps[found[at]].after);
        at += 1;
    }
    found
}

fn find(steps: &[StagedStep], action: StagedAction, block: u32) -> usize {
    let is_it = |step: &StagedStep| step.action == action && step.block == block;
    assert_eq!(steps.iter().filter(|step| is_it(step)).count(), 1, "{action:?} {block} in {steps:#?}");
    steps.iter().position(is_it).expect("it is there once")
}

fn lengths(steps: &[StagedStep], action: StagedAction) -> Vec<usize> {
    steps.iter().filter(|step| step.action == action).map(|step| step.bytes).collect()
}

/// Figure 2 of the 2023 paper on Intel GPUs, from what was carried out: which steps wait for which.
#[test]
fn blocks_overlap_as_in_the_figure() {
    use StagedAction::{CopyDown, CopyUp, Transfer};
    if other_device().is_none() {
        return;
    }
    let whole = [1024 * KIB];
    let cases: [(Staging, &[usize]); 4] = [
        (Staging { scheme: StagingScheme::Naive, ..Staging::default() }, &whole),
        (Staging { scheme: StagingScheme::Even, blocks: 4, ..Staging::default() }, &[256 * KIB; 4]),
        (Staging::default(), &[256 * KIB, 768 * KIB]),
        (
            Staging { blocks: 4, memory: StagingMemory::Pageable, ..Staging::default() },
            &[128 * KIB, 256 * KIB, 256 * KIB, 384 * KIB],
        ),
    ];
    for (staging, blocks) in cases {
        let [sent, received] = recorded(1024 * KIB, staging);
        let what = format!("{staging:?}: {sent:#?} {received:#?}");
        for (steps, actions) in [(&sent, [CopyDown, Transfer]), (&received, [Transfer, CopyUp])] {
            assert!(steps.iter().all(|step| actions.contains(&step.action)), "{what}");
            assert!(actions.iter().all(|action| lengths(steps, *action) == blocks), "{what}");
            assert!(steps.iter().all(|step| step.ended > Some(step.begun)), "{what}");
        }
        let count = blocks.len() as u32;
        for block in 0..count {
            let (down, transfer) = (find(&sent, CopyDown, block), find(&sent, Transfer, block));
            // A block leaves once it is on the host, which the host has seen,
            assert!(before(&sent, transfer).contains(&down), "{what}");
            assert!(sent[down].ended < Some(sent[transfer].begun), "{what}");
            let (landed, up) = (find(&received, Transfer, block), find(&received, CopyUp, block));
            assert!(before(&received, up).contains(&landed), "{what}");
            assert!(received[landed].ended < Some(received[up].begun), "{what}");
            for other in (0..count).filter(|other| *other > block) {
                // and waits for no later one, nor they for it: they may overlap.
                let next = find(&sent, CopyDown, other);
                assert!(!before(&sent, transfer).contains(&next), "{what}");
                assert!(!before(&sent, next).contains(&transfer), "{what}");
                assert!(sent[next].begun < sent[transfer].begun, "copies do not wait for transfers: {what}");
                let coming = find(&received, Transfer, other);
                assert!(!before(&received, up).contains(&coming), "{what}");
                assert!(!before(&received, coming).contains(&up), "{what}");
            }
        }
    }
}

/// A receiver on a device cuts what comes from a host; the sender does not stage it, and the other way round.
#[test]
fn one_end_on_the_host() {
    if other_device().is_none() {
        return;
    }
    for sender_on_device in [true, false] {
        let steps = on_ranks(2, |world: &World| {
            let line = Extents { points: [1, 1, 400 * KIB], components: 1 };
            let on_device = (world.rank() == 0) == sender_on_device;
            let stream = stream_of(world, if on_device { StreamKind::Device } else { StreamKind::Inline })?;
            let mut buffer = Buffer::<u8>::zeros(world, &stream, line)?;
            let communicator = Communicator::new(world)?;
            communicator.record_staging(100)?;
            let section = buffer.section(0..line.points[2])?;
            if world.rank() == 0 {
                buffer.with_host_mut(line.whole(), |mut values| {
                    values.iter_mut().enumerate().for_each(|(index, value)| *value = (index / 7) as u8);
                })?;
                communicator.send_section(&section, 1, 3)?;
            } else {
                let mut both = [communicator.irecv(&section, 0, 3)?];
                wait_all(&mut both)?;
                let found = buffer.copy_out(line.whole())?;
                assert!(found.iter().enumerate().all(|(index, value)| *value == (index / 7) as u8));
            }
            Ok::<_, HaloError>(communicator.take_staging_record())
        });
        let [sent, received]: [Vec<StagedStep>; 2] = steps.try_into().expect("two ranks");
        let (staged, other) = if sender_on_device { (sent, received) } else { (received, sent) };
        assert_eq!(other, []);
        assert_eq!(staged.len(), 4, "{staged:#?}");
        assert_eq!(lengths(&staged, StagedAction::Transfer), [100 * KIB, 300 * KIB]);
    }
}
