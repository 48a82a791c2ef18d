//! An application that has initialised MPI by itself, and hands StreamHalo a communicator.
//!
//! `mpi_application LIBRARY LEVEL` opens that library, initialises it with the level of thread support
//! `single` or `multiple`, turns the ranks round, exchanges with every backend, drops the world and
//! finalises. `mpi_application LIBRARY none` hands its communicator without having initialised MPI, and
//! `mpi_application LIBRARY launched` asks for the world of the launcher, with MPI initialised.

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [library, level] => application::run(library, level),
        other => Err(format!("usage: mpi_application LIBRARY LEVEL, not {other:?}").into()),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

mod application {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};
    use std::error::Error;
    use std::ffi::{c_int, c_void};
    use streamhalo::World;
    use streamhalo_tests::{Amount, try_cells, watchdog};

    /// A handle of any library: an `int` or a pointer.
    type Handle = usize;
    type InitThread = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_int) -> c_int;
    type Split = unsafe extern "C" fn(Handle, c_int, c_int, *mut Handle) -> c_int;
    type Rank = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
    type Finalize = unsafe extern "C" fn() -> c_int;

    /// `MPI_COMM_WORLD`, and the values of the lowest and the highest level of thread support.
    struct Constants {
        comm_world: Handle,
        levels: [c_int; 2],
    }

    fn constants(library: &Library, name: &str) -> Result<Constants, Box<dyn Error>> {
        if name.contains("libmpi_abi") {
            return Ok(Constants { comm_world: 0x101, levels: [0, 4096] });
        }
        // SAFETY: the symbol, where it is there, is an object of which only the address is taken.
        let object = unsafe { library.get::<*mut c_void>(b"ompi_mpi_comm_world\0") };
        let comm_world = object.map_or(0x4400_0000, |object| object.into_raw() as Handle);
        Ok(Constants { comm_world, levels: [0, 3] })
    }

    fn checked(call: &str, code: c_int) -> Result<(), Box<dyn Error>> {
        if code == 0 { Ok(()) } else { Err(format!("{call}: {code}").into()) }
    }

    pub(super) fn run(name: &str, level: &str) -> Result<(), Box<dyn Error>> {
        // SAFETY: an MPI library may be opened; its plugins want its symbols to be seen by all.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }?;
        let Constants { comm_world, levels } = constants(&library, name)?;
        // SAFETY: the types of these functions are those of the standard; handles of 32 bits are
        // passed in registers of 64.
        let init: Symbol<InitThread> = unsafe { library.get(b"MPI_Init_thread\0") }?;
        // SAFETY: as above.
        let split: Symbol<Split> = unsafe { library.get(b"MPI_Comm_split\0") }?;
        // SAFETY: as above.
        let rank_of: Symbol<Rank> = unsafe { library.get(b"MPI_Comm_rank\0") }?;
        // SAFETY: as above.
        let finalize: Symbol<Finalize> = unsafe { library.get(b"MPI_Finalize\0") }?;

        if level == "none" {
            // SAFETY: it is a communicator of this process's library, as soon as that is initialised.
            return Ok(unsafe { World::from_mpi_comm(comm_world, watchdog()) }.map(drop)?);
        }
        let none = std::ptr::null_mut();
        let (mut provided, mut rank, mut turned) = (0, 0, 0);
        // SAFETY: MPI is not initialised; the place lives through the call.
        let code = unsafe { init(none, none, levels[usize::from(level != "single")], &raw mut provided) };
        checked("MPI_Init_thread", code)?;
        if level == "launched" {
            return Ok(World::from_env_with(watchdog())?.barrier()?);
        }
        // SAFETY: the communicator is the predefined one; the place lives through the call.
        checked("MPI_Comm_rank", unsafe { rank_of(comm_world, &raw mut rank) })?;
        // SAFETY: as above; all ranks call it.
        checked("MPI_Comm_split", unsafe { split(comm_world, 0, -rank, &raw mut turned) })?;
        {
            // SAFETY: it is a communicator of this process's library, and this rank is in it.
            let world = unsafe { World::from_mpi_comm(turned, watchdog()) }?;
            if world.rank() + 1 + rank as usize != world.size() {
                return Err(format!("rank {rank} became rank {} of {}", world.rank(), world.size()).into());
            }
            let is_first = world.rank() == 0;
            // What is called by one thread is tried at more length with communicators of the library's own.
            let amount = if level == "single" { Amount::First } else { Amount::Few };
            try_cells(&world, amount, |cell| {
                if is_first {
                    println!("{cell}");
                }
            })?;
        }
        // SAFETY: nothing of the world is left.
        checked("MPI_Finalize", unsafe { finalize() })?;
        // The library stays open until the process ends: it may have threads.
        std::mem::forget(library);
        Ok(())
    }
}
