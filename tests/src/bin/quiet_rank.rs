//! Ranks that exchange where every system call but `write` is deadly.
//!
//! `quiet_rank FABRIC FAULT`: with `local` the process starts both ranks as threads, with `shm` it
//! is one of two ranks. Each sets up, warms up, gives up system calls, exchanges with every backend,
//! and says so on standard output, line by line. `FAULT` is `none`; `yield`, which makes a system
//! call on purpose; or `impatient`, which yields in its waits.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    quiet::main()
}

mod quiet {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::convert::Infallible;
    use std::error::Error;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use streamhalo::comm::backend::backend_names;
    use streamhalo::comm::fabric::{LocalFabric, WaitPolicy};
    use streamhalo::prelude::*;
    use streamhalo::{StreamKind, WorldOptions};
    use streamhalo_tests::stream_of;

    const RANKS: usize = 2;
    const WARM_UP: usize = 20;
    const EXCHANGES: usize = 200;
    /// How long rank 1 lets rank 0 wait before the first quiet exchange.
    const LATE: Duration = Duration::from_millis(2);
    /// What a rank exits with where the kernel does not let it give up system calls.
    const NOT_HERE: i32 = 77;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        Yield,
        Impatient,
    }

    impl Fault {
        fn policy(self) -> WaitPolicy {
            match self {
                Fault::Impatient => WaitPolicy { spins: 1, yields: u32::MAX, sleeps: true },
                Fault::None | Fault::Yield => WaitPolicy::SPIN,
            }
        }
    }

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let fault = match arguments.get(1).map(String::as_str) {
            Some("none") => Fault::None,
            Some("yield") => Fault::Yield,
            Some("impatient") => Fault::Impatient,
            other => return Err(format!("there is no fault {other:?}").into()),
        };
        match arguments[0].as_str() {
            "local" => threads(fault),
            "shm" => {
                let world = World::from_env_with(options(fault))?;
                Err(rank_main(&world, fault, &|| ()).expect_err("to leave would be a system call"))
            }
            other => Err(format!("there is no fabric `{other}`").into()),
        }
    }

    fn options(fault: Fault) -> WorldOptions {
        WorldOptions { policy: Some(fault.policy()), timeout: Some(Duration::from_secs(60)) }
    }

    /// Both ranks as threads. The first forbidden call of one of them ends the process.
    fn threads(fault: Fault) -> Result<(), Box<dyn Error>> {
        let done = Arc::new(AtomicUsize::new(0));
        for end in LocalFabric::ends(RANKS)? {
            let done = done.clone();
            std::thread::spawn(move || {
                let world = World::new(end, options(fault)).expect("the fabric has memory");
                let failed = rank_main(&world, fault, &|| {
                    done.fetch_add(1, Ordering::Release);
                });
                panic!("rank {}: {failed:?}", world.rank());
            });
        }
        let started = Instant::now();
        while done.load(Ordering::Acquire) < RANKS {
            if started.elapsed() > Duration::from_secs(60) {
                return Err("the ranks have not come to the end".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    struct Case {
        backend: &'static str,
        halo: StreamHalo,
        packed: bool,
        array: Array<f64, 3>,
        alternating: Alternating<f64, 3>,
    }

    impl Case {
        fn exchange(&mut self, exchanges: usize) -> Result<(), HaloError> {
            for _ in 0..exchanges {
                if self.packed {
                    self.halo.enqueue_gather(&mut self.array)?;
                } else {
                    self.halo.enqueue_gather(&mut self.alternating)?;
                    self.alternating.swap();
                }
            }
            Ok(self.halo.stream().synchronize()?)
        }
    }

    fn rank_main(world: &World, fault: Fault, done: &dyn Fn()) -> Result<Infallible, Box<dyn Error>> {
        let stream = stream_of(world, StreamKind::Inline)?;
        let grid =
            GlobalGrid::new([16, 8, 8], [true, true, true])?.partition_as(world, [2, 1, 1])?.local(1)?;
        let mut cases = Vec::new();
        for (backend, packed) in backend_names().flat_map(|name| [(name, true), (name, false)]) {
            let mut array = Array::zeros(&grid, Entity::Cell, &stream)?;
            let mut alternating = Alternating::zeros(&grid, Entity::Cell, &stream)?;
            let halo = if packed {
                StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut array)?
            } else {
                StreamHalo::new(world, &stream, backend, Pattern::All, 1, &mut alternating)?
            };
            cases.push(Case { backend, halo, packed, array, alternating });
        }
        for case in &mut cases {
            case.exchange(WARM_UP)?;
        }
        let lines: Vec<String> = cases
            .iter()
            .map(|case| format!("rank {} {} {}\n", world.rank(), case.backend, case.packed))
            .collect();
        let last = format!("rank {} done\n", world.rank());
        // Without the lock of `std::io::stdout`, for which a rank may have to sleep.
        let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        if let Err(error) = give_up_system_calls() {
            eprintln!("{error}");
            std::process::exit(NOT_HERE);
        }
        if fault == Fault::Yield {
            std::thread::yield_now();
        }
        if world.rank() == 1 {
            let started = Instant::now();
            while started.elapsed() < LATE {
                std::hint::spin_loop();
            }
        }
        for (case, line) in cases.iter_mut().zip(&lines) {
            case.exchange(EXCHANGES)?;
            output.write_all(line.as_bytes())?;
        }
        output.write_all(last.as_bytes())?;
        done();
        loop {
            std::hint::spin_loop();
        }
    }

    /// From here on any system call of this thread but `write` ends the process.
    fn give_up_system_calls() -> Result<(), Box<dyn Error>> {
        let allowed = [(libc::SYS_write, Vec::new())].into_iter().collect();
        let filter: BpfProgram = SeccompFilter::new(
            allowed,
            SeccompAction::KillProcess,
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into()?,
        )?
        .try_into()?;
        Ok(seccompiler::apply_filter(&filter)?)
    }
}
